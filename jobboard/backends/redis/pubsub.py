"""Pub/sub: subscriptions, and the thread that listens to a channel."""

from __future__ import annotations

import logging
from collections.abc import Callable

from redis import exceptions as errors

from jobboard import logs, runtime
from jobboard.backends.redis.connections import UNREACHABLE, Connections, cut, keep_listener_alive
from jobboard.backends.redis.scripts import command
from jobboard.exceptions import ConnectionFailure
from jobboard.primitives import POLL_CAP
from jobboard.retry import backoff

LOG = logs.Log(__name__)

_LONG = 3600.0
"""Seconds that a listener reads at a time."""


class Subscription:
    """A connection that is subscribed to channels."""

    def __init__(self, connections: Connections, sharded: bool, *channels: bytes) -> None:
        """:raises ConnectionFailure, redis.RedisError: the server cannot be reached, or refuses the channels."""
        self._connections = connections
        # RESP3 would mix messages with replies.
        self.connection = connections.connect(protocol=2)
        try:
            words = (b"SSUBSCRIBE" if sharded else b"SUBSCRIBE", *channels)
            self.connection.send_packed_command([command(*words)], check_health=False)
            for _ in channels:
                self.connection.read_response(True)
        except BaseException as error:
            self.close()
            if isinstance(error, errors.MovedError):
                connections.locate_again()
            raise

    def hear(self, seconds: float) -> tuple[bytes, bytes] | None:
        """Return the channel and the payload of the next message, None if none comes in time.

        :raises redis.RedisError: the connection broke, or is no longer subscribed.
        """
        if not self.connection.can_read(max(seconds, 0)):
            return None
        kind, channel, payload = self.connection.read_response(True)
        if kind not in (b"message", b"smessage"):
            raise errors.ConnectionError(f"no longer subscribed: {kind!r}")
        return channel, payload

    def close(self) -> None:
        self._connections.drop(self.connection)


class ChannelListener:
    """A thread that listens to a channel, and connects again after each break of its connection.

    :param heard: called with the payload of each message.
    :param missed: called when the listener hears again after an outage.
    """

    def __init__(
        self,
        connections: Connections,
        channel: bytes,
        sharded: bool,
        heard: Callable[[bytes], None],
        missed: Callable[[], None],
    ) -> None:
        self._connections = connections
        self._channel = channel
        self._sharded = sharded
        self._heard = heard
        self._missed = missed
        self._subscription: Subscription | None = None
        self._failures = 0
        self._stopped = runtime.Event()
        self._thread = runtime.Thread(target=self._listen, name="jobboard-listener", daemon=True)

    @property
    def hears(self) -> bool:
        return self._subscription is not None

    def start(self, subscribe: bool = True) -> None:
        """Start the thread.

        :param subscribe: subscribe first, so that no message after this call is missed while the server can be reached.
        """
        if subscribe:
            try:
                self._open()
            except (*UNREACHABLE, ConnectionFailure) as error:
                LOG.warning("can't listen to other processes yet: %s", error)
                self._failures = 1
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        subscription = self._subscription
        if subscription is not None:
            cut(subscription.connection)
        if self._thread is not runtime.current_thread():
            self._thread.join()

    def _open(self) -> Subscription:
        self._subscription = subscription = Subscription(self._connections, self._sharded, self._channel)
        keep_listener_alive(subscription.connection)
        return subscription

    def _listen(self) -> None:
        while not self._stopped.is_set():
            try:
                subscription = self._subscription or self._open()
                if self._failures:
                    self._missed()
                self._failures = 0
                # stop() may have come too early to cut this subscription.
                if self._stopped.is_set():
                    break
                message = subscription.hear(_LONG)
                if message is not None:
                    self._heard(message[1])
            except (*UNREACHABLE, ConnectionFailure) as error:
                if not self._stopped.is_set():
                    self._failures += 1
                    level = logging.DEBUG if self._failures > 1 else logging.WARNING
                    LOG.log(level, "can't listen to other processes, trying again: %s", error)
                self._close()
                self._stopped.wait(backoff(self._failures, 0.05, POLL_CAP))
        self._close()

    def _close(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()

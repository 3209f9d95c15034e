"""Connections to the server: requests, their replies, and the errors of both.

The board drives redis-py's connections itself, one for each call under way. So it knows whether a request was sent, and
no request is repeated without its nonce.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from redis import exceptions as errors

from jobboard import forks
from jobboard.backends.redis import clients
from jobboard.conf import Settings
from jobboard.exceptions import ConnectionFailure

LOG = logging.getLogger(__name__)

_ELSEWHERE = (
    errors.ReadOnlyError,
    errors.MovedError,
    errors.AskError,
    errors.ClusterDownError,
    errors.MasterDownError,
    errors.TryAgainError,
    errors.BusyLoadingError,
)
"""Refusals of a server that is not the board's server, or is not ready yet."""

_NO_PRIMARY = "-READONLY "
"""The text of such a refusal in the error of a script, before Redis 7."""

_LATER = re.compile("(^|-)(NOREPLICAS|BUSY|MISCONF) ")
"""Refusals of the right server that end by themselves."""

UNREACHABLE = (errors.RedisError, errors.RedisClusterException, OSError)
"""Errors of redis-py where no connection can be made."""


class Connections:
    """The connections of one connected board.

    :param key: a key of the board. In a cluster, connections go to the node that has it.
    :param client: the caller's client. Without one, the board makes its own when it first needs a connection.
    :param node: arguments that lead to another node than the one of ``key``.
    """

    def __init__(
        self, conf: Settings, key: bytes, client: Any = None, node: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self._conf = conf
        self._key = key
        self._given = client
        self._client = client
        self._node = node
        self._home = os.getpid()
        self._idle: deque[Any] = deque()
        self._all: set[Any] = set()
        self._closed = False

    def refused_in_child(self) -> Connections:
        """Return an object for a forked child that refuses to connect, as the client belongs to the parent."""
        connections = Connections(self._conf, self._key, self._given)
        connections._home = self._home
        return connections

    def to_each_node(self) -> list[Connections]:
        """Return connections to each primary of a cluster, for the caller to close; none for a server alone."""
        return [Connections(self._conf, self._key, self._client, node) for node in clients.primaries(self._client)]

    def call(self, *requests: bytes) -> Any:
        """Send requests at once. Return the reply to a single request, or the list of replies to several.

        :raises ConnectionFailure: with ``outcome='unknown'`` if the requests may have been carried out.
        :raises redis.ResponseError: the server has refused a request for good.
        """
        connection = self._borrow()
        try:
            connection.send_packed_command(requests, check_health=False)
            replies = [_reply(connection) for _ in requests]
        except errors.RedisError as error:
            self._distrust(connection)
            if isinstance(error, errors.AuthenticationError):
                raise ConnectionFailure(f"the server asks for a password: {error}", error, refused=True) from error
            raise ConnectionFailure(f"the connection to the server broke: {error}", error, outcome="unknown") from error
        except BaseException:
            # After an interrupt, the reply to this request would be taken for the reply to the next one.
            self.drop(connection)
            raise
        for number, reply in enumerate(replies):
            if isinstance(reply, _ELSEWHERE) or (isinstance(reply, errors.ResponseError) and _NO_PRIMARY in str(reply)):
                self._distrust(connection)
                raise _not_now(reply, number) from reply
        self._idle.append(connection)
        if self._closed:
            self.close()
        for number, reply in enumerate(replies):
            if isinstance(reply, errors.ResponseError):
                if number or _LATER.search(str(reply)):
                    raise _not_now(reply, number) from reply
                raise reply
        return replies if len(replies) > 1 else replies[0]

    def prepare(self) -> None:
        """Make a connection for the next call, so that an error of that call is no error of the connection."""
        self._idle.append(self._borrow())

    def connect(self, **changes: Any) -> Any:
        """Return a new connection beside those that calls use.

        :param changes: arguments of redis-py's connection that differ.
        :raises ConnectionFailure: no connection can be made.
        :raises redis.ResponseError: the server refuses this user, or has no such database.
        """
        if self._closed:
            raise ConnectionFailure("the board is closed")
        forks.check_home(self._home)
        try:
            if self._client is None:
                self._client = clients.make(self._conf)
            kind, kwargs = clients.source(self._client, self._key, self._conf["socket_timeout"])
            connection = kind(**{**kwargs, **self._node, **changes})
            self._all.add(connection)
            try:
                connection.connect()
            except BaseException:
                self.drop(connection)
                raise
        except UNREACHABLE as error:
            if isinstance(error, errors.ResponseError) and not isinstance(error, _ELSEWHERE):
                raise
            self.locate_again()
            refused = isinstance(error, errors.AuthenticationError)
            what = "the server refuses the user or the password" if refused else "the server can't be reached"
            raise ConnectionFailure(f"{what}: {error}", error, refused=refused) from error
        return connection

    def drop(self, connection: Any) -> None:
        """Close a connection that no other thread uses."""
        self._all.discard(connection)
        connection.disconnect()

    def close(self) -> None:
        """End all connections, also those that wait for a reply."""
        self._closed = True
        for connection in list(self._all):
            cut(connection)
        self.drop_idle()
        if self._given is None and self._client is not None:
            clients.close(self._client, self._conf)

    def drop_idle(self) -> None:
        """Close all connections that no call uses."""
        with contextlib.suppress(IndexError):
            while True:
                self.drop(self._idle.popleft())

    def locate_again(self) -> None:
        """Find out which server has the board now. Log a failure."""
        if self._closed:
            return
        try:
            clients.locate_again(self._client)
        except UNREACHABLE as error:
            LOG.warning("can't find out where the server is now: %s", error)

    def _borrow(self) -> Any:
        if self._closed:
            raise ConnectionFailure("the board is closed")
        try:
            return self._idle.pop()
        except IndexError:
            return self.connect()

    def _distrust(self, connection: Any) -> None:
        """Drop a bad connection, and idle ones with it, which most likely are bad, too."""
        self.drop(connection)
        self.drop_idle()
        self.locate_again()


def _reply(connection: Any) -> Any:
    """Return the next reply. An error of the server is returned, so that the replies behind it are read, too."""
    try:
        return connection.read_response(True)
    except (errors.ResponseError, errors.BusyLoadingError) as error:
        return error


def cut(connection: Any) -> None:
    """End a connection that another thread may be reading, and wake that thread."""
    sock = getattr(connection, "_sock", None)
    if sock is not None:
        # The shutdown() of an SSL socket would clear the state that the reading thread uses.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


def keep_listener_alive(connection: Any) -> None:
    """Let the system notice within a minute that the server of a listener is gone, though nothing is sent.

    Waiters do without: a waiter sends a request after each sleep, which has a limit.
    """
    sock: Any = getattr(connection, "_sock", None)
    with contextlib.suppress(OSError, AttributeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def _not_now(error: errors.RedisError, number: int) -> ConnectionFailure:
    """Return the failure of several requests at once by the refusal of one. The requests before that stand."""
    return ConnectionFailure(f"the server can't do it now: {error}", error, "unknown" if number else "none")

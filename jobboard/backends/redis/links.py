"""Connections to the server, and what their errors mean.

The board drives redis-py's connections itself, one for each call that is under way: so it knows whether a request was
ever sent, repeats nothing by itself, and spends no time on a pool.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import socket
from collections import deque
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
"""The server has refused the request because it is not, or not yet, the one to ask."""

_NO_PRIMARY = "-READONLY "
"""So does an answer with this: that of a script, before Redis 7."""

_LATER = re.compile("(^|-)(NOREPLICAS|BUSY|MISCONF) ")
"""The server is the one to ask, but not now."""

UNREACHABLE = (errors.RedisError, errors.RedisClusterException, OSError)
"""What redis-py raises when there is no connection to be had."""


class RedisLinks:
    """The connections of one connected board.

    key: one of its keys: in a cluster, connections go to the node that has it. given: the caller's client; without one
    the board makes its own when it needs a connection.
    """

    def __init__(self, conf: Settings, key: bytes, given: Any = None) -> None:
        self._conf = conf
        self._key = key
        self._given = given
        self._client = given
        self._home = os.getpid()
        self._idle: deque[Any] = deque()
        self._all: set[Any] = set()
        self._closed = False

    def abroad(self) -> RedisLinks:
        """Return links for a forked child, which have none of these connections and refuse to make any."""
        links = RedisLinks(self._conf, self._key, self._given)
        links._home = self._home
        return links

    def call(self, *requests: bytes) -> Any:
        """Send requests at once; the reply to the first, or of several the list of their replies.

        :raises ConnectionFailure: with ``outcome='unknown'`` if they may have been carried out.
        :raises redis.ResponseError: the server has refused one, for a reason of its own.
        """
        connection = self._borrow()
        try:
            connection.send_packed_command(requests, check_health=False)
            replies = [_reply(connection) for _ in requests]
        except errors.RedisError as error:
            self._broken(connection)
            if isinstance(error, errors.AuthenticationError):
                raise ConnectionFailure(f"the server asks for a password: {error}", error, refused=True) from error
            raise ConnectionFailure(f"the connection to the server broke: {error}", error, outcome="unknown") from error
        except BaseException:
            # Interrupted between a request and its reply, which would be taken for that of the next.
            self.drop(connection)
            raise
        for reply in replies:
            if isinstance(reply, _ELSEWHERE) or (isinstance(reply, errors.ResponseError) and _NO_PRIMARY in str(reply)):
                self._broken(connection)
                raise ConnectionFailure(f"the server can't do it now: {reply}", reply) from reply
        self._idle.append(connection)
        if self._closed:
            self.close()
        for reply in replies:
            if isinstance(reply, errors.ResponseError):
                if _LATER.search(str(reply)):
                    raise ConnectionFailure(f"the server can't do it now: {reply}", reply) from reply
                raise reply
        return replies if len(replies) > 1 else replies[0]

    def ready(self) -> None:
        """Have a connection: what is refused after this was refused to the request, and not to the connection."""
        self._idle.append(self._borrow())

    def connect(self, **changes: Any) -> Any:
        """A new connection, beside those that calls use.

        :raises ConnectionFailure: there is none to be had.
        :raises redis.ResponseError: there is, but not for this user or in this database.
        """
        if self._closed:
            raise ConnectionFailure("the board is closed")
        forks.check_home(self._home)
        try:
            if self._client is None:
                self._client = clients.make(self._conf)
            kind, kwargs = clients.source(self._client, self._key, self._conf["socket_timeout"])
            connection = kind(**{**kwargs, **changes})
            self._all.add(connection)
            try:
                connection.connect()
            except BaseException:
                self.drop(connection)
                raise
        except UNREACHABLE as error:
            if isinstance(error, errors.ResponseError) and not isinstance(error, _ELSEWHERE):
                raise
            self.find_again()
            refused = isinstance(error, errors.AuthenticationError)
            what = "the server lets nobody in" if refused else "the server can't be reached"
            raise ConnectionFailure(f"{what}: {error}", error, refused=refused) from error
        return connection

    def drop(self, connection: Any) -> None:
        """Close a connection that nobody else uses."""
        self._all.discard(connection)
        connection.disconnect()

    def close(self) -> None:
        """End all connections, those too that are waiting for an answer."""
        self._closed = True
        for connection in list(self._all):
            cut(connection)
        self._drop_idle()
        if self._given is None and self._client is not None:
            clients.close(self._client, self._conf)

    def _borrow(self) -> Any:
        if self._closed:
            raise ConnectionFailure("the board is closed")
        try:
            return self._idle.pop()
        except IndexError:
            return self.connect()

    def _broken(self, connection: Any) -> None:
        """One connection is bad: the others most likely are, too."""
        self.drop(connection)
        self._drop_idle()
        self.find_again()

    def _drop_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self.drop(self._idle.popleft())

    def find_again(self) -> None:
        if self._closed:
            return
        try:
            clients.look_again(self._client)
        except UNREACHABLE as error:
            LOG.warning("can't find out where the server is now: %s", error)


def _reply(connection: Any) -> Any:
    """The next reply; a refusal is returned, so that the replies behind it are read too."""
    try:
        return connection.read_response(True)
    except (errors.ResponseError, errors.BusyLoadingError) as error:
        return error


def cut(connection: Any) -> None:
    """End a connection that another thread may be reading from, and wake that thread."""
    sock = getattr(connection, "_sock", None)
    if sock is not None:
        # Of an SSL socket, its own shutdown() would pull the state from under the reader.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


def stay_alive(connection: Any) -> None:
    """Have the machine itself find out whether the server is still there, while nothing is sent."""
    sock: Any = getattr(connection, "_sock", None)
    with contextlib.suppress(OSError, AttributeError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)

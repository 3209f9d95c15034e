"""Connections to the members of an etcd cluster, requests through them, and what their errors mean.

The JSON gateway that every member has needs nothing but HTTP. Each call has a connection to itself, which stays open
for the next one; no request is sent twice, but where it was refused and so has done nothing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any

from jobboard import forks
from jobboard.backends.etcd import options
from jobboard.backends.etcd.requests import REFUSED, TxnAnswer, answered, txn
from jobboard.conf import Settings
from jobboard.exceptions import ConnectionFailure, JobFailure

_STALE_TOKEN = ("invalid auth token", "auth revision", "revision of auth store", "revision in header is old")

_FOR_NOW = (1, 2, 4, 11, 13, 14)
"""gRPC's codes of what may go well when it is asked again; 11: a revision was compacted while it was read."""

_NOTHING_DONE = ("too many requests", "no leader", "not capable", "stopped")
"""Of what may go well as well, whatever its code, that which is refused before it is begun."""

_NO_ROOM = "database space exceeded"
"""That may go well once somebody has made room. The change by which the quota is exceeded is made, and answered so."""

_ADVICE = {
    _NO_ROOM: "compact and defragment it, then `etcdctl alarm disarm`; see docs/etcd.rst",
    "request is too large": "raise --max-request-bytes of its members, or post less at once",
    "too many operations": "set --max-txn-ops of its members to 128 at least",
    "permission denied": "the user needs a role with readwrite on the prefix of the namespace",
    "user name is empty": "set user and password",
}

_BROKEN = (OSError, HTTPException, ValueError)
"""What a connection that breaks, or an answer that is none, is raised as."""


class GatewayRefusal(Exception):
    """The server has answered that it won't do it. ``code``: gRPC's."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Login:
    """The token of a board's user, which all threads of the board share.

    Checking a password costs a server up to 0.4 s of its CPU. So one thread logs in at a time, and the others that wait
    for it get what it gets, a failure included.

    :param authenticate: logs in, and returns a token.
    """

    def __init__(self, authenticate: Callable[[], str]) -> None:
        self._authenticate = authenticate
        self._lock = threading.Lock()
        self._logins = 0
        self._failure: Exception | None = None
        self.token: str | None = None

    def valid(self, refused: str | None) -> str:
        """Return a token other than the refused one.

        :param refused: the token that the server has just refused, if any.
        """
        logins = self._logins
        with self._lock:
            if self.token is None or self.token == refused:
                if logins != self._logins and self._failure is not None:
                    raise self._failure
                self.token = self._failure = None
                try:
                    self.token = self._authenticate()
                except (GatewayRefusal, *_BROKEN) as error:
                    self._failure = error
                    raise
                finally:
                    self._logins += 1
            return self.token


class Gateway:
    """The connections of one connected board.

    ``patience``: for how many seconds one request may take; ``up``: whether there is a connection at this moment.

    :param restored: told when there is a connection again.
    """

    def __init__(self, conf: Settings, restored: Callable[[], None]) -> None:
        self._conf = conf
        self._restored = restored
        self._members = options.members(conf)
        self._first = random.randrange(len(self._members))
        self._idle: deque[HTTPConnection] = deque()
        self._streams: set[socket.socket] = set()
        self._login = None if conf["user"] is None else Login(self._authenticate)
        self._never = f"{conf['namespace']}/never/"
        self._closed = False
        self.up = True
        self.patience: float = conf["timeout"]

    @functools.cached_property
    def _context(self) -> ssl.SSLContext | None:
        return options.tls(self._conf)

    def close(self) -> None:
        self._closed = True
        for stream in list(self._streams):
            with contextlib.suppress(OSError):
                # The thread that reads from it wakes. TLS's own shutdown would wait for the other end.
                socket.socket.shutdown(stream, socket.SHUT_RDWR)
        self._drop_idle()

    def leak(self) -> None:
        """Let go of the connections in a forked child, unclosed: the parent still uses them."""
        forks.keep(self._idle, self._streams)

    # Requests

    def txn(self, compare: Sequence[str], success: Sequence[str], changes: bool = True) -> TxnAnswer:
        """Carry out these operations if the comparisons hold. See :func:`jobboard.backends.etcd.requests.txn`.

        :param changes: False where it does no harm if they are carried out twice.
        """
        try:
            return answered(self.call("/v3/kv/txn", txn(compare, success, self._never), changes))
        except JobFailure as failure:
            if isinstance(failure.__cause__, GatewayRefusal) and REFUSED in str(failure.__cause__):
                return TxnAnswer(False, 0, [], [])
            raise

    def read(self, operations: Sequence[str]) -> TxnAnswer:
        """Read all of this at one revision, which has everything that was acknowledged before."""
        return self.txn((), operations, changes=False)

    def call(self, path: str, body: str, changes: bool = False) -> Any:
        """Ask one member after the other, unless what this changes might then be changed twice.

        :raises ConnectionFailure: none answers; ``outcome='unknown'`` where it may have changed something.
        :raises JobFailure: it is refused.
        """
        token = refused = None
        for left in reversed(range(len(self._members) + 1)):
            changing = False
            try:
                if self._login is not None:
                    token = self._login.valid(refused)
                changing = changes
                return self._exchange(path, body, token)
            except GatewayRefusal as error:
                if refused is None and token is not None and _is_stale(error):
                    refused = token
                    continue
                failure = self._told(error, changing)
            except _BROKEN as error:
                failure = self._broken(error, changing)
            again = isinstance(failure, ConnectionFailure) and not failure.refused and not changing
            if not again or self._closed or not left:
                break
        raise failure

    def _authenticate(self) -> str:
        who = {"name": self._conf["user"], "password": self._conf["password"]}
        return str(self._exchange("/v3/auth/authenticate", json.dumps(who), None)["token"])

    def _exchange(self, path: str, body: str, token: str | None) -> Any:
        wire = self._borrow()
        try:
            wire.sock.settimeout(self.patience)
            response = _ask(wire, path, body, token)
            answer = json.loads(response.read())
        except BaseException:
            wire.close()
            raise
        if wire.sock is None or self._closed:
            wire.close()
        else:
            self._idle.append(wire)
        if not self.up:
            self.up = True
            self._restored()
        if response.status != 200 or "error" in answer:
            error = answer.get("error")
            told = error if isinstance(error, dict) else answer
            raise GatewayRefusal(str(told.get("message") or error), int(told.get("code") or told.get("grpc_code") or 0))
        # Of a stream, the one message that it has.
        return answer.get("result", answer)

    def _told(self, error: GatewayRefusal, changes: bool) -> JobFailure:
        message = str(error)
        if "authentication" in message:
            return ConnectionFailure(f"etcd has refused the user or the password: {message}", refused=True)
        advice = next((f": {way_out}" for what, way_out in _ADVICE.items() if what in message), "")
        nothing_done = _is_stale(error) or any(each in message for each in _NOTHING_DONE)
        if not nothing_done and _NO_ROOM not in message and (error.code not in _FOR_NOW or advice):
            return JobFailure(f"etcd has refused it: {message}{advice}", error)
        # Another member may do it. This one is there: what it does for others is no news that it has come back.
        self._move_on()
        unknown = changes and not nothing_done
        return ConnectionFailure(f"etcd can't do it now: {message}{advice}", error, "unknown" if unknown else "none")

    def _broken(self, error: Exception, changes: bool) -> ConnectionFailure:
        self._lost()
        what = f"{type(error).__name__} {error}".rstrip()
        if isinstance(error, TimeoutError):
            what = f"no answer within {self.patience:g} s"
        elif not isinstance(error, OSError):
            what += ": is this etcd's client port, and use_ssl as it should be?"
        return ConnectionFailure(f"the connection to etcd broke: {what}", error, "unknown" if changes else "none")

    # Connections

    def _borrow(self) -> HTTPConnection:
        with contextlib.suppress(IndexError):
            while True:
                wire = self._idle.pop()
                waiting = select.poll()
                waiting.register(wire.sock, select.POLLIN)
                if not waiting.poll(0):
                    return wire
                # There is something to read though nothing was asked: the other end has closed it.
                wire.close()
        return self._connect()

    def _connect(self) -> HTTPConnection:
        """To the member that answered last, or to the next one that does."""
        if self._closed:
            raise ConnectionFailure("the board is closed")
        problems = []
        for _ in self._members:
            host, port = self._members[self._first % len(self._members)]
            wire = HTTPConnection(host, port, self.patience)
            if self._context is not None:
                wire = HTTPSConnection(host, port, timeout=self.patience, context=self._context)
            try:
                wire.connect()
                return wire
            except OSError as error:
                wire.close()
                problems.append(f"{host}:{port}: {error.strerror or error}")
                self._lost()
        raise ConnectionFailure(f"no member of etcd can be reached: {'; '.join(problems)}")

    def stream(self, path: str, body: str) -> Iterator[bytes]:
        """The messages of an answer that goes on, on a connection of its own that :meth:`close` cuts."""
        wire = self._connect()
        sock = wire.sock
        self._streams.add(sock)
        try:
            if self._closed:
                raise ConnectionFailure("the board is closed")
            # Silence is no news; that the other end has gone is for the kernel to find out.
            for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3)):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            # A token that is stale is replaced by the look that follows.
            response = _ask(wire, path, body, None if self._login is None else self._login.token)
            if response.status != 200:
                raise OSError(f"etcd has answered {response.status}")
            sock.settimeout(None)
            yield from response
        finally:
            self._streams.discard(sock)
            wire.close()

    def _lost(self) -> None:
        """One connection is bad, and so the others to this member most likely are, too."""
        self.up = False
        self._move_on()

    def _move_on(self) -> None:
        """To the next member."""
        self._first += 1
        self._drop_idle()

    def _drop_idle(self) -> None:
        with contextlib.suppress(IndexError):
            while True:
                self._idle.pop().close()


def _is_stale(error: GatewayRefusal) -> bool:
    """Return whether another token may be accepted where this one was refused."""
    return any(each in str(error) for each in _STALE_TOKEN)


def _ask(wire: HTTPConnection, path: str, body: str, token: str | None) -> HTTPResponse:
    # A member that has no leader refuses, and ends its streams.
    headers = {"Content-Type": "application/json", "Grpc-Metadata-hasleader": "true"}
    if token is not None:
        headers["Authorization"] = token
    wire.request("POST", path, body.encode(), headers)
    return wire.getresponse()

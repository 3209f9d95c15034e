"""The gateway to an etcd cluster: connections to its members, requests, and the meaning of their errors.

Every member has a JSON gateway, which needs HTTP only. Each call has a connection to itself, which stays open for the
next call. A change is sent again only after a refusal that did nothing.
"""

from __future__ import annotations

import contextlib
import functools
import json
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any

from jobboard import forks, runtime
from jobboard.backends.etcd import options
from jobboard.backends.etcd.requests import REFUSED, TxnAnswer, answered, txn
from jobboard.conf import Settings
from jobboard.exceptions import ConnectionFailure, JobFailure

_STALE_TOKEN = ("invalid auth token", "auth revision", "revision of auth store", "revision in header is old")

_FOR_NOW = (1, 2, 4, 11, 13, 14)
"""gRPC's codes of refusals that may pass; 11: a revision was compacted while it was read."""

_NOTHING_DONE = ("too many requests", "no leader", "not capable", "stopped")
"""The texts of refusals that may pass, with any code. The server has not begun these requests."""

_NO_ROOM = "database space exceeded"
"""The text of a refusal that passes once there is room. The server does the change that exceeds the quota, and answers
so."""

_ADVICE = {
    _NO_ROOM: "compact and defragment it, then `etcdctl alarm disarm`; see the page 'Runbook by symptom'",
    "request is too large": "raise --max-request-bytes of its members, or post less at once",
    "too many operations": "set --max-txn-ops of its members to 128 at least",
    "permission denied": "the user needs a role with readwrite on the prefix of the namespace",
    "user name is empty": "set user and password",
}

_BROKEN = (OSError, HTTPException, ValueError)
"""The errors of a connection that breaks, and of an answer that can't be decoded."""


class GatewayRefusal(Exception):
    """The refusal of a server. ``code``: the code of gRPC."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Gateway:
    """The connections of one connected board.

    ``patience``: the seconds that one request may take. ``up``: whether there is a connection at this moment.
    ``streams``: the sockets of endless answers. ``token``: of the last login.

    :param restored: called when there is a connection again.
    """

    def __init__(self, conf: Settings, restored: Callable[[], None]) -> None:
        self._conf = conf
        self._restored = restored
        self._members = options.members(conf)
        self._first = runtime.random.randrange(len(self._members))
        self._idle: deque[HTTPConnection] = deque()
        self.streams: set[socket.socket] = set()
        self._login = runtime.Lock()
        self.token: str | None = None
        self._never = f"{conf['namespace']}/never/"
        self._closed = False
        self.up = True
        self.patience: float = conf["timeout"]

    @functools.cached_property
    def _context(self) -> ssl.SSLContext | None:
        return options.tls(self._conf)

    def close(self) -> None:
        self._closed = True
        for stream in list(self.streams):
            with contextlib.suppress(OSError):
                # The reading thread wakes. TLS's own shutdown would wait for the other end.
                socket.socket.shutdown(stream, socket.SHUT_RDWR)
        self._drop_idle()

    def leak(self) -> None:
        """Let go of the connections in a forked child, unclosed: the parent still uses them."""
        forks.keep(self._idle, self.streams)

    # Requests

    def txn(self, compare: Sequence[str], success: Sequence[str], changes: bool = True) -> TxnAnswer:
        """Carry out these operations if the comparisons hold. See :func:`jobboard.backends.etcd.requests.txn`.

        :param changes: False if the operations may be carried out twice.
        """
        try:
            return answered(self.call("/v3/kv/txn", txn(compare, success, self._never), changes))
        except JobFailure as failure:
            if isinstance(failure.__cause__, GatewayRefusal) and REFUSED in str(failure.__cause__):
                return TxnAnswer(False, 0, [], [])
            raise

    def read(self, operations: Sequence[str]) -> TxnAnswer:
        """Read at one revision, which has all changes that were acknowledged before."""
        return self.txn((), operations, changes=False)

    def call(self, path: str, body: str, changes: bool = False) -> Any:
        """Ask one member after the other, but no further member where a change might happen twice.

        :raises ConnectionFailure: no member answers; ``outcome='unknown'`` where a change may have happened.
        :raises JobFailure: the request is refused.
        """
        token = refused = None
        for left in reversed(range(len(self._members) + 1)):
            changing = False
            try:
                token = self._valid_token(refused)
                changing = changes
                return self.exchange(path, body, token)
            except GatewayRefusal as error:
                if refused is None and token is not None and _is_stale(error):
                    refused = token
                    continue
                failure = self._failure(error, changing)
            except _BROKEN as error:
                failure = self._broken(error, changing)
            again = isinstance(failure, ConnectionFailure) and not failure.refused and not changing
            if not again or self._closed or not left:
                break
        raise failure

    def _valid_token(self, refused: str | None) -> str | None:
        """Return the token of the board's user, and never the refused token; None: the board has no user.

        A server spends up to 0.4 s of its CPU on a password, so one thread logs in for all."""
        if self._conf["user"] is None:
            return None
        with self._login:
            if self.token is None or self.token == refused:
                self.token = None
                who = {"name": self._conf["user"], "password": self._conf["password"]}
                self.token = str(self.exchange("/v3/auth/authenticate", json.dumps(who), None)["token"])
            return self.token

    def exchange(self, path: str, body: str, token: str | None) -> Any:
        wire = self._borrow()
        try:
            wire.sock.settimeout(self.patience)
            with _ask(wire, path, body, token) as response:
                answer = json.loads(response.read())
        except BaseException:
            wire.close()
            raise
        if response.will_close:
            wire.close()
        else:
            self._idle.append(wire)
            if self._closed:
                # close() may have dropped the idle connections before this one was among them.
                self._drop_idle()
        if not self.up:
            self.up = True
            self._restored()
        if response.status != 200 or "error" in answer:
            error = answer.get("error")
            status = error if isinstance(error, dict) else answer
            code = int(status.get("code") or status.get("grpc_code") or 0)
            raise GatewayRefusal(str(status.get("message") or error), code)
        # An answer that is a stream has one message.
        return answer.get("result", answer)

    def _failure(self, error: GatewayRefusal, changes: bool) -> JobFailure:
        message = str(error)
        if "authentication" in message:
            return ConnectionFailure(f"etcd has refused the user or the password: {message}", refused=True)
        advice = next((f": {way_out}" for what, way_out in _ADVICE.items() if what in message), "")
        nothing_done = _is_stale(error) or any(each in message for each in _NOTHING_DONE)
        if not nothing_done and _NO_ROOM not in message and (error.code not in _FOR_NOW or advice):
            return JobFailure(f"etcd has refused the request: {message}{advice}", error)
        # Another member may carry the request out. This member is up, so its next answer does not show that it is back.
        self._move_on()
        text = f"etcd can't carry the request out now: {message}{advice}"
        return ConnectionFailure(text, error, "unknown" if changes and not nothing_done else "none")

    def _broken(self, error: Exception, changes: bool) -> ConnectionFailure:
        self._note_lost()
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
                # An idle connection that can be read was closed by the other end.
                wire.close()
        return self._connect()

    def _connect(self) -> HTTPConnection:
        """Return a connection to the member that answered last, or to the next one that answers."""
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
                self._note_lost()
        raise ConnectionFailure(f"no member of etcd can be reached: {'; '.join(problems)}")

    def stream(self, path: str, body: str) -> Iterator[bytes]:
        """Yield the messages of an endless answer, on a connection of its own that :meth:`close` cuts."""
        wire = self._connect()
        sock = wire.sock
        self.streams.add(sock)
        try:
            if self._closed:
                raise ConnectionFailure("the board is closed")
            # A watch may be silent for long. The kernel finds out that the other end has gone.
            for option, value in ((socket.TCP_KEEPIDLE, 5), (socket.TCP_KEEPINTVL, 2), (socket.TCP_KEEPCNT, 3)):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            with _ask(wire, path, body, self.token) as response:
                if response.status != 200:
                    raise OSError(f"etcd has answered {response.status}")
                sock.settimeout(None)
                yield from response
        finally:
            self.streams.discard(sock)
            wire.close()

    def _note_lost(self) -> None:
        """Note that a connection is bad. The other connections to this member most likely are bad, too."""
        self.up = False
        self._move_on()

    def _move_on(self) -> None:
        """Turn to the next member."""
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
    # A member without a leader refuses requests that say hasleader, and ends its streams.
    headers = {"Content-Type": "application/json", "Grpc-Metadata-hasleader": "true"}
    if token is not None:
        headers["Authorization"] = token
    wire.request("POST", path, body.encode(), headers)
    return wire.getresponse()

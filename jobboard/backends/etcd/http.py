"""One connection to a member, over which HTTP requests go one after the other."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse


class HTTPError(OSError):
    """What came is no answer."""


class MemberWire:
    """Of one connection there is one request at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._connection = HTTPConnection("etcd")
        self._connection.sock = sock
        self._answer: HTTPResponse | None = None

    def close(self) -> None:
        # An answer that is not read to its end holds the socket open.
        if self._answer is not None:
            self._answer.close()
        self._connection.close()
        self.sock.close()

    @property
    def stale(self) -> bool:
        """Whether there is something to read though nothing was asked: the other end has closed it."""
        return bool(select.select([self.sock], [], [], 0)[0])

    @property
    def closes(self) -> bool:
        """Whether the other end closes the connection now."""
        return self._answer is None or self._answer.will_close

    def ask(self, path: str, body: str, headers: Mapping[str, str]) -> int:
        """Send a request; the status of its answer."""
        with _as_oserror():
            self._connection.request("POST", path, body.encode(), {"Content-Type": "application/json", **headers})
            self._answer = self._connection.getresponse()
            return self._answer.status

    def read(self) -> bytes:
        """The answer to the last request."""
        assert self._answer is not None
        with _as_oserror():
            return self._answer.read()

    def lines(self) -> Iterator[bytes]:
        """The messages of an answer that goes on."""
        assert self._answer is not None
        with _as_oserror():
            yield from self._answer


@contextlib.contextmanager
def _as_oserror() -> Iterator[None]:
    try:
        yield
    except HTTPException as error:
        hint = "is this etcd's client port, and use_ssl as it should be?"
        raise HTTPError(f"{type(error).__name__} ({error}): {hint}") from error

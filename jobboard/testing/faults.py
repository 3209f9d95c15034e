"""A TCP proxy that breaks the conversation between a client and a server at a chosen point.

    with FaultyProxy('127.0.0.1', server.port) as proxy:
        board = jobboard.fetch('board', proxy.uri_for(server.uri))
        board.connect()
        fault = proxy.lose('reply', matching=b'COMMIT')
        board.post('resize')        # posted, but the client is not told
        assert fault.happened

A *request* is what a client sends on one connection until the server says something: for a client
that waits for each reply, one round trip. The handshake of a new connection counts too, so arm a
fault and read a counter while the connections are open. Bytes are matched as they are on the wire,
case and all; a prepared statement has its text there only once. A notification that arrives between
a request and its reply passes for the reply.
"""

import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

from jobboard.testing.ports import HOST, reserve_port

_CHUNK = 65536


class Counter:
    """Counts requests that contain ``matching``, from the moment it was asked for."""

    def __init__(self, matching: bytes) -> None:
        self.matching = matching
        self.count = 0


class Fault(Counter):
    """Something to be done to one connection at the ``nth`` request that contains ``matching``."""

    def __init__(self, what: str, nth: int, matching: bytes) -> None:
        super().__init__(matching)
        self.what = what
        self.nth = nth
        self.act: Callable[[], object] = lambda: None
        self._happened = threading.Event()

    @property
    def happened(self) -> bool:
        """True once the fault has happened."""
        return self._happened.is_set()

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for it to happen, and say whether it has."""
        return self._happened.wait(timeout)


class Kept(Fault):
    """A request that the server has not got yet, though its client has lost the connection."""

    def __init__(self, nth: int, matching: bytes) -> None:
        super().__init__("keep", nth, matching)
        self._link: _Relay | None = None
        self._held = b""

    @property
    def held(self) -> bool:
        """True while the request is kept."""
        return self._link is not None

    def let_go(self, timeout: float = 10) -> None:
        """Send the kept request and then the connection's end. Return once the server has closed the connection.

        :raises TimeoutError: it has not, within ``timeout`` seconds.
        """
        link, self._link = self._link, None
        assert link is not None, "no request was kept, or it was let go already"
        with contextlib.suppress(OSError):
            link.server.sendall(self._held)
            link.server.shutdown(socket.SHUT_WR)
        if not link.ended.wait(timeout):
            raise TimeoutError(f"the server has not dealt with a late request within {timeout} s")


class FaultyProxy:
    """Stands before the server at ``host:port``. All methods may be called from any thread."""

    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._lock = threading.RLock()
        self._watched: list[Counter] = []
        self._links: set[_Relay] = set()
        self._listener: socket.socket | None = None
        self._threads: list[threading.Thread] = []
        self._port = 0

    @property
    def host(self) -> str:
        return HOST

    @property
    def port(self) -> int:
        return self._port

    def uri_for(self, uri: str) -> str:
        """Return the URI with this proxy's host and port, without TLS, through which no fault would match.

        PyMySQL turns TLS on by itself where the server has it.
        """
        parts = urlsplit(uri)
        user, at, _ = parts.netloc.rpartition("@")
        query = [parts.query] if parts.query else []
        kind, _, driver = parts.scheme.partition("+")
        if kind in ("mariadb", "mysql") and driver in ("", "pymysql"):
            query.append("ssl_mode=disabled")
        return urlunsplit(parts._replace(netloc=f"{user}{at}{self.host}:{self.port}", query="&".join(query)))

    def lose(self, what: Literal["request", "reply"], *, nth: int = 1, matching: bytes = b"") -> Fault:
        """Break one connection, once: at the ``nth`` request from now that contains ``matching``.

        ``'request'``: before the server gets the bytes that match. ``'reply'``: when the server has
        answered, and before the client gets any of the answer. Both sides are closed then.
        """
        if what not in ("request", "reply"):
            raise ValueError(f"'request' or 'reply' can be lost, not {what!r}")
        return self._arm(Fault(what, nth, matching))

    def hold(self, *, matching: bytes = b"") -> Fault:
        """Keep one request that contains ``matching`` back, once, until its connection sends something more.

        The server gets both then. So behaves, for the client, a server that sleeps until it is asked again.
        """
        return self._arm(Fault("hold", 1, matching))

    def keep(self, *, nth: int = 1, matching: bytes = b"") -> Kept:
        """Keep the ``nth`` request from now that contains ``matching`` and break its client's connection, but not the
        server's: what is kept is sent by :meth:`Kept.let_go`, however late.

        So behaves a network that delivers a request when its sender has long given it up.
        """
        kept = Kept(nth, matching)
        self._arm(kept)
        return kept

    def before(self, act: Callable[[], object], *, nth: int = 1, matching: bytes = b"") -> Fault:
        """Call ``act``, once: the server gets the ``nth`` request from now that contains ``matching`` when it returns.

        It is called on a thread of the proxy's, and may arm the next one.
        """
        fault = Fault("before", nth, matching)
        fault.act = act
        return self._arm(fault)

    def after(self, act: Callable[[], object], *, nth: int = 1, matching: bytes = b"") -> Fault:
        """Call ``act``, once, between the server's reply to the ``nth`` request from now that contains ``matching`` and
        its delivery: the client gets no byte of the reply until ``act`` returns.

        Requests pass meanwhile. ``act`` runs on a thread of the proxy's, and may arm the next fault.
        """
        fault = Fault("after", nth, matching)
        fault.act = act
        return self._arm(fault)

    def silence(self, what: Literal["request", "reply"], *, nth: int = 1, matching: bytes = b"") -> Fault:
        """Swallow everything on one connection, both ways and its end too, from the ``nth`` request on that contains
        ``matching``, or from the reply to it. Other connections work, and new ones.

        So behaves a connection whose state a firewall or a proxy on the way has lost.
        """
        if what not in ("request", "reply"):
            raise ValueError(f"a 'request' or a 'reply' can be the first that is lost, not {what!r}")
        return self._arm(Fault("silent " + what, nth, matching))

    def silence_all(self) -> None:
        """Do as :meth:`silence`, at once and on all open connections."""
        with self._lock:
            for link in self._links:
                link.silent = True

    def _arm(self, fault: Fault) -> Fault:
        with self._lock:
            self._watched.append(fault)
        return fault

    def counter(self, matching: bytes = b"") -> Counter:
        """Count the requests from now on, on all connections, that contain ``matching``."""
        counter = Counter(matching)
        with self._lock:
            self._watched.append(counter)
        return counter

    def cut(self) -> None:
        """Close all connections that are open now."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.shut()

    def refuse(self) -> None:
        """Refuse new connections; those that are open stay."""
        with self._lock:
            listener, self._listener = self._listener, None
        if listener is not None:
            _shut(listener)

    def restore(self) -> None:
        """Accept connections again, and forget the faults that have not happened."""
        with self._lock:
            self._watched = [each for each in self._watched if not isinstance(each, Fault)]
            if self._listener is None:
                self._listen()

    def __enter__(self) -> Self:
        self._reservation, self._port = reserve_port()
        with self._lock:
            self._listen()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.refuse()
        self.cut()
        while self._threads:
            self._threads.pop().join()
        self._reservation.close()

    def _listen(self) -> None:
        self._listener = socket.create_server((HOST, self._port), backlog=128)
        self._run(self._accept, self._listener)

    def _run(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with listener, contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                try:
                    server = socket.create_connection(self._target, timeout=10)
                except OSError:
                    client.close()
                else:
                    self._join(client, server, listener)

    def _join(self, client: socket.socket, server: socket.socket, listener: socket.socket) -> None:
        server.settimeout(None)
        for side in (client, server):
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = _Relay(client, server)
        with self._lock:
            self._links.add(link)
            # Accepted just before refuse() and the cut() that may have followed it.
            if self._listener is not listener:
                link.shut()
            self._run(self._requests, link)
            self._run(self._replies, link)

    def _requests(self, link: "_Relay") -> None:
        held = b""
        with contextlib.suppress(OSError):
            while chunk := link.client.recv(_CHUNK):
                held += chunk
                act = None
                with self._lock:
                    if link.silent:
                        continue
                    fault = link.requested(chunk, self._watched)
                    if fault is not None:
                        self._watched.remove(fault)
                        if fault.what.startswith("silent"):
                            link.silent = True
                            fault._happened.set()
                            if fault.what == "silent reply":
                                link.server.sendall(held)
                            continue
                        if fault.what == "hold":
                            fault._happened.set()
                            continue
                        if fault.what == "request":
                            self._break(link, fault)
                            break
                        if isinstance(fault, Kept):
                            # Nothing more goes from one side to the other.
                            link.silent = True
                            fault._link, fault._held = link, held
                            fault._happened.set()
                            _shut(link.client)
                            break
                        if fault.what == "before":
                            act = fault.act
                            fault._happened.set()
                        else:
                            # Before the server gets the request, which it may answer at once.
                            link.due = fault
                if act is not None:
                    act()
                link.server.sendall(held)
                held = b""
        self._end(link)

    def _replies(self, link: "_Relay") -> None:
        with contextlib.suppress(OSError):
            while chunk := link.server.recv(_CHUNK):
                with self._lock:
                    if link.silent:
                        continue
                    fault, link.due = link.due, None
                    link.answered = True
                if fault is not None and fault.what == "after":
                    fault._happened.set()
                    fault.act()
                elif fault is not None:
                    self._break(link, fault)
                    break
                link.client.sendall(chunk)
        self._end(link)

    def _break(self, link: "_Relay", fault: Fault) -> None:
        # First, as whoever sees the connection end may ask at once.
        fault._happened.set()
        link.shut()

    def _end(self, link: "_Relay") -> None:
        with self._lock:
            # The other side is not to hear of the end: until the proxy goes it has a connection that says nothing.
            if not link.silent:
                link.shut()
            link.readers -= 1
            # Closed by its other reader, a socket's number could be another connection's already.
            if link.readers == 0:
                link.client.close()
                link.server.close()
                link.ended.set()
                self._links.discard(link)


class _Relay:
    """A client's connection and its counterpart to the server."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.readers = 2
        self.answered = True
        self.silent = False
        self.due: Fault | None = None
        self.ended = threading.Event()
        self._request = bytearray()
        self._matched: list[Counter] = []

    def requested(self, chunk: bytes, watched: list[Counter]) -> Fault | None:
        """Count what matches in this part of a request, and return the fault that is due."""
        if self.answered:
            self.answered = False
            self._request.clear()
            self._matched.clear()
        before = len(self._request)
        self._request += chunk
        due = None
        for each in watched:
            # What matches may have been split over two parts.
            start = max(0, before - len(each.matching) + 1)
            if each in self._matched or self._request.find(each.matching, start) < 0:
                continue
            self._matched.append(each)
            each.count += 1
            if isinstance(each, Fault) and each.count == each.nth and due is None:
                due = each
        return due

    def shut(self) -> None:
        _shut(self.client)
        _shut(self.server)


def _shut(side: socket.socket) -> None:
    # Closing would neither wake the thread that reads nor end what a forked child has open too.
    with contextlib.suppress(OSError):
        side.shutdown(socket.SHUT_RDWR)

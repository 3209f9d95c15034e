"""The proxy loses exactly what it is told to: shown on a plain server and on real ones."""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobboard.testing import eventually
from jobboard.testing.faults import FaultyProxy


class Recorder(socketserver.ThreadingTCPServer):
    """Answers each line with ``ok LINE`` and keeps it."""

    allow_reuse_address = True
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.lines: list[bytes] = []


class _Answer(socketserver.StreamRequestHandler):
    server: Recorder

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            while (line := self.rfile.readline()).endswith(b"\n"):
                self.server.lines.append(line.strip())
                self.wfile.write(b"ok " + line)


class Client:
    def __init__(self, proxy: FaultyProxy) -> None:
        self.socket = socket.create_connection((proxy.host, proxy.port), timeout=10)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive(self) -> bytes:
        """The next reply, or nothing when the connection is gone."""
        with contextlib.suppress(ConnectionError):
            return self.socket.recv(65536)
        return b""

    def ask(self, line: bytes) -> bytes:
        self.send(line + b"\n")
        return self.receive().strip()


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def proxy(recorder: Recorder) -> Iterator[FaultyProxy]:
    with FaultyProxy(*recorder.server_address) as proxy:
        yield proxy


@pytest.fixture
def connect(proxy: FaultyProxy) -> Iterator[Callable[[], Client]]:
    with contextlib.ExitStack() as stack:

        def connect() -> Client:
            client = Client(proxy)
            stack.callback(client.socket.close)
            return client

        yield connect


Connect = Callable[[], Client]


@pytest.mark.parametrize("what", ["request", "reply"])
def test_a_request_is_served_if_its_reply_is_lost(
    what: Any, connect: Connect, proxy: FaultyProxy, recorder: Recorder
) -> None:
    client = connect()
    fault = proxy.lose(what, nth=2)
    assert client.ask(b"one") == b"ok one"
    assert not fault.happened
    assert client.ask(b"two") == b""
    assert fault.wait(10)
    assert connect().ask(b"three") == b"ok three"
    assert recorder.lines == [b"one", *([b"two"] if what == "reply" else []), b"three"]


def test_only_the_connection_concerned_is_broken(connect: Connect, proxy: FaultyProxy) -> None:
    broken, whole = connect(), connect()
    proxy.lose("reply", matching=b"here")
    assert whole.ask(b"before") == b"ok before"
    assert broken.ask(b"it is here") == b""
    assert whole.ask(b"after") == b"ok after"


def test_a_request_that_is_held_goes_on_with_the_next(connect: Connect, proxy: FaultyProxy, recorder: Recorder) -> None:
    client = connect()
    fault = proxy.hold(matching=b"two")
    assert client.ask(b"one") == b"ok one"
    client.send(b"two\n")
    assert fault.wait(10)
    assert connect().ask(b"another") == b"ok another"
    assert recorder.lines == [b"one", b"another"]
    client.send(b"three\n")
    eventually(lambda: recorder.lines == [b"one", b"another", b"two", b"three"])
    assert client.receive().startswith(b"ok two")


@pytest.mark.parametrize("what", ["request", "reply"])
def test_a_silent_connection_has_no_end(what: Any, connect: Connect, proxy: FaultyProxy, recorder: Recorder) -> None:
    silent, other = connect(), connect()
    silent.ask(b"one")
    fault = proxy.silence(what, matching=b"two")
    silent.send(b"two\n")
    assert fault.wait(10)
    silent.send(b"three\n")
    assert other.ask(b"four") == b"ok four"
    # Each connection is recorded on a thread of its own.
    arrived = {b"one", b"four", *([b"two"] if what == "reply" else [])}
    eventually(lambda: set(recorder.lines) == arrived)
    silent.socket.settimeout(0.1)
    with pytest.raises(TimeoutError):
        silent.receive()


@pytest.mark.parametrize("what", ["request", "reply"])
def test_matching_minds_case_and_counts(what: Any, connect: Connect, proxy: FaultyProxy, recorder: Recorder) -> None:
    client = connect()
    fault = proxy.lose(what, nth=2, matching=b"COMMIT")
    for line in (b"commit", b"COMMIT 1", b"BEGIN"):
        assert client.ask(line) == b"ok " + line
    assert client.ask(b"COMMIT 2") == b""
    assert fault.wait(10)
    assert (b"COMMIT 2" in recorder.lines) == (what == "reply")


def test_a_match_may_come_in_two_parts(connect: Connect, proxy: FaultyProxy, recorder: Recorder) -> None:
    client = connect()
    client.ask(b"warm")
    fault = proxy.lose("request", matching=b"COMMIT")
    first, both = proxy.counter(b"COM"), proxy.counter(b"OMMI")
    client.send(b"COM")
    eventually(lambda: first.count)
    assert both.count == 0
    client.send(b"MIT\n")
    assert client.receive() == b""
    assert fault.wait(10)
    assert (first.count, both.count) == (1, 1)
    assert recorder.lines == [b"warm"]


def test_counters_count_requests_from_when_they_were_asked_for(connect: Connect, proxy: FaultyProxy) -> None:
    client = connect()
    client.ask(b"early")
    everything, some = proxy.counter(), proxy.counter(b"x")
    for line in (b"x", b"xx", b"y"):
        client.ask(line)
    connect().ask(b"x on another connection")
    assert everything.count == 4
    assert some.count == 3


def test_cut_closes_all_connections_and_no_later_one(connect: Connect, proxy: FaultyProxy) -> None:
    clients = [connect() for _ in range(3)]
    for client in clients:
        client.ask(b"hello")
    proxy.cut()
    assert [client.receive() for client in clients] == [b"", b"", b""]
    assert connect().ask(b"again") == b"ok again"


def test_refuse_and_restore(connect: Connect, proxy: FaultyProxy) -> None:
    client = connect()
    assert client.ask(b"one") == b"ok one"
    port = proxy.port
    proxy.refuse()
    with pytest.raises(ConnectionRefusedError):
        connect()
    assert client.ask(b"two") == b"ok two"
    fault = proxy.lose("request")
    proxy.restore()
    assert proxy.port == port
    assert connect().ask(b"three") == b"ok three"
    assert not fault.happened


def test_the_proxy_leaves_no_thread_and_no_port(recorder: Recorder) -> None:
    before = set(threading.enumerate())
    with FaultyProxy(*recorder.server_address) as proxy:
        client = Client(proxy)
        client.ask(b"hello")
        port = proxy.port
    assert client.receive() == b""
    client.socket.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=5)
    # The recorder ends its own thread a little later.
    eventually(lambda: set(threading.enumerate()) <= before)


def test_uris_lead_through_the_proxy_without_tls(proxy: FaultyProxy) -> None:
    """PyMySQL would turn TLS on, and no text would match. Other drivers don't know the option."""
    here = f"{proxy.host}:{proxy.port}"
    for uri, expected in (
        ("mariadb://root@db:3306/app", f"mariadb://root@{here}/app?ssl_mode=disabled"),
        ("mysql+pymysql://db/app?table=a", f"mysql+pymysql://{here}/app?table=a&ssl_mode=disabled"),
        ("mysql+mysqldb://db/app", f"mysql+mysqldb://{here}/app"),
        ("redis://:secret@cache:6379/0", f"redis://:secret@{here}/0"),
    ):
        assert proxy.uri_for(uri) == expected


def test_a_kept_request_comes_late(connect: Connect, proxy: FaultyProxy, recorder: Recorder) -> None:
    client = connect()
    kept = proxy.keep(nth=2)
    assert client.ask(b"one") == b"ok one"
    assert client.ask(b"two") == b""
    assert kept.happened
    assert connect().ask(b"three") == b"ok three"
    assert recorder.lines == [b"one", b"three"]
    kept.let_go()
    assert recorder.lines == [b"one", b"three", b"two"]
    with pytest.raises(AssertionError, match="already"):
        kept.let_go()


def test_something_is_done_before_a_request(connect: Connect, proxy: FaultyProxy, recorder: Recorder) -> None:
    client, other = connect(), connect()
    seen: list[list[bytes]] = []

    def act() -> None:
        seen.append([*recorder.lines])
        assert other.ask(b"meanwhile") == b"ok meanwhile"
        proxy.before(lambda: seen.append([*recorder.lines]), matching=b"three")

    fault = proxy.before(act, matching=b"two")
    assert client.ask(b"one") == b"ok one"
    assert not fault.happened
    assert [client.ask(line) for line in (b"two", b"three", b"four")] == [b"ok two", b"ok three", b"ok four"]
    assert fault.happened
    assert seen == [[b"one"], [b"one", b"meanwhile", b"two"]]


def test_something_is_done_between_a_reply_and_its_delivery(
    connect: Connect, proxy: FaultyProxy, recorder: Recorder
) -> None:
    client, other = connect(), connect()
    delivered = threading.Event()
    seen: list[list[bytes]] = []

    def act() -> None:
        # What the client sends meanwhile reaches the server.
        client.send(b"three\n")
        eventually(lambda: b"three" in recorder.lines)
        assert other.ask(b"meanwhile") == b"ok meanwhile"
        seen.append([*recorder.lines])
        assert not delivered.is_set()

    fault = proxy.after(act, nth=2)
    assert client.ask(b"one") == b"ok one"
    assert not fault.happened
    assert client.ask(b"two").startswith(b"ok two")
    delivered.set()
    assert fault.happened
    assert seen == [[b"one", b"two", b"three", b"meanwhile"]]

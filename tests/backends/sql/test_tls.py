"""Boards over TLS: MariaDB 11.4 and later turn it on by themselves. Faults hit requests by their number here, as their
text can't be read."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, NotFound
from jobboard.sql import connections
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background
from jobboard.testing.faults import FaultyProxy
from tests.support.server import HOST, TLSDaemon
from tests.support.servers import MariaDB

pytestmark = [pytest.mark.backends("mariadb"), pytest.mark.xdist_group("mariadb-tls")]


class Secure(MariaDB, TLSDaemon):
    def _prepare(self) -> None:
        super()._prepare()
        self._certify()

    def _command(self) -> list[Any]:
        return [*super()._command(), f"--ssl-cert={self.cert_file}", f"--ssl-key={self.key_file}"]


class Plain(MariaDB):
    def _command(self) -> list[Any]:
        return [*super()._command(), "--skip-ssl"]


@pytest.fixture(scope="module")
def server() -> Iterator[Secure]:
    with Secure() as server:
        yield server


@pytest.fixture
def proxy(server: Secure) -> Iterator[FaultyProxy]:
    with FaultyProxy(HOST, server.port) as proxy:
        yield proxy


@pytest.fixture
def through(proxy: FaultyProxy) -> Iterator[Callable[..., JobBoard]]:
    """``through(port=…, **options)``: the test's board, by the URI of a user who asks for nothing; through the proxy
    unless the port is another."""
    table = f"b_{uuid.uuid4().hex}"
    boards: list[JobBoard] = []

    def through(port: int = proxy.port, **options: Any) -> JobBoard:
        uri = f"mariadb://root@{HOST}:{port}/jobboard"
        board = jobboard.fetch("board", {"board": uri, "table": table, **options})
        boards.append(board)
        board.connect()
        assert cipher(board)
        return board

    yield through
    for board in boards:
        board.close()


def cipher(board: JobBoard) -> str:
    """Return how the connections of a board are encrypted; empty if they are not."""
    assert board.engine.store is not None
    return str(
        board.engine.store.links.run(
            lambda link: link.connection.exec_driver_sql("SHOW STATUS LIKE 'Ssl_cipher'").one()[1]
        )
    )


def test_tls_options_are_those_of_mysqls_clients(server: Secure, private_server: Callable[..., Any]) -> None:
    ciphers = []
    for options in (
        "ssl-mode=REQUIRED",
        "ssl=true",
        f"ssl_mode=VERIFY_IDENTITY&ssl_ca={server.ca_file}",
        "ssl-mode=DISABLED&charset=utf8mb4",
    ):
        with jobboard.backend("board", f"{server.uri}?{options}") as board:
            ciphers.append(bool(cipher(board)))
    assert ciphers == [True, True, True, False]
    # Not in the clear where the server has none.
    plain = private_server(Plain)
    with pytest.raises(ConnectionFailure, match=r"has no TLS|SSL is required") as failure:
        jobboard.fetch("board", f"{plain.uri}?ssl_mode=REQUIRED").connect()
    assert failure.value.refused


@pytest.mark.rule("Over TLS, which MariaDB turns on by itself, lost requests and silence are met as without.")
@pytest.mark.parametrize("lost", ["reply", "request"])
def test_a_call_happens_once_whichever_of_its_requests_is_lost(
    through: Callable[..., JobBoard], proxy: FaultyProxy, lost: Any
) -> None:
    # No heartbeat is among the requests.
    board = through(claim_ttl=600)

    def life() -> None:
        job = board.post("a")
        assert board.claim_next("anna") == job
        assert board.job_count == 1
        board.consume(job, "anna")
        assert board.job_count == 0
        with pytest.raises(NotFound):
            board.get(job.uuid)

    life()
    requests = proxy.counter()
    life()
    assert requests.count >= 4
    for nth in range(1, requests.count + 1):
        fault = proxy.lose(lost, nth=nth)
        life()
        # Some lives send fewer requests than the one that was counted.
        while not fault.happened:
            life()


@pytest.mark.rule("Over TLS, which MariaDB turns on by itself, lost requests and silence are met as without.")
@pytest.mark.parametrize("what", ["reply", "request"])
def test_a_call_whose_connection_falls_silent_is_repeated(
    through: Callable[..., JobBoard], proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch, what: Any
) -> None:
    monkeypatch.setattr(connections, "_SHORTEST", 1.0)
    board = through(retry_for=20, claim_ttl=3)
    fault = proxy.silence(what)
    job = Background(lambda: board.post("a")).wait(60)
    assert fault.happened
    assert list(board.iterjobs()) == [job]
    proxy.silence_all()
    assert Background(lambda: board.claim_next("anna")).wait(60) == job
    proxy.silence_all()
    Background(board.close).wait(60)


@pytest.mark.rule("Over TLS, which MariaDB turns on by itself, lost requests and silence are met as without.")
def test_a_sleeping_waiter_is_woken_after_silence(
    server: Secure, through: Callable[..., JobBoard], proxy: FaultyProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_SHORTEST", 1.0)
    board, poster = through(retry_for=20, claim_ttl=3), through(server.port)
    looks = proxy.counter()
    sleeping = Background(lambda: board.claim_next("anna", timeout=120))
    assert eventually(lambda: looks.count > 1)
    proxy.silence_all()
    job = poster.post("a")
    assert sleeping.wait(60) == job

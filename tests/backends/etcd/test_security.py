"""Access to etcd by TLS and passwords, and the login that all threads of a board share."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import Posting
from jobboard.testing.conformance.support import Waiter
from jobboard.testing.faults import FaultyProxy
from tests.backends.etcd.conftest import link_of
from tests.support.etcd_servers import Etcd
from tests.support.server import HOST

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]

THREADS = 12


def test_tls_opens_a_board_whose_server_has_a_trusted_certificate(private_server: Callable[..., Any]) -> None:
    server = private_server("etcd", tls=True)
    tls = {"board": server.uri, "use_ssl": True, "retry_for": 0}
    with jobboard.backend("board", {**tls, "ca": str(server.ca_file)}) as board:
        board.post("resize")
        assert board.claim_next("anna").name == "resize"
    with jobboard.backend("board", {**tls, "verify_certs": False}) as board:
        assert board.job_count == 1
    with pytest.raises(ConnectionFailure, match="certificate verify failed"):
        jobboard.fetch("board", tls).connect()
    with pytest.raises(ConnectionFailure, match="/no/such"):
        jobboard.fetch("board", {**tls, "ca": "/no/such"}).connect()
    with pytest.raises(ConnectionFailure):
        jobboard.fetch("board", {"board": server.uri, "retry_for": 0}).connect()


def test_a_user_needs_readwrite_on_the_namespace(guarded: Etcd) -> None:
    def uri(user: str) -> str:
        return guarded.uri.replace("//", f"//{user}@") + "/jobs?retry_for=1"

    with jobboard.backend("board", uri("anna:annapw")) as board:
        job = board.post("resize")
        assert board.claim_next("anna") == job
        # The board replaces a token that the server has forgotten.
        link_of(board).token = "stale.1"
        board.consume(job, "anna")
        board.post("resize")
        # A commit with many comparisons needs no further rights.
        board.post_many([Posting("resize", key=str(number)) for number in range(100)])
        with pytest.raises(JobFailure, match="readwrite on the prefix of the namespace"):
            jobboard.fetch("board", {"board": uri("anna:annapw"), "namespace": "others"}).connect()
    with jobboard.backend("board", uri("bert:bertpw") + "&read_only=true") as board:
        assert board.job_count == 101
    with pytest.raises(JobFailure, match="permission denied"):
        jobboard.fetch("other", uri("bert:bertpw")).connect()
    with pytest.raises(ConnectionFailure, match="refused the user or the password") as refused:
        jobboard.fetch("board", uri("anna:wrong-one")).connect()
    assert refused.value.refused
    assert "wrong-one" not in str(refused.value)
    with pytest.raises(JobFailure, match="set user and password"):
        jobboard.fetch("board", guarded.uri + "/jobs").connect()


@pytest.fixture
def server(private_server: Callable[..., Any]) -> Etcd:
    server: Etcd = private_server("etcd", auth_token="simple", bcrypt_cost=10)
    server.call("/v3/auth/user/add", name="root", password="first")
    server.call("/v3/auth/user/grant", user="root", role="root")
    server.call("/v3/auth/enable")
    return server


def change_password(server: Etcd, password: str) -> None:
    with jobboard.backend("other", f"etcd://root:first@{HOST}:{server.port}") as board:
        link_of(board).call("/v3/auth/user/changepw", f'{{"name": "root", "password": "{password}"}}')


@pytest.fixture
def far(server: Etcd) -> Iterator[tuple[JobBoard, FaultyProxy]]:
    with FaultyProxy(HOST, server.port) as proxy:
        uri = proxy.uri_for(f"etcd://root:first@{HOST}:{server.port}")
        with jobboard.backend("board", f"{uri}?retry_for=30") as board:
            yield board, proxy


@pytest.mark.rule("All threads of a board share one login.")
@pytest.mark.parametrize("void", ["restart", "password"])
def test_all_threads_share_a_login(far: tuple[JobBoard, FaultyProxy], server: Etcd, void: str) -> None:
    board, proxy = far
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda _: board.post("warm"), range(THREADS)))
        logins = proxy.counter(b"POST /v3/auth/authenticate")
        if void == "restart":
            server.restart()
        else:
            change_password(server, "first")
        list(pool.map(lambda _: board.post("again"), range(4 * THREADS)))
    assert logins.count == 1
    assert board.job_count == 5 * THREADS


def test_a_changed_password_refuses_the_boards_that_have_the_old_one(server: Etcd) -> None:
    def uri(password: str) -> str:
        return f"etcd://root:{password}@{HOST}:{server.port}?retry_for=0"

    with jobboard.backend("board", uri("first")) as board:
        change_password(server, "second")
        with pytest.raises(ConnectionFailure, match="refused the user or the password") as refused:
            board.post("resize")
    assert refused.value.refused
    with jobboard.backend("board", uri("second")) as other:
        assert other.post("resize").created


@pytest.mark.rule("A void token keeps no waiter from new jobs.")
def test_a_void_token_keeps_no_waiter_from_new_jobs(server: Etcd) -> None:
    """No heartbeat comes meanwhile that would log in again."""
    uri = f"etcd://root:first@{HOST}:{server.port}?claim_ttl=600&retry_for=30"
    with jobboard.backend("board", uri) as board:
        waiter = Waiter(board, lambda: board.claim_next("anna", timeout=55))
        server.restart()
        with jobboard.backend("board", uri) as other:
            job = other.post("resize")
        assert waiter.wait(30) == job

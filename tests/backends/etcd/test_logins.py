"""What a board does once its token is void: a login costs the server much, and so there is one for all threads."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure
from jobboard.testing import eventually
from jobboard.testing.faults import FaultyProxy
from tests.backends.etcd.conftest import link_of
from tests.support.etcd_servers import Etcd
from tests.support.server import HOST

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]

THREADS = 12


@pytest.fixture
def server(private_server: Callable[..., Any]) -> Etcd:
    server: Etcd = private_server("etcd", auth_token="simple", auth_token_ttl=2, bcrypt_cost=10)
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


@pytest.mark.parametrize("void", ["restart", "password", "time"])
def test_all_threads_share_a_login(far: tuple[JobBoard, FaultyProxy], server: Etcd, void: str) -> None:
    board, proxy = far
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda _: board.post("warm"), range(THREADS)))
        logins = proxy.counter(b"POST /v3/auth/authenticate")
        if void == "restart":
            server.restart()
        elif void == "password":
            change_password(server, "first")
        else:
            expired = time.monotonic() + 4
            eventually(lambda: time.monotonic() > expired)
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

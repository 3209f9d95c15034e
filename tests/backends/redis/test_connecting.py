"""The way to the server: URIs, options, users, TLS, sockets, clients of the caller's, and forks."""

import itertools
import re
import subprocess
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import redis
import redis.asyncio

import jobboard
from jobboard.backends.redis.keys import CONTAINERS
from jobboard.board import JobBoard
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.testing import eventually
from jobboard.testing.conformance.processes import in_child
from jobboard.testing.conformance.support import PATIENCE, EventLog, Waiter, take
from tests.backends.redis.conftest import OpenBoard
from tests.support.servers import Redis

pytestmark = pytest.mark.backends("redis")

Live = Callable[[JobBoard, JobBoard], None]

SECRET = "pass/w:rd@%€"


# Addresses


@pytest.mark.rule(
    "A Redis user may give a scheme, a socket, a database and a namespace, and a contradiction between them is refused."
)
def test_one_board_has_many_addresses(server: Redis, open_board: OpenBoard) -> None:
    address = f"127.0.0.1:{server.port}"
    job = open_board(f"redis://{address}/2").post("resize")
    path = quote(str(server.unix_socket))
    same = [
        open_board(f"valkey://{address}/2"),
        open_board(f"redis://{address}", db="2"),
        open_board("redis", host="127.0.0.1", port=server.port, db=2),
        open_board(f"redis:///2?unix_socket_path={path}"),
        open_board(f"unix://{path}?db=2"),
    ]
    assert [list(board.iterjobs()) for board in same] == [[job]] * 5
    assert open_board(server.uri).job_count == open_board(f"redis://{address}/1").job_count == 0


@pytest.mark.rule("A right that a Redis user lacks is named.")
@pytest.mark.parametrize(
    ("options", "told"), [("/0?sentinel=mymaster", "no sentinel.*leave out sentinel="), ("/99", "DB index")]
)
def test_a_refusal_while_connecting_is_named(
    server: Redis, caplog: pytest.LogCaptureFixture, options: str, told: str
) -> None:
    with pytest.raises(JobFailure, match=told) as caught:
        jobboard.fetch("board", f"redis://127.0.0.1:{server.port}{options}").connect()
    assert not isinstance(caught.value, ConnectionFailure)
    assert "INFO" not in caplog.text


TRICKY = ("a", "a:b", "{a}", "a}", ":", "%3A", "a:{b}:jobs", "Ä", "a\\", "*")


def test_boards_and_namespaces_share_no_key(server: Redis, open_board: OpenBoard) -> None:
    boards: dict[tuple[Any, str], Any] = {
        pair: open_board(server.uri, pair[1], namespace=pair[0]) for pair in itertools.product(TRICKY, TRICKY)
    }
    boards[b"\xff\x00", "a"] = open_board(server.uri, "a", namespace=b"\xff\x00")
    for (namespace, name), board in boards.items():
        board.post("resize", details={"of": [repr(namespace), name]}, key="k")
    for (namespace, name), board in boards.items():
        assert [job.details for job in board.iterjobs()] == [{"of": [repr(namespace), name]}]
    keys = [key for board in boards.values() for key in board.engine.store.keys.all]
    assert len(set(keys)) == len(boards) * len(CONTAINERS)
    assert all(re.fullmatch(rb"[^{}:]+:\{[^{}:]+\}:[a-z]+", key) for key in keys)
    # A namespace of bytes is the same as its text.
    assert open_board(server.uri, "a", namespace="Ä".encode()).job_count == 1


# Options


# Users


def test_a_password(server: Redis, admin: redis.Redis, open_board: OpenBoard, live: Live) -> None:
    admin.config_set("requirepass", SECRET)
    uri = f"redis://:{quote(SECRET, safe='')}@127.0.0.1:{server.port}"
    live(open_board(uri), open_board(f"redis://127.0.0.1:{server.port}", password=SECRET, protocol=3))
    with pytest.raises(ConnectionFailure, match="refuses the user or the password") as caught:
        open_board(uri, password=SECRET + "x")
    assert caught.value.refused
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def _needed(open_board: OpenBoard, uri: str) -> list[str]:
    """Return the rights that the error of a user without rights names."""
    with pytest.raises(JobFailure, match="may not do this") as caught:
        open_board(uri, namespace="n:")
    return str(caught.value).partition("A board needs ")[2].split()


def test_the_rights_that_the_error_names_suffice(
    server: Redis, admin: redis.Redis, open_board: OpenBoard, live: Live
) -> None:
    admin.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">w")
    uri = f"redis://worker:w@127.0.0.1:{server.port}/1"
    needed = _needed(open_board, uri)
    admin.execute_command("ACL", "SETUSER", "worker", "resetchannels", *needed)
    one, other = (open_board(uri, namespace="n:") for _ in range(2))
    live(one, other)
    assert "unknown appendfsync" in one.characteristics.notes
    for board in (one, other):
        board.close()
    # Other namespaces are closed to the user.
    with pytest.raises(JobFailure, match="may not do this"):
        open_board(uri, namespace="m")
    admin.flushall()
    for missing in ("~n%3A:*", "+@read", "+@write", "+@scripting", "+time", "+info"):
        others = [right for right in needed if right != missing]
        admin.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">w", *others)
        assert missing in _needed(open_board, uri)


def test_work_is_not_done_again_as_rights_were_missing_for_a_while(
    server: Redis, admin: redis.Redis, open_board: OpenBoard, start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    admin.execute_command("ACL", "SETUSER", "worker", "on", ">w", "~*", "+@all", "allchannels")
    board = open_board(f"redis://worker:w@127.0.0.1:{server.port}")
    runs = []

    def work(job: jobboard.Job) -> None:
        admin.execute_command("ACL", "SETUSER", "worker", "-@write")
        runs.append(job)

    job = board.post("resize")
    conductor = start(jobboard.Conductor("anna", board, work))
    eventually(lambda: "may not finish" in caplog.text)
    assert open_board(server.uri).get(job.uuid).seen_state == "CLAIMED"
    admin.execute_command("ACL", "SETUSER", "worker", "+@write")
    eventually(lambda: conductor.tally.consumed)
    assert runs == [job]


def test_a_user_without_channels_polls(
    server: Redis, admin: redis.Redis, open_board: OpenBoard, caplog: pytest.LogCaptureFixture
) -> None:
    admin.execute_command("ACL", "SETUSER", "worker", "on", ">w", "~*", "+@all", "resetchannels")
    board, other = open_board(f"redis://worker:w@127.0.0.1:{server.port}"), open_board(server.uri)
    waiter = Waiter(board, lambda: take(board, timeout=PATIENCE))
    assert eventually(lambda: "polling instead" in caplog.text)
    job = other.post("resize")
    assert waiter.wait(PATIENCE) == job


# TLS


@pytest.fixture(scope="module")
def secure() -> Iterator[Redis]:
    """A server that also listens on 127.0.0.2, for which its certificate is not."""
    with Redis(tls=True, config={"bind": "127.0.0.1 127.0.0.2"}) as server:
        yield server


def test_tls(secure: Redis, open_board: OpenBoard, live: Live) -> None:
    ca = str(secure.ca_file)
    boards = [
        open_board(secure.uri, namespace="tls", ssl_ca_certs=ca),
        open_board(secure.uri.replace("rediss", "redis"), namespace="tls", ssl=True, ssl_ca_certs=ca),
        open_board(f"{secure.uri}?ssl_ca_certs={quote(ca)}", namespace="tls", protocol=3),
        open_board(secure.uri, namespace="tls", ssl_cert_reqs="none"),
        open_board(f"rediss://localhost:{secure.port}/0", namespace="tls", ssl_ca_certs=ca),
    ]
    for board in boards:
        live(board, boards[0])


def _refused(open_board: OpenBoard, uri: str, **options: Any) -> str:
    with pytest.raises(ConnectionFailure) as caught:
        open_board(uri, **{"retry_for": 0, **options})
    return str(caught.value)


def test_a_server_that_does_not_prove_itself_is_refused(secure: Redis, open_board: OpenBoard) -> None:
    ca, elsewhere = str(secure.ca_file), f"rediss://127.0.0.2:{secure.port}"
    assert "certificate verify failed" in _refused(open_board, secure.uri)
    assert "mismatch" in _refused(open_board, elsewhere, ssl_ca_certs=ca)
    open_board(elsewhere, ssl_ca_certs=ca, ssl_check_hostname=False)
    _refused(open_board, secure.uri.replace("rediss", "redis"))
    _refused(open_board, secure.uri, ssl_ca_certs="/nowhere")


def test_certificates_of_clients(private_server: Any, open_board: OpenBoard, live: Live, tmp_path: Path) -> None:
    server = private_server("redis", tls=True, config={"tls-auth-clients": "yes"})
    ca, certificate = str(server.ca_file), str(server.cert_file)
    _refused(open_board, server.uri, ssl_ca_certs=ca)
    options = {"ssl_ca_certs": ca, "ssl_certfile": certificate}
    live(*(open_board(server.uri, **options, ssl_keyfile=str(server.key_file)) for _ in range(2)))
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "ec", "-aes256", "-passout", f"pass:{SECRET}", "-in", server.key_file, "-out", locked],
        check=True,
        capture_output=True,
    )
    options["ssl_keyfile"] = str(locked)
    open_board(server.uri, **options, ssl_password=SECRET)
    assert SECRET not in _refused(open_board, server.uri, **options, ssl_password=SECRET + "x")


# Clients of the caller's


@pytest.mark.parametrize(("protocol", "decode"), [(2, True), (3, False)])
def test_a_client(server: Redis, open_board: OpenBoard, live: Live, protocol: int, decode: bool) -> None:
    with redis.Redis(port=server.port, db=4, decode_responses=decode, protocol=protocol) as client:
        number = client.client_id()
        board = open_board("redis", client=client)
        live(board, open_board(f"redis://127.0.0.1:{server.port}/4"))
        board.close()
        with pytest.raises(ConnectionFailure):
            board.post("resize")
        assert client.client_id() == number
        board.connect()
        assert board.job_count == 0


@pytest.mark.parametrize("own", [True, False])
def test_close_leaves_no_connection(
    server: Redis, admin: redis.Redis, open_board: OpenBoard, live: Live, own: bool
) -> None:
    def connections() -> int:
        return len(admin.client_list())

    before = connections()
    board = open_board(server.uri) if own else open_board("redis", client=admin)
    live(board, board)
    assert connections() > before
    board.close()
    assert eventually(lambda: connections() == before)


# Forks


def test_a_forked_child_does_not_use_the_callers_client(admin: redis.Redis, open_board: OpenBoard) -> None:
    board = open_board("redis", client=admin)
    EventLog(board)
    with pytest.raises(AssertionError, match=r"^JobFailure: .*forked"):
        in_child(lambda: board.post("crop"))()
    # The parent's connections are as they were.
    waiter = Waiter(board, lambda: take(board, timeout=PATIENCE))
    job = board.post("resize")
    assert waiter.wait(PATIENCE) == job

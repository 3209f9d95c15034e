"""How a board gets to its server: URIs, options, users, TLS, sockets, and clients of the caller's."""

import itertools
import logging
import os
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
from jobboard.testing.conformance.support import PATIENCE, EventLog, Waiter, take
from tests.support.servers import Redis

pytestmark = pytest.mark.backends("redis")

Open = Callable[..., JobBoard]
Live = Callable[[JobBoard, JobBoard], None]

SECRET = "pass/w:rd@%€"


# Where


@pytest.mark.parametrize("scheme", ["redis", "valkey"])
def test_schemes(board_conf: dict[str, Any], open_board: Open, scheme: str) -> None:
    conf = {**board_conf, "board": board_conf["board"].replace("redis", scheme)}
    job = open_board(**{"uri": conf.pop("board"), **conf}).post("resize")
    assert take(open_board(board_conf["board"], namespace=board_conf["namespace"])) == job


def test_a_plain_name_and_options(server: Redis, open_board: Open) -> None:
    job = open_board("redis", host="127.0.0.1", port=server.port, db=3).post("resize")
    assert take(open_board(f"redis://127.0.0.1:{server.port}/3")) == job


def test_a_unix_socket(server: Redis, open_board: Open) -> None:
    job = open_board(f"redis:///2?unix_socket_path={quote(str(server.unix_socket))}").post("resize")
    assert take(open_board(f"redis://127.0.0.1:{server.port}/2")) == job
    again = open_board(f"unix://{quote(str(server.unix_socket))}?db=2").post("resize")
    assert take(open_board(f"redis://127.0.0.1:{server.port}/2")) == again


def test_databases_are_apart(server: Redis, open_board: Open) -> None:
    address = f"redis://127.0.0.1:{server.port}"
    job = open_board(f"{address}/1").post("resize")
    assert open_board(address).job_count == open_board(f"{address}/2").job_count == 0
    assert open_board(address, db="1").get(job.uuid) == job


def test_a_database_that_is_not_there(server: Redis, open_board: Open) -> None:
    with pytest.raises(JobFailure, match="index is out of range") as caught:
        open_board(f"redis://127.0.0.1:{server.port}/99")
    assert not isinstance(caught.value, ConnectionFailure)


TRICKY = ("a", "b", "a:b", "{a}", "a}", "{", ":", "%3A", "%", "a:{b}:jobs", "Ä", " ", "a\\", "*", "[a-z]")


def test_boards_and_namespaces_are_apart(server: Redis, open_board: Open) -> None:
    """Nor does any of them fall into two slots of a cluster."""
    boards = {
        pair: open_board(server.uri, pair[1], namespace=pair[0]) for pair in itertools.product(TRICKY, ("b", *TRICKY))
    }
    for (namespace, name), board in boards.items():
        board.post("resize", details={"of": [namespace, name]}, key="k")
    for (namespace, name), board in boards.items():
        assert [job.details for job in board.iterjobs()] == [{"of": [namespace, name]}]
    keys = [key for board in boards.values() for key in board.engine.store.keys.all]
    assert len(set(keys)) == len(boards) * len(CONTAINERS)
    assert all(re.fullmatch(rb"[^{}:]+:\{[^{}:]+\}:[a-z]+", key) for key in keys)


def test_a_namespace_of_bytes(server: Redis, open_board: Open) -> None:
    job = open_board(server.uri, namespace="Ä:").post("resize")
    assert take(open_board(server.uri, namespace="Ä:".encode())) == job
    other = open_board(server.uri, namespace=b"\xff\x00")
    other.post("resize")
    assert other.job_count == 1


# Options


@pytest.mark.parametrize(
    ("uri", "options", "named"),
    [
        ("redis://h", {"pasword": "x"}, "'pasword'.*did you mean 'password'"),
        ("redis://h?nonsense=1", {}, "'nonsense'"),
        ("redis://h/abc", {}, "db"),
        ("redis://h/-1", {}, "db"),
        ("redis://h", {"port": 0}, "port"),
        ("redis://h", {"protocol": 4}, "protocol"),
        ("redis://h", {"namespace": ""}, "namespace"),
        ("redis://h", {"socket_timeout": 0}, "socket_timeout"),
        ("redis://h", {"min_replicas": -1}, "min_replicas"),
        ("redis://h", {"allow_eviction": "perhaps"}, "allow_eviction"),
        ("redis+hiredis://h", {}, "no driver"),
        ("redis://h", {"cluster": True, "sentinel": "s"}, "cluster and sentinel"),
        ("redis://h/1", {"cluster": True}, "db=1"),
        ("redis://h", {"sentinel_fallbacks": "h2:26379"}, "sentinel_fallbacks.*sentinel"),
        ("redis://h", {"sentinel_kwargs": {}, "sentinel_fallbacks": ["h2:x"], "sentinel": "s"}, "sentinel_fallbacks"),
        ("redis://h", {"sentinel_kwargs": {"password": SECRET}}, "sentinel_kwargs"),
        ("redis://h", {"sentinel_kwargs": {"passwort": SECRET}, "sentinel": "s"}, "sentinel_kwargs.*passwort"),
        ("redis://h?sentinel=", {}, "sentinel=''"),
        ("redis://h1:1,h2:2", {}, "host"),
        ("redis://h1:x,h2:2", {"cluster": True}, "port"),
        ("redis://h", {"unix_socket_path": "/s"}, "unix_socket_path"),
        ("redis", {"unix_socket_path": "/s", "port": 1}, "unix_socket_path"),
        ("redis", {"unix_socket_path": "/s", "sentinel": "s"}, "unix_socket_path"),
        ("rediss", {"unix_socket_path": "/s"}, "unix_socket_path"),
        ("redis://h", {"ssl_ca_certs": "/ca"}, "ssl_ca_certs.*rediss"),
        ("redis://h", {"ssl_cert_reqs": "none"}, "ssl_cert_reqs"),
        ("rediss://h", {"ssl_cert_reqs": "perhaps"}, "ssl_cert_reqs"),
        ("rediss://h", {"ssl_min_version": "1.1"}, "ssl_min_version"),
        ("rediss://h", {"ssl": False}, "ssl"),
    ],
)
def test_what_does_not_fit(uri: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        jobboard.fetch("board", {"board": uri, **options})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("option", ["host", "port", "db", "username", "password", "protocol", "cluster", "ssl"])
def test_where_to_connect_beside_a_client(server: Redis, admin: redis.Redis, option: str) -> None:
    values = {"host": "h", "username": "u", "password": SECRET, "cluster": True, "ssl": True}
    with pytest.raises(ValueError, match=option) as caught:
        jobboard.fetch("board", {"board": "redis", option: values.get(option, 3)}, client=admin)
    assert SECRET not in str(caught.value)


def test_where_it_is_shows() -> None:
    conf = {"board": "redis", "host": "h", "port": 7, "db": 3, "password": SECRET}
    assert " at redis://h:7/3," in repr(jobboard.fetch("board", conf))


@pytest.mark.parametrize(
    ("options", "told"), [("/0?sentinel=mymaster", "no sentinel.*leave out sentinel="), ("/99", "DB index")]
)
def test_what_is_refused_while_connecting_is_not_taken_for_something_else(
    server: Redis, caplog: pytest.LogCaptureFixture, options: str, told: str
) -> None:
    with pytest.raises(JobFailure, match=told):
        jobboard.fetch("board", f"redis://127.0.0.1:{server.port}{options}").connect()
    assert "INFO" not in caplog.text


def test_options_that_travel_in_a_uri(server: Redis, open_board: Open, live: Live) -> None:
    board = open_board(f"{server.uri}?namespace=x&protocol=3&socket_timeout=2&claim_ttl=5&retry_for=1")
    live(board, open_board(server.uri, namespace="x"))
    assert board.characteristics.claim_ttl == 5


# Users


def test_a_password(server: Redis, admin: redis.Redis, open_board: Open, live: Live) -> None:
    admin.config_set("requirepass", SECRET)
    uri = f"redis://:{quote(SECRET, safe='')}@127.0.0.1:{server.port}"
    live(open_board(uri), open_board(f"redis://127.0.0.1:{server.port}", password=SECRET, protocol=3))


def test_no_password_is_ever_shown(
    server: Redis, admin: redis.Redis, open_board: Open, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    admin.acl_setuser("worker", enabled=True, passwords=[f"+{SECRET}"], categories=["+@all"], keys="*", channels="*")
    shown = []
    for user, password in (("worker", SECRET + "x"), ("nobody", SECRET), ("worker", SECRET)):
        uri = f"redis://{user}:{quote(password, safe='')}@127.0.0.1:{server.port}"
        board = jobboard.fetch("board", {"board": uri, "retry_for": 0.1})
        shown += [repr(board), repr(board._conf)]
        try:
            board.connect()
        except ConnectionFailure as error:
            shown += traceback.format_exception(error)
            assert password != SECRET or user == "nobody"
    shown.append(repr(board))
    server.kill()
    with pytest.raises(ConnectionFailure) as caught:
        board.post("resize")
    shown += [*traceback.format_exception(caught.value), caplog.text]
    board.close()
    everything = "".join(shown)
    assert "worker" in everything
    assert SECRET not in everything
    assert quote(SECRET, safe="") not in everything


def _needed(open_board: Open, uri: str) -> tuple[list[str], list[str]]:
    """What the message for somebody who may do nothing tells to grant."""
    with pytest.raises(JobFailure, match="may not do this") as caught:
        open_board(uri, namespace="n:")
    found = re.search(r"A board needs (.*), and should have (.*)", str(caught.value))
    assert found is not None
    return found[1].split(), found[2].split()


@pytest.mark.parametrize("info", [True, False])
def test_the_rights_that_are_named_suffice(
    server: Redis, admin: redis.Redis, open_board: Open, live: Live, caplog: pytest.LogCaptureFixture, info: bool
) -> None:
    admin.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">w")
    uri = f"redis://worker:w@127.0.0.1:{server.port}/1"
    needed, wished = _needed(open_board, uri)
    caplog.clear()
    rights = needed + wished if info else needed
    admin.execute_command("ACL", "SETUSER", "worker", "resetchannels", *rights)
    one, other = (open_board(uri, namespace="n:") for _ in range(2))
    live(one, other)
    assert ("INFO" in caplog.text) != info
    notes = one.characteristics.notes
    assert ("unknown appendfsync" if info else "does not tell") in notes
    # Of the others' boards it can do nothing.
    with pytest.raises(JobFailure, match="may not do this"):
        open_board(uri, namespace="m")


@pytest.mark.parametrize("missing", ["~n%3A:*", "+@read", "+@write", "+@scripting", "+time"])
def test_none_of_them_is_named_in_vain(server: Redis, admin: redis.Redis, open_board: Open, missing: str) -> None:
    admin.execute_command("ACL", "SETUSER", "worker", "reset", "on", ">w")
    uri = f"redis://worker:w@127.0.0.1:{server.port}"
    needed, _ = _needed(open_board, uri)
    needed.remove(missing)
    admin.execute_command("ACL", "SETUSER", "worker", *needed)
    assert missing in _needed(open_board, uri)[0]


def test_work_is_not_done_again_as_rights_were_missing_for_a_while(
    server: Redis, admin: redis.Redis, open_board: Open, start: Any, caplog: pytest.LogCaptureFixture
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
    server: Redis, admin: redis.Redis, open_board: Open, caplog: pytest.LogCaptureFixture
) -> None:
    admin.execute_command("ACL", "SETUSER", "worker", "on", ">w", "~*", "+@all", "resetchannels")
    uri = f"redis://worker:w@127.0.0.1:{server.port}"
    board, other = open_board(uri), open_board(server.uri)
    waiter = Waiter(board, lambda: take(board, timeout=PATIENCE))
    assert eventually(lambda: "can't wait for a call" in caplog.text)
    job = other.post("resize")
    assert waiter.wait() == job
    board.consume(job, "anna")
    assert other.job_count == 0


# TLS


@pytest.fixture(scope="module")
def secure() -> Iterator[Redis]:
    """Serves 127.0.0.2 too, which its certificate is not for."""
    with Redis(tls=True, config={"bind": "127.0.0.1 127.0.0.2", "tls-protocols": "TLSv1.2"}) as server:
        yield server


def test_tls(secure: Redis, open_board: Open, live: Live) -> None:
    ca = str(secure.ca_file)
    boards = [
        open_board(secure.uri, namespace="tls", ssl_ca_certs=ca),
        open_board(secure.uri, namespace="tls", ssl_ca_data=secure.ca_file.read_text(), protocol=3),
        open_board(secure.uri.replace("rediss", "redis"), namespace="tls", ssl=True, ssl_ca_certs=ca),
        open_board(f"{secure.uri}?ssl_ca_certs={quote(ca)}&ssl_min_version=1.2", namespace="tls"),
        open_board(secure.uri, namespace="tls", ssl_cert_reqs="none"),
        open_board(f"rediss://localhost:{secure.port}/0", namespace="tls", ssl_ca_certs=ca),
    ]
    for board in boards:
        live(board, boards[0])


def test_a_folder_of_authorities(secure: Redis, open_board: Open, tmp_path: Path) -> None:
    name = subprocess.check_output(["openssl", "x509", "-noout", "-hash", "-in", secure.ca_file], text=True).strip()
    (tmp_path / f"{name}.0").symlink_to(secure.ca_file)
    open_board(secure.uri, ssl_ca_path=str(tmp_path))


def _refused(open_board: Open, uri: str, **options: Any) -> str:
    with pytest.raises(ConnectionFailure) as caught:
        open_board(uri, **options)
    return str(caught.value)


def test_a_server_that_does_not_prove_itself(secure: Redis, private_server: Any, open_board: Open) -> None:
    other = private_server("redis", tls=True)
    assert "certificate verify failed" in _refused(open_board, secure.uri)
    assert "certificate verify failed" in _refused(open_board, secure.uri, ssl_ca_certs=str(other.ca_file))
    elsewhere = f"rediss://127.0.0.2:{secure.port}"
    ca = str(secure.ca_file)
    assert "mismatch" in _refused(open_board, elsewhere, ssl_ca_certs=ca)
    open_board(elsewhere, ssl_ca_certs=ca, ssl_check_hostname=False)


def test_what_is_spoken(secure: Redis, open_board: Open) -> None:
    ca = str(secure.ca_file)
    _refused(open_board, secure.uri, ssl_ca_certs=ca, ssl_min_version="1.3")
    open_board(secure.uri, ssl_ca_certs=ca, ssl_ciphers="ECDHE-ECDSA-AES256-GCM-SHA384")
    # The server has no certificate for these.
    _refused(open_board, secure.uri, ssl_ca_certs=ca, ssl_ciphers="ECDHE-RSA-AES256-GCM-SHA384")
    _refused(open_board, secure.uri.replace("rediss", "redis"))
    _refused(open_board, secure.uri, ssl_ca_certs="/nowhere")


def test_certificates_of_clients(private_server: Any, open_board: Open, live: Live, tmp_path: Path) -> None:
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
    open_board(server.uri, **options, ssl_keyfile=str(locked), ssl_password=SECRET)
    assert SECRET + "x" not in _refused(
        open_board, server.uri, **options, ssl_keyfile=str(locked), ssl_password=SECRET + "x"
    )


# Clients of the caller's


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("decode", [True, False])
def test_a_client(server: Redis, open_board: Open, live: Live, protocol: int, decode: bool) -> None:
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


def test_a_client_on_a_unix_socket(server: Redis, open_board: Open) -> None:
    with redis.Redis(unix_socket_path=str(server.unix_socket)) as client:
        job = open_board("redis", client=client).post("resize")
    assert take(open_board(server.uri)) == job


def test_a_client_with_tls(secure: Redis, open_board: Open, live: Live) -> None:
    with redis.Redis.from_url(secure.uri, ssl_ca_certs=str(secure.ca_file)) as client:
        live(*(open_board("redis", client=client, namespace="client") for _ in range(2)))


@pytest.mark.parametrize("client", ["redis://localhost", 3, redis.asyncio.Redis(), redis.ConnectionPool()])
def test_what_is_no_client(client: Any) -> None:
    with pytest.raises(TypeError, match=f"client .* not {type(client).__module__}\\."):
        jobboard.fetch("board", "redis", client=client)


def test_hosts_that_are_none() -> None:
    with pytest.raises(TypeError, match=r"sentinel_fallbacks.*must name hosts"):
        jobboard.fetch("board", {"board": "redis", "sentinel": "s", "sentinel_fallbacks": [("h2", 1), 5]})


def _in_child(act: Callable[[], Any]) -> str:
    """What an act answers, or raises, in a forked child."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            answer = repr(act())
        except BaseException as error:  # noqa: BLE001 - told to the parent
            answer = repr(error)
        os.write(writer, answer.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        answer = file.read()
    os.waitpid(child, 0)
    return answer


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("own", [True, False])
def test_in_a_forked_child(server: Redis, admin: redis.Redis, open_board: Open, own: bool) -> None:
    board = open_board(server.uri) if own else open_board("redis", client=admin)
    EventLog(board)

    def act() -> Any:
        board.post("crop")
        found = board.claim_next("bert", names=["crop"], timeout=5)
        board.close()
        return found and found.name

    answer = _in_child(act)
    if own:
        assert answer == "'crop'"
    else:
        assert answer.startswith("JobFailure(")
        assert "forked" in answer
    # The parent's connections are as they were.
    job = board.post("resize")
    waiter = Waiter(board, lambda: take(board, names=["scale"], timeout=PATIENCE))
    assert take(board, names=["resize"]) == job
    board.post("scale")
    assert waiter.wait().name == "scale"


@pytest.mark.parametrize("own", [True, False])
def test_close_leaves_no_connection(server: Redis, admin: redis.Redis, open_board: Open, live: Live, own: bool) -> None:
    def connections() -> int:
        return len(admin.client_list())

    before = connections()
    board = open_board(server.uri) if own else open_board("redis", client=admin)
    live(board, board)
    assert connections() > before
    board.close()
    assert eventually(lambda: connections() == before)

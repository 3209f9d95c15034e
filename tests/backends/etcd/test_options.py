"""What a board can be told, whom it trusts, and what it says where it may not."""

import socket
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard import conf
from jobboard.backends.etcd.driver import EtcdDriver
from jobboard.engine import Seat
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import Posting
from tests.backends.etcd.conftest import link_of
from tests.support.etcd_servers import Etcd

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]


def unopened(uri: str) -> EtcdDriver:
    settings = conf.parse(uri, {**conf.COMMON, **EtcdDriver.options}, EtcdDriver.uri_parts)
    return EtcdDriver(Seat("board", settings, None, uri))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"hosts": "a:b"}, "must name hosts"),
        ({"hosts": "one:99999"}, "from 1 to 65535"),
        ({"hosts": ""}, "must name hosts"),
        ({"board": "etcd://https://one:2379"}, r"leave out https://, as in etcd://one:2379,two:2379\?use_ssl=true"),
        ({"board": "etcd://anna:secret@http://one:2379"}, "leave out http://, as in etcd://one:2379,two:2379$"),
        ({"hosts": ["https://one:2379"]}, "leave out https://"),
        ({"namespace": "a/../b"}, "must be a path"),
        ({"ca": "/ca.pem"}, "option ca: set use_ssl=true, too"),
        ({"password": "x"}, "option password: set user, too"),
        ({"user": "x"}, "option user: set password, too"),
        ({"use_ssl": True, "certfile": "/c"}, "option certfile: set keyfile, too"),
        ({"endpoint": "x"}, "has no option 'endpoint'"),
    ],
)
def test_what_does_not_fit_is_told_before_a_server_is_asked(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        jobboard.fetch("board", {"board": "etcd", **given})


def test_a_client_of_the_callers_is_refused() -> None:
    with pytest.raises(TypeError, match="makes its own connections; give it hosts"):
        jobboard.fetch("board", "etcd", client=object())


def test_a_uri_says_it_all() -> None:
    board = jobboard.fetch("board", "etcd://anna:secret@one:1,[::1]:2,three/services/jobs?port=7")
    driver = unopened("etcd://anna:secret@one:1,[::1]:2,three/services/jobs?port=7")
    assert driver._link._members == [("one", 1), ("::1", 2), ("three", 7)]
    assert driver._conf["namespace"] == "services/jobs"
    assert "secret" not in repr(board.engine.raw) + repr(driver._conf)


def test_the_protocol_beside_the_scheme(board_conf: dict[str, Any], make_board: Callable[..., Any]) -> None:
    job = make_board().post("a")
    assert make_board(board=board_conf["board"].replace("etcd:", "etcd+http:")).get(job.uuid) == job
    assert unopened("etcd+https://h")._link._context is not None


def test_a_board_that_is_not_there(board_conf: dict[str, Any], make_board: Callable[..., Any]) -> None:
    make_board("picture")
    with pytest.raises(JobFailure, match="boards there: 'picture'; `jobboard setup` creates it"):
        make_board("pictures", auto_setup=False)
    board = jobboard.fetch("pictures", board_conf)
    board.engine.raw.setup()
    assert set(make_board("pictures", auto_setup=False).engine.boards(10)) == {"picture", "pictures"}


def test_who_only_looks_writes_nothing(private_board: Callable[..., Any]) -> None:
    # Revisions are those of the whole server.
    board = private_board()
    job = board.post("resize")
    looker = private_board(read_only=True)
    before = link_of(board).read([]).revision
    assert looker.get(job.uuid).seen_state == "UNCLAIMED"
    assert list(looker.iterjobs()) == list(looker.wait(0)) == [job]
    looker.close()
    assert link_of(board).read([]).revision == before
    with pytest.raises(JobFailure, match="read_only"):
        private_board(read_only=True).post("resize")


def test_nobody_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectionFailure, match=f"no member of etcd can be reached: 127.0.0.1:{port}"):
        jobboard.fetch("board", f"etcd://127.0.0.1:{port}?retry_for=0").connect()


def test_one_that_is_silent_is_passed_over(board_conf: dict[str, Any]) -> None:
    """Whichever of them is asked first."""
    there = board_conf["board"].removeprefix("etcd://")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        among = {**board_conf, "board": f"etcd://127.0.0.1:{silent.getsockname()[1]},{there}", "timeout": 0.3}
        for _ in range(4):
            with jobboard.backend("board", among) as board:
                assert board.post("resize").name == "resize"


def test_tls(private_server: Callable[..., Any]) -> None:
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


def test_users(guarded: Etcd) -> None:
    def uri(user: str) -> str:
        return guarded.uri.replace("//", f"//{user}@") + "/jobs?retry_for=1"

    with jobboard.backend("board", uri("anna:annapw")) as board:
        job = board.post("resize")
        assert board.claim_next("anna") == job
        # A token that the server has forgotten is replaced, without a word.
        link_of(board)._token = "stale.1"
        board.consume(job, "anna")
        board.post("resize")
        # Nor is more asked for where there is much to compare.
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

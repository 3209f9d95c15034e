"""Options of boards on etcd."""

from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard.backends.etcd.driver import EtcdDriver
from jobboard.backends.etcd.options import OPTIONS, members
from jobboard.conf import COMMON, parse
from tests.backends.etcd.conftest import link_of

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]


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
    ],
)
def test_bad_options_are_refused_at_fetch(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        jobboard.fetch("board", {"board": "etcd", **given})


def test_a_client_of_the_callers_is_refused() -> None:
    with pytest.raises(TypeError, match="makes its own connections; give it hosts"):
        jobboard.fetch("board", "etcd", client=object())


def test_a_uri_names_members_user_and_namespace() -> None:
    uri = "etcd://anna:secret@one:1,[::1]:2,three/services/jobs?port=7"
    conf = parse(uri, {**COMMON, **OPTIONS}, EtcdDriver.uri_parts)
    assert members(conf) == [("one", 1), ("::1", 2), ("three", 7)]
    assert conf["namespace"] == "services/jobs"
    assert "secret" not in repr(jobboard.fetch("board", uri)) + repr(conf)


def test_a_read_only_board_writes_nothing(private_board: Callable[..., Any]) -> None:
    # Revisions are those of the whole server.
    board = private_board()
    job = board.post("resize")
    looker = private_board(read_only=True)
    before = link_of(board).read([]).revision
    assert looker.get(job.uuid).seen_state == "UNCLAIMED"
    assert list(looker.iterjobs()) == list(looker.wait(0)) == [job]
    looker.close()
    assert link_of(board).read([]).revision == before

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

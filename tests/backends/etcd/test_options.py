"""Options of boards on etcd."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.etcd.conftest import link_of

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]


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

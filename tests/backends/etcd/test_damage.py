"""A board whose keys something else has changed or deleted."""

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.backends.etcd.requests import delete, end_of, get
from jobboard.exceptions import JobFailure
from tests.backends.etcd.conftest import link_of

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]


def test_a_board_that_was_deleted_is_not_written_to(make_board: Callable[..., Any]) -> None:
    board = make_board()
    board.post("resize")
    link, folder = link_of(board), f"{board.engine.store.seat.conf['namespace']}/"
    everything = [kv.key for kv in link.read([get(folder, end_of(folder), only="keys")]).found[0]]
    link.txn((), [delete(key) for key in everything])
    with pytest.raises(JobFailure, match="was deleted; connect"):
        board.post("resize")
    with pytest.raises(JobFailure, match="was deleted; connect"):
        board.claim_next("anna")
    assert link.read([get(folder, end_of(folder))]).found == [[]]
    again = make_board()
    # Another board of that name: what is remembered of the first one does not count.
    jobs = [board.post("resize"), again.post("resize")]
    assert [again.claim_next("bert") for _ in jobs] == jobs
    assert list(again.engine.raw.examine()) == []

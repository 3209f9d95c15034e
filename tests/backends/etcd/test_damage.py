"""A board whose keys something else has changed or deleted."""

import json
import re
from base64 import b64encode
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.backends.etcd.driver import CLOCK, NEXT
from jobboard.backends.etcd.requests import delete, end_of, get, put
from jobboard.exceptions import JobFailure
from jobboard.kv.layout import HOLDERS, KEPT, LIVE, READY, TRASH
from jobboard.states import UNCLAIMED
from jobboard.testing.conformance.support import take
from tests.backends.etcd.conftest import driver_of, link_of

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]


@pytest.mark.rule("A deleted board is not written to.")
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
    assert list(again.examine()) == []


@pytest.mark.rule("A damaged time stops the board with an error that names the key, its value and the value to write.")
@pytest.mark.parametrize("path", [CLOCK, NEXT])
@pytest.mark.parametrize("value", [b"", b"soon", b"9" * 30])
def test_a_damaged_time_is_an_error_that_says_what_to_write(
    make_board: Callable[..., Any], path: str, value: bytes
) -> None:
    board, other = make_board(), make_board()
    job = board.post("resize")
    driver, link = driver_of(board), link_of(board)
    key = driver.key(path)
    link.txn((), [put(key, value)])
    for call in (lambda: other.claim_next("anna"), lambda: list(board.iterjobs())):
        with pytest.raises(JobFailure, match=rf"{key}.*{value!r}") as failed:
            call()
    [way_out] = re.findall(r"'(\d{18})'", str(failed.value))
    link.txn((), [put(key, way_out.encode())])
    assert other.claim_next("anna") == job
    assert board.post("resize").seen_state == UNCLAIMED


@pytest.mark.rule("A stray key is passed over, even one that is no text.")
def test_stray_keys_are_passed_over(make_board: Callable[..., Any]) -> None:
    early = make_board()
    job = early.post("resize")
    for place in (READY, LIVE, KEPT, HOLDERS, TRASH):
        for stray in (b"!", b"\xff", b"stray"):
            key = b64encode(driver_of(early).key(f"{place}/").encode() + stray).decode()
            link_of(early).call("/v3/kv/put", json.dumps({"key": key}))
    for board in (early, make_board()):
        assert list(board.iterjobs()) == [job]
        assert list(board.trashed()) == []
        assert take(board) == job
        board.trash(job, "anna")
        assert list(board.trashed()) == [job]
        board.restore(job)

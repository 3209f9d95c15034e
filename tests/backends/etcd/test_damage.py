"""A board whose keys something else has changed or deleted."""

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.backends.etcd.requests import delete, end_of, put, span
from jobboard.exceptions import JobFailure
from jobboard.kv.layout import GATE_PATH, LAYOUT, job_path
from tests.backends.etcd.conftest import driver_of, link_of

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]


def write(board: Any, path: str, value: bytes | None) -> None:
    key = driver_of(board)._key(path)
    link_of(board).txn((), [delete(key) if value is None else put(key, value)])


def test_a_damaged_record_is_passed_over(make_board: Callable[..., Any]) -> None:
    board, other = make_board(), make_board()
    first, second = board.post("resize"), board.post("resize")
    write(board, job_path(first.uuid), b"\xc1")
    assert other.claim_next("anna") == second
    [lost] = other.trashed()
    assert lost.uuid == first.uuid
    assert "can't be decoded" in lost.error
    other.purge(lost)
    assert list(other.engine.raw.examine()) == []


def test_a_board_that_was_deleted_is_not_written_to(make_board: Callable[..., Any]) -> None:
    board = make_board()
    board.post("resize")
    link, folder = link_of(board), f"{driver_of(board)._namespace}/"
    everything = [kv.key for kv in link.read([span(folder, end_of(folder), only="keys")]).found[0]]
    link.txn((), [delete(key) for key in everything])
    with pytest.raises(JobFailure, match="was deleted; connect"):
        board.post("resize")
    with pytest.raises(JobFailure, match="was deleted; connect"):
        board.claim_next("anna")
    assert link.read([span(folder, end_of(folder))]).found == [[]]
    again = make_board()
    # Another board of that name: what is remembered of the first one does not count.
    jobs = [board.post("resize"), again.post("resize")]
    assert [again.claim_next("bert") for _ in jobs] == jobs
    assert list(again.engine.examine()) == []


def test_a_layout_of_a_newer_version_is_refused(make_board: Callable[..., Any]) -> None:
    write(make_board(), LAYOUT, b"9 9")
    with pytest.raises(JobFailure, match="newer version of this library; upgrade"):
        make_board()


def test_nothing_is_claimed_past_a_gate_that_is_none(make_board: Callable[..., Any]) -> None:
    board, other = make_board(), make_board()
    board.pause()
    job = board.post("resize")
    write(board, GATE_PATH, b"\xc1")
    for each in (board, other):
        for verb in (each.paused, lambda each=each: each.claim_next("anna")):
            with pytest.raises(JobFailure, match="gate/rules is damaged"):
                verb()
    [oddity] = board.engine.raw.examine()
    assert driver_of(board)._key(GATE_PATH) in oddity.place
    write(board, GATE_PATH, None)
    assert other.claim_next("anna") == job

"""What something else has written there does not stop a board, and the doctor finds it."""

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.backends.etcd.keys import EtcdKeys
from jobboard.backends.etcd.link import Gateway
from jobboard.backends.etcd.requests import delete, put, span
from jobboard.exceptions import JobFailure

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]


def test_a_damaged_record_is_passed_over(make_board: Callable[..., Any], keys: EtcdKeys) -> None:
    board = make_board()
    first, second = board.post("resize"), board.post("resize")
    store = board.engine._opened
    [key] = [kv.key for kv in store.link.read([span(f"{keys.root}ready/", f"{keys.root}ready0", 1)]).found[0]]
    store.link.txn((), [put(key, b"\xc1")])
    other = make_board()
    assert list(other.iterjobs()) == [second]
    assert other.claim_next("anna") == second
    assert {oddity.place for oddity in other.engine.examine()} == {key, keys.job(first.uuid)}
    store.link.txn((), [delete(key), delete(keys.job(first.uuid))])
    assert list(other.engine.examine()) == []


def test_a_job_without_its_fence_is_found_by_the_doctor(make_board: Callable[..., Any], keys: EtcdKeys) -> None:
    board = make_board()
    job = board.post("resize")
    store = board.engine._opened
    [[fence]] = store.link.read([span(keys.fences, keys.fences[:-1] + "0")]).found
    store.link.txn((), [delete(fence.key)])
    assert board.claim_next("anna") is None
    [oddity] = board.engine.examine()
    assert job.uuid in oddity.reason
    store.link.txn((), [put(oddity.advice.rpartition(" ")[2])])
    assert board.claim_next("anna") == job


def test_a_job_that_moves_while_it_looks_is_not_odd(
    make_board: Callable[..., Any], keys: EtcdKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is met neither among those that are ready nor among those that are claimed."""
    board, other = make_board(), make_board()
    job = board.post("resize")
    mine, pages = other.engine._opened.link, Gateway.pages
    moves: list[str] = []

    def meeting(link: Gateway, start: str, *more: Any) -> Any:
        if link is mine and start in (f"{keys.root}ready/", f"{keys.root}busy/"):
            moves.append(start)
            if start.endswith("ready/"):
                board.claim(job, "anna")
            else:
                board.release(job)
        return pages(link, start, *more)

    monkeypatch.setattr(Gateway, "pages", meeting)
    assert list(other.engine.examine()) == []
    assert len(moves) == 4


def test_a_board_that_was_deleted_is_not_written_to(make_board: Callable[..., Any], keys: EtcdKeys) -> None:
    board = make_board()
    board.post("resize")
    link = board.engine._opened.link
    everything = [kv.key for kv in link.read([span(keys.root, keys.root[:-1] + "0")]).found[0]]
    link.txn((), [delete(key) for key in [*everything, keys.layout]])
    with pytest.raises(JobFailure, match="was deleted; connect"):
        board.post("resize")
    with pytest.raises(JobFailure, match="was deleted; connect"):
        board.claim_next("anna")
    again = make_board()
    # Another board of that name: what is remembered of the first one does not count.
    jobs = [board.post("resize"), again.post("resize")]
    assert [again.claim_next("bert") for _ in jobs] == jobs
    assert list(again.engine.examine()) == []


def test_a_layout_of_a_newer_version_is_refused(make_board: Callable[..., Any], keys: EtcdKeys) -> None:
    link = make_board().engine._opened.link
    link.txn((), [put(keys.layout, b"9 9")])
    with pytest.raises(JobFailure, match="newer version of this library; upgrade"):
        make_board()


def test_nothing_is_claimed_past_a_gate_that_is_none(make_board: Callable[..., Any], keys: EtcdKeys) -> None:
    board, other = make_board(), make_board()
    board.pause()
    job = board.post("resize")
    store = board.engine._opened
    store.link.txn((), [put(keys.gate, b"\xc1")])
    for each in (board, other):
        for verb in (each.paused, lambda each=each: each.claim_next("anna")):
            with pytest.raises(JobFailure, match="gate/rules is damaged"):
                verb()
    assert [oddity.place for oddity in board.engine.examine()] == [keys.gate]
    store.link.txn((), [delete(keys.gate)])
    assert other.claim_next("anna") == job

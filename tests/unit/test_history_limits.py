"""What the checks of a history say of limits: quiet about what may be, and loud about a planted fault."""

import pytest

from jobboard.states import State
from jobboard.testing.history import HistoryEntry, LeftJob, judge
from jobboard.testing.limited import Limiting
from tests.unit.test_history import ABANDON, CLAIM, CONSUME, EXTEND, POST, RELEASE, entry

ONE = Limiting(0.1, 0.2, "mail", "name", 1)
LOWERED = [ONE._replace(concurrency=5), Limiting(2, 2.2, "mail", concurrency=1)]
ONE_IN_A_TIME = [Limiting(0, 0.1, "mail", rate=(1, 2.6))]
POSTS = [entry(-1, POST, uuid, name="mail", group=group) for uuid, group in zip("abc", "xxy", strict=True)]
FIRST = entry(1, CLAIM, "a", token=1, until=31.0)
SECOND = entry(3, CLAIM, "b", token=2, until=33.0, process="q")
LEFT = {uuid: LeftJob(State.CLAIMED, 9) for uuid in "abc"}

FINE = {
    "no limit": ([], [FIRST, SECOND]),
    "another name": ([ONE._replace(name="resize")], [FIRST, SECOND]),
    "two allowed": ([ONE._replace(concurrency=2)], [FIRST, SECOND]),
    "of another group": ([ONE._replace(per="group")], [FIRST, SECOND._replace(uuid="c")]),
    "consumed before": ([ONE], [FIRST, entry(1.8, CONSUME, "a", token=1), SECOND]),
    "perhaps consumed before": ([ONE], [FIRST, entry(1.8, CONSUME, "a", token=1, outcome="unknown"), SECOND]),
    "consumed meanwhile": ([ONE], [FIRST, entry(3.2, CONSUME, "a", token=1), SECOND]),
    "released by somebody": ([ONE], [FIRST, entry(1.8, RELEASE, "a", process="r"), SECOND]),
    "lapsed before": ([ONE], [FIRST._replace(until=2.5), SECOND]),
    "lapsed meanwhile": ([ONE], [FIRST._replace(until=3.4), SECOND]),
    "extended to an earlier end": ([ONE], [FIRST, entry(1.6, EXTEND, "a", token=1, until=2.5), SECOND]),
    "perhaps extended to an earlier end": (
        [ONE],
        [FIRST, entry(1.6, EXTEND, "a", token=1, outcome="unknown"), SECOND],
    ),
    "kept by a process of which nothing more is known": ([ONE], [FIRST._replace(until=None), SECOND]),
    "at the same time": ([ONE], [FIRST, SECOND._replace(began=1.2)]),
    "set after it": ([ONE._replace(began=3.6, ended=3.7)], [FIRST, SECOND]),
    "set during it": ([ONE._replace(ended=3.2)], [FIRST, SECOND]),
    "removed before": ([ONE, Limiting(2, 2.1, "mail")], [FIRST, SECOND]),
    "raised before": ([ONE, Limiting(2, 2.1, "mail", concurrency=2)], [FIRST, SECOND]),
    "perhaps raised before": ([ONE, Limiting(2, 9, "mail", concurrency=2)], [FIRST, SECOND]),
    "from before the first limit": ([ONE._replace(began=2, ended=2.1)], [FIRST, SECOND]),
    "from between two limits": (
        [ONE, Limiting(0.3, 0.4, "mail"), Limiting(2, 2.1, "mail", concurrency=1)],
        [FIRST, SECOND],
    ),
    "from before a concurrency": (
        [Limiting(0, 0.1, "mail", rate=(9, 1.0)), Limiting(2, 2.1, "mail", concurrency=1)],
        [FIRST, SECOND],
    ),
    "a rate": ([Limiting(0, 0.1, "mail", rate=(1, 2.0))], [FIRST, SECOND]),
}
OVER = {
    "while another lives": ([ONE], [FIRST, SECOND]),
    "whose holder has extended": (
        [ONE],
        [FIRST._replace(until=2.5), entry(1.6, EXTEND, "a", token=1, until=9.0), SECOND],
    ),
    "whose holder still works": ([ONE], [FIRST._replace(until=None), SECOND, entry(5, CONSUME, "a", token=1)]),
    "of its group": ([ONE._replace(per="group")], [FIRST, SECOND]),
    "together with another": ([ONE], [FIRST._replace(began=3, process="q", ended=3.5), SECOND]),
    "of a limit that was lowered": (
        [ONE._replace(concurrency=5), Limiting(2, 2.2, "mail", concurrency=1)],
        [FIRST, SECOND],
    ),
    "within the window": (
        [Limiting(0, 0.1, "mail", rate=(1, 2.6))],
        [FIRST, entry(1.6, ABANDON, "a", token=1), SECOND],
    ),
}


def judged(case: tuple[list[Limiting], list[HistoryEntry]]) -> list[str]:
    limits, entries = case
    consumed = {each.uuid for each in entries if each.verb == CONSUME and each.outcome == "ok"}
    board = {uuid: left for uuid, left in LEFT.items() if uuid not in consumed}
    return judge([*POSTS, *entries], board, limits=limits)


@pytest.mark.parametrize("case", FINE)
def test_claims_that_no_limit_forbids(case: str) -> None:
    assert judged(FINE[case]) == []


@pytest.mark.parametrize("case", OVER)
def test_catches_a_claim_over_the_limit(case: str) -> None:
    faults = judged(OVER[case])
    assert faults
    assert all(fault.startswith("over the limit: ") for fault in faults)
    assert any(fault.startswith("over the limit: b, by q") for fault in faults)


def test_what_has_no_room_may_be_passed_over() -> None:
    other = entry(-0.4, POST, "d", name="resize")
    history = [*POSTS, other, FIRST._replace(chosen=True), entry(5, CLAIM, "d", token=1, chosen=True)]
    fault = ["out of order: d was served while b was waiting"]
    board = {**LEFT, "d": LeftJob(State.CLAIMED, 1)}
    assert judge(history, board) == fault
    assert judge(history, board, limits=[ONE]) == []
    assert judge(history, board, limits=[ONE._replace(concurrency=2)]) == fault
    # The third job is of a group of its own.
    others = ["out of order: d was served while c was waiting"]
    assert judge(history, board, limits=[ONE._replace(per="group")]) == others
    assert judge([*history, entry(2, CONSUME, "a", token=1)], {u: board[u] for u in "bcd"}, limits=[ONE]) == fault
    assert judge(history, board, limits=[Limiting(0, 0.1, "mail", rate=(1, 10.0))]) == []
    assert judge(history, board, limits=[Limiting(0, 0.1, "mail", rate=(1, 1.0))]) == fault


@pytest.mark.parametrize("began", [1.6, 2.6])
def test_who_found_no_room_may_have_held_a_better_job(began: float) -> None:
    posts = [entry(0.1 * rank, POST, uuid, rank=rank, name="print") for rank, uuid in enumerate("ab")]
    claim = entry(2, CLAIM, "b", token=1, chosen=True)
    nothing = entry(began, CLAIM, "", outcome="refused", process="q")
    board = {"a": LeftJob(State.UNCLAIMED, 0), "b": LeftJob(State.CLAIMED, 1)}
    faults = ["out of order: b was served while a was waiting"]
    assert judge([*posts, claim, nothing], board) == faults
    assert judge([*posts, claim, nothing], board, limits=[ONE]) == ([] if began < 2.5 else faults)


@pytest.mark.parametrize("released", [1.0, 1.1, 1.3])
def test_a_release_that_overlaps_a_claim_may_have_ended_the_one_before_it(released: float) -> None:
    """The one that overlaps it may live on, and leave no room for another."""
    history = [
        *POSTS,
        entry(-0.4, POST, "d", name="resize"),
        entry(0.3, CLAIM, "a", token=1, until=0.9),
        entry(released, RELEASE, "a", ended=released + 0.2, process="r"),
        entry(1.05, CLAIM, "a", ended=1.25, token=2, until=31.0, process="q"),
        entry(5, CLAIM, "d", token=1, chosen=True),
    ]
    board = {**LEFT, "b": LeftJob(State.UNCLAIMED, 0), "d": LeftJob(State.CLAIMED, 1)}
    faults = ["out of order: d was served while b was waiting"]
    assert judge(history, board, limits=[ONE]) == ([] if released < 1.25 else faults)

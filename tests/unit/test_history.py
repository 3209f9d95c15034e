"""The checks of history.py: quiet about what may be, and each loud about a planted fault."""

import json
import math

import pytest

from jobboard.states import State, Verb
from jobboard.testing.history import HistoryEntry, LeftJob, Pausing, judge, left_over

POST, CLAIM, CONSUME = Verb.POST, Verb.CLAIM, Verb.CONSUME
EXTEND, ABANDON, RELEASE, PURGE = Verb.EXTEND, Verb.ABANDON, Verb.RELEASE, Verb.PURGE


def entry(began: float, verb: Verb, uuid: str = "a", *, ended: float | None = None, **other) -> HistoryEntry:
    return HistoryEntry(
        **{
            "began": began,
            "ended": began + 0.5 if ended is None else ended,
            "process": "p",
            "verb": verb,
            "uuid": uuid,
            "outcome": "ok",
            **other,
        }
    )


WELL = [
    entry(0, POST),
    entry(1, CLAIM, token=1, until=31.0, chosen=True),
    entry(2, EXTEND, token=1, until=32.0),
    entry(3, ABANDON, token=1),
    entry(4, CLAIM, token=2, until=34.0, chosen=True),
    entry(5, CONSUME, token=2),
]

FINE = {
    "nothing": ([], {}),
    "a life": (WELL, {}),
    "posted and still there": ([entry(0, POST)], {"a": LeftJob(State.UNCLAIMED, 0)}),
    "trashed": ([entry(0, POST)], {"a": LeftJob(State.TRASHED, 0)}),
    "purged": ([entry(0, POST), entry(1, PURGE)], {}),
    "an outcome": ([*WELL[:-1], WELL[-1]._replace(keeps=True)], {"a": LeftJob(State.COMPLETE, 2)}),
    "an outcome of a consume of which nobody knows": (
        [*WELL[:-1], WELL[-1]._replace(keeps=True, outcome="unknown")],
        {"a": LeftJob(State.COMPLETE, 2)},
    ),
    "perhaps consumed": ([entry(0, POST), entry(1, CONSUME, token=1, outcome="unknown", ended=math.inf)], {}),
    "a post of which nobody knows": ([entry(0, POST, "", outcome="unknown")], {"a": LeftJob(State.UNCLAIMED, 0)}),
    "a post that was refused": ([entry(0, POST, outcome="refused")], {}),
    "refused acts": ([*WELL, entry(6, CONSUME, token=1, outcome="refused"), entry(7, CONSUME, outcome="refused")], {}),
    "a job of a key that was posted again has its first place": (
        [
            entry(0, POST, "a"),
            entry(1, POST, "b"),
            entry(2, POST, "a"),
            *(entry(n, CLAIM, uuid, token=1, chosen=True) for n, uuid in ((3, "a"), (4, "b"))),
        ],
        {uuid: LeftJob(State.CLAIMED, 1) for uuid in "ab"},
    ),
    "a claim after the lease": (
        [
            entry(0, POST),
            entry(1, CLAIM, token=1, until=3.0),
            entry(3.2, CLAIM, token=2, until=33.0),
            entry(5, CONSUME, token=2),
        ],
        {},
    ),
    "a claim while the lease was running out": (
        [entry(0, POST), entry(1, CLAIM, token=1, until=3.0), entry(2.9, CLAIM, token=2), entry(5, CONSUME, token=2)],
        {},
    ),
    "jobs of a schedule, which nobody has posted by hand": (
        [entry(0, CLAIM, uuid, token=1, occasion=f"nightly at {uuid}") for uuid in "ab"],
        dict.fromkeys("ab", LeftJob(State.CLAIMED, 1)),
    ),
    "a claim after a release": (
        [
            entry(0, POST),
            entry(1, CLAIM, token=1, until=31.0),
            entry(2, RELEASE),
            entry(3, CLAIM, token=3),
            entry(5, CONSUME, token=3),
        ],
        {},
    ),
    "a claim after a release of which nobody knows": (
        [
            entry(0, POST),
            entry(1, CLAIM, token=1, until=31.0),
            entry(1, RELEASE, outcome="unknown", ended=math.inf),
            entry(3, CLAIM, token=3),
            entry(5, CONSUME, token=3),
        ],
        {},
    ),
    "a lease that was made shorter": (
        [
            entry(0, POST),
            entry(1, CLAIM, token=1, until=31.0),
            entry(2, EXTEND, token=1, until=2.6),
            entry(3, CLAIM, token=2),
            entry(5, CONSUME, token=2),
        ],
        {},
    ),
    "acts that overlap a later claim": (
        [
            entry(0, POST),
            entry(1, CLAIM, token=1, until=3.0),
            entry(3, CLAIM, token=2, ended=6),
            entry(3, EXTEND, token=1, ended=4, until=5.0),
            entry(6.5, CONSUME, token=2),
        ],
        {},
    ),
    "a lower priority while the better one was claimed": (
        [
            entry(0, POST, "a", rank=0),
            entry(1, POST, "b", rank=1),
            entry(2, CLAIM, "a", token=1, chosen=True),
            entry(3, CLAIM, "b", token=1, chosen=True),
            entry(4, ABANDON, "a", token=1),
        ],
        {"a": LeftJob(State.UNCLAIMED, 1), "b": LeftJob(State.CLAIMED, 1)},
    ),
    "overlapping claims in any order": (
        [
            entry(0, POST, "a"),
            entry(1, POST, "b"),
            entry(2, CLAIM, "b", token=1, chosen=True),
            entry(2.4, CLAIM, "a", token=1, chosen=True, process="q"),
        ],
        {"a": LeftJob(State.CLAIMED, 1), "b": LeftJob(State.CLAIMED, 1)},
    ),
    "overlapping posts in any order": (
        [
            entry(0, POST, "a"),
            entry(0.4, POST, "b"),
            entry(2, CLAIM, "b", token=1, chosen=True),
            entry(3, CLAIM, "a", token=1, chosen=True),
        ],
        {"a": LeftJob(State.CLAIMED, 1), "b": LeftJob(State.CLAIMED, 1)},
    ),
    "a batch": (
        [
            entry(0, POST, "a"),
            entry(1, POST, "b"),
            entry(2, CLAIM, "b", token=1, chosen=True),
            entry(2, CLAIM, "a", token=1, chosen=True),
        ],
        {"a": LeftJob(State.CLAIMED, 1), "b": LeftJob(State.CLAIMED, 1)},
    ),
    "a claim that was never answered, of any job": (
        [
            entry(0, POST, "a"),
            entry(1, POST, "b"),
            entry(2, CLAIM, "", ended=math.inf, outcome="unknown"),
            entry(3, CLAIM, "b", token=1, chosen=True),
        ],
        {"a": LeftJob(State.CLAIMED, 1), "b": LeftJob(State.CLAIMED, 1)},
    ),
    "a job that was given back meanwhile": (
        [
            *(entry(n, POST, uuid) for n, uuid in enumerate("ab")),
            entry(2, CLAIM, "a", token=1, chosen=True),
            entry(3.4, ABANDON, "a", token=1),
            entry(3, CLAIM, "b", token=1, chosen=True, process="q", ended=4.5),
        ],
        {"a": LeftJob(State.UNCLAIMED, 1), "b": LeftJob(State.CLAIMED, 1)},
    ),
    "a job that was given back for later, or was taken at once": (
        [
            *(entry(n, POST, uuid) for n, uuid in enumerate("abc")),
            entry(2, CLAIM, "a", token=1, chosen=True),
            entry(3, ABANDON, "a", token=1, ready=False),
            entry(4, CLAIM, "b", token=1, chosen=True),
            entry(5, ABANDON, "b", token=1),
            entry(5.2, CLAIM, "b", token=2, ended=7, process="q"),
            entry(6, CLAIM, "c", token=1, chosen=True),
        ],
        {uuid: LeftJob(State.UNCLAIMED, 9) for uuid in "abc"},
    ),
    "a job that is done before its post is answered, and one whose next claim is over before it is given back": (
        [
            entry(0, POST, "a", ended=4),
            entry(1, CLAIM, "a", token=1, chosen=True),
            entry(2, ABANDON, "a", token=1, ended=5),
            entry(3, CLAIM, "a", token=2, chosen=True, process="q"),
            entry(4, CONSUME, "a", token=2, process="q"),
            entry(5.5, POST, "b"),
            entry(7, CLAIM, "b", token=1, chosen=True),
        ],
        {"b": LeftJob(State.CLAIMED, 1)},
    ),
    "a job that somebody was about who was refused": (
        [
            *(entry(n, POST, uuid) for n, uuid in enumerate("ab")),
            entry(2, CONSUME, "a", ended=4, outcome="refused", process="q"),
            entry(3, CLAIM, "b", token=1, chosen=True),
        ],
        {"a": LeftJob(State.UNCLAIMED, 1), "b": LeftJob(State.CLAIMED, 1)},
    ),
    "a job of another name": (
        [
            entry(0, POST, "a", name="mail"),
            entry(1, POST, "b", name="resize"),
            entry(2, CLAIM, "b", token=1, chosen=True, among=("resize", "print")),
        ],
        {"a": LeftJob(State.UNCLAIMED, 0), "b": LeftJob(State.CLAIMED, 1)},
    ),
    "a job that was not ready, or not looked for": (
        [
            entry(0, POST, "a", ready=False),
            entry(1, POST, "b"),
            entry(1, POST, "c"),
            entry(2, CLAIM, "b", token=1, chosen=True),
            entry(3, POST, "d", rank=-1),
            entry(4, CLAIM, "c", token=1),
        ],
        {uuid: LeftJob(State.UNCLAIMED, 9) for uuid in "abcd"},
    ),
}

FAULTY = {
    "lost": ([entry(0, POST)], {}),
    "invented: a": ([], {"a": LeftJob(State.UNCLAIMED, 0)}),
    "invented: b": ([*WELL, entry(6, CLAIM, "b", token=1)], {}),
    "consumed twice": ([*WELL, entry(4.9, CONSUME, token=2)], {}),
    "claimed after it was consumed": ([*WELL, entry(6, CLAIM, token=3)], {}),
    "outcome lost": ([*WELL[:-1], WELL[-1]._replace(keeps=True)], {}),
    "outcome of a job that nobody has consumed": (WELL[:-1], {"a": LeftJob(State.COMPLETE, 2)}),
    "consumed and still there": (WELL, {"a": LeftJob(State.UNCLAIMED, 2)}),
    "token fell: a, from 2 to 1": (
        [
            entry(0, POST),
            entry(1, CLAIM, token=2),
            entry(2, ABANDON, token=2),
            entry(3, CLAIM, token=1),
            entry(4, CONSUME),
        ],
        {},
    ),
    "token given twice": (
        [entry(0, POST), entry(1, CLAIM, token=2), entry(1.2, CLAIM, token=2, process="q")],
        {"a": LeftJob(State.CLAIMED, 2)},
    ),
    "token fell: a, from 2 to 1 on the board": (
        [entry(0, POST), entry(1, CLAIM, token=2)],
        {"a": LeftJob(State.UNCLAIMED, 1)},
    ),
    "stale consume accepted": (
        [
            entry(0, POST),
            entry(1, CLAIM, token=1, until=2.0),
            entry(3, CLAIM, token=2, until=33.0),
            entry(4, CONSUME, token=1),
        ],
        {},
    ),
    "stale extend accepted": (
        [
            entry(0, POST),
            entry(1, CLAIM, token=1, until=2.0),
            entry(3, CLAIM, token=2, until=33.0),
            entry(4, EXTEND, token=1),
            entry(5, CONSUME, token=2),
        ],
        {},
    ),
    "extend after the claim's end": ([*WELL[:4], entry(3.8, EXTEND, token=1), *WELL[4:]], {}),
    "taken too early": (
        [
            entry(0, POST),
            entry(1, CLAIM, token=1, until=31.0),
            entry(3, CLAIM, token=2, process="q"),
            entry(5, CONSUME, token=2),
        ],
        {},
    ),
    "taken too early: a, 7": (
        [
            entry(0, POST),
            entry(1, CLAIM, token=1, until=2.0),
            entry(2, EXTEND, token=1, until=10.5),
            entry(3, CLAIM, token=2),
            entry(5, CONSUME, token=2),
        ],
        {},
    ),
    "posted twice for a due time": (
        [entry(0, CLAIM, uuid, token=1, occasion="nightly at 3") for uuid in "ab"],
        dict.fromkeys("ab", LeftJob(State.CLAIMED, 1)),
    ),
    "out of order: b": (
        [entry(0, POST, "a"), entry(1, POST, "b"), entry(2, CLAIM, "b", token=1, chosen=True)],
        {"a": LeftJob(State.UNCLAIMED, 0), "b": LeftJob(State.CLAIMED, 1)},
    ),
    "out of order: b was served while a": (
        [
            *(entry(n, POST, uuid) for n, uuid in enumerate("ab")),
            entry(2, CLAIM, "a", token=1, chosen=True),
            entry(3, ABANDON, "a", token=1),
            entry(4, CLAIM, "b", token=1, chosen=True),
            entry(5, CLAIM, "a", token=2, chosen=True),
        ],
        {uuid: LeftJob(State.CLAIMED, 2) for uuid in "ab"},
    ),
    "out of order: b was served while a was": (
        [
            *(entry(n, POST, uuid) for n, uuid in enumerate("ab")),
            entry(2, CONSUME, "a", outcome="refused", process="q"),
            entry(3, CLAIM, "b", token=1, chosen=True),
            entry(4, CONSUME, "a", outcome="refused", process="q"),
        ],
        {"a": LeftJob(State.UNCLAIMED, 1), "b": LeftJob(State.CLAIMED, 1)},
    ),
    "out of order: c was served while b": (
        [
            *(entry(n, POST, uuid, name=name) for n, (uuid, name) in enumerate(["ax", "by", "cy"])),
            entry(4, CLAIM, "c", token=1, chosen=True, among=("y",)),
        ],
        {uuid: LeftJob(State.CLAIMED, 1) for uuid in "abc"},
    ),
    "out of order: a": (
        [
            entry(0, POST, "a", rank=1),
            entry(1, POST, "b", rank=0),
            entry(2, CLAIM, "a", token=1, chosen=True),
            entry(3, CLAIM, "b", token=1, chosen=True),
        ],
        {"a": LeftJob(State.CLAIMED, 1), "b": LeftJob(State.CLAIMED, 1)},
    ),
}


@pytest.mark.parametrize("contended", [False, True])
@pytest.mark.parametrize("case", FINE)
def test_says_nothing_about_what_may_be(case: str, contended: bool) -> None:
    entries, board = FINE[case]
    assert judge(entries, board, contended=contended) == []
    assert judge(reversed(entries), board, contended=contended) == []


@pytest.mark.parametrize("fault", FAULTY)
def test_catches(fault: str) -> None:
    entries, board = FAULTY[fault]
    found = judge(entries, board)
    assert len(found) == 1
    assert found[0].startswith(fault)
    assert judge(reversed(entries), board) == found


def test_order_under_contention() -> None:
    """A claim that overlaps another may pass over what that one took, and nothing else."""
    entries = [
        *(entry(0.1 * rank, POST, uuid, rank=rank) for rank, uuid in enumerate("abc")),
        entry(2, CLAIM, "c", ended=4, token=1, chosen=True),
        entry(3, CLAIM, "a", token=1, chosen=True, process="q"),
    ]
    board = {uuid: LeftJob(State.CLAIMED, 1) for uuid in "abc"}
    assert judge(entries, board, contended=True) == ["out of order: c was served while b was waiting"]
    assert judge(entries, board) == []
    assert judge([*entries, entry(3.9, CLAIM, "b", token=1, process="r")], board, contended=True) == []


def test_an_entry_travels_as_json() -> None:
    for each in [*WELL, entry(0, CONSUME, ended=math.inf, outcome="unknown")]:
        again = HistoryEntry.from_dict(json.loads(json.dumps(each.as_dict())))
        assert again == each
        assert again.verb is each.verb


def paused(began: float, *names: str, resumed: bool = False, **other) -> Pausing:
    return Pausing(began, began + 0.5, names or None, resumed, **other)


PAUSED_WELL = {
    "a claim that overlaps the pause": [paused(1.2, "mail")],
    "another name": [paused(0.1, "resize")],
    "resumed before the claim": [paused(0, "mail"), paused(0.6, "mail", resumed=True)],
    "resumed during the claim": [paused(0, "mail"), paused(1.1, resumed=True)],
    "perhaps resumed": [paused(0, "mail"), paused(0.6, "mail", resumed=True, outcome="unknown")],
    "perhaps paused": [paused(0, "mail", outcome="unknown")],
    "paused later": [paused(2, "mail")],
}
PAUSED = {
    "paused before": [paused(0.1, "mail")],
    "with everything": [paused(0.1)],
    "resumed later": [paused(0.1, "mail"), paused(2, "mail", resumed=True)],
    "another was resumed": [paused(0, "mail", "resize"), paused(0.6, "resize", resumed=True)],
    "resumed before it was paused": [paused(-2, resumed=True), paused(0.1, "mail")],
    "everything is a switch of its own": [paused(0), paused(0.6, "mail", resumed=True)],
}
CLAIMED_ONCE = [entry(-1, POST, name="mail"), entry(1, CLAIM, token=1), entry(3, CONSUME, token=1)]


@pytest.mark.parametrize("case", PAUSED_WELL)
def test_claims_that_no_pause_forbids(case: str) -> None:
    assert judge(CLAIMED_ONCE, {}, pauses=PAUSED_WELL[case]) == []


@pytest.mark.parametrize("case", PAUSED)
def test_catches_a_claim_of_what_is_paused(case: str) -> None:
    assert judge(CLAIMED_ONCE, {}, pauses=PAUSED[case]) == ["claimed while paused: a, by p"]


def test_what_is_paused_may_be_passed_over() -> None:
    posts = [entry(0, POST, "a", name="mail"), entry(1, POST, "b", name="resize")]
    history = [*posts, entry(5, CLAIM, "b", token=1, chosen=True)]
    board = {"a": LeftJob(State.UNCLAIMED, 0), "b": LeftJob(State.CLAIMED, 1)}
    fault = ["out of order: b was served while a was waiting"]
    assert judge(history, board) == fault
    assert judge(history, board, pauses=[paused(2, "mail"), paused(6, "mail", resumed=True)]) == []
    assert judge(history, board, pauses=[paused(2, "mail"), paused(3, "mail", resumed=True)]) == fault
    assert judge(history, board, pauses=[paused(2, "resize", outcome="unknown")]) == fault


def test_what_is_left() -> None:
    board = {"a": LeftJob(State.TRASHED, 1), "b": LeftJob(State.CLAIMED, 1), "c": LeftJob(State.SCHEDULED, 0)}
    assert left_over(board) == ["left CLAIMED: b", "left SCHEDULED: c"]

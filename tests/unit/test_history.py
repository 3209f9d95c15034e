"""The judges of histories: each is silent about a history that may be, and reports a planted fault."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobboard import fetch
from jobboard.job import Posting
from jobboard.states import State, Verb
from jobboard.testing.history import HistoryEntry, LeftJob, Limiting, Pausing, Unseen, empty_answers, judge, left_over
from jobboard.testing.recording import Recorder, left_on

KINDS = {"token": int, "rank": int, "asked": int, "until": lambda text: None if text == "none" else float(text)}
FLAGS = {"chosen": {"chosen": True}, "keeps": {"keeps": True}, "later": {"ready": False}}


def history(text: str) -> list[HistoryEntry]:
    """Return the entries of a text: ``BEGAN[..ENDED] verb uuid`` with options and flags, between semicolons.

    An act takes half a second unless its end is given. The uuid ``-`` stands for an act that was never answered.
    """
    entries = []
    for act in filter(str.strip, text.split(";")):
        times, verb, uuid, *words = act.split()
        began, _, ended = times.partition("..")
        given: dict[str, Any] = {"process": "p", "outcome": "ok"}
        for word in words:
            name, _, value = word.partition("=")
            given |= FLAGS[word] if word in FLAGS else {name: KINDS.get(name, str)(value)}
        if "among" in given:
            given["among"] = tuple(given["among"].split(","))
        end = float(ended) if ended else float(began) + 0.5
        entries.append(HistoryEntry(float(began), end, verb=Verb(verb), uuid=uuid.strip("-"), **given))
    return entries


def left(text: str) -> dict[str, LeftJob]:
    """Return a board: ``uuid STATE token [RESULT]`` between semicolons."""
    jobs = (job.split() for job in filter(str.strip, text.split(";")))
    return {uuid: LeftJob(State(state), int(token), *result) for uuid, state, token, *result in jobs}


ONCE = "0 post a; 1 claim a token=1 until=31 chosen; 2 extend a token=1 until=32; 3 abandon a token=1"
HELD = f"{ONCE}; 4 claim a token=2 until=34 chosen"
WELL = f"{HELD}; 5 consume a token=2"
KEPT = f"{HELD}; 5 consume a token=2 keeps"
A_B = "0 post a; 1 post b"
A_B_CLAIMED = "a CLAIMED 1; b CLAIMED 1"
B_CLAIMED = "a UNCLAIMED 1; b CLAIMED 1"

FINE = {
    "a life": (WELL, ""),
    "purged": ("0 post a; 1 purge a", ""),
    "an outcome": (KEPT, "a COMPLETE 2"),
    "an outcome of a consume without a reply": (f"{KEPT} outcome=unknown", "a COMPLETE 2"),
    "a result": (f"{KEPT} result=x", "a COMPLETE 2 x"),
    "a result of a consume without a reply": (
        f"{KEPT} result=x outcome=unknown; 5 consume a token=2 keeps result=y outcome=unknown process=q",
        "a COMPLETE 2 y",
    ),
    "an outcome that was perhaps purged": (f"{KEPT}; 6..inf purge a outcome=unknown", ""),
    "perhaps consumed": ("0 post a; 1..inf consume a token=1 outcome=unknown", ""),
    "a post without a reply": ("0 post - outcome=unknown", "a UNCLAIMED 0"),
    "refused acts": (f"{WELL}; 6 consume a token=1 outcome=refused; 7 consume a outcome=refused", ""),
    "a job of a key that was posted again keeps its place": (
        f"{A_B}; 2 post a; 3 claim a token=1 chosen; 4 claim b token=1 chosen",
        A_B_CLAIMED,
    ),
    "a claim while the lease runs out": (
        "0 post a; 1 claim a token=1 until=3; 2.9 claim a token=2; 5 consume a token=2",
        "",
    ),
    "jobs of two due times": ("0 claim a token=1 occasion=x-a; 0 claim b token=1 occasion=x-b", A_B_CLAIMED),
    "a claim after a release": (
        "0 post a; 1 claim a token=1 until=31; 2 release a; 3 claim a token=3; 5 consume a token=3",
        "",
    ),
    "a claim after a release without a reply": (
        "0 post a; 1 claim a token=1 until=31; 1..inf release a outcome=unknown; 3 claim a token=3",
        "a CLAIMED 3",
    ),
    "a job that was stopped, restored and consumed": (
        (
            "0 post a; 1 claim a token=1 until=31; 2 stop a process=q; 2 consume a token=1 outcome=refused;"
            "4 restore a; 5 claim a token=3; 6 consume a token=3"
        ),
        "",
    ),
    "a stop that overlaps acts of the claim": (
        "0 post a; 1 claim a token=1; 2..3 stop a process=q; 2.2 extend a token=1 until=40; 2.8 abandon a token=1",
        "a TRASHED 3",
    ),
    "a stop without a reply": (
        "0 post a; 1 claim a token=1 until=31; 2..inf stop a outcome=unknown process=q; 3 consume a token=1",
        "",
    ),
    "a job that was perhaps restored after a stop": (
        "0 post a; 1 claim a token=1; 2 stop a; 3..inf restore a outcome=unknown process=q; 4 claim a token=4",
        "a CLAIMED 4",
    ),
    "a shortened lease": (
        "0 post a; 1 claim a token=1 until=31; 2 extend a token=1 until=2.6; 3 claim a token=2",
        "a CLAIMED 2",
    ),
    "acts that overlap a later claim": (
        "0 post a; 1 claim a token=1 until=3; 3..6 claim a token=2; 3..4 extend a token=1 until=5",
        "a CLAIMED 2",
    ),
    "overlapping claims in any order": (
        f"{A_B}; 2 claim b token=1 chosen; 2.4 claim a token=1 chosen process=q",
        A_B_CLAIMED,
    ),
    "overlapping posts in any order": (
        "0 post a; 0.4 post b; 2 claim b token=1 chosen; 3 claim a token=1 chosen",
        A_B_CLAIMED,
    ),
    "a batch": (f"{A_B}; 2 claim b token=1 chosen; 2 claim a token=1 chosen", A_B_CLAIMED),
    "a claim of any job without a reply": (
        f"{A_B}; 2..inf claim - outcome=unknown; 3 claim b token=1 chosen",
        A_B_CLAIMED,
    ),
    "a job that is given back for later, or taken at once": (
        (
            f"{A_B}; 2 post c; 3 claim a token=1 chosen; 4 abandon a token=1 later; 5 claim b token=1 chosen;"
            "6 abandon b token=1; 6.2..8 claim b token=2 process=q; 7 claim c token=1 chosen"
        ),
        "a UNCLAIMED 9; b UNCLAIMED 9; c UNCLAIMED 9",
    ),
    "a job that is done before its post has an answer": (
        (
            "0..4 post a; 1 claim a token=1 chosen; 2..5 abandon a token=1; 3 claim a token=2 chosen process=q;"
            "4 consume a token=2 process=q; 5.5 post b; 7 claim b token=1 chosen"
        ),
        "b CLAIMED 1",
    ),
    "a job that a refused act may have held": (
        f"{A_B}; 2..4 consume a outcome=refused process=q; 3 claim b token=1 chosen",
        B_CLAIMED,
    ),
    "a job of another name": (
        "0 post a name=mail; 1 post b name=resize; 2 claim b token=1 chosen among=resize,print",
        B_CLAIMED,
    ),
    "a job that is not ready, or not looked for": (
        "0 post a later; 1 post b; 1 post c; 2 claim b token=1 chosen; 3 post d rank=-1; 4 claim c token=1",
        "a UNCLAIMED 9; b UNCLAIMED 9; c UNCLAIMED 9; d UNCLAIMED 9",
    ),
}

FAULTY = {
    "lost": ("0 post a", ""),
    "invented: a": ("", "a UNCLAIMED 0"),
    "invented: b": (f"{WELL}; 6 claim b token=1", ""),
    "consumed twice": (f"{WELL}; 4.9 consume a token=2", ""),
    "claimed after it was consumed": (f"{WELL}; 6 claim a token=3", ""),
    "outcome lost": (KEPT, ""),
    "outcome of a job that nobody has consumed": (HELD, "a COMPLETE 2"),
    "result lost: a has None, and not 'x' of p": (f"{KEPT} result=x", "a COMPLETE 2"),
    "result lost: a has 'y', and not 'x' of p": (
        f"{KEPT} result=x; 5 consume a token=1 keeps result=y outcome=refused process=q",
        "a COMPLETE 2 y",
    ),
    "result lost: a has 'z', and not 'x' or 'y'": (
        f"{KEPT} result=x outcome=unknown; 5.1 consume a token=2 keeps result=y outcome=unknown process=q",
        "a COMPLETE 2 z",
    ),
    "consumed and still there": (WELL, "a UNCLAIMED 2"),
    "token fell: a, from 2 to 1": (
        "0 post a; 1 claim a token=2; 2 abandon a token=2; 3 claim a token=1; 4 consume a",
        "",
    ),
    "token given twice": ("0 post a; 1 claim a token=2; 1.2 claim a token=2 process=q", "a CLAIMED 2"),
    "token fell: a, from 2 to 1 on the board": ("0 post a; 1 claim a token=2", "a UNCLAIMED 1"),
    "stale consume accepted": (
        "0 post a; 1 claim a token=1 until=2; 3 claim a token=2 until=33; 4 consume a token=1",
        "",
    ),
    "extend after the claim's end": (f"{WELL}; 3.8 extend a token=1", ""),
    "abandon after a stop": (
        "0 post a; 1 claim a token=1 until=31; 2 stop a process=q; 3 abandon a token=1; 4 purge a process=q",
        "",
    ),
    "extend after a release": (
        "0 post a; 1 claim a token=1 until=31; 2 release a process=q; 3 extend a token=1 until=40",
        "a UNCLAIMED 2",
    ),
    "stopped, and a consume accepted": (
        "0 post a; 1 claim a token=1 until=31; 2..4 stop a process=q; 3 consume a token=1",
        "",
    ),
    "stopped, and a claim accepted": (
        "0 post a; 1 claim a token=1 until=31; 2 stop a process=q; 3 claim a token=3; 4 restore a process=q",
        "a CLAIMED 3",
    ),
    "stopped, and left UNCLAIMED": (
        "0 post a; 1 claim a token=1 until=31; 2 stop a process=q; 3..4 restore a outcome=refused process=q",
        "a UNCLAIMED 3",
    ),
    "taken too early: a, 7": (
        "0 post a; 1 claim a token=1 until=2; 2 extend a token=1 until=10.5; 3 claim a token=2; 5 consume a token=2",
        "",
    ),
    "posted twice for a due time": (
        "0 claim a token=1 occasion=nightly; 0 claim b token=1 occasion=nightly",
        A_B_CLAIMED,
    ),
    "out of order: b": (f"{A_B}; 2 claim b token=1 chosen", "a UNCLAIMED 0; b CLAIMED 1"),
    "out of order: b was served while a": (
        f"{A_B}; 2 claim a token=1 chosen; 3 abandon a token=1; 4 claim b token=1 chosen; 5 claim a token=2 chosen",
        "a CLAIMED 2; b CLAIMED 2",
    ),
    "out of order: b was served while a was": (
        f"{A_B}; 2 consume a outcome=refused process=q; 3 claim b token=1 chosen; 4 consume a outcome=refused",
        B_CLAIMED,
    ),
    "out of order: c was served while b": (
        "0 post a name=x; 1 post b name=y; 2 post c name=y; 4 claim c token=1 chosen among=y",
        f"{A_B_CLAIMED}; c CLAIMED 1",
    ),
}


@pytest.mark.parametrize("case", FINE)
def test_a_possible_history_has_no_fault(case: str) -> None:
    entries, board = history(FINE[case][0]), left(FINE[case][1])
    for contended in (False, True):
        assert judge(entries, board, contended=contended) == judge(reversed(entries), board, contended=contended) == []


@pytest.mark.parametrize("fault", FAULTY)
def test_a_planted_fault_is_reported(fault: str) -> None:
    entries, board = history(FAULTY[fault][0]), left(FAULTY[fault][1])
    found = judge(entries, board)
    assert len(found) == 1
    assert found[0].startswith(fault)
    assert judge(reversed(entries), board) == found


def test_a_claim_that_overlaps_others_passes_over_their_jobs_alone() -> None:
    posts = "0 post a rank=0; 0.1 post b rank=1; 0.2 post c rank=2"
    text = f"{posts}; 2..4 claim c token=1 chosen; 3 claim a token=1 chosen process=q"
    board = left(f"{A_B_CLAIMED}; c CLAIMED 1")
    assert judge(history(text), board, contended=True) == ["out of order: c was served while b was waiting"]
    assert judge(history(text), board) == []
    assert judge(history(f"{text}; 3.9 claim b token=1 process=r"), board, contended=True) == []


def test_a_late_renewal_may_hold_a_job_that_was_given_back() -> None:
    text = f"{A_B}; 2 claim a token=1 chosen; 3 abandon a token=1; 4 claim b token=1 chosen; 5 claim a token=2 chosen"
    board = left("a CLAIMED 2; b CLAIMED 2")
    assert judge(history(text), board, unseen=Unseen(beats=0.4)) == [
        "out of order: b was served while a was waiting",
    ]
    assert judge(history(text), board, unseen=Unseen(beats=0.6)) == []
    empty = f"{text}; 4.5 claim - outcome=refused chosen process=q"
    assert judge(history(empty), board, unseen=Unseen(beats=1.1)) == []


def test_an_entry_travels_as_json() -> None:
    for each in history(f"{WELL}; 0..inf consume a outcome=unknown"):
        again = HistoryEntry.from_dict(json.loads(json.dumps(each.as_dict())))
        assert again == each
        assert again.verb is each.verb


def test_live_jobs_of_a_drained_board_are_reported() -> None:
    board = left("a TRASHED 1; b CLAIMED 1; c SCHEDULED 0")
    assert left_over(board) == ["left CLAIMED: b", "left SCHEDULED: c"]


# Pauses


def paused(began: float, *names: str, resumed: bool = False, **other: Any) -> Pausing:
    return Pausing(began, began + 0.5, names or None, resumed, **other)


ALLOWED = {
    "a claim that overlaps the pause": [paused(1.2, "mail")],
    "another name": [paused(0.1, "resize")],
    "resumed before the claim": [paused(0, "mail"), paused(0.6, "mail", resumed=True)],
    "perhaps resumed": [paused(0, "mail"), paused(0.6, "mail", resumed=True, outcome="unknown")],
    "perhaps paused": [paused(0, "mail", outcome="unknown")],
}
FORBIDDEN = {
    "paused before": [paused(0.1, "mail")],
    "with everything": [paused(0.1)],
    "resumed later": [paused(0.1, "mail"), paused(2, "mail", resumed=True)],
    "resumed before it was paused": [paused(-2, resumed=True), paused(0.1, "mail")],
    "everything is a switch of its own": [paused(0), paused(0.6, "mail", resumed=True)],
}


@pytest.mark.parametrize("case", [*ALLOWED, *FORBIDDEN])
def test_only_a_claim_of_a_paused_job_is_reported(case: str) -> None:
    entries = history("-1 post a name=mail; 1 claim a token=1; 3 consume a token=1")
    found = judge(entries, {}, pauses=ALLOWED.get(case) or FORBIDDEN[case])
    assert found == ([] if case in ALLOWED else ["claimed while paused: a, by p"])


def test_a_paused_job_may_be_passed_over() -> None:
    entries = history("0 post a name=mail; 1 post b name=resize; 5 claim b token=1 chosen")
    board = left("a UNCLAIMED 0; b CLAIMED 1")
    fault = ["out of order: b was served while a was waiting"]
    assert judge(entries, board) == fault
    assert judge(entries, board, pauses=[paused(2, "mail"), paused(6, "mail", resumed=True)]) == []
    assert judge(entries, board, pauses=[paused(2, "mail"), paused(3, "mail", resumed=True)]) == fault
    assert judge(entries, board, pauses=[paused(2, "resize", outcome="unknown")]) == fault


# Limits

ONE = Limiting(0.1, 0.2, "mail", "name", 1)
POSTS = "-1 post a name=mail group=x; -1 post b name=mail group=x; -1 post c name=mail group=y"
FIRST = "1 claim a token=1 until=31"
SECOND = "3 claim b token=2 until=33 process=q"


def changed(began: float, ended: float, **other: Any) -> Limiting:
    """Return a change of the limit of the name; without more, its removal."""
    return Limiting(began, ended, "mail", **other)


ROOM = {
    "another name": ([ONE._replace(name="resize")], f"{FIRST}; {SECOND}"),
    "another group": ([ONE._replace(per="group")], f"{FIRST}; 3 claim c token=2 until=33 process=q"),
    "perhaps consumed before": ([ONE], f"{FIRST}; 1.8 consume a token=1 outcome=unknown; {SECOND}"),
    "consumed meanwhile": ([ONE], f"{FIRST}; 3.2 consume a token=1; {SECOND}"),
    "released by somebody": ([ONE], f"{FIRST}; 1.8 release a process=r; {SECOND}"),
    "lapsed meanwhile": ([ONE], f"1 claim a token=1 until=3.4; {SECOND}"),
    "perhaps extended to an earlier end": ([ONE], f"{FIRST}; 1.6 extend a token=1 outcome=unknown; {SECOND}"),
    "kept by a process that does nothing more": ([ONE], f"1 claim a token=1 until=none; {SECOND}"),
    "at the same time": ([ONE], f"{FIRST}; 1.2..3.5 claim b token=2 until=33 process=q"),
    "removed before": ([ONE, changed(2, 2.1)], f"{FIRST}; {SECOND}"),
    "perhaps raised before": ([ONE, changed(2, 9, concurrency=2)], f"{FIRST}; {SECOND}"),
    "from between two limits": ([ONE, changed(0.3, 0.4), changed(2, 2.1, concurrency=1)], f"{FIRST}; {SECOND}"),
    "a rate": ([changed(0, 0.1, rate=(1, 2.0))], f"{FIRST}; {SECOND}"),
}
OVER = {
    "while another lives": ([ONE], f"{FIRST}; {SECOND}"),
    "whose holder has extended": ([ONE], f"1 claim a token=1 until=2.5; 1.6 extend a token=1 until=9; {SECOND}"),
    "whose holder still works": ([ONE], f"1 claim a token=1 until=none; {SECOND}; 5 consume a token=1"),
    "of its group": ([ONE._replace(per="group")], f"{FIRST}; {SECOND}"),
    "together with another": ([ONE], f"3 claim a token=1 until=31 process=q; {SECOND}"),
    "of a lowered limit": ([ONE._replace(concurrency=5), changed(2, 2.2, concurrency=1)], f"{FIRST}; {SECOND}"),
    "posted again when it was done": ([ONE], f"{FIRST}; {SECOND}; 4 consume a token=1; 5 post a; 5 post b"),
    "within the window": ([changed(0, 0.1, rate=(1, 2.6))], f"{FIRST}; 1.6 abandon a token=1; {SECOND}"),
}


@pytest.mark.parametrize("case", [*ROOM, *OVER])
def test_only_a_claim_over_the_limit_is_reported(case: str) -> None:
    limits, text = ROOM.get(case) or OVER[case]
    entries = history(f"{POSTS}; {text}")
    consumed = {each.uuid for each in entries if each.verb == Verb.CONSUME and each.outcome == "ok"}
    board = {uuid: LeftJob(State.CLAIMED, 9) for uuid in "abc" if uuid not in consumed}
    faults = judge(entries, board, limits=limits)
    assert all(fault.startswith("over the limit: ") for fault in faults)
    assert any(fault.startswith("over the limit: b, by q") for fault in faults) == bool(faults) == (case in OVER)


def test_a_job_may_be_passed_over_that_an_overlapping_call_held() -> None:
    posts = "0 post a rank=0 name=mail; 0.1 post b rank=1 name=resize"
    text = f"{posts}; 2..4 claim b token=1 chosen; 3..5 claim - outcome=refused process=q"
    board, limits = left("a UNCLAIMED 0; b CLAIMED 1"), [ONE._replace(name="print")]
    fault = ["out of order: b was served while a was waiting"]
    assert judge(history(text), board, contended=True, limits=limits) == []
    assert judge(history(f"{text} among=print"), board, contended=True, limits=limits) == fault
    assert judge(history(text.replace("3..5", "4.5..5")), board, contended=True, limits=limits) == fault
    # A pause that comes between its look and its commit has a call let go of its jobs, those of other names, too.
    for contended in (False, True):
        assert judge(history(text), board, contended=contended, pauses=[paused(3.5, "print")]) == []
        assert judge(history(text), board, contended=contended, pauses=[paused(6, "print")]) == fault
    # Else a call takes each job that it holds.
    assert judge(history(text), board, contended=True) == judge(history(text), board) == fault


def test_a_job_without_room_may_be_passed_over() -> None:
    text = f"{POSTS}; -0.4 post d name=resize; {FIRST} chosen; 5 claim d token=1 chosen"
    entries = history(text)
    board = left("a CLAIMED 9; b CLAIMED 9; c CLAIMED 9; d CLAIMED 1")
    fault = ["out of order: d was served while b was waiting"]
    assert judge(entries, board) == fault
    assert judge(entries, board, limits=[ONE]) == []
    assert judge(entries, board, limits=[ONE._replace(concurrency=2)]) == fault
    # The third job is of a group of its own.
    others = ["out of order: d was served while c was waiting"]
    assert judge(entries, board, limits=[ONE._replace(per="group")]) == others
    done = {uuid: board[uuid] for uuid in "bcd"}
    assert judge(history(f"{text}; 2 consume a token=1"), done, limits=[ONE]) == fault
    assert judge(entries, board, limits=[changed(0, 0.1, rate=(1, 10.0))]) == []
    assert judge(entries, board, limits=[changed(0, 0.1, rate=(1, 1.0))]) == fault


@pytest.mark.parametrize("released", [1.0, 1.3])
def test_a_release_that_overlaps_a_claim_may_have_ended_the_claim_before(released: float) -> None:
    """The claim that overlaps the release may live on, and leave no room for another."""
    entries = history(
        f"{POSTS}; -0.4 post d name=resize; 0.3 claim a token=1 until=0.9;"
        f"{released}..{released + 0.2} release a process=r; 1.05..1.25 claim a token=2 until=31 process=q;"
        "5 claim d token=1 chosen"
    )
    board = left("a CLAIMED 9; b UNCLAIMED 0; c CLAIMED 9; d CLAIMED 1")
    faults = ["out of order: d was served while b was waiting"]
    assert judge(entries, board, limits=[ONE]) == ([] if released < 1.25 else faults)


# Empty answers

LEFT = {uuid: LeftJob(State.UNCLAIMED, 9) for uuid in "abc"}
MAIL, EMPTY = "0 post a name=mail", "2 claim - outcome=refused chosen process=q"
TWO = f"{MAIL}; 0 post b name=mail"
BESIDE = "1.8..2.2 claim - outcome=refused process=r"

EXCUSED = {
    "no job": EMPTY,
    "a job was answered": f"{MAIL}; -1 post b; {EMPTY}; 2 claim b token=1 process=q",
    "other names": f"{MAIL}; {EMPTY} among=print,resize",
    "a condition, or an end by the caller": f"{MAIL}; {EMPTY.replace('chosen ', '')}",
    "no answer": f"{MAIL}; 2..inf claim - outcome=unknown chosen process=q",
    "posted meanwhile": f"1.6..2.1 post a name=mail; {EMPTY}",
    "perhaps posted": f"0 post a name=mail outcome=unknown; {EMPTY}",
    "delayed": f"{MAIL} later; {EMPTY}",
    "claimed before": f"{MAIL}; 1 claim a token=1; {EMPTY}",
    "claimed meanwhile": f"{MAIL}; {EMPTY}; 2.4..3 claim a token=1",
    "lapsed": f"{MAIL}; 0.6 claim a token=1 until=1.2; {EMPTY}",
    "given back meanwhile": f"{MAIL}; 1 claim a token=1; 1.8..2.1 abandon a token=1; {EMPTY}",
    "given back for later": f"{MAIL}; 1 claim a token=1; 1.6 abandon a token=1 later; {EMPTY}",
    "perhaps given back": f"{MAIL}; 1 claim a token=1; 1.2 abandon a token=1 outcome=unknown; {EMPTY}",
    "released": f"{MAIL}; 1 claim a token=1; 1.2 release a; {EMPTY}",
    "in a transaction that was rolled back": f"{MAIL}; 1..4 consume a outcome=refused process=r; {EMPTY}",
    "perhaps cancelled": f"{MAIL}; 1..inf cancel a outcome=unknown process=r; {EMPTY}",
    "perhaps replaced by its key": f"{MAIL}; 1..inf post - outcome=unknown process=r; {EMPTY}",
    "posted again by its key": f"{MAIL}; 1.8..2.2 post a name=mail process=r; {EMPTY}",
    "perhaps claimed": f"{MAIL}; 0.7..inf claim - outcome=unknown process=r; {EMPTY}",
    "perhaps claimed, all of them": f"{TWO}; 0.7..inf claim - outcome=unknown asked=2 process=r; {EMPTY}",
    "perhaps worn out, and restored": f"{MAIL}; 0.7 consume b outcome=refused; {EMPTY}; 4 restore a",
    "perhaps worn out, and purged": f"{MAIL}; {EMPTY}; 2.6 cancel a outcome=refused; 4 purge a",
    "perhaps held by another call": f"{MAIL}; {BESIDE}; {EMPTY}",
    "perhaps held by other calls": f"{TWO}; {BESIDE}; {BESIDE.replace('=r', '=s')}; {EMPTY}",
}
PROVEN = {
    "a job": f"{MAIL}; {EMPTY}",
    "a job of a name": f"{MAIL}; {EMPTY} among=mail,resize",
    "a wait": f"{MAIL}; {EMPTY.replace('2 ', '2..9 ')}",
    "given back": f"{MAIL}; 0.6 claim a token=1; 1.2 abandon a token=1; {EMPTY}",
    "claimed later": f"{MAIL}; {EMPTY}; 2.6 claim a token=1",
    "touched later": f"{MAIL}; {EMPTY}; 2.6 consume a outcome=refused process=r",
    "another call, over by then": f"{MAIL}; {BESIDE.replace('2.2', '1.9')}; {EMPTY}",
    "more than another call can hold": f"{TWO}; {BESIDE}; {EMPTY}",
    "more than was perhaps claimed": f"{TWO}; 0.7..inf claim - outcome=unknown process=r; {EMPTY}",
}


@pytest.mark.parametrize("case", [*EXCUSED, *PROVEN])
def test_only_an_empty_answer_beside_a_free_job_is_reported(case: str) -> None:
    entries = history(EXCUSED.get(case) or PROVEN[case])
    found = empty_answers(entries, LEFT)
    assert [fault.partition(" at ")[0] for fault in found] == ["empty answer to q"] * (case in PROVEN)
    assert [fault for fault in judge(reversed(entries), LEFT) if fault.startswith("empty")] == found


def test_unrecorded_acts_may_hold_spare_jobs() -> None:
    entries = history(f"{TWO}; {EMPTY}")
    assert empty_answers(entries, LEFT, unseen=Unseen(spare=1)) == [
        "empty answer to q at 2.000000 to 2.500000, beside 2 free jobs, of which others held 1: a"
    ]
    assert empty_answers(entries, LEFT, unseen=Unseen(spare=2)) == []


def test_an_act_without_an_answer_settles_in_time() -> None:
    entries = history(f"{MAIL}; 0.7..inf claim - outcome=unknown process=r; {EMPTY}")
    assert empty_answers(entries, LEFT, unseen=Unseen(settles=1))
    assert not empty_answers(entries, LEFT, unseen=Unseen(settles=2))
    assert not empty_answers(entries, {"a": LeftJob(State.TRASHED, 9)}, unseen=Unseen(settles=1))
    assert not empty_answers(entries, {}, unseen=Unseen(settles=1))


def test_a_slow_call_may_leave_locks_behind() -> None:
    quick, slow = (history(f"{MAIL}; {began}..1.8 claim - outcome=refused process=r; {EMPTY}") for began in (0.9, 0.7))
    assert empty_answers(quick, LEFT, unseen=Unseen(lingers=0.5))
    assert empty_answers(slow, LEFT, unseen=Unseen(lingers=0.1))
    assert not empty_answers(slow, LEFT, unseen=Unseen(lingers=0.5))


def test_a_short_answer_is_no_fault_unless_it_is_asked_for() -> None:
    entries = history(f"{TWO}; -1 post c name=mail; {EMPTY} asked=2; 2 claim c token=1 process=q")
    assert empty_answers(entries, LEFT) == []
    [fault] = empty_answers(entries, LEFT, short=True)
    assert fault.startswith("short answer: 1 of 2 to q")


@pytest.mark.parametrize("case", [*ALLOWED, *FORBIDDEN])
def test_a_job_that_was_perhaps_paused_is_not_free(case: str) -> None:
    entries = history("-1 post a name=mail; 1.2 claim - outcome=refused chosen process=q")
    free = {"another name", "resumed before the claim"}
    assert bool(empty_answers(entries, LEFT, pauses=ALLOWED.get(case) or FORBIDDEN[case])) == (case in free)


def test_a_job_without_sure_room_is_not_free() -> None:
    taken = f"{POSTS}; {FIRST}; 5 claim - outcome=refused chosen process=q"
    two = changed(0.1, 0.2, concurrency=2)
    assert not empty_answers(history(taken), LEFT, limits=[ONE])
    assert empty_answers(history(taken), LEFT, limits=[two])
    assert empty_answers(history(f"{taken}; 2 consume a token=1"), LEFT, limits=[ONE])
    assert not empty_answers(history(f"{taken}; 2 consume a token=1 outcome=unknown"), LEFT, limits=[ONE])
    # The last job is of a group of its own.
    [fault] = empty_answers(history(taken), LEFT, limits=[ONE._replace(per="group")])
    assert fault.endswith("beside 1 free jobs, of which others held 0: c")
    assert not empty_answers(history(taken), LEFT, limits=[changed(0, 0.1, rate=(1, 10.0))])
    assert empty_answers(history(taken), LEFT, limits=[changed(0, 0.1, rate=(1, 1.0))])


def test_only_so_many_jobs_of_a_limit_are_free_as_have_room() -> None:
    """Another call that holds one of them for a moment holds the room for both."""
    text = f"{POSTS}; 5 claim - outcome=refused chosen process=q; 5.2 claim - outcome=refused process=r"
    assert empty_answers(history(text), LEFT)
    assert empty_answers(history(text), LEFT, limits=[ONE._replace(concurrency=2)])
    assert not empty_answers(history(text), LEFT, limits=[ONE])


def test_a_recorder_shows_empty_answers_and_results() -> None:
    entries: dict[int, HistoryEntry] = {}
    with fetch("answers", {"board": "memory", "keep_done": 60}) as board:
        recorder = Recorder(board, "p", entries.__setitem__)
        recorder.post_many([Posting("mail"), Posting("mail"), Posting("print")])
        first, second = recorder.claim_many("w", 3, names=["mail"])
        recorder.claim_many("w", 1, names=["mail"], unless=lambda: True)
        recorder.consume(first, "one")
        recorder.consume_with([second], "w", ["two"])
        assert recorder.claim_many("w", 2, names=["mail"]) == []
        board_left = left_on(board)
    calls = [(e.asked, e.among, e.chosen) for e in entries.values() if e.verb == Verb.CLAIM and not e.uuid]
    assert calls == [(3, ("mail",), True), (1, ("mail",), False), (2, ("mail",), True)]
    assert [board_left[job.uuid].result for job in (first, second)] == ["one", "two"]
    assert judge(entries.values(), board_left) == []
    emptied = {uuid: job._replace(result=None) for uuid, job in board_left.items()}
    assert len(judge(entries.values(), emptied)) == 2
    everything = [entry._replace(among=None) for entry in entries.values()]
    assert len(judge(everything, board_left)) == 1


def test_a_process_that_is_killed_after_a_claim_has_not_found_nothing() -> None:
    """Whatever it has written by then."""
    written: list[tuple[int, HistoryEntry]] = []
    with fetch("killed", {"board": "memory"}) as board:
        recorder = Recorder(board, "p", lambda number, entry: written.append((number, entry)))
        recorder.post_many([Posting("mail")] * 4)
        posted = len(written)
        recorder.claim_many("w", 1)
        claimed = len(written)
        recorder.consume_many(recorder.claim_many("w", 3), "w")
        board_left = left_on(board)
    whole = dict(written).values()
    assert empty_answers(whole, board_left) == []
    for end in range(posted, claimed):
        entries = dict([*written[:end], *written[claimed:]]).values()
        assert empty_answers(entries, board_left) == []


def test_a_post_that_meets_a_finished_job_says_nothing_of_its_name() -> None:
    """The job that such a post returns has the name of the posting."""
    entries: dict[int, HistoryEntry] = {}
    with fetch("finished", {"board": "memory"}) as board:
        recorder = Recorder(board, "p", entries.__setitem__)
        recorder.post_many([Posting("mail", key="once", key_for=60.0)])
        recorder.consume_many(recorder.claim_many("w", 1), "w")
        recorder.post_many([Posting("print", key="once")])
    posts = [entry for entry in entries.values() if entry.verb == Verb.POST]
    assert [(post.uuid == posts[0].uuid, post.name) for post in posts] == [(True, "mail"), (True, "")]

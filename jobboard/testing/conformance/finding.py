"""Searches and acts on many jobs: conditions, orders, pages across changes, and acts on jobs that change meanwhile."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.exceptions import ClaimLost, ConnectionFailure, JobFailure, NotFound, UnclaimableJob
from jobboard.finding import Page
from jobboard.job import Act, Job, Posting
from jobboard.reasons import cause_of
from jobboard.states import CLAIMED, COMPLETE, SCHEDULED, TRASHED, UNCLAIMED
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, MakeBoard, let_lapse, take, trash_one, uuids


def pages(board: JobBoard, limit: int, **conditions: Any) -> list[Page]:
    """Return all pages of a search."""
    found = [board.find_page(limit, **conditions)]
    while found[-1].after is not None:
        assert len(found) < 200, "the pages have no end"
        found.append(board.find_page(limit, after=found[-1].after, **conditions))
    return found


def paged(board: JobBoard, limit: int, **conditions: Any) -> list[str]:
    """Return the uuids on all pages of a search."""
    return [job.uuid for page in pages(board, limit, **conditions) for job in page.jobs]


def fail(board: JobBoard, job: Job, error: str, who: str = "anna") -> None:
    """Put a job into the trash, with an error."""
    board.claim(job, who)
    board.trash(job, who, reason=error)


def tick(board: JobBoard) -> None:
    """Wait until the clock of the server has gone on: some clocks go in steps of a millisecond."""
    since = Harness(board).now()
    eventually(lambda: Harness(board).now() > since + 1000, LIMIT)


def mix(board: JobBoard) -> None:
    """Post one job of each kind that a condition tells apart, on a board with ``keep_done``."""
    board.post("done", group="red", key="k-done")
    board.consume(take(board, "bert"), "bert")
    board.post_many([Posting("resize", group="red", key="k1", priority=5), Posting("mail", group="blue")])
    board.post("later", delay=LONG, group="red")
    fail(board, board.post("broken", group="blue", key="k2"), 'no "luck" 17\nwïth x')
    board.claim(board.post("held", group="red"), "carl")


CONDITIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["resize", "mail", "later", "held"]),
    ({"names": ["mail", "broken", "held"]}, ["mail", "held"]),
    ({"names": ["mail"]}, ["mail"]),
    ({"states": ["UNCLAIMED"]}, ["resize", "mail"]),
    ({"states": [UNCLAIMED, SCHEDULED]}, ["resize", "mail", "later"]),
    ({"states": ["SCHEDULED"]}, ["later"]),
    ({"states": ["CLAIMED"]}, ["held"]),
    ({"states": ["TRASHED"]}, ["broken"]),
    ({"states": ["COMPLETE"]}, ["done"]),
    ({"states": ["UNCLAIMED", "TRASHED", "COMPLETE"]}, ["resize", "mail", "broken", "done"]),
    ({"group": "red"}, ["resize", "later", "held"]),
    ({"group": "red", "states": ["COMPLETE", "SCHEDULED"]}, ["later", "done"]),
    ({"owner": "carl"}, ["held"]),
    ({"owner": "carl", "names": ["mail"]}, []),
    ({"owner": "anna"}, []),
    ({"owner": "anna", "states": ["TRASHED"]}, ["broken"]),
    ({"owner": "bert", "states": ["COMPLETE", "CLAIMED"]}, ["done"]),
    ({"owner": "carl", "states": ["UNCLAIMED"]}, []),
    ({"key": "k1"}, ["resize"]),
    ({"key": "k1", "names": ["mail"]}, []),
    ({"key": "k1", "states": ["CLAIMED"]}, []),
    ({"key": "k2"}, []),
    ({"key": "k2", "states": ["TRASHED"]}, ["broken"]),
    ({"key": "k-done", "states": ["COMPLETE", "TRASHED", "UNCLAIMED"]}, ["done"]),
    ({"error": 'o "luck" 1', "states": ["TRASHED"]}, ["broken"]),
    ({"error": "17\nwïth", "states": ["TRASHED"]}, ["broken"]),
    ({"error": "LUCK", "states": ["TRASHED"]}, []),
    ({"error": "text", "states": ["TRASHED"]}, []),
    ({"cause": "no … …", "states": ["TRASHED"]}, ["broken"]),
    ({"cause": "no", "states": ["TRASHED"]}, []),
]
"""Conditions, with the names of the jobs of :func:`mix` that meet them."""

REFUSED: list[tuple[dict[str, Any], type[Exception]]] = [
    ({"names": "resize"}, TypeError),
    ({"states": "TRASHED"}, TypeError),
    ({"states": ["LOST"]}, ValueError),
    ({"states": []}, ValueError),
    ({"group": ""}, ValueError),
    ({"owner": 1}, TypeError),
    ({"error": 1}, TypeError),
    ({"posted_after": datetime.datetime(2026, 1, 1)}, ValueError),  # noqa: DTZ001 - that is the point
    ({"limit": 0}, ValueError),
    ({"at_most": 0}, ValueError),
    ({"after": 1}, TypeError),
    ({"after": "x"}, ValueError),
    ({"after": "é"}, ValueError),
    ({"extra": {"nothing": 1}}, TypeError),
]
"""Arguments that no search takes."""


class TestConditions:
    @holds("A search returns the jobs that meet all conditions, and no others, on every store.")
    def test_conditions(self, keeper: JobBoard) -> None:
        mix(keeper)
        for conditions, names in CONDITIONS:
            found = list(keeper.find(**conditions))
            assert [job.name for job in found] == names, conditions
            assert paged(keeper, 1, **conditions) == uuids(found), conditions
            assert paged(keeper, 3, at_most=1, **conditions) == uuids(found), conditions
            states = set(conditions.get("states", [UNCLAIMED, SCHEDULED, CLAIMED]))
            assert all(job.seen_state in states for job in found), conditions

    def test_times_of_posts(self, board: JobBoard) -> None:
        jobs = []
        for name in ("a", "b", "c"):
            jobs.append(board.post(name))
            tick(board)
        middle = jobs[1].created_on
        assert uuids(board.find(posted_after=middle)) == uuids(jobs[1:])
        assert uuids(board.find(posted_before=middle)) == uuids(jobs[:1])
        assert uuids(board.find(posted_after=middle, posted_before=jobs[2].created_on)) == uuids(jobs[1:2])

    @holds("A search shows the logical state, also on a board that nobody claims from.")
    def test_lapsed_and_due_jobs_show_their_logical_state(self, board: JobBoard, other: JobBoard) -> None:
        lapsed, spent = board.post("lapsed"), board.post("spent", max_attempts=1)
        for job in (lapsed, spent):
            let_lapse(board, job)
        due = board.post("due", delay=SHORT)
        eventually(lambda: other.get(due.uuid).seen_state == UNCLAIMED, LIMIT)
        assert uuids(other.find(states=["UNCLAIMED"])) == uuids([lapsed, due])
        assert uuids(other.find(states=["CLAIMED"])) == uuids(other.find(states=["SCHEDULED"])) == []
        assert uuids(other.find(states=["TRASHED"])) == [spent.uuid]
        assert list(other.find(owner="anna")) == []

    def test_unreadable_job_comes_without_its_details(self, board: JobBoard) -> None:
        [uuid] = Harness(board).plant()
        [job] = board.find()
        assert (job.uuid, job.details) == (uuid, {})
        with pytest.raises(JobFailure):
            board.post_again(job)
        acted = board.act("post_again", [job])
        assert (acted.done, [error.job for error in acted.skipped]) == (0, [job])
        assert board.act("cancel", board.find()).done == 1

    def test_bad_arguments_are_refused(self, board: JobBoard) -> None:
        for conditions, error in REFUSED:
            with pytest.raises(error):
                board.find_page(**conditions)
            if not conditions.keys() & {"limit", "at_most", "after"}:
                with pytest.raises(error):
                    board.find(**conditions)


class TestOrders:
    def test_one_state_has_its_own_order(self, board: JobBoard) -> None:
        jobs = board.post_many(Posting("any", priority=n) for n in range(4))
        for number in (2, 0, 3, 1):
            board.claim(jobs[number], "anna", expiry=LONG - 100 * number)
            tick(board)
        expected = uuids(jobs[number] for number in (2, 0, 3, 1))
        assert uuids(board.find(states=["CLAIMED"])) == paged(board, 1, states=["CLAIMED"]) == expected
        assert uuids(board.find()) == uuids(reversed(jobs))
        for number in (1, 3, 2, 0):
            board.trash(jobs[number], "anna", reason="bad")
            tick(board)
        expected = uuids(jobs[number] for number in (0, 2, 3, 1))
        assert uuids(board.find(states=["TRASHED"])) == paged(board, 1, states=["TRASHED"]) == expected
        later = board.post_many(Posting("later", delay=LONG + n, priority=n) for n in (3, 1, 2))
        expected = uuids(later[number] for number in (1, 2, 0))
        assert uuids(board.find(states=["SCHEDULED"])) == paged(board, 1, states=["SCHEDULED"]) == expected

    def test_outcomes_come_newest_first(self, make_board: MakeBoard) -> None:
        board = make_board(keep_done=LONG)
        jobs = board.post_many([Posting("any")] * 5)
        for job in jobs:
            board.claim(job, "anna")
            board.consume(job, "anna")
            tick(board)
        expected = uuids(reversed(jobs))
        assert uuids(board.find(states=["COMPLETE"])) == paged(board, 2, states=["COMPLETE"]) == expected
        finished = board.finished(5)
        assert finished is not None
        assert (len(finished), sum(finished), sum(finished[-2:])) == (5, 5, 5)
        assert board.finished(5, at_most=3) is None

    @holds("A search by an error or a cause finds lapses that no sweep has written down.")
    def test_unswept_lapses_are_found_by_their_errors(self, board: JobBoard) -> None:
        last, again, expiring = board.post_many(
            [Posting("a", max_attempts=1), Posting("a"), Posting("a", expires=SHORT)]
        )
        board.claim(last, "anna", expiry=SHORT)
        board.claim(again, "anna", expiry=SHORT)
        eventually(lambda: (last.state, again.state, expiring.state) == (TRASHED, UNCLAIMED, TRASHED), LIMIT)
        for job in (last, again, expiring):
            [found] = [each for each in board.find(states=[job.state]) if each.uuid == job.uuid]
            assert found.error is not None
            for error, cause in ((found.error[4:-4], None), (None, cause_of(found.error))):
                assert uuids(board.find(states=[job.state], error=error, cause=cause)) == [job.uuid]

    @holds("No page of a search looks at more jobs than at_most.")
    @pytest.mark.parametrize("state", ["UNCLAIMED", "SCHEDULED", "CLAIMED", "TRASHED"])
    def test_page_looks_at_few_jobs_and_goes_on(self, board: JobBoard, state: str) -> None:
        jobs = board.post_many([Posting("any", delay=LONG if state == "SCHEDULED" else None, group="g")] * 40)
        if state in ("CLAIMED", "TRASHED"):
            claimed = board.claim_many("anna", 40)
            if state == "TRASHED":
                board.finish_many([Act(job, "trash", error="bad") for job in claimed], "anna")
        found = pages(board, 5, states=[state], at_most=7, group="g")
        assert sorted(job.uuid for page in found for job in page.jobs) == sorted(uuids(jobs))
        assert max(page.looked for page in found) <= 7
        none = pages(board, 5, states=[state], at_most=7, group="other")
        assert not any(page.jobs for page in none)
        assert (max(page.looked for page in none), none[0].complete, none[-1].complete) == (7, False, True)
        assert 6 <= len(none) <= 12

    def test_position_belongs_to_its_order_and_board(self, board: JobBoard, make_board: MakeBoard) -> None:
        board.post_many([Posting("any")] * 3)
        after = board.find_page(1).after
        assert after is not None
        assert all(letter.isalnum() or letter in "-_" for letter in after)
        elsewhere = make_board("elsewhere")
        elsewhere.post_many([Posting("any")] * 3)
        with pytest.raises(ValueError, match="after"):
            elsewhere.find_page(after=after)
        with pytest.raises(ValueError, match="after"):
            board.find_page(after=after, states=["TRASHED"])
        for damaged in (after[:-1], after + "A", after[1:], after.swapcase()):
            with pytest.raises(ValueError, match="after"):
                board.find_page(after=damaged)

    @holds("Pages of a search across changes miss no job that stays, and show none twice.")
    def test_pages_across_changes(self, board: JobBoard, other: JobBoard) -> None:
        jobs = board.post_many([Posting("any")] * 12)
        page = board.find_page(4)
        assert uuids(page.jobs) == uuids(jobs[:4])
        # The last job of the page leaves, another changes its state, and new ones come.
        other.act("cancel", [jobs[3], jobs[5]])
        other.claim(jobs[6], "bert")
        new = other.post_many([Posting("any"), Posting("any", priority=9)])
        second = board.find_page(5, after=page.after)
        third = board.find_page(50, after=second.after)
        assert uuids([*second.jobs, *third.jobs]) == uuids([jobs[4], *jobs[6:], new[0]])
        assert third.after is None

    @holds("Pages of a search across changes miss no job that stays, and show none twice.")
    def test_pages_of_claims_across_more_claims(self, board: JobBoard, other: JobBoard) -> None:
        """All claims fit into the jobs that the first page looks at, and later ones do not."""
        jobs = board.post_many([Posting("any")] * 10)
        for number, job in enumerate(jobs[:6]):
            # The longest claim ends last.
            board.claim(job, "anna", expiry=(20 - number) * LONG)
            tick(board)
        found = [board.find_page(2, states=["CLAIMED"], at_most=8)]
        for job in jobs[6:]:
            other.claim(job, "bert", expiry=LONG)
        while found[-1].after is not None:
            found.append(board.find_page(2, states=["CLAIMED"], at_most=8, after=found[-1].after))
        assert sorted(job.uuid for page in found for job in page.jobs) == sorted(uuids(jobs))


class TestNames:
    def test_names_count_their_jobs(self, board: JobBoard) -> None:
        first = board.post("b", priority=-5)
        tick(board)
        board.post_many([Posting("b"), Posting("b", priority=3), Posting("a"), Posting("c", delay=LONG)])
        trash_one(board, "gone")
        held = board.post("d")
        board.claim(held, "anna")
        let_lapse(board, lapsed := board.post("e"))
        found = {each.name: each for each in board.names()}
        counts = {name: (each.waiting, each.delayed, each.running) for name, each in found.items()}
        assert counts == {"a": (1, 0, 0), "b": (3, 0, 0), "c": (0, 1, 0), "d": (0, 0, 1), "e": (1, 0, 0)}
        assert list(found) == sorted(found)
        assert (found["b"].oldest, found["e"].oldest) == (first.created_on, lapsed.created_on)
        assert found["c"].oldest is found["d"].oldest is None
        assert sum(each.waiting for each in board.names(at_most=2)) <= 8

    def test_counts_have_a_cap(self, board: JobBoard) -> None:
        board.post_many([Posting("any")] * 5 + [Posting("any", delay=LONG)] * 4)
        trash_one(board)
        let_lapse(board, board.post("any", priority=9))
        stats = board.stats(cap=3)
        assert (stats.unclaimed, stats.scheduled, stats.claimed, stats.trashed) == (3, 3, 0, 1)
        stats = board.stats(cap=100)
        assert (stats.unclaimed, stats.scheduled, stats.claimed, stats.trashed) == (6, 4, 0, 1)
        assert board.stats(LONG) == stats, "a capped answer is not taken for a whole one"
        with pytest.raises(ValueError, match="cap"):
            board.stats(cap=0)


class TestErrorGroups:
    def test_failures_are_grouped_by_cause(self, board: JobBoard) -> None:
        for number in range(3):
            error = f"ValueError: no file 'x{number}.jpg' of job 8f3{number}bd1c after {number} s"
            fail(board, board.post("resize"), error)
            tick(board)
        last = board.post("mail")
        fail(board, last, "Traceback (most recent call last):\n  frame\nKeyError: 'a'")
        groups = board.error_groups()
        assert groups.looked == 4
        assert [(group.count, group.names) for group in groups.groups] == [(3, ("resize",)), (1, ("mail",))]
        most = groups.groups[0]
        assert most.sample == "ValueError: no file 'x2.jpg' of job 8f32bd1c after 2 s"
        assert most.first < most.last < groups.groups[1].first
        found = list(board.find(states=["TRASHED"], cause=most.cause))
        assert len(found) == most.count
        assert all(job.name == "resize" for job in found)
        assert board.error_groups(at_most=1).looked == 1
        for error in (
            "Traceback (most recent call last):\n  frame\nOSError:\n  no 'é\\\"' \x1b[1m",
            "17",
            'the "disk"\tis full',
        ):
            job = board.post("mail")
            fail(board, job, error)
            assert uuids(board.find(states=["TRASHED"], cause=cause_of(error))) == [job.uuid]


def claimed_one(board: JobBoard) -> Job:
    job = board.post("any")
    board.claim(job, "anna", expiry=LONG)
    return job


ACTS: dict[str, tuple[Callable[[JobBoard], Job], str]] = {
    "release": (claimed_one, UNCLAIMED),
    "cancel": (lambda board: board.post("any", key="k"), TRASHED),
    "restore": (lambda board: trash_one(board, key="k"), UNCLAIMED),
    "purge": (trash_one, TRASHED),
}


class TestActs:
    @pytest.mark.parametrize("verb", [*ACTS])
    def test_acts_on_many_jobs(self, board: JobBoard, other: JobBoard, verb: Any) -> None:
        make, state = ACTS[verb]
        jobs = [make(board)]
        if verb == "cancel":
            jobs += board.post_many([Posting("any")] * 119)
        seen = [other.get(job.uuid) for job in jobs]
        acted = other.act(verb, iter(seen), reason="enough")
        assert (acted.done, acted.skipped) == (len(jobs), ())
        assert {job.seen_state for job in seen} == {TRASHED if verb in ("cancel", "purge") else UNCLAIMED}
        assert {job.state for job in jobs} == {state}
        if verb in ("release", "cancel"):
            assert {board.get(job.uuid).error for job in jobs} == {"enough"}
        again = other.act(verb, seen)
        assert again.done == 0
        assert [error.job for error in again.skipped] == seen

    @pytest.mark.parametrize("verb", [*ACTS])
    @holds("An act on many jobs leaves a job alone that has changed since it was read, and names it.")
    def test_changed_job_is_skipped_and_named(self, board: JobBoard, other: JobBoard, verb: Any) -> None:
        make, _ = ACTS[verb]
        job = make(board)
        [seen] = other.find(states=[job.seen_state])
        earlier: Any = "restore" if verb == "purge" else verb
        other.act(earlier, [job])
        if verb == "release":
            board.claim(other.get(job.uuid), "bert", expiry=LONG)
        elif verb == "cancel":
            other.restore(other.get(job.uuid))
        else:
            other.cancel(other.get(job.uuid))
        before = Harness(board).record(job)
        acted = other.act(verb, [seen])
        [error] = acted.skipped
        assert (acted.done, type(error), error.job) == (0, ClaimLost, seen)
        assert "has changed since it was read" in str(error)
        assert Harness(board).record(job) == before

    def test_jobs_in_other_states_are_skipped(self, board: JobBoard, make_board: MakeBoard) -> None:
        keeper = make_board(keep_done=LONG)
        waiting, held = board.post("waiting"), claimed_one(board)
        trashed, gone = trash_one(board), trash_one(board)
        done = keeper.post("done", priority=9)
        keeper.claim(done, "anna")
        keeper.consume(done, "anna")
        seen = [*board.find(), *board.find(states=["TRASHED"]), *board.find(states=["COMPLETE"])]
        board.purge(gone)
        expected: dict[Any, dict[Job, type[Exception]]] = {
            "release": {waiting: NotFound, trashed: NotFound, gone: NotFound, done: NotFound},
            "cancel": {held: UnclaimableJob, trashed: NotFound, gone: NotFound, done: NotFound},
            "restore": {waiting: JobFailure, held: JobFailure, gone: NotFound, done: NotFound},
        }
        for verb, errors in expected.items():
            acted = board.act(verb, [job for job in seen if job in errors])
            assert acted.done == 0
            assert {error.job: type(error) for error in acted.skipped} == errors
        with pytest.raises(ValueError, match="verb"):
            board.act("consume", seen)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="running"):
            board.act("purge", seen, running=True)
        with pytest.raises(TypeError, match="Job"):
            board.act("purge", [waiting.uuid])  # type: ignore[list-item]

    def test_extended_claim_is_the_same_claim(self, board: JobBoard, other: JobBoard) -> None:
        job = claimed_one(board)
        [seen] = other.find(owner="anna")
        assert job.claim is not None
        job.claim.extend(2 * LONG)
        assert other.act("release", [seen]).done == 1
        with pytest.raises(ClaimLost):
            job.claim.extend()

    def test_holder_of_a_released_job_learns_of_it_and_its_slot_is_free(self, board: JobBoard) -> None:
        board.set_limit("any", concurrency=1)
        jobs = board.post_many([Posting("any")] * 2)
        board.claim(jobs[0], "anna")
        assert board.claim_next("bert") is None
        assert board.act("release", board.find(owner="anna")).done == 1
        assert jobs[0].claim is not None
        assert jobs[0].claim.lost
        assert take(board, "bert") == jobs[0]

    @holds("A cancel of many jobs with running=True takes claimed jobs from their holders.")
    def test_running_jobs_are_cancelled(self, board: JobBoard, other: JobBoard) -> None:
        board.set_limit("any", concurrency=2)
        jobs = board.post_many([Posting("any")] * 4)
        held = board.claim_many("anna", 2)
        [*seen] = other.find(states=["CLAIMED"])
        acted = other.act("cancel", [*seen, *other.find(states=["UNCLAIMED"])][:3], running=True, reason="enough")
        assert (acted.done, acted.skipped) == (3, ())
        for job in held:
            with pytest.raises(ClaimLost):
                board.consume(job, "anna")
            assert (job.state, job.error, job.record.who) == (TRASHED, "enough", "anna")
        assert take(board, "bert") == jobs[3]

    def test_paused_and_limited_jobs_are_acted_on(self, board: JobBoard) -> None:
        board.post_many([Posting("paused"), Posting("limited"), Posting("limited")])
        board.pause(["paused"])
        board.set_limit("limited", concurrency=1)
        assert take(board).name == "limited"
        acted = board.act("cancel", board.find())
        assert (acted.done, [type(error) for error in acted.skipped]) == (2, [UnclaimableJob])
        assert board.act("restore", board.find(states=["TRASHED"])).done == 2
        assert board.claim_next("bert") is None

    @holds("Of jobs that share a key, an act on many restores one.")
    def test_key_goes_to_one_of_the_restored_jobs(self, board: JobBoard) -> None:
        jobs = [trash_one(board, key="k"), trash_one(board, key="k"), trash_one(board)]
        taken = trash_one(board, key="taken")
        board.post("any", key="taken")
        acted = board.act("restore", board.find(states=["TRASHED"]))
        assert acted.done == 2
        assert {error.job for error in acted.skipped} in ({jobs[0], taken}, {jobs[1], taken})
        assert all("key" in str(error) for error in acted.skipped)
        assert board.job_count == 3

    @holds("A purge reaches outcomes, and the job stays COMPLETE.")
    def test_outcomes_are_purged(self, make_board: MakeBoard, other: JobBoard) -> None:
        keeper = make_board(keep_done=LONG)
        jobs = keeper.post_many([Posting("any", key=f"k{n}") for n in range(3)])
        for job in jobs:
            keeper.claim(job, "anna")
            keeper.consume(job, "anna", result=1)
        acted = other.act("purge", list(other.outcomes())[:2])
        assert (acted.done, acted.skipped) == (2, ())
        [left] = other.outcomes()
        other.purge(left.job)
        assert list(other.outcomes()) == list(other.find(states=["COMPLETE"])) == []
        assert {job.state for job in jobs} == {COMPLETE}
        [error] = other.act("purge", [left]).skipped
        assert isinstance(error, NotFound)
        with pytest.raises(NotFound):
            other.purge(left.job)

    def test_post_again(self, board: JobBoard, make_board: MakeBoard) -> None:
        job = board.post(
            "any", details={"a": [1]}, priority=7, key="k", context={"c": "1"}, group="g", max_attempts=3, delay=SHORT
        )
        eventually(lambda: board.claim_next("anna") is not None, LIMIT)
        [seen] = board.find()
        again = board.post_again(seen)
        assert again != job
        assert again.created
        kept = ("name", "details", "priority", "context", "group", "max_attempts")
        assert [getattr(again, name) for name in kept] == [getattr(job, name) for name in kept]
        assert (again.key, again.seen_state, again.attempts) == (None, UNCLAIMED, 0)
        assert again.due is None
        assert board.act("post_again", [seen, again]).done == 2
        assert board.job_count == 4

    @holds("A lost reply to an act on many jobs acts once.")
    @pytest.mark.parametrize("verb", [*ACTS, "post_again"])
    def test_lost_reply(self, board: JobBoard, verb: Any) -> None:
        make, _ = ACTS.get(verb, ACTS["cancel"])
        job = make(board)
        seen = list(board.find(states=[job.seen_state]))
        with Harness(board).lost_reply():
            acted = board.act(verb, seen)
        assert (acted.done, acted.skipped) == (1, ())
        assert board.job_count == {"post_again": 2, "release": 1, "restore": 1}.get(verb, 0)

    @holds("A break of an act on many jobs tells the part that stands.")
    def test_break_tells_what_stands(self, board: JobBoard, make_board: MakeBoard) -> None:
        board = make_board(retry_for=0.1)
        jobs = board.post_many([Posting("any")] * 150)
        board.cancel(jobs[0])
        seen = list(jobs)
        with Harness(board).away_after_commit(), pytest.raises(ConnectionFailure) as broken:
            board.act("cancel", seen)
        acted = broken.value.acted
        assert (acted.done, [error.job for error in acted.skipped]) == (99, [jobs[0]])
        assert broken.value.outcome == "unknown"

    @holds("Claims during an act on many jobs are skipped, or come after the act.")
    def test_claims_during_an_act(self, board: JobBoard, other: JobBoard) -> None:
        jobs = board.post_many([Posting("any")] * 6)
        claimed: list[Job] = []

        def claim() -> None:
            if not claimed:
                claimed.append(take(other, "bert"))

        with Harness(board).requests.before("commit", claim):
            acted = board.act("cancel", jobs)
        assert (acted.done, [error.job for error in acted.skipped]) == (5, claimed)
        assert isinstance(acted.skipped[0], UnclaimableJob)
        assert claimed[0].claim is not None
        claimed[0].claim.consume()

    @holds("Records of a running move are left out of searches and of acts on many jobs.")
    def test_records_of_a_move_are_left_out(self, board: JobBoard) -> None:
        job = board.post("any")
        board.claim(job, "jobboard move 0c1f 17")
        assert list(board.find()) == list(board.find(states=["CLAIMED"])) == []
        acted = board.act("release", [job])
        assert (acted.done, [error.job for error in acted.skipped]) == (0, [job])
        with pytest.raises(JobFailure, match="move"):
            board.release(job)
        gone = board.post("any")
        board.cancel(gone, reason="jobboard move 0c1f 17: gone to elsewhere")
        assert list(board.find(states=["TRASHED"])) == []
        assert board.error_groups().groups == ()
        for act in (board.restore, board.purge):
            with pytest.raises(JobFailure, match="move"):
                act(gone)
        assert len(list(board.trashed())) == 1
        # A copy in the trash has arrived.
        board.trash(job, "jobboard move 0c1f 17")
        assert list(board.find(states=["TRASHED"])) == [job]

"""A backend against the memory board as the model: random acts on both, and the same outcome each time."""

from __future__ import annotations

import contextlib
import itertools
import operator
import os
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import JobBoardError, JobFailures
from jobboard.job import Act, Job
from jobboard.primitives import Paused, Per
from jobboard.priorities import JobPriority
from jobboard.states import CLAIMED, TRASHED, UNCLAIMED, FailureKind
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.harness import Harness
from jobboard.testing.conformance.support import LIMIT, LONG, SHORT, MakeBoard

_numbers = itertools.count(1)

WHO = st.sampled_from(["anna", "bert"])
NAMES = st.sampled_from(["a", "a", "a", "b", "c"])
SOME_NAMES = st.one_of(st.none(), st.lists(NAMES, min_size=1, max_size=2))
EXPIRY = st.sampled_from([None, LONG])
KEYS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries(
        {
            "key": st.sampled_from(["k", "l"]),
            "key_for": st.sampled_from([None, LONG]),
            "on_key": st.sampled_from(["keep", "replace"]),
            # Where a job goes that gets another one is not the same everywhere.
            "priority": st.just(1),
        }
    ),
)
POSTING = st.builds(
    operator.or_,
    st.fixed_dictionaries(
        {
            "name": NAMES,
            "group": st.sampled_from([None, "g", "h"]),
            "priority": st.sampled_from([*JobPriority, 99, 1, -1, -99]),
            "delay": st.sampled_from([None] * 5 + [LONG]),
            "max_attempts": st.sampled_from([None, None, 1, 2]),
            "expires": st.sampled_from([None] * 3 + [2 * LONG]),
        }
    ),
    KEYS,
)
PER = st.sampled_from(["name", "group"])
BOUNDS = st.sampled_from([(1, None), (2, None), (None, 1), (None, 3), (2, 4)])
"""How many at once, and how many may begin within a time that does not end here."""
ERROR = st.sampled_from([None, "broken", "a\x00b"])
LOSE = st.sampled_from([False] * 5 + [True])


class ModelClock:
    """The model's time, which goes when told to."""

    def __init__(self) -> None:
        self.now = 1_000_000_000.0

    def __call__(self) -> float:
        return self.now


class Pair(NamedTuple):
    """Two handles on what should be the same job."""

    real: Job
    model: Job


class BoardMachine(RuleBasedStateMachine):
    """``make_board`` is set by the test."""

    make_board: MakeBoard
    pairs = Bundle("pairs")

    real: JobBoard
    far: JobBoard
    """Another handle on the real board, for operators and readers."""
    model: JobBoard

    def __init__(self) -> None:
        super().__init__()
        self.clock = ModelClock()
        self.posted = 0
        self.all_paused = False
        self.paused_names: set[str] = set()
        self.windows: set[str] = set()
        self.tokens: dict[str, int] = {}
        self.begun: Counter[tuple[str, str | None]] = Counter()
        # The jobs whose lapsed claims were revived. A revival writes no lapse down and keeps the expiry, unless a sweep
        # has come before, and stores sweep at different acts.
        self.revived: set[int] = set()

    def teardown(self) -> None:
        for board in (self.real, self.far, self.model):
            board.close()

    @staticmethod
    def outcome(act: Callable[[], Any]) -> Any:
        try:
            return act(), None
        except JobFailures as failures:
            return None, [type(failure) for failure in failures.exceptions]
        except JobBoardError as error:
            return None, type(error)

    def both(self, act: Callable[[JobBoard, int], Any], loses: bool = False) -> tuple[Any, Any]:
        """Do it on the real board (0) and on the model (1); with ``loses`` the real one's first reply is lost."""
        self.clock.now += 0.001
        with Harness(self.real).lost_reply() if loses else contextlib.nullcontext():
            real, error = self.outcome(lambda: act(self.real, 0))
        model, expected = self.outcome(lambda: act(self.model, 1))
        assert error == expected
        return real, model

    @initialize(
        target=pairs,
        postings=st.lists(POSTING, min_size=3, max_size=6),
        keeps=st.booleans(),
        per=PER,
        bounds=st.one_of(st.none(), BOUNDS),
    )
    def begin(self, postings: list[dict[str, Any]], keeps: bool, per: Per, bounds: Any) -> Any:
        name, options = f"model {next(_numbers)}", {"keep_done": LONG} if keeps else {}
        self.keeps = keeps
        self.real = self.make_board(name, **options)
        self.far = self.make_board(name, **options)
        self.exact = self.real.characteristics.exact_order
        self.model = jobboard.fetch(name + " as a model", {"board": "memory", "clock": self.clock, **options})
        self.model.connect()
        if bounds is not None:
            self.set_limit("a", per, bounds)
        return self.post_many(postings, False)

    @rule(target=pairs, postings=st.lists(POSTING, min_size=1, max_size=3), lose=LOSE)
    def post(self, postings: list[dict[str, Any]], lose: bool) -> Any:
        return self.post_many(postings, lose)

    def post_many(self, postings: list[dict[str, Any]], lose: bool) -> Any:
        numbered = []
        for posting in postings:
            self.posted += 1
            numbered.append({**posting, "details": {"number": self.posted}})
        live = {job.key for job in self.far.iterjobs(ensure_fresh=True)}
        real, model = self.both(lambda board, _: board.post_many(numbered), lose)
        for mine, theirs, posting in zip(real, model, numbered, strict=True):
            self.same(Pair(mine, theirs))
            assert (mine.created, mine.replaced) == (theirs.created, theirs.replaced)
            self.keeps_its_key(mine, posting, live)
        return multiple(*(Pair(mine, theirs) for mine, theirs in zip(real, model, strict=True)))

    @holds("The key of a job is freed by the commit that ends the job.")
    def keeps_its_key(self, job: Job, posting: dict[str, Any], live: set[str | None]) -> None:
        """A post makes a job exactly if its key was free: no live job and no window has it."""
        key = posting.get("key")
        assert job.created == (key is None or key not in live | self.windows)
        if key is not None and key in live and not job.replaced:
            assert number_of(job) != posting["details"]["number"]
        if key is not None and job.created:
            live.add(key)
            self.windows |= {key} if posting["key_for"] else set()

    @rule(target=pairs, pair=pairs)
    def get(self, pair: Pair) -> Any:
        real, model = self.both(lambda board, side: board.get(pair[side].uuid))
        return multiple(*([Pair(real, model)] if real else []))

    @rule(pair=pairs, who=WHO, expiry=EXPIRY, lose=LOSE)
    def claim(self, pair: Pair, who: str, expiry: float | None, lose: bool) -> None:
        claim, _ = self.both(lambda board, side: board.claim(pair[side], who, expiry), lose)
        self.same(pair)
        self.began([pair.real] if claim else [])

    @rule(target=pairs, who=WHO, expiry=EXPIRY, names=SOME_NAMES, limit=st.integers(1, 3), lose=LOSE)
    def take(self, who: str, expiry: float | None, names: Any, limit: int, lose: bool) -> Any:
        chosen: list[int] = []

        def claim(board: JobBoard, side: int) -> Sequence[Job]:
            if side == 0 or self.exact:
                jobs = board.claim_many(who, limit, expiry=expiry, names=names)
                chosen[:] = chosen or [number_of(job) for job in jobs]
                return jobs
            found = [job for job in board.iterjobs(True, names=names) if number_of(job) in chosen]
            for job in found:
                board.claim(job, who, expiry)
            return sorted(found, key=lambda job: chosen.index(number_of(job)))

        real, model = self.both(claim, lose)
        assert [number_of(job) for job in real] == [number_of(job) for job in model]
        made = [Pair(mine, theirs) for mine, theirs in zip(real, model, strict=True)]
        for pair in made:
            self.same(pair)
        self.began(real)
        if len(real) < limit:
            left = self.far.iterjobs(True, names=names, ensure_fresh=True)
            assert not [job for job in left if self.has_room(job)]
        return multiple(*made)

    @holds("Tokens of one job only rise, also across any number of acts.")
    def began(self, jobs: Sequence[Job]) -> None:
        """Check jobs that have just been claimed: none is paused, and the token of each is above earlier tokens."""
        for job in jobs:
            assert job.claim is not None
            assert not self.all_paused
            assert job.name not in self.paused_names
            assert job.claim.token > self.tokens.get(job.uuid, 0)
            self.tokens[job.uuid] = job.claim.token
            self.begun.update({(job.name, None), (job.name, job.group)})

    def has_room(self, job: Job) -> bool:
        """Return whether each limit leaves room for a claim of the job. A rate may have no room without a claim."""
        held = [each for each in self.far.iterjobs(states=[CLAIMED], ensure_fresh=True) if each.name == job.name]
        for limit in self.far.limits():
            if limit.name == job.name and (limit.per == "name" or job.group is not None):
                scope = [each for each in held if limit.per == "name" or each.group == job.group]
                if limit.rate is not None or (limit.concurrency is not None and len(scope) >= limit.concurrency):
                    return False
        return True

    @rule(pair=pairs, who=WHO, expiry=EXPIRY, lose=LOSE)
    def extend(self, pair: Pair, who: str, expiry: float | None, lose: bool) -> None:
        asks = lose and not self.refused_here(pair, who)
        [before] = self.model.engine.read([pair.model.uuid])
        self.both(lambda board, side: board.extend(pair[side], who, expiry), asks)
        [after] = self.model.engine.read([pair.model.uuid])
        if (before.state, after.state) == (UNCLAIMED, CLAIMED):
            self.revived.add(number_of(pair.model))
        self.same(pair)

    @rule(pair=pairs, who=WHO, delay=st.sampled_from([None, LONG]), error=ERROR, lose=LOSE)
    def abandon(self, pair: Pair, who: str, delay: float | None, error: str | None, lose: bool) -> None:
        asks = lose and not self.refused_here(pair, who)
        self.both(lambda board, side: board.abandon(pair[side], who, delay=delay, error=error), asks)
        self.same(pair)

    @rule(pair=pairs, who=WHO, lose=LOSE)
    def consume(self, pair: Pair, who: str, lose: bool) -> None:
        asks = lose and not self.refused_here(pair, who)
        result = {"by": who} if self.keeps else None
        self.both(lambda board, side: board.consume(pair[side], who, result=result), asks)
        self.same(pair)

    @rule(pair=pairs, who=WHO, reason=ERROR)
    def trash(self, pair: Pair, who: str, reason: str | None) -> None:
        self.both(lambda board, side: board.trash(pair[side], who, reason=reason))
        self.same(pair)

    @rule(
        some=st.lists(st.tuples(pairs, st.sampled_from(["consume", "abandon", "trash", "retry"])), max_size=3), who=WHO
    )
    def finish_many(self, some: list[tuple[Pair, str]], who: str) -> None:
        # One job once: in which order the acts of one request take place is not promised.
        acts = {pair.real.uuid: (pair, verb) for pair, verb in some}.values()

        def act(pair: Pair, verb: str, side: int) -> Act:
            return Act(pair[side], "abandon", retry=True) if verb == "retry" else Act(pair[side], verb)

        self.both(lambda board, side: board.finish_many([act(*each, side) for each in acts], who))

    @rule(pair=pairs, verb=st.sampled_from(["release", "cancel", "stop", "restore", "purge"]), lose=LOSE)
    def operate(self, pair: Pair, verb: str, lose: bool) -> None:
        def act(board: JobBoard, side: int) -> None:
            if verb == "stop":
                board.cancel(pair[side], running=True)
            else:
                getattr(board, verb)(pair[side])

        self.both(act, lose)

    @rule(pair=pairs, verb=st.sampled_from(["release", "cancel", "restore", "purge"]))
    def operate_elsewhere(self, pair: Pair, verb: str) -> None:
        def act(board: JobBoard, side: int) -> None:
            board = self.far if side == 0 else board
            getattr(board, verb)(board.get(pair[side].uuid))

        self.both(act)

    @rule(pair=pairs, who=WHO)
    def claim_and_let_lapse(self, pair: Pair, who: str) -> None:
        real, _ = self.both(lambda board, side: board.claim(pair[side], who, SHORT))
        self.began([pair.real] if real else [])
        if real is not None:
            self.clock.now += 1
            watched = self.real.get(pair.real.uuid)
            eventually(lambda: self.real.find_owner(watched) is None, LIMIT)

    @rule(target=pairs, posting=POSTING)
    def post_and_let_come_due(self, posting: dict[str, Any]) -> Any:
        self.posted += 1
        posting = {**posting, "delay": SHORT, "details": {"number": self.posted}}
        live = {job.key for job in self.far.iterjobs(ensure_fresh=True)}
        real, model = self.both(lambda board, _: board.post(**posting))
        self.keeps_its_key(real, posting, live)
        self.clock.now += 1
        if real.created or real.replaced:  # and no other has its key
            eventually(lambda: real.state == UNCLAIMED, LIMIT)
            assert model.state == UNCLAIMED
        return Pair(real, model)

    @rule(target=pairs, posting=POSTING)
    def post_and_let_expire(self, posting: dict[str, Any]) -> Any:
        self.posted += 1
        posting = {**posting, "delay": None, "expires": SHORT, "details": {"number": self.posted}}
        live = {job.key for job in self.far.iterjobs(ensure_fresh=True)}
        real, model = self.both(lambda board, _: board.post(**posting))
        self.keeps_its_key(real, posting, live)
        self.clock.now += 1
        if real.created or real.replaced:
            eventually(lambda: real.state == TRASHED, LIMIT)
            assert model.state == TRASHED
        return Pair(real, model)

    @rule(names=SOME_NAMES, verb=st.sampled_from(["pause", "resume", "resume"]))
    def pause(self, names: Any, verb: str) -> None:
        self.both(lambda board, side: getattr(self.far if side == 0 else board, verb)(names))
        if names is None:
            self.all_paused = verb == "pause"
        if verb == "pause":
            self.paused_names |= set(names or ())
        else:
            self.paused_names -= self.paused_names if names is None else set(names)

    @rule(name=NAMES, per=PER, bounds=BOUNDS)
    def set_another_limit(self, name: str, per: Per, bounds: tuple[int | None, int | None]) -> None:
        self.set_limit(name, per, bounds)

    def set_limit(self, name: str, per: Per, bounds: tuple[int | None, int | None]) -> None:
        # Claims from before a limit count on SQL, and elsewhere they may not.
        if any(job.name == name for job in self.model.iterjobs(states=[CLAIMED])):
            return
        concurrency, starts = bounds
        rate = None if starts is None else (starts, 10 * LONG)
        self.both(
            lambda board, side: (self.far if side == 0 else board).set_limit(
                name, per=per, concurrency=concurrency, rate=rate
            )
        )
        self.begun.clear()

    @rule(name=NAMES, per=st.one_of(st.none(), PER))
    def remove_limit(self, name: str, per: Per | None) -> None:
        self.both(lambda board, _: board.remove_limit(name, per))

    @rule()
    def close_and_connect(self) -> None:
        for board in (self.real, self.model):
            board.close()
            board.connect()
        self.begun.clear()  # closing gives claims back

    @rule()
    def purge_trash(self) -> None:
        self.clock.now += 1
        purged = self.both(lambda board, _: board.purge_trash(0))
        assert purged[0] == purged[1]

    @rule(pair=pairs)
    def look(self, pair: Pair) -> None:
        for ask in (
            lambda board, job: job.state,
            lambda board, job: board.find_owner(job),
            lambda board, job: (left := job.expires_in()) and left > LONG - 120,
            lambda board, job: job.wait(0),
        ):
            real, model = self.both(lambda board, side, ask=ask: ask(board, pair[side]))  # type: ignore[misc]
            assert real == model
        self.same(pair)

    @invariant()
    def pauses_limits_and_keys_are_kept(self) -> None:
        """Rules that the model could break in the same way: another handle on the real board shows that they hold."""
        assert self.far.paused() == Paused(self.all_paused, tuple(sorted(self.paused_names)))
        live = list(self.far.iterjobs(ensure_fresh=True))
        keys = [job.key for job in live if job.key is not None]
        assert len(keys) == len(set(keys))
        held = Counter[tuple[str, str | None]]()
        for job in live:
            if job.seen_state == CLAIMED:
                held.update({(job.name, None), (job.name, job.group)})
        for limit in self.far.limits():
            for group in [None] if limit.per == "name" else ["g", "h"]:
                assert limit.concurrency is None or held[limit.name, group] <= limit.concurrency
                assert limit.rate is None or self.begun[limit.name, group] <= limit.rate[0]

    @invariant()
    def the_boards_look_the_same(self) -> None:
        for look in (
            lambda board: [self.shown(job) for job in board.iterjobs(ensure_fresh=True)],
            lambda board: [number_of(job) for job in board.iterjobs(True, ensure_fresh=True)],
            lambda board: [self.shown(job) for job in board.trashed()],
            lambda board: sorted((*self.shown(each.job), each.who, each.result) for each in board.outcomes()),
            JobBoard.stats,
            JobBoard.paused,
            JobBoard.limits,
        ):
            assert look(self.real) == look(self.model)

    def refused_here(self, pair: Pair, who: str) -> bool:
        """Return whether the act is refused before the server is asked."""
        return pair.real.claim is not None and pair.real.claim.who != who

    def shown(self, job: Job) -> tuple[Any, ...]:
        """Return what users see of a job, without values that only the server knows."""
        revived = number_of(job) in self.revived
        return (
            *(number_of(job), job.name, job.group, job.priority, job.key, job.seen_state),
            *(job.attempts, job.retries, job.max_attempts, job.due is None, revived or job.expires is None),
            [failure[1:] for failure in job.errors if not (revived and failure.kind == FailureKind.LAPSE)],
        )

    def same(self, pair: Pair) -> None:
        assert self.shown(pair.real) == self.shown(pair.model)
        claims = [handle.claim for handle in pair]
        assert [(claim.who, claim.ended, claim.kept) if claim else None for claim in claims[:1]] == [
            (claim.who, claim.ended, claim.kept) if claim else None for claim in claims[1:]
        ]


def number_of(job: Job) -> int:
    return int(job.details["number"])


@pytest.mark.timeout(400)  # to make a failing example short takes its time
class TestModel:
    any_driver = True

    @holds("iterjobs leaves out a job that a lapse has trashed, though nobody has swept it.")
    @holds("An empty error counts as none; the Lua rules equal states.py for every act in every state.")
    def test_the_same_as_in_memory(self, make_board: MakeBoard) -> None:
        machine = type("Machine", (BoardMachine,), {"make_board": staticmethod(make_board)})
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=30 if "JOBBOARD_TEST_FULL" in os.environ else 8,
                stateful_step_count=30,
                deadline=None,
                derandomize="CI" in os.environ,
                database=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )

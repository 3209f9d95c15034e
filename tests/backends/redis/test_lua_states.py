"""The scripts do what states.py does, as far as they restate it: the same calls on Redis and in memory."""

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jobboard
from jobboard.backends import memory
from jobboard.backends.redis.keys import CONTAINERS
from jobboard.backends.redis.records import TAG, places_of, stored_of
from jobboard.board import JobBoard
from jobboard.primitives import RANKS, Arrival, Draft, End, Finish, Nonce, Seen
from jobboard.states import CLAIMED, LIVE, OK, SCHEDULED, TRASHED, UNCLAIMED, Failure, Holder, Record, Verb
from tests.full import FULL

pytestmark = pytest.mark.backends("redis")

LONG, SHORT = 600_000_000, 1
"""Leases and delays in µs: one that outlives the test, and one that is over before the next step."""

UUIDS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(4)]
JOB, RIVAL = UUIDS[:2]

Step = tuple[Any, ...]
"""A primitive and its arguments; a caller is (who, which of the tokens it has seen)."""

PAGES: list[Any] = [
    (None, None),
    (None, frozenset({UNCLAIMED})),
    (["a"], frozenset({SCHEDULED, CLAIMED})),
    (["a", "b"], frozenset({UNCLAIMED})),
]

_numbers = itertools.count(1)


class Side:
    """One of the two boards."""

    def __init__(self, board: JobBoard) -> None:
        self.board = board
        self.tokens: dict[str, list[int]] = {}
        self.modified: dict[str, int] = {}
        self.seen: list[Seen] = []
        self.changes: list[tuple[str, bool, bool]] = []

    def holder(self, uuid: str, who: str, which: str | None) -> Holder:
        """``which`` token: the 'last' that a claim had, one 'before' that, or none."""
        known = self.tokens.get(uuid, [])
        if which is None:
            return Holder(who, None)
        if which == "last":
            return Holder(who, known[-1] if known else 7)
        return Holder(who, known[-2] if len(known) > 1 else 7)

    def do(self, step: Step, nonce: Nonce) -> Any:
        verb, *args = step
        board = self.board
        if verb == "insert":
            return [
                (status, uuid, record and self.shown(record))
                for status, uuid, record in board.engine.raw.insert([draft(*each) for each in args], nonce)
            ]
        if verb == "claim":
            uuid, who, lease = args
            status, record, margin = board.engine.raw.claim(uuid, who, lease, nonce)
            return status, record and self.shown(record), lease is None or margin == (lease if record else None)
        if verb == "take":
            limit, lease, names, readable = args
            taken = board.engine.raw.take("anna", limit, lease, names, readable, nonce)
            return [self.shown(record) for record in taken.records]
        if verb == "renew":
            uuid, handle, which = args
            renewed = board.engine.raw.renew(handle, [(uuid, self.holder(uuid, "", which).token)], LONG)
            return [claim[0] for claim in renewed.lost], [claim[0] for claim in renewed.unkept]
        if verb == "extend":
            uuid, caller, lease = args
            return board.engine.raw.extend(uuid, self.holder(uuid, *caller), lease, nonce)[0]
        if verb == "finish":
            return board.engine.raw.finish(
                [finish_of(each[0], self.holder(each[0], *each[1]), *each[2:]) for each in args], nonce
            )
        uuid, error, *which = args
        return board.engine.raw.operate(
            verb, uuid, error, nonce, *(self.holder(uuid, "", each).token for each in which)
        )

    def shown(self, record: Record) -> tuple[Any, ...]:
        """A record without what two clocks can't agree on, nor two counters: pages show the order of the sequences."""
        kept = record.state == CLAIMED and record.keeper is not None
        return (
            *record[: Record._fields.index("sequence")],
            *record[Record._fields.index("key") : Record._fields.index("token")],
            record.who,
            record.keeper,
            "kept" if kept else record.lock_until is not None,
            [failure[1:] for failure in record.errors],
            record.retries,
            record.group,
            record.key_until is not None,
        )

    def remember(self) -> None:
        """What this step has done to tokens and times."""
        self.seen = self.board.engine.raw.read(UUIDS)
        self.changes = []
        for record in (seen.record for seen in self.seen):
            if record is None:
                continue
            known = self.tokens.setdefault(record.uuid, [0])
            assert record.token >= known[-1], "a token has fallen"
            assert record.modified_on >= record.created_on
            rises = record.token > known[-1]
            if rises:
                known.append(record.token)
            fresh = self.modified.get(record.uuid) != record.modified_on
            self.modified[record.uuid] = record.modified_on
            self.changes.append((record.uuid, rises, fresh))

    def forget(self) -> None:
        self.tokens.clear()
        self.modified.clear()

    def look(self) -> list[Any]:
        """Every job, in every way that there is to look at it."""
        found: list[Any] = [
            self.changes,
            *((seen.state, seen.record and self.shown(seen.record)) for seen in self.seen),
        ]
        for names, wanted in PAGES:
            page = self.board.engine.raw.page(None, 100, names, wanted)
            found.append(
                [
                    seen.record.uuid
                    for seen in page
                    if seen.state in (wanted or LIVE) and (names is None or seen.record.name in names)
                ]
            )
        found.append(sorted(record.uuid for record in self.board.engine.raw.trash_page(None, 100)))
        tally = self.board.engine.raw.tally()
        found.append([tally.get(state, 0) for state in (UNCLAIMED, SCHEDULED, CLAIMED, TRASHED)])
        found.append([self.board.engine.raw.peek(names, 1).any for names in (None, ["b", "c"])])
        return found


def finish_of(
    uuid: str,
    holder: Holder,
    verb: Verb,
    delay: int | None = None,
    error: str | None = None,
    refund: bool = False,
    due: int | None = None,
    retry: bool = False,
) -> Finish:
    end = End(verb, delay=delay, error=error, refund=refund, retry=retry)
    return Finish(uuid, holder, end, due=due)


def draft(
    uuid: str,
    name: str = "a",
    priority: int = 1,
    key: str | None = None,
    max_attempts: int | None = None,
    delay: int | None = None,
    version: int = 1,
    arrives: str | None = None,
    replace: bool = False,
    group: str | None = None,
) -> Draft:
    """``arrives``: from another board, 'held' or 'trashed'. A key that is called 'w' has a window."""
    failures = (Failure(900, "anna", 1, "before"), Failure(950, None, 1, "an operator"))
    came = Arrival("anna", 1, failures, 1_000, 2_000 if arrives == "trashed" else None, 0, 2) if arrives else None
    posting = b"posting of " + uuid.encode()
    more = (group or f"group of {name}", LONG if key == "w" else None, replace)
    return Draft(uuid, name, priority, key, version, posting, max_attempts, delay, None, came, *more)


class Pair:
    """Both boards, in step. A Redis board is checked below its surface, too."""

    def __init__(self, conf: dict[str, Any], client: redis.Redis, attempt: int) -> None:
        name = f"pair {next(_numbers)}"
        self.clock = memory.ManualClock()
        self.redis = Side(jobboard.fetch(name, conf))
        self.memory = Side(jobboard.fetch(name, {"board": "memory", "clock": self.clock}))
        self._client = client
        self._calls = 0
        self._attempt = attempt
        for side in (self.redis, self.memory):
            side.board.connect()

    def close(self) -> None:
        for side in (self.redis, self.memory):
            side.board.close()
        memory.forget(self.memory.board.name)

    def run(self, *steps: Step) -> None:
        """Take these steps; each is answered alike."""
        for step in steps:
            self._calls += 1
            nonce = Nonce("handle", 1, self._calls, self._attempt)
            self.clock.advance(0.001)
            assert self.redis.do(step, nonce) == self.memory.do(step, nonce), step
            if any(SHORT is part for each in step for part in (each if isinstance(each, tuple) else (each,))):
                began = self.redis.board.engine.raw.now()
                while self.redis.board.engine.raw.now() <= began + SHORT:
                    pass
            self.clock.advance(0.001)
            for side in (self.redis, self.memory):
                side.remember()

    def compare(self) -> None:
        assert self.redis.look() == self.memory.look()
        self.check_containers()

    def stored(self) -> dict[str, Any]:
        keys = dict(zip(CONTAINERS, self.redis.board.engine.store.keys.all, strict=True))
        with self._client.pipeline(transaction=False) as pipeline:
            for name, key in keys.items():
                if CONTAINERS[name] == "hash":
                    pipeline.hgetall(key)
                else:
                    pipeline.zrange(key, 0, -1, withscores=True)
            found = dict(zip(keys, map(dict, pipeline.execute()), strict=True))
        return {name: content for name, content in found.items() if content}

    def check_containers(self) -> None:
        """Each job is in exactly the containers that its stored state demands."""
        stored = self.stored()
        places, keyed = set(), {}
        for uuid, blob in stored.get("jobs", {}).items():
            record = stored_of(uuid, blob, b"", 0).record
            places |= places_of(record)
            if record.key and record.state != TRASHED:
                keyed[b"key\0" + record.key.encode()] = uuid
        indexes = ("ready", "live", "due", "leases", "final", "trash")
        assert {(name, member.decode()) for name in indexes for member in stored.get(name, ())} == places
        sides = stored.get("sides", {})
        ends = stored.get("ends", {}).keys()
        locks = {
            name: blob[2 * TAG :] for name, blob in sides.items() if name.startswith(b"key\0") and name not in ends
        }
        assert locks == keyed
        assert ends == sides.keys() - keyed.keys()
        assert stored.get("listed", {}).keys() == {name for name in sides if name.startswith(b"key\0")}
        assert stored.get("postings", {}).keys() == stored.get("jobs", {}).keys()
        assert not stored.keys() & {"waiters", "bells"}

    def drain(self) -> None:
        """Nothing is left of jobs that have gone."""
        for seen in self.redis.board.engine.raw.read(UUIDS):
            if seen.record is not None:
                uuid = seen.record.uuid
                self.run((Verb.RELEASE, uuid, None), (Verb.CANCEL, uuid, None), (Verb.PURGE, uuid, None))
        stored = self.stored()
        assert stored.keys() <= {"meta", "sides", "ends", "listed"}
        if b"key\0w" in stored["sides"]:
            # As if its window were over.
            keys = self.redis.board.engine.store.keys
            assert self._client.hdel(keys.of("sides"), "key\0w") == self._client.zrem(keys.of("ends"), "key\0w") == 1
            self._client.delete(keys.of("listed"))
            del stored["sides"][b"key\0w"]
            self.clock.advance(LONG / 1e6)
        assert {name.partition(b"\0")[0] for name in stored["sides"]} <= {b"answer", b"purged"}
        assert stored["meta"].keys() <= {b"layout", b"min_reader", b"last", b"news"}
        for side in (self.redis, self.memory):
            side.forget()


@pytest.fixture(scope="session")
def client(server_uris: dict[str, str]) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_uris["redis"]) as client:
        yield client


@pytest.fixture
def pairs(server_uris: dict[str, str], client: redis.Redis) -> Callable[..., contextlib.closing[Pair]]:
    conf = {"board": server_uris["redis"], "namespace": f"states{os.getpid()}"}
    return lambda attempt=1: contextlib.closing(Pair(conf, client, attempt))


ANNA = ("anna", "last")
POSTED = ("insert", (JOB, "a", 1))
POSTED_ONCE = ("insert", (JOB, "a", 1, None, 1))
KEYED = ("insert", (JOB, "a", 1, "k"))
HELD = ("insert", (JOB, "a", 1, "k", 3, None, 1, "held"))
IN_TRASH = ("insert", (JOB, "a", 1, "k", 1, None, 1, "trashed"))
LAPSING = ("claim", JOB, "anna", SHORT)
HOLDING = ("claim", JOB, "anna", LONG)
SWEEP = ("take", 1, LONG, ["none"], 1)

SITUATIONS: dict[str, list[Step]] = {
    "absent": [("insert", (RIVAL,))],
    "posted": [POSTED],
    "posted_newer": [("insert", (JOB, "a", 1, "k", None, None, 2))],
    "tried_again": [POSTED_ONCE, HOLDING, ("finish", (JOB, ANNA, Verb.ABANDON, None, "before", False, None, True))],
    "abandoned": [POSTED, HOLDING, ("finish", (JOB, ANNA, Verb.ABANDON, None, "before"))],
    "scheduled": [("insert", (JOB, "a", 1, "k", None, LONG))],
    "due": [("insert", (JOB, "a", 1, "k", None, SHORT))],
    "claimed": [POSTED, HOLDING],
    "claimed_with_a_key": [KEYED, HOLDING],
    "lapsed_with_a_key": [KEYED, LAPSING],
    "claimed_again": [POSTED, LAPSING, ("claim", JOB, "bert", LONG)],
    "claimed_by_the_same": [POSTED, LAPSING, HOLDING],
    "kept": [POSTED, ("claim", JOB, "anna", None)],
    "claimed_for_the_last_time": [POSTED_ONCE, HOLDING],
    "kept_for_the_last_time": [POSTED_ONCE, ("claim", JOB, "anna", None)],
    "lapsed": [POSTED, LAPSING],
    "lapsed_and_swept": [POSTED, LAPSING, SWEEP],
    "lapsed_with_an_error": [
        ("insert", (JOB, "a", 1, "k", 2)),
        HOLDING,
        ("finish", (JOB, ANNA, Verb.ABANDON, None, "before")),
        LAPSING,
    ],
    "lapsed_with_an_empty_error": [
        ("insert", (JOB, "a", 1, "k", 2)),
        HOLDING,
        ("finish", (JOB, ANNA, Verb.ABANDON, None, "")),
        LAPSING,
    ],
    "lapsed_for_good": [POSTED_ONCE, LAPSING],
    "lapsed_for_good_and_swept": [POSTED_ONCE, LAPSING, SWEEP],
    "released": [POSTED, HOLDING, (Verb.RELEASE, JOB, "taken away")],
    "cancelled": [POSTED, (Verb.CANCEL, JOB, "no use")],
    "trashed": [POSTED, HOLDING, ("finish", (JOB, ANNA, Verb.TRASH, None, "bad"))],
    "trashed_and_its_key_taken": [KEYED, (Verb.CANCEL, JOB, None), ("insert", (RIVAL, "b", 0, "k"))],
    "lapsed_for_good_and_its_key_taken": [POSTED_ONCE, LAPSING, ("insert", (RIVAL, "b", 0, "k"))],
    "its_key_taken_by_one_that_lapsed_for_good": [
        POSTED,
        (Verb.CANCEL, JOB, None),
        ("insert", (RIVAL, "b", 0, "k", 1)),
        ("claim", RIVAL, "bert", SHORT),
    ],
    "restored": [POSTED_ONCE, HOLDING, ("finish", (JOB, ANNA, Verb.TRASH)), (Verb.RESTORE, JOB, None)],
    "consumed": [POSTED, HOLDING, ("finish", (JOB, ANNA, Verb.CONSUME))],
    "purged": [POSTED, (Verb.CANCEL, JOB, None), (Verb.PURGE, JOB, None)],
    "held": [HELD],
    "arrived_in_the_trash": [("insert", (RIVAL, "b", 0, "k")), IN_TRASH],
}

CALLERS = [("anna", "last"), ("bert", "last"), ("anna", "before"), ("anna", None), ("bert", None)]
ERRORS = [None, "after", ""]
GIVEN_BACK = [(False, None, False), (True, None, False), (False, None, True)]
"""Of a finish: refund, due and retry."""

ACTS: list[Step] = [
    *(("claim", JOB, who, lease) for who in ("anna", "bert") for lease in (LONG, SHORT, None)),
    *(("take", limit, LONG, names, 1) for limit in (1, 5) for names in (None, ["a"], ["b"], ["b", "a"])),
    ("take", 5, None, None, 2),
    *(("renew", JOB, handle, which) for handle in ("handle", "another") for which in ("last", "before")),
    *(("extend", JOB, caller, lease) for caller in CALLERS for lease in (LONG, SHORT, None)),
    *(
        ("finish", (JOB, caller, verb, delay, None, *back))
        for caller in CALLERS
        for verb, delay in ((Verb.ABANDON, None), (Verb.ABANDON, LONG), (Verb.ABANDON, SHORT), (Verb.TRASH, None))
        for back in GIVEN_BACK
    ),
    *(("finish", (JOB, caller, Verb.CONSUME)) for caller in CALLERS),
    *(("finish", (JOB, ANNA, verb, None, error)) for verb in (Verb.ABANDON, Verb.TRASH) for error in ("after", "")),
    ("finish", (JOB, ANNA, Verb.ABANDON), (JOB, ANNA, Verb.CONSUME), (RIVAL, ANNA, Verb.CONSUME)),
    *(
        ("finish", (JOB, (who, which), verb, None, "after"))
        for who, which in (("anna", "last"), ("", "last"), ("anna", "before"), ("", "before"))
        for verb in (Verb.CANCEL, Verb.PURGE)
    ),
    HELD,
    IN_TRASH,
    *((verb, JOB, error) for verb in (Verb.RELEASE, Verb.CANCEL) for error in ERRORS),
    *((Verb.RELEASE, JOB, "after", which) for which in ("last", "before")),
    (Verb.RESTORE, JOB, None),
    (Verb.PURGE, JOB, None),
    ("insert", (UUIDS[2], "c", 1, "k"), (UUIDS[3], "c", 0, "k")),
    ("insert", (UUIDS[2], "c", 1, None, 3, LONG), (UUIDS[3], "c", 0, "l", None, SHORT)),
]


@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_act_in_every_situation(pairs: Any, situation: str) -> None:
    with pairs() as pair:
        pair.run(*SITUATIONS[situation])
        pair.compare()
        pair.drain()
        for act in ACTS:
            pair.run(*SITUATIONS[situation], act)
            pair.compare()
            pair.drain()


@pytest.mark.parametrize("situation", SITUATIONS)
def test_what_the_engine_makes_of_the_store(pairs: Any, situation: str) -> None:
    """Repetitions, which no script but a commit carries out, leave what first tries do."""
    with pairs(attempt=2) as pair:
        for act in ACTS[:: len(ACTS) // 12]:
            pair.run(*SITUATIONS[situation])
            pair.run(act)
            pair.compare()
            pair.drain()


@pytest.mark.parametrize("rank", [RANKS[0], 100, RANKS[-1]])
def test_jobs_that_follow_each_other(pairs: Any, rank: int) -> None:
    """Places are exact: at both ends of the ranks, and at the last sequence of a board too."""
    with pairs() as pair:
        engine = pair.redis.board.engine.raw
        for start in (0, 8 * 10**15):
            pair._client.hset(engine.store.keys.of("meta"), "last", start)
            drafts = [draft(uuid, priority=rank) for uuid in UUIDS]
            engine.insert(drafts, Nonce("handle", 1, start + 1))
            assert [seen.record.uuid for seen in engine.page(None, 100, None, None)] == UUIDS
            for call, uuid in enumerate(UUIDS, start + 1):
                [record] = engine.take("anna", 1, LONG, None, 1, Nonce("handle", 2, call)).records
                assert record.uuid == uuid
            assert [seen.record.uuid for seen in engine.page(None, 100, None, None)] == UUIDS
            acts = [
                Finish(seen.record.uuid, Holder("anna", seen.record.token), End(Verb.CONSUME))
                for seen in engine.read(UUIDS)
            ]
            assert set(engine.finish(acts, Nonce("handle", 3, start + 1))) == {OK}


uuids = st.sampled_from(UUIDS)
callers = st.sampled_from(CALLERS)
leases = st.sampled_from([LONG, SHORT, None])
errors = st.sampled_from(ERRORS)
names = st.sampled_from([None, ["a"], ["b", "a"]])
drafts = st.tuples(
    uuids,
    st.sampled_from(["a", "b"]),
    st.integers(0, 2),
    st.sampled_from([None, "k", "l"]),
    st.sampled_from([None, 1, 2]),
    st.sampled_from([None, None, LONG, SHORT]),
)
steps = st.one_of(
    st.tuples(st.just("claim"), uuids, st.sampled_from(["anna", "bert"]), leases),
    st.tuples(st.just("take"), st.integers(1, 4), leases, names, st.just(1)),
    st.tuples(st.just("extend"), uuids, callers, leases),
    st.tuples(
        st.just("finish"),
        st.tuples(
            uuids,
            callers,
            st.sampled_from([Verb.ABANDON, Verb.ABANDON, Verb.TRASH, Verb.CONSUME]),
            st.sampled_from([None, LONG, SHORT]),
            errors,
            st.booleans(),
            st.none(),
            st.booleans(),
        ),
    ),
    st.tuples(st.sampled_from([Verb.RELEASE, Verb.CANCEL]), uuids, errors),
    st.tuples(st.sampled_from([Verb.RESTORE, Verb.PURGE]), uuids, st.none()),
)


@settings(max_examples=150 if FULL else 50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(jobs=st.lists(drafts, min_size=4, max_size=4, unique_by=lambda each: each[0]), walk=st.lists(steps, max_size=25))
def test_any_walk(pairs: Any, jobs: list[Any], walk: list[Step]) -> None:
    with pairs() as pair:
        pair.run(("insert", *jobs))
        for step in walk:
            pair.compare()
            pair.run(step)
        pair.compare()
        pair.drain()

"""Scripts that restate rules of ``states.py``: takes, heartbeats, consumes and posts do what the memory board does.

The conformance suite compares all verbs in random order. These tests also look into the containers of the board: each
job lies in exactly those that its state demands.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

import jobboard
from jobboard import codec
from jobboard.backends import memory
from jobboard.backends.redis.keys import CONTAINERS
from jobboard.backends.redis.records import entries_of, stored_of
from jobboard.board import JobBoard
from jobboard.primitives import RANKS, Arrival, Draft, End, Finish, Nonce
from jobboard.states import CLAIMED, LIVE, SCHEDULED, UNCLAIMED, Failure, FailureKind, Holder, Record, Verb
from jobboard.testing.conformance.support import engine_of

pytestmark = pytest.mark.backends("redis")

LONG, SHORT = 600_000_000, 1
"""Leases and delays in µs: one that outlives the test, and one that is over before the next step."""

JOB, RIVAL, THIRD, FOURTH = UUIDS = [f"00000000-0000-4000-8000-{number:012d}" for number in range(4)]

_numbers = itertools.count(1)


def draft(uuid: str, name: str = "a", rank: int = 1, delay: int | None = None, **given: Any) -> Draft:
    """``arrives``: the job comes from another board, 'held' or 'trashed'."""
    key, most, version, arrives = (given.get(option) for option in ("key", "most", "version", "arrives"))
    failures = (Failure(900, "anna", 1, "before", FailureKind.LAPSE), Failure(950, None, 1, "an operator"))
    came = Arrival("anna", 1, failures, 1_000, 2_000 if arrives == "trashed" else None, 0, 2) if arrives else None
    posting = b"posting of " + uuid.encode()
    return Draft(uuid, name, rank, key, version or 1, posting, most, delay, None, came, f"group of {name}")


class Side:
    """A board: its calls, and the tokens that claims of ``JOB`` had there."""

    def __init__(self, board: JobBoard) -> None:
        self.board = board
        self.tokens = [7, 7]

    @property
    def engine(self) -> Any:
        return engine_of(self.board)

    def call(self) -> Nonce:
        return Nonce("handle", 1, next(_numbers))

    def post(self, *drafts: Draft) -> Any:
        return [(status, uuid) for status, uuid, *_ in self.engine.insert(self.call(), list(drafts))]

    def claim(self, lease: int | None = LONG, who: str = "anna", uuid: str = JOB) -> Any:
        return self.engine.claim(self.call(), uuid, who, lease)[0]

    def take(self, limit: int, names: list[str] | None, lease: int | None = LONG, readable: int = 1) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(codec, "VERSION", readable)
            taken = self.engine.take(self.call(), "anna", limit, lease, names)
        return [record.uuid for record in taken.records]

    def renew(self, handle: str, age: int) -> Any:
        renewed = self.engine.renew(handle, [(JOB, self.tokens[-age])], LONG)
        return [claim[0] for claim in renewed.lost], [claim[0] for claim in renewed.unkept]

    def finish(self, verb: Verb, who: str = "anna", age: int | None = 1, error: str | None = None) -> Any:
        holder = Holder(who, None if age is None else self.tokens[-age])
        return self.engine.finish(self.call(), [Finish(JOB, holder, End(verb, error=error))])

    def operate(self, verb: Verb) -> Any:
        return self.engine.operate(self.call(), verb, JOB, None)

    def note(self) -> None:
        [seen] = self.engine.read([JOB])
        token = seen.record.token if seen.record else 0
        if token > self.tokens[-1]:
            self.tokens.append(token)

    def look(self) -> list[Any]:
        """Every job, in every way that there is to look at it."""
        seen = self.engine.read(UUIDS)
        found: list[Any] = [(each.state, each.record and shown(each.record)) for each in seen]
        for names, states in ((None, None), (["a"], frozenset({SCHEDULED, CLAIMED})), (["b"], frozenset({UNCLAIMED}))):
            page = self.engine.page(None, 100, names, states)
            fits = [each for each in page if each.state in (states or LIVE)]
            found.append([each.record.uuid for each in fits if each.record and each.record.name in (names or "abc")])
        found.append(sorted(record.uuid for record in self.engine.trash_page(None, 100)))
        found.append({state: count for state, count in self.engine.tally().items() if count})
        found.append([self.engine.peek(names).any for names in (None, ["b", "c"])])
        return [*found, len(self.tokens)]


def shown(record: Record) -> tuple[Any, ...]:
    """Return a record without sequence, token and times, which differ from board to board."""
    errors = [failure[1:] for failure in record.errors]
    kept = record.state == CLAIMED and record.keeper is not None
    lock = "kept" if kept else record.lock_until is not None
    return (
        *(record.uuid, record.name, record.priority, record.key, record.version, record.posting, record.state),
        *(record.attempts, record.max_attempts, record.who, record.keeper, lock, errors, record.retries, record.group),
    )


Step = Callable[[Side], Any]


class Pair:
    """A Redis board and a memory board that take the same steps."""

    def __init__(self, conf: dict[str, Any], client: redis.Redis) -> None:
        name = f"pair {next(_numbers)}"
        self.clock = memory.ManualClock()
        self.client = client
        self.redis = Side(jobboard.fetch(name, conf))
        self.memory = Side(jobboard.fetch(name, {"board": "memory", "clock": self.clock}))
        for side in (self.redis, self.memory):
            side.board.connect()

    def close(self) -> None:
        for side in (self.redis, self.memory):
            side.board.close()
        memory.forget(self.memory.board.name)

    def run(self, *steps: Step) -> None:
        for step in steps:
            self.clock.advance(0.001)
            assert step(self.redis) == step(self.memory)
            self.clock.advance(0.001)
            for side in (self.redis, self.memory):
                side.note()
        assert self.redis.look() == self.memory.look()
        self.check_containers()

    def stored(self) -> dict[str, Any]:
        found = {}
        for (name, kind), key in zip(CONTAINERS.items(), self.redis.engine.store.keys.all, strict=True):
            found[name] = (
                self.client.hgetall(key) if kind == "hash" else dict(self.client.zrange(key, 0, -1, False, True))
            )
        return found

    def check_containers(self) -> None:
        stored = self.stored()
        records = [stored_of(uuid, blob, b"", 0).record for uuid, blob in stored["jobs"].items()]
        entries = {entry for record in records for entry in entries_of(record)}
        indexes = ("ready", "live", "due", "leases", "final", "trash")
        assert {(name, member.decode()) for name in indexes for member in stored[name]} == entries
        assert stored["postings"].keys() == stored["jobs"].keys()
        assert not stored["waiters"] | stored["bells"]

    def check_nothing_is_left(self) -> None:
        """Remove all jobs: the board has answers of calls and notes of purges, and nothing else."""
        for side, uuid, verb in itertools.product(
            (self.redis, self.memory), UUIDS, (Verb.RELEASE, Verb.CANCEL, Verb.PURGE)
        ):
            side.engine.operate(side.call(), verb, uuid, None)
            side.tokens = [7, 7]
        stored = self.stored()
        assert {name for name, content in stored.items() if content} == {"meta", "sides", "ends"}
        assert {name.partition(b"\0")[0] for name in stored["sides"]} <= {b"answer", b"purged"}


@pytest.fixture(scope="module")
def client(server_uris: dict[str, str]) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_uris["redis"]) as client:
        yield client


@pytest.fixture
def pair(server_uris: dict[str, str], client: redis.Redis) -> Iterator[Pair]:
    with contextlib.closing(Pair({"board": server_uris["redis"], "namespace": f"rules{os.getpid()}"}, client)) as pair:
        yield pair


def posted(**given: Any) -> Step:
    return lambda it: it.post(draft(JOB, **given))


def claimed(lease: int | None = LONG, who: str = "anna") -> Step:
    return lambda it: it.claim(lease, who)


def finished(verb: Verb, error: str | None = None) -> Step:
    return lambda it: it.finish(verb, error=error)


def operated(verb: Verb) -> Step:
    return lambda it: it.operate(verb)


SITUATIONS: dict[str, list[Step]] = {
    "absent": [lambda it: it.post(draft(RIVAL))],
    "posted": [posted()],
    "of_a_newer_version": [posted(version=2)],
    "given_back_with_an_error": [posted(), claimed(), finished(Verb.ABANDON, "before")],
    "given_back_with_an_empty_error": [posted(), claimed(), finished(Verb.ABANDON, "")],
    "scheduled": [posted(key="k", delay=LONG)],
    "due": [posted(key="k", delay=SHORT)],
    "claimed": [posted(), claimed()],
    "claimed_with_a_key": [posted(key="k"), claimed()],
    "claimed_again": [posted(), claimed(SHORT), claimed(LONG, "bert")],
    "claimed_again_by_the_same_owner": [posted(), claimed(SHORT), claimed()],
    "kept": [posted(), claimed(None)],
    "kept_for_the_last_time": [posted(most=1), claimed(None)],
    "lapsed": [posted(), claimed(SHORT)],
    "lapsed_for_good": [posted(most=1), claimed(SHORT)],
    "released": [posted(), claimed(), operated(Verb.RELEASE)],
    "stopped": [posted(), claimed(), operated(Verb.STOP)],
    "trashed": [posted(), claimed(), finished(Verb.TRASH, "bad")],
    "restored": [posted(most=1), claimed(), finished(Verb.TRASH), operated(Verb.RESTORE)],
    "arrived_with_its_claim": [posted(key="k", most=3, arrives="held")],
    "arrived_in_the_trash": [posted(key="k", most=1, arrives="trashed")],
}

ACTS: dict[str, Step] = {
    "take one": lambda it: it.take(1, None),
    "take some": lambda it: it.take(5, ["b", "a"]),
    "take others": lambda it: it.take(5, ["b"]),
    "take and keep": lambda it: it.take(5, None, None, readable=2),
    "renew": lambda it: it.renew("handle", 1),
    "renew an older claim": lambda it: it.renew("handle", 2),
    "renew another's claim": lambda it: it.renew("another", 1),
    "consume": finished(Verb.CONSUME),
    "consume an older claim": lambda it: it.finish(Verb.CONSUME, age=2),
    "consume another's claim": lambda it: it.finish(Verb.CONSUME, "bert"),
    "consume by name": lambda it: it.finish(Verb.CONSUME, age=None),
    "give back": finished(Verb.ABANDON),
    "claim": claimed(),
    "post one key twice": lambda it: it.post(draft(THIRD, "c", key="k"), draft(FOURTH, "c", 0, key="k")),
    "post for later": lambda it: it.post(draft(THIRD, "c", delay=LONG, most=3), draft(FOURTH, "c", 0, delay=SHORT)),
}


@pytest.mark.rule("An empty error counts as none; the Lua rules equal states.py for every act in every state.")
@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_script_follows_the_rules_of_states_in_every_state(pair: Pair, situation: str) -> None:
    for act in ACTS.values():
        pair.run(*SITUATIONS[situation], act)
        pair.check_nothing_is_left()


@pytest.mark.parametrize("rank", [RANKS[0], 100, RANKS[-1]])
def test_jobs_follow_each_other_at_both_ends_of_ranks_and_sequences(pair: Pair, rank: int) -> None:
    side = pair.redis
    for start in (0, 8 * 10**15):
        pair.client.hset(side.engine.store.keys.of("meta"), "last", start)
        side.post(*(draft(uuid, rank=rank) for uuid in UUIDS))
        assert [seen.record.uuid for seen in side.engine.page(None, 100, None, None) if seen.record] == UUIDS
        assert [side.take(1, None) for _ in UUIDS] == [[uuid] for uuid in UUIDS]
        assert [seen.record.uuid for seen in side.engine.page(None, 100, None, None) if seen.record] == UUIDS
        pair.check_nothing_is_left()

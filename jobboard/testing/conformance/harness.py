"""The level below the verbs of a board, for tests of moments and records that no verb shows."""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

from jobboard import codec
from jobboard.board import JobBoard
from jobboard.engine import Mark
from jobboard.exceptions import ConnectionFailure
from jobboard.job import Claim, Job
from jobboard.primitives import HELD_UNTIL, Arrival, Draft, End, Finish, Nonce
from jobboard.states import OK, Failure, FailureKind, Holder, Record, Status, Verb
from jobboard.testing import eventually
from jobboard.testing.requests import READS, WRITES, requests

LONG_AGO = 1_500_000_000_123_000

ERRORS = (
    Failure(LONG_AGO + 1, "bert", 1, "it broke", FailureKind.TIMEOUT),
    Failure(LONG_AGO + 2, None, 2, "it failed", "a kind of a newer version"),
)
"""What has gone wrong with a job before its arrival."""

NOTE = codec.Note(3, LONG_AGO, "reading", 12.5, {"row": 7})
"""The last note on a job before its arrival."""

MOVER = "mover"

RETRIES = 7

_numbers = itertools.count(1)


class Harness:
    """A board's engine and store: the one part of the suite that reaches below the public API.

    Every board has the library's engine, so that a test of any backend may use these:

    - a moment inside of a call: :meth:`replaced`, :meth:`lost_reply`, :meth:`first_try_held`, :meth:`beat`;
    - a record as it is stored, sound or damaged: :meth:`record`, :meth:`side`, :meth:`set_side`, :meth:`plant`;
    - a call with a nonce, a token or an origin of the test's own: :attr:`engine`, :attr:`calls`, :meth:`arrive`,
      :meth:`finish`.
    """

    def __init__(self, board: JobBoard) -> None:
        self.calls: Any = board.engine
        """The calls of the engine as the board makes them, with the board's nonces and repetitions."""
        self.engine: Any = board.engine.raw
        self.store: Any = board.engine.store
        self.requests = requests(board)
        self.claims = board.claims

    # Moments

    @contextlib.contextmanager
    def replaced(self, primitive: str, by: Callable[..., Any]) -> Iterator[None]:
        """Call ``by(original, *args, **kwargs)`` in place of a primitive of this handle's engine, or of its store."""
        if not hasattr(self.engine, primitive):
            with self.requests.around(primitive, by):
                yield
            return
        original = getattr(self.engine, primitive)
        self.engine.__dict__[primitive] = lambda *args, **kwargs: by(original, *args, **kwargs)
        try:
            yield
        finally:
            del self.engine.__dict__[primitive]

    @contextlib.contextmanager
    def lost_reply(self, meanwhile: Callable[[], object] | None = None) -> Iterator[None]:
        """Carry out the next request by which a call acts, and break the connection before its reply comes. In a
        transaction, the reply is that to its end.

        :param meanwhile: what happens before the caller hears of it.
        """
        told: list[bool] = []
        block = threading.local()

        def lose() -> None:
            told.append(True)
            if meanwhile is not None:
                meanwhile()
            raise ConnectionFailure("the connection broke", outcome="unknown")

        def act() -> None:
            if not told and not getattr(block, "is_open", False):
                lose()
            block.acted = True

        def write(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            answer = original(*args, **kwargs)
            # A fast path that leaves the call to the engine has sent nothing.
            if answer:
                act()
            return answer

        @contextlib.contextmanager
        def transaction(original: Callable[..., Any], **extra: Any) -> Iterator[None]:
            block.is_open, block.acted = True, False
            try:
                with original(**extra):
                    yield
            finally:
                block.is_open = False
            if block.acted and not told:
                lose()

        hooks = self.requests.around(WRITES, write), self.requests.after("sync", act)
        with hooks[0], hooks[1], self.requests.around("transaction", transaction):
            yield
        assert told, "no request acted"

    @contextlib.contextmanager
    def away_after_commit(self) -> Iterator[None]:
        """Let the store be away from its next commit on: that commit is acknowledged, and every later request fails."""
        stands: list[bool] = []

        def request(writes: bool, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if stands:
                raise ConnectionFailure("the server is away")
            answer = original(*args, **kwargs)
            if writes and answer:
                stands.append(True)
            return answer

        writes, reads = (functools.partial(request, writes) for writes in (True, False))
        with self.requests.around(WRITES, writes), self.requests.around(READS, reads):
            yield
        assert stands, "nothing was committed"

    @contextlib.contextmanager
    def first_try_held(self) -> Iterator[list[Callable[[], object]]]:
        """Hold the first try of the next mutation back, so that the mutation is repeated. Yield a list, which then has
        that try, to be made later."""
        held: list[Callable[[], object]] = []
        mutate = self.calls.mutate

        def holding(call: Callable[..., Any], *args: Any, **extra: Any) -> Any:
            def tried(nonce: Nonce, *args: Any, **extra: Any) -> Any:
                if held:
                    return call(nonce, *args, **extra)
                held.append(functools.partial(call, nonce, *args, **extra))
                raise ConnectionFailure("the request is on its way", outcome="unknown")

            return mutate(tried, *args, **extra)

        self.calls.mutate = holding
        try:
            yield held
        finally:
            del self.calls.mutate
        assert held, "no mutation was made"

    def beat(self) -> None:
        """Do one beat of the heartbeat."""
        self.claims.beat()

    def held(self) -> list[Claim]:
        """Return the claims that the heartbeat renews."""
        return self.claims.held()

    def tidy(self) -> None:
        """Delete what is over. The first call of a connection leaves some of it alone."""
        self.engine.tidy()
        eventually(lambda: not self.engine.tidy())

    # Records

    def now(self) -> int:
        """Return the server's time in µs since 1970."""
        return int(self.engine.now())

    def record(self, job: Job | str) -> Record | None:
        """Return the stored job, with its token, owner and lease."""
        [seen] = self.engine.read([job if isinstance(job, str) else job.uuid])
        record: Record | None = seen.record
        return record

    def side(self, kind: str, key: str) -> Any:
        """Return a side record."""
        [side] = self.store.read([], [(kind, key)]).sides
        return side

    def set_side(self, kind: str, key: str, value: bytes | None) -> None:
        """Store a side record as it stands, past every check."""
        side = self.side(kind, key)
        self.store.commit([], [Mark(side, value, until=side.until)])

    def posting(self, details: dict[str, Any] | None = None) -> bytes | str:
        """Return a posting of these details; without details, one that cannot be decoded."""
        wire = self.calls.wire
        if details is None:
            return b"\xc1" if wire == "msgpack" else "[]"
        return codec.encode(codec.Content(details, None), wire)

    def plant(
        self,
        posting: bytes | str | None = None,
        version: int = codec.VERSION,
        number: int = 1,
        key: str | None = None,
    ) -> list[str]:
        """Store jobs with a posting as it stands; by default with one that cannot be decoded. Return their uuids."""
        posting = self.posting() if posting is None else posting
        uuids = [f"00000000-0000-4000-8000-{next(_numbers):012d}" for _ in range(number)]
        drafts = [Draft(uuid, "poison", 0, key, version, posting, None, None, None) for uuid in uuids]
        self.engine.insert(first_call(), drafts)
        return uuids

    # Moves from another board

    def arrival(
        self,
        number: int = 1,
        *,
        trashed_on: int | None = None,
        attempts: int = 2,
        retries: int = RETRIES,
        token: int = 0,
    ) -> Draft:
        """Return a job that comes from another board."""
        return Draft(
            uuid=f"00000000-0000-4000-9000-{number:012d}",
            name="resize",
            priority=37,
            key=None,
            version=codec.VERSION,
            posting=self.posting({"n": number}),
            max_attempts=3,
            delay=None,
            due=None,
            arrival=Arrival(MOVER, attempts, ERRORS, LONG_AGO, trashed_on, token, retries),
            group="ours",
            expires=HELD_UNTIL,
            note=codec.encode_note(NOTE, self.calls.wire),
        )

    def insert(self, *drafts: Draft) -> list[tuple[bool, Record | None]]:
        """Return for each whether it is new, and the job that is there."""
        return [(status == OK, record) for status, _, record, _ in self.calls.insert(drafts)]

    def arrive(self, draft: Draft) -> Record:
        """Store a job that comes from another board, held by its mover."""
        [(created, record)] = self.insert(draft)
        assert created
        assert record is not None
        return record

    def finish(self, *acts: Finish) -> list[Status]:
        """End claims, or part with jobs."""
        statuses: list[Status] = self.calls.finish(acts)
        return statuses

    def free(self, record: Record) -> list[Status]:
        """Let go of a job that has arrived, as its mover does."""
        return self.finish(Finish(record.uuid, Holder(MOVER, record.token), End(Verb.ABANDON)))


def first_call() -> Nonce:
    """Return the nonce of the first call of a new handle."""
    return Nonce(uuid4().hex, 1, 1)


def part(record: Record, verb: Verb) -> Finish:
    """Return the act of a mover that takes a job off its board, if the job is as this record says."""
    return Finish(record.uuid, Holder(record.who or "", record.token), End(verb, error="gone"))

"""The fast paths of the SQL store: each does what :mod:`jobboard.states` says, or leaves the call to the engine."""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard import codec, states
from jobboard.backends.sql import store
from jobboard.backends.sql.statements import Statement
from jobboard.board import JobBoard
from jobboard.engine import GATE, ClaimTerms, Side, Stored
from jobboard.exceptions import JobFailure
from jobboard.job import Posting
from jobboard.primitives import Draft, End, Finish, Nonce, Returned
from jobboard.states import (
    CLAIMED,
    CONSUME,
    OK,
    SCHEDULED,
    TRASHED,
    UNCLAIMED,
    Holder,
    Verb,
    settle,
)
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

NO_RULES = Side(*GATE, None, None, None)
LEASE = 60_000_000
PAST = -5_000_000
TOKEN = 7
KEPT, FIXED = ClaimTerms("bert", "other-handle", LEASE), ClaimTerms("bert", None, LEASE)

_calls = itertools.count(1)


def call() -> Nonce:
    return Nonce("handle", 1, next(_calls))


@dataclasses.dataclass
class Form:
    """A stored job: its columns, of which the times are relative to the server's."""

    name: str
    state: states.State
    until: int | None = None
    wake: int | None = None
    columns: dict[str, Any] = dataclasses.field(default_factory=dict)

    def at(self, now: int) -> dict[str, Any]:
        until = None if self.until is None else now + self.until
        wake = until if self.wake is None else now + self.wake
        gone = now if self.state == TRASHED else None
        times = {"lock_until": until, "wake_at": wake, "gone_on": gone}
        windows = {name: now + value for name, value in self.columns.items() if name == "key_until"}
        return {"state": self.state.value, **times, **self.columns, **windows}


ANNA = {"who": "anna", "keeper": "handle", "token": TOKEN, "attempts": 1}
FORMS = [
    Form("posted", UNCLAIMED),
    Form("given back", UNCLAIMED, columns={"token": TOKEN, "attempts": 1}),
    Form("lapsed, as a sweep has recorded", UNCLAIMED, columns=ANNA),
    Form("scheduled", SCHEDULED, LEASE),
    Form("due", SCHEDULED, PAST),
    Form("kept", CLAIMED, LEASE, columns=ANNA),
    Form("of a fixed lease", CLAIMED, LEASE, columns={**ANNA, "keeper": None}),
    Form("renewed since its wake-up was set", CLAIMED, LEASE, PAST, columns=ANNA),
    Form("lapsed", CLAIMED, PAST, columns=ANNA),
    Form("lapsed with its last attempt", CLAIMED, PAST, columns={**ANNA, "max_attempts": 1}),
    Form("trashed", TRASHED, columns={"token": TOKEN}),
    Form("kept, with a key", CLAIMED, LEASE, columns={**ANNA, "key": "k", "live_key": "k"}),
    Form("kept, with a window", CLAIMED, LEASE, columns={**ANNA, "key": "k", "live_key": "k", "key_until": LEASE}),
    Form("of a newer version", UNCLAIMED, columns={"version": codec.VERSION + 1}),
]


class Stage:
    """One job on a board, in any form."""

    def __init__(self, board: JobBoard, engine: sa.Engine) -> None:
        self.board, self.engine, self.store = board, engine, board.engine.store

    def forms(self) -> Iterator[tuple[Form, Stored]]:
        for form in FORMS:
            self.clear()
            uuid = self.board.post("a").uuid
            with self.engine.begin() as connection:
                connection.execute(sa.update(self.board.table).values(form.at(self.store.now())))
            stored = self.stored(uuid)
            assert stored is not None
            yield form, stored

    def clear(self) -> None:
        with self.engine.begin() as connection:
            connection.execute(sa.delete(self.board.table))

    def stored(self, uuid: str) -> Stored | None:
        [stored] = self.store.read([uuid]).jobs
        return stored

    def check_claim(self, before: Stored, claimed: Stored, lease: ClaimTerms) -> None:
        """See that a claim is what states.claim makes, and that it is stored."""
        now = claimed.record.modified_on
        assert lease.ttl is not None
        expected = states.claim(before.record, now, lease.who, lease.keeper, now + lease.ttl)
        assert (OK, claimed.record) == expected
        assert claimed.tag == next_tag(before)
        assert self.stored(before.record.uuid) == claimed


def next_tag(stored: Stored) -> tuple[int, int]:
    assert isinstance(stored.tag, tuple)
    return stored.tag[0], stored.tag[1] + 1


@pytest.fixture
def stage(board: JobBoard, engine: sa.Engine) -> Stage:
    return Stage(board, engine)


# Every state and owner, by every verb and caller


@pytest.mark.parametrize(
    ("names", "lease"), [(None, KEPT), (["a"], FIXED), (["b"], KEPT), (["b", "a"], FIXED)], ids=str
)
def test_take(stage: Stage, lease: ClaimTerms, names: list[str] | None) -> None:
    for form, before in stage.forms():
        taken = stage.store.take(lease, 5, names, codec.VERSION, call())
        wakes = form.until if form.wake is None else form.wake
        if wakes == PAST:
            assert taken is None, f"{form.name}: the engine has to sweep it first"
        elif form.state == UNCLAIMED and form.name != "of a newer version" and (names is None or "a" in names):
            assert taken is not None
            assert taken[1] is None
            [claimed] = taken[0]
            stage.check_claim(before, claimed, lease)
            continue
        else:
            assert taken is not None, form.name
            jobs, event = taken
            assert jobs == [], form.name
            assert event is None if wakes is None else event is not None and 0 < event <= LEASE
        assert stage.stored(before.record.uuid) == before, form.name


@pytest.mark.parametrize("lease", [KEPT, FIXED], ids=["kept", "fixed"])
def test_claim(stage: Stage, lease: ClaimTerms) -> None:
    for form, before in stage.forms():
        uuid = before.record.uuid
        claimed = stage.store.claim(uuid, lease, call())
        status, _ = states.claim(before.record, stage.store.now(), *lease)
        if status == OK and form.state != CLAIMED:
            assert claimed is not None, form.name
            stage.check_claim(before, claimed, lease)
        else:
            assert claimed is None, form.name
            assert stage.stored(uuid) == before, form.name
    assert stage.store.claim("absent", lease, call()) is None


@pytest.mark.parametrize(("token", "keep"), [(TOKEN - 1, None), (TOKEN, None), (TOKEN, LEASE), (TOKEN + 1, LEASE)])
def test_consume(stage: Stage, token: int, keep: int | None) -> None:
    for form, before in stage.forms():
        uuid = before.record.uuid
        act = Finish(uuid, Holder("anna", token), End(CONSUME, result=Returned('"é"' if keep else None)), keep=keep)
        consumed = stage.store.consume([act], call(), NO_RULES)
        now = stage.store.now()
        status, after = states.finish(before.record, act.holder, now, CONSUME)
        if status == OK and settle(before.record, now) == before.record and before.record.key_until is None:
            assert consumed, form.name
            assert after is None
            assert stage.stored(uuid) is None
        else:
            assert not consumed, form.name
            assert stage.stored(uuid) == before, form.name
        [done] = stage.board.engine.raw.outcomes([uuid])
        assert (done is not None) == bool(consumed and keep)
        if done is not None:
            assert done.record._replace(state=before.record.state, modified_on=0, keeper=None, lock_until=None) == (
                before.record._replace(modified_on=0, keeper=None, lock_until=None)
            )
            assert (done.result, done.refused, done.begun) == ('"é"', None, before.record.modified_on)
            assert done.until == done.record.modified_on + LEASE


@pytest.mark.backends("sqlite")
def test_only_consumes_are_fast(stage: Stage) -> None:
    for verb in (Verb.ABANDON, Verb.TRASH, Verb.CANCEL, Verb.PURGE):
        for form, before in stage.forms():
            act = Finish(before.record.uuid, Holder("anna", TOKEN), End(verb))
            assert not stage.store.consume([act], call(), NO_RULES)
            assert stage.stored(before.record.uuid) == before, form.name


@pytest.mark.parametrize(("token", "handle"), [(TOKEN, "handle"), (TOKEN - 1, "handle"), (TOKEN, "another")])
def test_renew(stage: Stage, token: int, handle: str) -> None:
    for form, before in stage.forms():
        uuid, record = before.record.uuid, before.record
        left = stage.store.renew(handle, [(uuid, token), ("absent", token)], 2 * LEASE)
        now = stage.store.now()
        after = stage.stored(uuid)
        status = states.check(record, Holder("", token), now)
        if status == OK and settle(record, now).state == CLAIMED and record.keeper == handle:
            assert left == [("absent", token)], form.name
            assert after is not None
            until = after.record.lock_until
            assert until is not None
            assert LEASE < until - now <= 2 * LEASE
            renewed = states.extend(record, Holder("anna", token), now, handle, until)
            assert (OK, after.record) == renewed
            assert after.tag == next_tag(before)
        else:
            assert left == [(uuid, token), ("absent", token)], form.name
            assert after == before, form.name


def test_a_gate_leaves_takes_claims_and_ends_by_other_rules_to_the_engine(stage: Stage) -> None:
    stage.board.pause(["other"])
    for form, before in stage.forms():
        uuid = before.record.uuid
        assert stage.store.take(KEPT, 5, None, codec.VERSION, call()) is None
        assert stage.store.claim(uuid, KEPT, call()) is None
        assert not stage.store.consume([Finish(uuid, Holder("anna", TOKEN), End(CONSUME))], call(), NO_RULES)
        assert stage.stored(uuid) == before, form.name
    stage.clear()
    stage.board.post("a")
    held = stage.board.claim_next("anna")
    assert held is not None
    act = Finish(held.uuid, Holder("anna", held.claim.token), End(CONSUME))
    [gate] = stage.store.read([], [GATE]).sides
    stage.board.pause(["another"])
    assert not stage.store.consume([act], call(), gate)
    [gate] = stage.store.read([], [GATE]).sides
    assert stage.store.consume([act], call(), gate)
    stage.board.resume()
    stage.board.post("a")
    taken = stage.store.take(KEPT, 5, None, codec.VERSION, call())
    assert taken is not None
    assert len(taken[0]) == 1


def test_no_job_is_taken_before_an_overdue_one(stage: Stage) -> None:
    urgent = stage.board.post("a", priority=50, delay=60)
    plain = stage.board.post("a")
    with stage.engine.begin() as connection:
        past = {"lock_until": stage.store.now() - 1_000_000, "wake_at": stage.store.now() - 1_000_000}
        connection.execute(sa.update(stage.board.table).where(stage.board.table.c.uuid == urgent.uuid).values(past))
    for names in (None, ["a"], ["a", "b"]):
        assert stage.store.take(KEPT, 5, names, codec.VERSION, call()) is None
    assert [job.uuid for job in stage.board.claim_many("anna", 2)] == [urgent.uuid, plain.uuid]


# Posts


def draft(number: int, **more: Any) -> Draft:
    posting = codec.encode(codec.Content({"n": number}, None), "json")
    blank = {"key": None, "max_attempts": None, "delay": None, "due": None}
    values = {"name": "a", "priority": 100, "version": codec.VERSION, "posting": posting, **blank, **more}
    return Draft(uuid=f"00000000-0000-4000-8000-{number:012d}", **values)


def test_post(stage: Stage) -> None:
    now = stage.store.now()
    batches = [
        [draft(1)],
        [draft(2, group="g", max_attempts=3, priority=0)],
        [draft(3, delay=LEASE)],
        [draft(4, due=now + LEASE)],
        [draft(5, due=now + PAST)],
        [draft(6, delay=LEASE, name="é😀"), draft(7), draft(8, due=now + PAST, group="'\\\"%s:name?"), draft(9)],
    ]
    places = []
    for drafts in batches:
        stored = stage.store.post(drafts, call())
        assert stored is not None
        for each, was in zip(stored, drafts, strict=True):
            assert each.record == was.record(each.record.sequence, each.record.created_on)
            assert stage.stored(was.uuid) == each
            places.append(each.record.sequence)
    assert places == sorted(places)


ODD = [*"'\"\\%?;{[\u2028\u0301é😀", "%s", "%(p_name)s", ":p_name", "--", "\\u0000"]


def test_text_is_stored_as_it_is(board: JobBoard) -> None:
    """No character is taken for a part of the statement, its parameters or the JSON that carries it."""
    texts = [*ODD, "".join(ODD), "".join(reversed(ODD))]
    postings = [
        Posting(f"n{text}", details={text: [text, "\0\n\t\x7f", 2**63 - 1, -(2**63), 1.5, None]}, group=f"g{text}")
        for text in texts
    ]
    for some in (postings, postings[-1:]):
        posted = board.post_many(some)
        taken = board.claim_many("'\\%s", len(some))
        assert [job.uuid for job in taken] == [job.uuid for job in posted]
        for job, was, posting in zip(taken, posted, some, strict=True):
            assert (job.name, job.details, job.group) == (posting.name, posting.details, posting.group)
            assert (job.sequence, job.created_on) == (was.sequence, was.created_on)
        board.consume_many(taken, "'\\%s")
    assert board.job_count == 0


def test_places_rise_whichever_way_a_job_is_posted(board: JobBoard, engine: sa.Engine) -> None:
    """By a shortcut, the general way, and a transaction of the caller's that is rolled back."""
    jobs = board.post_many([Posting("a")] * 2)
    with engine.connect() as connection:
        board.post("gone", connection=connection)
        connection.rollback()
    jobs += [board.post("a", key="k"), *board.post_many([Posting("a"), Posting("a", delay=60)]), board.post("a")]
    assert jobs == sorted(jobs)
    stored = {job.uuid: job.sequence for job in board.iterjobs()}
    assert stored == {job.uuid: job.sequence for job in jobs}
    board.consume_many(board.claim_many("anna", 10), "anna")
    last = board.post("a")
    assert last.sequence > max(stored.values())


# Repetitions


@pytest.mark.parametrize("later", [0, 1])
def test_a_first_try_behind_its_own_repetition_does_nothing(stage: Stage, later: int) -> None:
    """The slot has the answer of this call, or of a later one."""
    board, store = stage.board, stage.store
    board.post_many([{"name": "a"}] * 3)
    [held] = board.claim_many("anna", 1)
    slot = Nonce("slow", 1, 7)
    board.engine.raw.insert(slot._replace(call=7 + later, attempt=2), [draft(1)])
    before = [stage.stored(job.uuid) for job in board.iterjobs()]
    assert store.post([draft(2)], slot) is None
    assert store.post([draft(2), draft(3)], slot) is None
    for names in (None, ["a"], ["a", "b"]):
        assert store.take(KEPT, 1, names, codec.VERSION, slot) is None
    unclaimed = next(board.iterjobs(only_unclaimed=True))
    assert store.claim(unclaimed.uuid, KEPT, slot) is None
    assert not store.consume([Finish(held.uuid, Holder("anna", held.claim.token), End(CONSUME))], slot, NO_RULES)
    assert [stage.stored(job.uuid) for job in board.iterjobs()] == before


def test_several_claims_end_together_and_each_by_its_own_token(board: JobBoard, engine: sa.Engine) -> None:
    board.post_many([{"name": "a"}] * 4)
    jobs = [*board.claim_many("anna", 2), board.claim_next("anna"), board.claim_next("anna")]
    with engine.begin() as connection:
        c = board.table.c
        connection.execute(sa.update(board.table).where(c.uuid == jobs[0].uuid).values(token=c.token + 1))
    tokens = [job.claim.token for job in jobs]
    wrong, right = [tokens[0], tokens[0] + 1, *tokens[2:]], [tokens[0] + 1, *tokens[1:]]
    held = [(job.uuid, token) for job, token in zip(jobs[:2], wrong, strict=False)]
    assert board.engine.store.renew(board.engine.handle, held, LEASE) == held
    for given in (wrong, right):
        pairs = zip(jobs, given, strict=True)
        acts = [Finish(job.uuid, Holder("anna", token), End(CONSUME)) for job, token in pairs]
        assert board.engine.store.consume(acts, call(), NO_RULES) == (given == right)
        assert board.job_count == (0 if given == right else 4)


# Rows that others hold

WAITING = {
    "postgresql": """SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'""",
    "mariadb": """SELECT count(*) FROM information_schema.processlist
        WHERE db = database() AND info LIKE 'insert%answers%'""",
}
"""How many takes are under way that have locked their jobs, where such a take can only wait."""


@pytest.mark.backends("postgresql", "mariadb")
@pytest.mark.parametrize("names", [None, ["a"], ["a", "b"]])
def test_a_take_holds_no_job_that_it_does_not_take(
    board: JobBoard, engine: sa.Engine, backend: str, names: list[str] | None
) -> None:
    """One that is held up in the middle leaves to others exactly the jobs behind those that it takes."""
    jobs = board.post_many([{"name": name} for name in "aabaab"])
    wanted = [job.uuid for job in jobs if names is None or job.name in names]
    store, answers = board.engine.store, board.engine.store.tables.answers
    slow = Nonce("slow", 1, 2)
    assert store.post([draft(99, name="z")], slow._replace(call=1)) is not None

    def waits() -> bool:
        with engine.begin() as looking:
            return bool(looking.execute(sa.text(WAITING[backend])).scalar())

    # At other levels MariaDB locks gaps too.
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection:
        connection.execute(sa.select(answers.c.call).where(answers.c.handle == "slow").with_for_update())
        taking = Background(lambda: store.take(KEPT, 2, names, codec.VERSION, slow))
        eventually(waits)
        others = store.take(KEPT, 2, names, codec.VERSION, call())
        connection.rollback()
    taken = taking.wait(60)
    assert others is not None
    assert [each.record.uuid for each in others[0]] == wanted[2:4]
    assert [each.record.uuid for each in taken[0]] == wanted[:2]


@pytest.mark.backends("postgresql", "mariadb")
def test_a_take_looks_again_soon_where_others_hold_the_jobs(board: JobBoard, engine: sa.Engine) -> None:
    board.post("a")
    store, table = board.engine.store, board.table
    with engine.connect() as connection:
        connection.execute(sa.select(table.c.id).with_for_update())
        for names in (None, ["a"]):
            assert store.take(KEPT, 1, names, codec.VERSION, call()) == ([], 50_000)
        # The engine looks for jobs behind these.
        assert store.take(KEPT, 1, ["a", "b"], codec.VERSION, call()) is None
        connection.rollback()


# MariaDB's compound statements


@pytest.mark.backends("mariadb")
def test_an_error_behind_an_answer_is_raised(board: JobBoard) -> None:
    text = "begin not atomic\nselect 1;\nsignal sqlstate '45000' set message_text = 'too late';\nend"
    with pytest.raises(JobFailure, match="too late"):
        board.engine.store.links.run(lambda link: link.compound(Statement("late", text), {}))
    assert board.job_count == 0


@pytest.mark.backends("mariadb")
def test_a_row_too_long_for_a_packet_is_left_to_the_engine(board: JobBoard, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server makes it NULL. The engine claims the job."""
    monkeypatch.setitem(
        board.engine.store.statements._made, ("take", ("index", "ready")), Statement("take", "select null")
    )
    board.post_many([Posting("a", details={"n": n}) for n in range(2)])
    assert board.engine.store.take(KEPT, 2, None, codec.VERSION, call()) is None
    jobs = board.claim_many("anna", 2)
    assert [job.details for job in jobs] == [{"n": 0}, {"n": 1}]


@pytest.mark.backends("mariadb")
def test_a_board_without_fast_paths_goes_the_engines_way(
    make_board: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on MySQL."""
    monkeypatch.setattr(store, "fast_paths", lambda *args: None)
    board = make_board()
    board.post_many([Posting("a")] * 2)
    board.consume_many(board.claim_many("anna", 2), "anna")
    assert board.job_count == 0


@pytest.mark.backends("mariadb")
def test_rules_that_change_behind_the_lock_of_a_job_keep_it(make_board: Callable[..., Any], spy: Any) -> None:
    board, other = make_board(), make_board()
    board.post("a")

    def before(text: str) -> None:
        if text.startswith("begin not atomic") and not other.paused().names:
            other.pause(["a"])

    with spy(board, before):
        assert board.engine.store.take(KEPT, 1, None, codec.VERSION, call()) is None
    assert [job.state for job in board.iterjobs()] == [UNCLAIMED]

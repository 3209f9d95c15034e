"""Starting points of takes: behind the dead entries of finished jobs, and past no job for long."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard import Act, codec, runtime
from jobboard.backends.sql import starts
from jobboard.board import JobBoard
from jobboard.testing import eventually
from jobboard.testing.conformance.processes import in_child

pytestmark = pytest.mark.backends("postgresql", "mariadb")


class Clock:
    """The runtime with the clock by which surveys come, which stands still unless a test moves it."""

    Lock = staticmethod(runtime.Lock)

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture(params=[False, True], ids=["free", "limited"])
def by_limits(request: pytest.FixtureRequest, board: JobBoard) -> None:
    """Have the engine take the jobs, under a limit that keeps none out."""
    if request.param:
        board.set_limit("other", concurrency=1000)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Have each board use starting points, and a full survey come every EVERY seconds, however long one takes."""
    clock = Clock()
    monkeypatch.setattr(starts, "runtime", clock)
    monkeypatch.setattr(starts, "EXPENSIVE", 0)
    monkeypatch.setattr(starts, "RARELY", 0)
    return clock


def taken(board: JobBoard, **wanted: Any) -> Any:
    job = board.claim_next("anna", **wanted)
    assert job is not None
    return job


def work(board: JobBoard, clock: Clock, seconds: float = 3 * starts.COMMIT_SECONDS, **wanted: Any) -> list[str]:
    """Take a job four times a second, for as long; return the names. Enough others remain."""
    board.post_many([{"name": "other"}] * (int(seconds * 4) + 10))
    names = []
    for _ in range(int(seconds * 4)):
        clock.now += 0.25
        job = taken(board, **wanted)
        names.append(job.name)
        board.consume(job, "anna")
    return names


@contextlib.contextmanager
def open_transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    with engine.connect().execution_options(isolation_level="READ COMMITTED") as connection, connection.begin():
        yield connection


def set_id(board: JobBoard, engine: sa.Engine, job: Any, id_: int) -> None:
    with engine.begin() as connection:
        connection.execute(sa.update(board.table).where(board.table.c.uuid == job.uuid).values(id=id_))


@pytest.mark.rule("A claim costs the same behind a pinned snapshot.")
@pytest.mark.parametrize(("pin", "retried"), [("read", False), ("write", True)])
def test_a_job_costs_the_same_behind_a_pinned_snapshot(
    make_board: Callable[..., JobBoard],
    engine: sa.Engine,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    pin: str,
    retried: bool,
) -> None:
    board = make_board(table=f"pinned_{pin}_{retried}".lower())
    lone = make_board("lone", table=f"pinned_{pin}_{retried}".lower()).post("lone")
    with engine.connect().execution_options(isolation_level="REPEATABLE READ") as connection:
        connection.execute(sa.select(sa.func.count()).select_from(board.table)).all()
        if pin == "write":
            connection.execute(sa.update(board.table).where(board.table.c.id == lone.sequence).values(errors=""))
        for _ in range(12):
            board.post_many([{"name": "a"}] * 100)
            if retried:
                board.finish_many([Act(job, "abandon") for job in board.claim_many("anna", 100)], "anna")
            board.consume_many(board.claim_many("anna", 100), "anna")
        work(board, clock)
        if pin == "write":
            # A transaction that has written may bring a job that lies before a point.
            clock.now += starts.OPEN_SECONDS
            work(board, clock)
        board.post_many([{"name": "a"}] * 40)
        assert cost_of_a_job(board, engine) < 800
        # Each job has left entries, which a look from the beginning passes.
        monkeypatch.setattr(starts, "EXPENSIVE", 1e12)
        clock.now += 2 * starts.EVERY
        assert cost_of_a_job(board, engine) > 1000
        connection.rollback()


@pytest.mark.rule("No caller's transaction waits for a survey.")
@pytest.mark.backends("mariadb")
def test_a_board_of_an_earlier_version_sees_the_ends_of_callers_transactions(
    make_board: Callable[..., JobBoard], engine: sa.Engine, clock: Clock
) -> None:
    """Its row for the gate is there, and not yet those that callers lock."""
    board = make_board()
    board.set_limit("other", concurrency=1000)
    c = board.engine.store.tables.sides.c  # type: ignore[union-attr]
    with engine.begin() as connection:
        gone = sa.delete(c.place.table).where(c.board == board.name, c.kind == "caller")
        assert connection.execute(gone).rowcount == starts.CALLERS
    later = make_board()
    work(later, clock)
    assert later.engine.store._fast.point(None, codec.VERSION) is not None  # type: ignore[union-attr]


@pytest.mark.rule("A child that is forked during a survey makes surveys of its own.")
def test_a_child_that_is_forked_during_a_survey_makes_surveys(board: JobBoard, clock: Clock) -> None:
    paths = board.engine.store._fast  # type: ignore[union-attr]
    surveyor = paths._starts.of(None)

    def survey() -> bool:
        work(board, clock)
        return paths.point(None, codec.VERSION) is not None

    # The lock that a surveying thread holds. The child does not have that thread.
    with surveyor._turn:
        made = in_child(survey)
    assert made()


def cost_of_a_job(board: JobBoard, engine: sa.Engine) -> int:
    """Return what a claim and its end read, entries of indexes or pages: the fewest, as a server counts for others,
    too."""
    costs = []
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:

        def read() -> int:
            if engine.dialect.name != "postgresql":
                pages = "SHOW GLOBAL STATUS LIKE 'Innodb_buffer_pool_read_requests'"
                return int(connection.exec_driver_sql(pages).one()[1])
            # The server tells this only after a while unless it is asked to.
            flush = "SELECT pg_stat_force_next_flush()"
            board.engine.store.links.run(lambda link: link.raw.cursor().execute(flush))  # type: ignore[union-attr]
            entries = sa.text("SELECT sum(idx_tup_read)::bigint FROM pg_stat_user_indexes WHERE relname = :table")
            return int(connection.execute(entries, {"table": board.table.name}).scalar_one())

        for _ in range(20):
            before = read()
            board.consume(taken(board), "anna")
            costs.append(read() - before)
    return min(costs)


@pytest.mark.rule("A take from a starting point passes over no job that a transaction brings within a minute.")
@pytest.mark.rule("A post that commits late is found by the next take.")
@pytest.mark.parametrize("how", ["post", "abandon", "delay"])
@pytest.mark.parametrize(
    ("by_limits", "names"), [(False, None), (True, ["late", "other"])], indirect=["by_limits"], ids=["free", "limited"]
)
@pytest.mark.usefixtures("by_limits")
def test_a_job_of_a_long_transaction_is_next_once_that_commits(
    board: JobBoard, engine: sa.Engine, clock: Clock, names: list[str] | None, how: str
) -> None:
    early = board.claim(board.post("late"), "bob").job
    work(board, clock, names=names)
    with open_transaction(engine) as connection:
        if how == "post":
            early = board.post("late", connection=connection)
        else:
            board.abandon(early, "bob", delay=0.01 if how == "delay" else None, connection=connection)
        # All the jobs before it go meanwhile.
        board.consume_many(board.claim_many("anna", 100, names=names), "anna")
        assert set(work(board, clock, 3 * starts.COMMIT_SECONDS, names=names)) == {"other"}
    assert taken(board, names=names).uuid == early.uuid


@pytest.mark.rule("A take from a starting point passes over no job that a transaction brings within a minute.")
def test_a_point_rises_again_once_a_long_transaction_has_ended(
    board: JobBoard, engine: sa.Engine, clock: Clock
) -> None:
    paths = board.engine.store._fast  # type: ignore[union-attr]
    job = board.claim(board.post("late"), "bob").job
    work(board, clock)
    before = paths.point(None, codec.VERSION)
    with open_transaction(engine) as connection:
        board.abandon(job, "bob", connection=connection)
        work(board, clock)
        during = paths.point(None, codec.VERSION)
        work(board, clock)
        assert paths.point(None, codec.VERSION).ids == during.ids
    work(board, clock)
    assert max(paths.point(None, codec.VERSION).ids.values()) > max(during.ids.values()) >= max(before.ids.values())


@pytest.mark.rule("The next full survey finds a job that commits later than that, and those behind it.")
@pytest.mark.rule("A post that commits late is found by the next take.")
@pytest.mark.usefixtures("by_limits")
def test_posts_that_commit_much_later_are_found_by_the_next_full_survey(
    board: JobBoard, engine: sa.Engine, clock: Clock
) -> None:
    work(board, clock)
    with open_transaction(engine) as connection:
        late = [job for _ in range(3) for job in board.post_many([{"name": "late"}] * 500, connection=connection)]
        board.consume_many(board.claim_many("anna", 100), "anna")
        work(board, clock)
        clock.now += starts.OPEN_SECONDS
        work(board, clock)
    for _ in range(int(starts.EVERY * 4) + 1):
        clock.now += 0.25
        job = taken(board)
        board.consume(job, "anna")
        if job.name == "late":
            break
    assert job.uuid == late[0].uuid
    found = [job.uuid]
    while len(found) < len(late):
        clock.now += 0.25
        jobs = board.claim_many("anna", min(100, len(late) - len(found)))
        assert jobs, f"{len(late) - len(found)} jobs are left"
        found += [job.uuid for job in jobs]
        board.consume_many(jobs, "anna")
    # A take between two transactions may find fewer than it may claim, and no take finds another's.
    assert found == [job.uuid for job in late]


@pytest.mark.rule("A take finds nothing only after a look from the beginning.")
@pytest.mark.usefixtures("by_limits")
def test_a_take_finds_nothing_only_after_a_look_from_the_beginning(
    board: JobBoard, engine: sa.Engine, clock: Clock
) -> None:
    work(board, clock)
    with open_transaction(engine) as connection:
        late = board.post("late", connection=connection)
        work(board, clock)
        while jobs := board.claim_many("anna", 100):
            board.consume_many(jobs, "anna")
    assert taken(board).uuid == late.uuid


@pytest.mark.rule("A claim that is rolled back leaves its job next.")
def test_a_claim_that_is_rolled_back_leaves_its_job_next(board: JobBoard, engine: sa.Engine, clock: Clock) -> None:
    work(board, clock)
    first = next(iter(board.iterjobs(only_unclaimed=True)))
    with open_transaction(engine) as connection:
        claimed = {"state": "CLAIMED", "who": "bob", "lock_until": 2**60, "wake_at": 2**60}
        connection.execute(sa.update(board.table).where(board.table.c.uuid == first.uuid).values(claimed))
        work(board, clock)
        connection.rollback()
    assert taken(board).uuid == first.uuid


@pytest.mark.rule("A reading within a transaction ends none of its locks.")
def test_a_survey_leaves_the_locks_of_its_transaction(make_board: Callable[..., JobBoard]) -> None:
    board, other = make_board(), make_board()
    jobs = [board.post("a"), board.post("a")]
    store = board.engine.store
    paths = store._fast  # type: ignore[union-attr]
    with store.transaction():
        store.hold(store.look(1, None, codec.VERSION).ready)
        store.look(1, None, codec.VERSION)
        # On MariaDB, to note a moment takes locks, which would stay.
        assert paths.moment(0) is None
        assert paths.survey(starts.Point({}, 0), None, codec.VERSION).firsts
        assert taken(other) == jobs[1]
    assert taken(other) == jobs[0]


@pytest.mark.rule("No caller's transaction waits for a survey.")
def test_no_caller_waits_for_a_survey(
    board: JobBoard, engine: sa.Engine, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is stopped in a survey, or cut off from its server, holds no lock that a caller needs."""
    with open_transaction(engine) as connection:
        # Else the board would ask for its own database, on the survey's connection.
        board.post("mine", connection=connection)
    paths, posted = board.engine.store._fast, []  # type: ignore[union-attr]
    under_way = paths._under_way

    def stopped(link: Any) -> Any:
        found = list(under_way(link))
        with open_transaction(engine) as connection:
            if engine.dialect.name != "postgresql":
                connection.exec_driver_sql("SET innodb_lock_wait_timeout = 1")
            posted.append(board.post("mine", connection=connection))
        return found

    monkeypatch.setattr(paths, "_under_way", stopped)
    work(board, clock, 1)
    assert posted


@pytest.mark.rule("A take from a starting point finds a lapsed job that another transaction has held.")
def test_a_lapsed_job_that_was_held_is_next(board: JobBoard, engine: sa.Engine, clock: Clock) -> None:
    early = board.claim(board.post("early"), "bob").job
    work(board, clock)
    early.claim.extend(0.4)
    with open_transaction(engine) as connection:
        c = board.table.c
        connection.execute(sa.select(c.id).where(c.id == early.sequence).with_for_update())
        eventually(lambda: early.state == "UNCLAIMED")
        # Long enough for a point to rise past the lapse.
        assert set(work(board, clock)) == {"other"}
    assert taken(board).uuid == early.uuid


@pytest.mark.rule("A take from a starting point passes over no job that a transaction brings within a minute.")
def test_a_delay_that_is_stored_after_its_end_is_found(
    make_board: Callable[..., JobBoard], clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a process that was stopped before its commit."""
    board, other = make_board(), make_board()
    early = board.claim(board.post("early"), "bob").job
    work(other, clock)
    store = board.engine.store
    commit = store.commit

    def late(*args: Any, **kwargs: Any) -> Any:
        began = board.engine.now()
        eventually(lambda: board.engine.now() > began + 50_000)
        assert set(work(other, clock)) == {"other"}
        return commit(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(store, "commit", late)
        board.abandon(early, "bob", delay=0.01)
    assert taken(other).uuid == early.uuid


@pytest.mark.rule("A take from a starting point passes over the jobs that others hold.")
@pytest.mark.parametrize("held", [1, 20])
def test_jobs_that_others_hold_are_passed_over(board: JobBoard, engine: sa.Engine, clock: Clock, held: int) -> None:
    work(board, clock)
    board.post_many([{"name": "other"}] * (held + 2))
    jobs = list(board.iterjobs(only_unclaimed=True))
    with open_transaction(engine) as connection:
        c = board.table.c
        for job in jobs[:held]:
            # Each by itself: of many MariaDB would lock all rows.
            connection.execute(sa.select(c.id).where(c.id == job.sequence).with_for_update())
        assert [taken(board).uuid, taken(board).uuid] == [job.uuid for job in jobs[held : held + 2]]
    assert taken(board).uuid == jobs[0].uuid


@pytest.mark.backends("mariadb")
def test_a_take_passes_held_jobs_from_its_point(board: JobBoard, engine: sa.Engine, clock: Clock, spy: Any) -> None:
    """By locks, from the beginning, it would pass each dead entry by a lock."""
    work(board, clock)
    board.consume_many(board.claim_many("anna", 100), "anna")
    jobs = board.post_many([{"name": "other"}] * 62)
    with open_transaction(engine) as connection:
        c = board.table.c
        for job in jobs[:60]:
            connection.execute(sa.select(c.id).where(c.id == job.sequence).with_for_update())
        with spy(board) as seen:
            assert taken(board).uuid == jobs[60].uuid
    takes = [text for text in seen.texts if "for update" in text]
    assert len(takes) == 2
    assert all("returned >=" in text for text in takes)


@pytest.mark.backends("mariadb")
def test_expensive_looks_read_without_locks_before_a_point_can_rise(board: JobBoard, clock: Clock, spy: Any) -> None:
    """No noted moment has ended yet: the look goes from the beginning, and finds whatever commits."""
    board.post_many([{"name": "other"}] * 5)
    for _ in range(2):
        clock.now += 0.25
        board.consume(taken(board), "anna")
    urgent = board.post("urgent", priority=50)
    with spy(board) as seen:
        assert taken(board).uuid == urgent.uuid
    assert any("returned >=" in text and "for update" in text for text in seen.texts)
    assert not any("as below" in text for text in seen.texts)


@pytest.mark.backends("mariadb")
@pytest.mark.parametrize("names", [None, ["urgent", "other"]], ids=str)
def test_priorities_without_a_point_are_found_each_by_itself(
    board: JobBoard, clock: Clock, spy: Any, names: list[str] | None
) -> None:
    """A walk along all of them would go on through the dead entries of the first priority that has a point."""
    work(board, clock, names=names)
    for priority in (100, 99, 1):
        urgent = board.post("urgent", priority=priority)
        with spy(board) as seen:
            assert taken(board, names=names).uuid == urgent.uuid
        board.consume(urgent, "anna")
        [take] = [text for text in seen.texts if "for update" in text]
        assert take.count("as below") == len(names or [None])


@pytest.mark.rule("A take from a starting point passes over no job that comes back.")
@pytest.mark.parametrize(
    ("by_limits", "how", "names"),
    [
        *((False, how, None) for how in ("abandon", "release", "restore", "lapse", "due", "replace")),
        (False, "abandon", ["other", "early"]),
        (True, "lapse", None),
        (True, "release", ["other", "early"]),
    ],
    indirect=["by_limits"],
)
@pytest.mark.usefixtures("by_limits")
def test_a_job_that_comes_back_is_next(board: JobBoard, clock: Clock, how: str, names: list[str] | None) -> None:
    early = board.post("early", key="k", delay=None if how != "replace" else 3600)
    if how != "replace":
        assert taken(board).uuid == early.uuid
        board.abandon(early, "anna")
        board.claim(early, "bob")
    work(board, clock, names=names)
    if how == "abandon":
        board.abandon(early, "bob")
    elif how == "release":
        board.release(early)
    elif how == "restore":
        board.trash(early, "bob")
        work(board, clock, names=names)
        board.restore(early)
    elif how == "lapse":
        early.claim.extend(0.4)  # type: ignore[union-attr]
    elif how == "due":
        board.abandon(early, "bob", delay=0.4)
    else:
        board.post("early", key="k", on_key="replace")
    work_on = work(board, clock, 1, names=names) if how in ("lapse", "due") else []
    eventually(lambda: "early" in work_on or early.state == "UNCLAIMED")
    assert "early" in work_on or taken(board, names=names).uuid == early.uuid


@pytest.mark.rule("A take from a starting point passes over no job that comes back.")
def test_many_jobs_come_back_in_their_order(board: JobBoard, clock: Clock) -> None:
    early = board.post_many([{"name": "early"}] * 300)
    board.claim_many("bob", 300)
    work(board, clock)
    for job in reversed(early):
        board.release(job)
    found = []
    for _ in range(30):
        clock.now += 0.25
        jobs = board.claim_many("anna", 10)
        found += [job.uuid for job in jobs]
    assert found == [job.uuid for job in early]


@pytest.mark.rule("A starting point holds for the names that it was found for.")
@pytest.mark.usefixtures("by_limits")
def test_takes_of_one_name_set_no_start_for_others(board: JobBoard, clock: Clock) -> None:
    work(board, clock)
    board.consume_many(board.claim_many("anna", 100), "anna")
    mine = board.post("mine")
    assert set(work(board, clock, 5, names=["other"])) == {"other"}
    assert taken(board).uuid == mine.uuid


@pytest.mark.rule("A starting point holds for the names that it was found for.")
def test_a_pause_sets_no_start_for_its_name(board: JobBoard, clock: Clock) -> None:
    work(board, clock)
    board.consume_many(board.claim_many("anna", 100), "anna")
    mine = board.post("mine")
    board.pause(["mine"])
    assert set(work(board, clock, 5)) == {"other"}
    board.resume(["mine"])
    assert taken(board).uuid == mine.uuid


@pytest.mark.rule("A take from a starting point serves in order of priority.")
def test_priorities_are_served_in_order_as_they_come_and_go(board: JobBoard, clock: Clock) -> None:
    for priority in (0, 50, 20, 100, 50, -50, 20):
        work(board, clock, 3)
        first = board.post_many([{"name": "first", "priority": priority}] * 3)
        if priority > 0:
            for job in first:
                clock.now += 0.25
                assert taken(board).uuid == job.uuid
    while jobs := board.claim_many("anna", 100):
        board.consume_many(jobs, "anna")
    assert {job.state for job in board.iterjobs()} == {"CLAIMED"}


@pytest.mark.rule("The next full survey finds a job that commits later than that, and those behind it.")
def test_ids_that_begin_again_are_found_by_the_next_full_survey(
    board: JobBoard, engine: sa.Engine, clock: Clock
) -> None:
    """As on a replica that has missed some posts, and takes the place of its server."""
    board.consume(board.claim(board.post("first"), "anna").job, "anna")
    work(board, clock)
    lower = board.post("lower")
    set_id(board, engine, lower, 1)
    names = []
    for _ in range(int(starts.EVERY * 4) + 1):
        clock.now += 0.25
        names.append(taken(board).name)
    assert "lower" in names

"""Rows that are acquired: what users of django-scalable know, and what they had to live with."""

from __future__ import annotations

import datetime
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import ORMExecuteState, Session, aliased, with_loader_criteria

from jobboard.exceptions import ClaimLost, JobFailure
from jobboard.orm import Claimable
from jobboard.sql.expressions import Now
from tests.orm.models import Done, Drawing, Film, Part, Picture

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def pictures(session: Session) -> list[int]:
    """Ten of them; the ids of those that were stored first have the highest rank."""
    rows = [Picture(rank=-number) for number in range(10)]
    for row in rows:
        session.add(row)
        session.flush()
    session.commit()
    ids = [row.id for row in rows]
    session.rollback()
    return ids


def ids(rows: Sequence[Picture]) -> list[int]:
    return [row.id for row in rows]


def stored(session: Session, id_: int) -> Picture:
    row = session.get(Picture, id_, populate_existing=True)
    session.commit()
    assert row is not None
    return row


def overtake(other: Session, row: Picture) -> Picture:
    """Somebody else acquires it, as if its time were up."""
    other.execute(sa.update(Picture).where(Picture.id == row.id).values(acquired_until=LONG_AGO))
    other.commit()
    [taken] = Picture.acquire(other, "bert", where=Picture.id == row.id)
    return taken


def test_batches_are_disjoint_and_as_large_as_the_limit(session: Session, pictures: list[int]) -> None:
    batches = [ids(Picture.acquire(session, f"anna {number}", limit=4)) for number in range(4)]
    assert batches == [pictures[:4], pictures[4:8], pictures[8:], []]


def test_acquired_rows_say_by_whom_and_from_when_until_when(session: Session, pictures: list[int]) -> None:
    before = session.scalar(sa.select(Now()))
    session.commit()
    [row] = Picture.acquire(session, "anna", limit=1, timeout=60)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert row.acquired_by == "anna"
    assert row.acquired_at - epoch >= datetime.timedelta(microseconds=before)
    assert row.acquired_until - row.acquired_at == datetime.timedelta(seconds=60)
    assert ids(Picture.acquired(session, "anna")) == [row.id]
    assert Picture.acquired(session, "bert") == []


def test_limit_is_argument_over_class_over_global_over_100(
    session: Session, pictures: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Claimable.acquire_limit == 100
    monkeypatch.setattr(Claimable, "acquire_limit", 3)
    assert len(Picture.acquire(session, "anna")) == 3
    monkeypatch.setattr(Picture, "acquire_limit", 2, raising=False)
    assert len(Picture.acquire(session, "anna")) == 2
    assert len(Picture.acquire(session, "anna", limit=1)) == 1


def test_none_says_nothing(session: Session, pictures: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """As django-scalable's classes have it unless they say more."""

    def acquired() -> tuple[int, float]:
        rows = Picture.acquire(session, "anna")
        seconds = (rows[0].acquired_until - rows[0].acquired_at).total_seconds()
        Picture.unacquire(session, "anna")
        return len(rows), seconds

    for name, default in (("acquire_limit", 3), ("acquire_timeout", 500)):
        monkeypatch.setattr(Picture, name, None, raising=False)
        monkeypatch.setattr(Claimable, name, default)
    assert acquired() == (3, 500)
    for name in ("acquire_limit", "acquire_timeout"):
        monkeypatch.setattr(Claimable, name, None)
    assert acquired() == (10, 600)


def test_timeout_is_argument_over_class_over_global_over_600(
    session: Session, pictures: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def seconds(**arguments: float) -> float:
        [row] = Picture.acquire(session, "anna", limit=1, **arguments)
        return (row.acquired_until - row.acquired_at).total_seconds()

    assert seconds() == 600
    monkeypatch.setattr(Claimable, "acquire_timeout", 500)
    assert seconds() == 500
    monkeypatch.setattr(Picture, "acquire_timeout", 400, raising=False)
    assert seconds() == 400
    assert seconds(timeout=0.5) == 0.5


def test_a_condition_narrows_what_is_acquired(session: Session, pictures: list[int]) -> None:
    rows = Picture.acquire(session, "anna", where=Picture.rank.in_([-2, -5, -7]) & ~Picture.done)
    assert ids(rows) == [pictures[2], pictures[5], pictures[7]]
    assert ids(Picture.acquire(session, "anna", where=[Picture.rank < -2, Picture.rank > -5])) == pictures[3:5]
    assert Picture.unacquire(session, "anna", where=(Picture.rank < -2, Picture.rank > -4)) == 1
    assert len(Picture.acquired(session, "anna", where=[])) == 4


def test_another_table_belongs_into_exists(session: Session, pictures: list[int]) -> None:
    """Or each row would come once for each of that table's."""
    session.add(Done(number=pictures[3], key="a", who="bert"))
    session.commit()
    other = aliased(Picture)
    calls: list[Callable[[Any], object]] = [
        lambda where: Picture.acquire(session, "anna", where=where),
        lambda where: Picture.acquired(session, "anna", where=where),
        lambda where: Picture.unacquire(session, "anna", where=where),
        lambda where: Picture.unacquire_timed_out(session, where=where),
        lambda where: Picture.acquiring(session, "anna", where=where),
    ]
    for call in calls:
        for where, name in ((Done.who == "bert", "done"), ([Picture.done, other.rank == 1], "pictures")):
            with pytest.raises(ValueError, match=rf"where is on {name}.*exists\(\)"):
                call(where)
    done = sa.exists().where(Done.number == Picture.id, Done.who == "bert")
    assert ids(Picture.acquire(session, "anna", where=done)) == [pictures[3]]
    assert ids(Picture.acquired(session, "anna", where=[done, ~Picture.done])) == [pictures[3]]
    assert Film.acquired(session, "anna", where=[Picture.rank < 0, Film.id > 0]) == []


@pytest.mark.backends("sqlite")
def test_what_is_no_row_and_what_is_no_time_is_named(session: Session) -> None:
    wrong: Any = "2000-01-01"
    for name, call in (
        ("acquired_at", lambda: Picture.acquire(session, "anna", acquired_at=wrong)),
        ("acquired_at", lambda: Picture.reacquire(session, "anna", acquired_at=wrong)),
        ("now", lambda: Picture.unacquire_timed_out(session, now=wrong)),
    ):
        with pytest.raises(TypeError, match=f"{name} must be a datetime, not str"):
            call()
    for rows, kind in (([5], "int"), ([Part()], "Part")):
        for verb in (Picture.unacquire, Picture.reacquire):
            with pytest.raises(TypeError, match=f"objects of Picture, not of {kind}"):
                verb(session, "anna", rows)  # type: ignore[operator]


def test_unacquire_gives_back_all_of_a_name_or_some_of_its_rows(session: Session, pictures: list[int]) -> None:
    rows = Picture.acquire(session, "anna", limit=4)
    Picture.acquire(session, "bert", limit=2)
    assert Picture.unacquire(session, "anna", rows[:1]) == 1
    assert rows[0].acquisition is None
    assert rows[0].acquired_by is rows[0].acquired_at is rows[0].acquired_until is None
    assert Picture.unacquire(session, "anna", where=Picture.id == rows[1].id) == 1
    assert Picture.unacquire(session, "anna") == 2
    assert Picture.acquired(session, "anna") == []
    assert len(Picture.acquired(session, "bert")) == 2
    assert ids(Picture.acquire(session, "anna", limit=4)) == pictures[:4]


def test_unacquire_timed_out_takes_what_is_strictly_older(session: Session, pictures: list[int]) -> None:
    Picture.acquire(session, "anna", limit=3, timeout=60, acquired_at=LONG_AGO)
    up = LONG_AGO + datetime.timedelta(seconds=60)
    assert Picture.unacquire_timed_out(session, now=up) == 0
    later = up + datetime.timedelta(microseconds=1)
    assert Picture.unacquire_timed_out(session, now=later, where=Picture.id == pictures[0]) == 1
    Picture.acquire(session, "bert", limit=1, where=Picture.id == pictures[0])
    assert Picture.unacquire_timed_out(session) == 2
    assert Picture.acquired(session, "anna") == []
    assert len(Picture.acquired(session, "bert")) == 1


def test_reacquire_renews(session: Session, pictures: list[int]) -> None:
    rows = Picture.acquire(session, "anna", limit=2, acquired_at=LONG_AGO)
    assert all(row.acquisition.lost for row in rows)
    kept, lost = Picture.reacquire(session, "anna", timeout=60)
    assert (kept, lost) == (rows, [])
    assert not any(row.acquisition.lost for row in rows)
    assert 0 < rows[0].acquisition.expires_in() <= 60
    assert stored(session, rows[0].id).acquired_at > LONG_AGO + datetime.timedelta(days=1)
    assert Picture.unacquire_timed_out(session) == 0
    at = LONG_AGO + datetime.timedelta(seconds=1)
    assert Picture.reacquire(session, "anna", rows[:1], acquired_at=at).kept == rows[:1]
    assert stored(session, rows[0].id).acquired_at == at


def test_acquiring_again_under_one_name_returns_only_the_new_rows(session: Session, pictures: list[int]) -> None:
    first = Picture.acquire(session, "anna", limit=3)
    second = Picture.acquire(session, "anna", limit=3)
    assert set(ids(first)).isdisjoint(ids(second))
    assert len(second) == 3


def test_a_filter_is_not_applied_again_on_the_way_back(session: Session, pictures: list[int]) -> None:
    assert len(Picture.acquire(session, "anna", where=Picture.acquired_by.is_(None), limit=3)) == 3
    rows = Picture.acquired(session, "anna")
    for row in rows:
        row.done = True
    session.commit()
    assert Picture.reacquire(session, "anna").kept == rows


def test_reacquire_says_what_was_lost(session: Session, other: Session, pictures: list[int]) -> None:
    rows = Picture.acquire(session, "anna", limit=3)
    overtake(other, rows[1])
    Picture.unacquire(other, "anna", where=Picture.id == rows[2].id)
    assert Picture.reacquire(session, "anna") == ([rows[0]], [rows[1], rows[2]])
    assert [row.acquisition.lost for row in rows] == [False, True, True]
    assert Picture.reacquire(session, "anna", rows[1:]).lost == rows[1:]
    assert stored(other, rows[1].id).acquired_by == "bert"


def test_rows_that_another_worker_of_the_same_name_has_taken_are_lost(
    session: Session, other: Session, pictures: list[int]
) -> None:
    [row] = Picture.acquire(session, "anna", limit=1, acquired_at=LONG_AGO)
    [again] = Picture.acquire(other, "anna", limit=1)
    assert again.id == row.id
    session.commit()
    assert Picture.reacquire(session, "anna").lost == [row]
    assert Picture.unacquire(session, "anna", [row]) == 0
    assert stored(other, row.id).acquired_by == "anna"


def test_rows_come_in_the_order_that_was_asked_for(session: Session, pictures: list[int]) -> None:
    assert ids(Picture.acquire(session, "anna", limit=3, order_by=Picture.rank)) == pictures[:-4:-1]
    assert ids(Picture.acquire(session, "anna", limit=3)) == pictures[:3]
    by_two = (Picture.done, Picture.id.desc())
    assert ids(Picture.acquire(session, "anna", limit=2, order_by=by_two)) == [pictures[6], pictures[5]]


@pytest.mark.backends("postgresql", "mariadb")
def test_consumers_do_not_collide_on_the_first_rows(session: Session, other: Session, pictures: list[int]) -> None:
    """One is about to commit, and holds the locks."""
    session.begin()
    mine = Picture.acquire(session, "anna", limit=4, order_by=Picture.rank.desc())
    assert ids(mine) == pictures[:4]
    assert ids(Picture.acquire(other, "bert", limit=4, order_by=Picture.rank.desc())) == pictures[4:8]
    assert ids(Picture.acquire(other, "bert", limit=4, order_by=Picture.rank.desc())) == pictures[8:]


@pytest.mark.backends("postgresql", "mariadb")
@pytest.mark.parametrize("by_name", [True, False])
def test_giving_back_locks_no_rows_of_others(
    session: Session, other: Session, pictures: list[int], by_name: bool
) -> None:
    mine = Picture.acquire(session, "anna", limit=8)
    session.begin()
    Picture.unacquire(session, "anna", None if by_name else mine)
    assert ids(Picture.acquire(other, "bert", limit=10)) == pictures[8:]


@pytest.mark.backends("sqlite")
def test_nobody_picks_between_picking_and_writing(engine: sa.Engine, session: Session, pictures: list[int]) -> None:
    hasty = sa.create_engine(engine.url, connect_args={"timeout": 0})
    tried: list[str] = []

    def between(connection: sa.Connection, cursor: Any, statement: str, *rest: Any) -> None:
        if "acquired_token" in statement and statement.startswith("SELECT") and not tried:
            tried.append(statement)
            with Session(hasty) as second, second.begin(), pytest.raises(sa.exc.OperationalError, match="locked"):
                Picture.acquire(second, "bert")

    sa.event.listen(engine, "after_cursor_execute", between)
    try:
        assert len(Picture.acquire(session, "anna")) == 10
    finally:
        sa.event.remove(engine, "after_cursor_execute", between)
    hasty.dispose()
    assert tried


def test_what_was_acquired_is_shown_as_it_is(session: Session, other: Session, pictures: list[int]) -> None:
    row = stored(other, pictures[0])
    session.execute(sa.update(Picture).values(rank=7))
    session.commit()
    assert Picture.acquire(other, "anna", limit=1) == [row]
    assert (row.rank, row.acquired_by, row.acquired_token) == (7, "anna", row.acquisition.token)


def test_what_a_crashed_worker_had_can_be_acquired_when_its_time_is_up(session: Session, pictures: list[int]) -> None:
    rows = Picture.acquire(session, "crashed", limit=2, acquired_at=LONG_AGO)
    tokens = [row.acquisition.token for row in rows]
    again = Picture.acquire(session, "anna", limit=2)
    assert ids(again) == ids(rows)
    assert [row.acquisition.token for row in again] == [token + 1 for token in tokens]


def test_nobody_takes_what_is_held(session: Session, other: Session, pictures: list[int]) -> None:
    Picture.acquire(session, "anna")
    assert Picture.acquire(other, "bert") == []


def test_an_overtaken_object_can_neither_be_written_nor_deleted(
    session: Session, other: Session, pictures: list[int]
) -> None:
    rows = Picture.acquire(session, "anna", limit=2)
    overtake(other, rows[0])
    overtake(other, rows[1])
    rows[0].done = True
    with pytest.raises(ClaimLost, match=rf"Picture {rows[0].id}\b") as caught:
        session.commit()
    session.rollback()
    assert caught.value.job is rows[0]
    session.delete(rows[1])
    with pytest.raises(ClaimLost):
        session.commit()
    session.rollback()
    assert not stored(other, rows[0].id).done
    assert stored(other, rows[1].id).acquired_by == "bert"
    assert rows[0].acquisition.lost


def test_who_has_lost_nothing_may_finish_late(session: Session, pictures: list[int]) -> None:
    [row] = Picture.acquire(session, "anna", limit=1, acquired_at=LONG_AGO)
    assert row.acquisition.lost
    row.done = True
    session.commit()
    assert stored(session, row.id).done


def test_what_was_not_acquired_or_is_given_back_is_written_as_ever(
    session: Session, other: Session, pictures: list[int]
) -> None:
    [mine] = Picture.acquire(session, "anna", limit=1)
    unaware = other.get(Picture, mine.id)
    unaware.rank = 7
    other.commit()
    Picture.unacquire(session, "anna", [mine])
    mine.done = True
    session.commit()
    after = stored(other, mine.id)
    assert (after.rank, after.done) == (7, True)


def test_a_row_is_not_given_back_under_anothers_name(session: Session, pictures: list[int]) -> None:
    rows = Picture.acquire(session, "anna", limit=1)
    for verb in (Picture.unacquire, Picture.reacquire):
        with pytest.raises(JobFailure, match=rf"^Picture {rows[0].id} was acquired by 'anna', not by 'bert'"):
            verb(session, "bert", rows)


def test_any_primary_key_will_do(session: Session, other: Session) -> None:
    def parts() -> list[Part]:
        day = datetime.date(2020, 1, 1)
        return [Part(of=uuid.UUID(int=number), name=name, day=day) for number in range(2) for name in ("a", "b", "c")]

    session.add_all(parts())
    session.commit()
    mine = Part.acquire(session, "anna", limit=4, order_by=(Part.name.desc(), Part.of))
    theirs = Part.acquire(other, "bert")
    assert len(mine) == 4
    assert len({(part.of, part.name) for part in (*mine, *theirs)}) == 6
    assert Part.reacquire(session, "anna", mine).kept == mine
    assert Part.unacquire(session, "anna", mine[:1]) == 1
    session.delete(mine[1])
    session.commit()
    assert [part.name for part in Part.acquired(other, "anna")] == [part.name for part in sorted(mine[2:], key=_key)]


def _key(part: Part) -> Any:
    return part.of, part.name


def test_more_rows_than_one_statement_takes(session: Session, other: Session) -> None:
    session.add_all([Picture() for _ in range(250)])
    session.commit()
    rows = Picture.acquire(session, "anna", limit=240)
    assert len(set(ids(rows))) == 240
    assert len(Picture.acquire(other, "bert", limit=240)) == 10
    assert len(Picture.reacquire(session, "anna").kept) == 240
    assert Picture.unacquire(session, "anna", rows[:130]) == 130
    assert Picture.unacquire(session, "anna") == 110


def test_a_class_that_shares_its_table_acquires_its_own_rows(session: Session, pictures: list[int]) -> None:
    session.add_all([Drawing(), Drawing()])
    session.commit()
    assert all(isinstance(row, Drawing) for row in Drawing.acquire(session, "anna"))
    assert len(Picture.acquired(session, "anna")) == 2
    assert len(Picture.acquire(session, "bert")) == 10


def test_what_the_session_leaves_out_is_not_acquired(session: Session, other: Session, pictures: list[int]) -> None:
    @sa.event.listens_for(session, "do_orm_execute")
    def leave_out(state: ORMExecuteState) -> None:
        state.statement = state.statement.options(with_loader_criteria(Picture, Picture.id.in_(list(shown))))
        shown.difference_update(changed)

    changed: list[int] = []
    shown = set(pictures[3:])
    assert ids(Picture.acquire(session, "anna", limit=2)) == pictures[3:5]
    assert ids(Picture.acquired(other, "anna")) == pictures[3:5]
    # Another changes a row after it was found, and before it is locked.
    changed.append(pictures[5])
    assert ids(Picture.acquire(session, "anna", limit=2)) == [pictures[6]]
    assert stored(other, pictures[5]).acquired_by is None


def test_a_class_of_several_tables_is_acquired_as_what_it_inherits_from(session: Session) -> None:
    session.add(Film())
    session.commit()
    with pytest.raises(TypeError, match="Film is stored in several tables"):
        Film.acquire(session, "anna")
    [row] = Picture.acquire(session, "anna")
    assert isinstance(row, Film)
    row.done = True
    session.commit()
    assert stored(session, row.id).acquired_by == "anna"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"who": ""}, ValueError),
        ({"who": None}, TypeError),
        ({"limit": 0}, ValueError),
        ({"limit": "5"}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"acquired_at": datetime.datetime(2020, 1, 1)}, ValueError),  # noqa: DTZ001
    ],
)
@pytest.mark.backends("sqlite")
def test_wrong_arguments_are_refused(session: Session, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Picture.acquire(session, **{"who": "anna", **arguments})


def test_the_clock_of_this_machine_decides_nothing(
    session: Session, other: Session, pictures: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Picture.acquire(session, "anna", limit=1)
    monkeypatch.setattr(time, "time", lambda: 4e9)
    monkeypatch.setattr(time, "clock_gettime", lambda clock: 4e9)
    assert rows[0].acquisition.lost
    assert rows[0].id not in ids(Picture.acquire(other, "bert"))
    assert Picture.unacquire_timed_out(other) == 0


@pytest.mark.backends("sqlite")
@pytest.mark.parametrize("verb", [Picture.reacquire, Picture.unacquire])
def test_a_row_in_place_of_a_list_is_refused(session: Session, verb: Any) -> None:
    with pytest.raises(TypeError, match="rows must be a list of Picture objects, not Picture"):
        verb(session, "anna", Picture())

"""Claimable rows: the verbs that acquire, renew and give back, and their arguments."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    MappedAsDataclass,
    ORMExecuteState,
    Session,
    aliased,
    mapped_column,
    with_loader_criteria,
)

from jobboard import runtime
from jobboard.exceptions import ClaimLost, JobFailure
from jobboard.orm import Claimable
from jobboard.sql.expressions import Now
from tests.orm.models import Done, Drawing, Film, Part, Picture
from tests.orm.rows import LONG_AGO, ids, overtake, stored

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")
SERVERS = pytest.mark.backends("postgresql", "mariadb")
ONE = pytest.mark.backends("sqlite")


# acquire


def test_batches_are_disjoint_in_order_and_at_most_the_limit(
    session: Session, other: Session, pictures: list[int]
) -> None:
    batches = [ids(Picture.acquire(session, "anna", limit=4)) for _ in range(2)]
    batches.append(ids(Picture.acquire(other, "bert", limit=4)))
    assert batches == [pictures[:4], pictures[4:8], pictures[8:]]
    assert Picture.acquire(session, "anna") == Picture.acquire(other, "bert") == []
    assert ids(Picture.acquired(session, "anna")) == pictures[:8]


def test_rows_come_in_the_order_that_was_asked_for(session: Session, pictures: list[int]) -> None:
    assert ids(Picture.acquire(session, "anna", limit=3, order_by=Picture.rank)) == pictures[:-4:-1]
    by_two = (Picture.done, Picture.id.desc())
    assert ids(Picture.acquire(session, "anna", limit=2, order_by=by_two)) == [pictures[6], pictures[5]]


def test_acquired_rows_show_their_holder_and_their_lease(session: Session, pictures: list[int]) -> None:
    before = session.scalar(sa.select(Now()))
    session.commit()
    [row] = Picture.acquire(session, "anna", limit=1, timeout=60)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    assert (row.acquired_by, row.acquired_token) == ("anna", row.acquisition.token)
    assert row.acquired_at - epoch >= datetime.timedelta(microseconds=before)
    assert row.acquired_until - row.acquired_at == datetime.timedelta(seconds=60)
    assert Picture.acquired(session, "bert") == []


@pytest.mark.rule("acquire_limit and acquire_timeout may be None.")
@ONE
def test_limit_and_timeout_are_of_the_call_or_the_class_or_claimable_or_the_default(
    session: Session, pictures: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def acquired(**arguments: float) -> tuple[int, float]:
        rows = Picture.acquire(session, "anna", **arguments)
        seconds = (rows[0].acquired_until - rows[0].acquired_at).total_seconds()
        Picture.unacquire(session, "anna")
        return len(rows), seconds

    assert acquired() == (10, 600)
    for on, limit, timeout in ((Claimable, 3, 500), (Picture, 2, 400)):
        monkeypatch.setattr(on, "acquire_limit", limit, raising=False)
        monkeypatch.setattr(on, "acquire_timeout", timeout, raising=False)
        assert acquired() == (limit, timeout)
    assert acquired(limit=1, timeout=0.5) == (1, 0.5)


@ONE
def test_conditions_narrow_each_verb(session: Session, pictures: list[int]) -> None:
    rows = Picture.acquire(session, "anna", where=Picture.rank.in_([-2, -5, -7]) & ~Picture.done)
    assert ids(rows) == [pictures[2], pictures[5], pictures[7]]
    assert ids(Picture.acquire(session, "anna", where=[Picture.rank < -2, Picture.rank > -5])) == pictures[3:5]
    assert Picture.unacquire(session, "anna", where=(Picture.rank < -2, Picture.rank > -4)) == 1
    assert len(Picture.acquired(session, "anna", where=[])) == 4


@pytest.mark.rule("A condition on another table belongs into exists().")
def test_a_condition_on_another_table_belongs_into_exists(session: Session, pictures: list[int]) -> None:
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


@ONE
def test_acquired_objects_show_the_stored_values(session: Session, other: Session, pictures: list[int]) -> None:
    row = stored(other, pictures[0])
    session.execute(sa.update(Picture).values(rank=7))
    session.commit()
    assert Picture.acquire(other, "anna", limit=1) == [row]
    assert (row.rank, row.acquired_by) == (7, "anna")


def test_rows_whose_lease_lapsed_are_acquired_with_a_higher_token(session: Session, pictures: list[int]) -> None:
    rows = Picture.acquire(session, "crashed", limit=2, acquired_at=LONG_AGO)
    tokens = [row.acquisition.token for row in rows]
    again = Picture.acquire(session, "anna", limit=2)
    assert ids(again) == ids(rows)
    assert [row.acquisition.token for row in again] == [token + 1 for token in tokens]


@pytest.mark.rule("A row whose acquired_by is NULL is free.")
def test_a_row_without_a_name_is_free(session: Session, other: Session, pictures: list[int]) -> None:
    [row] = Picture.acquire(session, "anna", limit=1)
    with other.begin():
        other.execute(sa.update(Picture).values(acquired_by=None))
    assert ids(Picture.acquire(other, "bert", limit=1)) == [row.id]
    assert Picture.reacquire(session, "anna", [row]).lost == [row]
    row.done = True
    with pytest.raises(ClaimLost):
        session.commit()


def test_the_clock_of_this_machine_decides_nothing(
    session: Session, other: Session, pictures: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Picture.acquire(session, "anna", limit=1)
    monkeypatch.setattr(runtime, "wall_time", lambda: 4e9)
    monkeypatch.setattr(runtime, "boottime", lambda: 4e9)
    assert rows[0].acquisition.lost
    assert rows[0].id not in ids(Picture.acquire(other, "bert"))
    assert Picture.unacquire_timed_out(other) == 0


@pytest.mark.rule("A row that changed since it was read is not claimed.")
@ONE
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


@pytest.mark.rule("Only rows that the session's own selects show are acquired.")
def test_rows_that_the_session_leaves_out_are_not_acquired(
    session: Session, other: Session, pictures: list[int]
) -> None:
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


# reacquire, unacquire


def test_reacquire_renews_leases(session: Session, pictures: list[int]) -> None:
    rows = Picture.acquire(session, "anna", limit=2, acquired_at=LONG_AGO)
    assert all(row.acquisition.lost for row in rows)
    assert Picture.reacquire(session, "anna", timeout=60) == (rows, [])
    assert not any(row.acquisition.lost for row in rows)
    assert 0 < rows[0].acquisition.expires_in() <= 60
    assert stored(session, rows[0].id).acquired_at > LONG_AGO + datetime.timedelta(days=1)
    at = LONG_AGO + datetime.timedelta(seconds=1)
    assert Picture.reacquire(session, "anna", rows[:1], acquired_at=at).kept == rows[:1]
    assert stored(session, rows[0].id).acquired_at == at


def test_reacquire_returns_lost_rows(session: Session, other: Session, pictures: list[int]) -> None:
    rows = Picture.acquire(session, "anna", limit=4)
    overtake(other, rows[1])
    Picture.unacquire(other, "anna", where=Picture.id == rows[2].id)
    # Another worker of the same name.
    overtake(other, rows[3], "anna")
    kept, lost = Picture.reacquire(session, "anna")
    assert (kept, set(lost)) == ([rows[0]], set(rows[1:]))
    assert [row.acquisition.lost for row in rows] == [False, True, True, True]
    assert Picture.reacquire(session, "anna", rows[1:]).lost == rows[1:]
    assert Picture.unacquire(session, "anna", rows[1:]) == 0
    assert [stored(other, row.id).acquired_by for row in rows] == ["anna", "bert", None, "anna"]


def test_unacquire_gives_back_all_rows_of_a_name_or_some(session: Session, pictures: list[int]) -> None:
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


def test_unacquire_timed_out_gives_back_strictly_older_rows(session: Session, pictures: list[int]) -> None:
    Picture.acquire(session, "anna", limit=3, timeout=60, acquired_at=LONG_AGO)
    up = LONG_AGO + datetime.timedelta(seconds=60)
    assert Picture.unacquire_timed_out(session, now=up) == 0
    later = up + datetime.timedelta(microseconds=1)
    assert Picture.unacquire_timed_out(session, now=later, where=Picture.id == pictures[0]) == 1
    Picture.acquire(session, "bert", limit=1, where=Picture.id == pictures[0])
    assert Picture.unacquire_timed_out(session) == 2
    assert Picture.acquired(session, "anna") == []
    assert len(Picture.acquired(session, "bert")) == 1


@pytest.mark.rule("Rows are given back along the primary key, and lock no rows of others.")
@SERVERS
@pytest.mark.parametrize("by_name", [True, False])
def test_giving_back_locks_no_rows_of_others(
    session: Session, other: Session, pictures: list[int], by_name: bool
) -> None:
    mine = Picture.acquire(session, "anna", limit=8)
    session.begin()
    Picture.unacquire(session, "anna", None if by_name else mine)
    assert ids(Picture.acquire(other, "bert", limit=10)) == pictures[8:]


# Keys and classes


def test_keys_may_have_several_columns(session: Session, other: Session) -> None:
    day = datetime.date(2020, 1, 1)
    session.add_all(Part(of=uuid.UUID(int=number), name=name, day=day) for number in range(2) for name in "abc")
    session.commit()
    mine = Part.acquire(session, "anna", limit=4, order_by=(Part.name.desc(), Part.of))
    theirs = Part.acquire(other, "bert")
    assert len(mine) == 4
    assert len({(part.of, part.name) for part in (*mine, *theirs)}) == 6
    assert Part.reacquire(session, "anna", mine).kept == mine
    assert Part.unacquire(session, "anna", mine[:1]) == 1
    session.delete(mine[1])
    session.commit()
    left = sorted(mine[2:], key=lambda part: (part.of, part.name))
    assert [part.name for part in Part.acquired(other, "anna")] == [part.name for part in left]


def test_a_verb_may_take_more_rows_than_one_statement_does(session: Session, other: Session) -> None:
    session.add_all([Picture() for _ in range(250)])
    session.commit()
    rows = Picture.acquire(session, "anna", limit=240)
    assert len(set(ids(rows))) == 240
    assert len(Picture.acquire(other, "bert", limit=240)) == 10
    assert len(Picture.reacquire(session, "anna").kept) == 240
    assert Picture.unacquire(session, "anna", rows[:130]) == 130
    assert Picture.unacquire(session, "anna") == 110


@ONE
def test_a_class_that_shares_its_table_acquires_its_own_rows(session: Session, pictures: list[int]) -> None:
    session.add_all([Drawing(), Drawing()])
    session.commit()
    assert all(isinstance(row, Drawing) for row in Drawing.acquire(session, "anna"))
    assert len(Picture.acquired(session, "anna")) == 2
    assert len(Picture.acquire(session, "bert")) == 10


@ONE
def test_rows_of_several_tables_are_acquired_by_the_class_that_theirs_inherits_from(session: Session) -> None:
    session.add(Film())
    session.commit()
    with pytest.raises(TypeError, match="Film is stored in several tables"):
        Film.acquire(session, "anna")
    [row] = Picture.acquire(session, "anna")
    assert isinstance(row, Film)
    row.done = True
    session.commit()
    assert stored(session, row.id).acquired_by == "anna"


class DataBase(MappedAsDataclass, DeclarativeBase):
    pass


class Photo(Claimable, DataBase):
    __tablename__ = "photos"

    id: Mapped[int] = mapped_column(primary_key=True, init=False)
    done: Mapped[bool] = mapped_column(default=False)


@pytest.mark.rule("A mapped dataclass is acquired.")
@ONE
def test_a_mapped_dataclass_is_acquired(engine: sa.Engine) -> None:
    DataBase.metadata.create_all(engine)
    with Session(engine) as session, Session(engine) as other:
        session.add(Photo(done=False))
        session.commit()
        [photo] = Photo.acquire(session, "anna")
        assert (photo.acquired_by, photo.done) == ("anna", False)
        assert repr(photo).endswith("Photo(id=1, done=False)")
        Photo.unacquire(other, "anna")
        photo.done = True
        with pytest.raises(ClaimLost):
            session.commit()
    DataBase.metadata.drop_all(engine)


# Wrong arguments


@ONE
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"who": ""}, ValueError),
        ({"who": None}, TypeError),
        ({"limit": 0}, ValueError),
        ({"limit": "5"}, TypeError),
        ({"timeout": 0}, ValueError),
        ({"acquired_at": datetime.datetime(2020, 1, 1)}, ValueError),  # noqa: DTZ001
        ({"acquired_at": "2000-01-01"}, TypeError),
    ],
)
def test_a_wrong_argument_is_named(session: Session, arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(arguments))):
        Picture.acquire(session, **{"who": "anna", **arguments})


@pytest.mark.rule("A condition on another table belongs into exists().")
@ONE
@pytest.mark.parametrize("verb", [Picture.reacquire, Picture.unacquire])
def test_rows_must_be_a_list_of_the_class_under_the_name_that_acquired_them(session: Session, verb: Any) -> None:
    for rows, message in ((Picture(), "a list of Picture objects, not Picture"), ([5], "not of int")):
        with pytest.raises(TypeError, match=f"rows must be .*{message}"):
            verb(session, "anna", rows)
    with pytest.raises(TypeError, match="objects of Picture, not of Part"):
        verb(session, "anna", [Part()])
    session.add(Picture())
    session.commit()
    [row] = rows = Picture.acquire(session, "anna")
    with pytest.raises(JobFailure, match=rf"^Picture {row.id} was acquired by 'anna', not by 'bert'"):
        verb(session, "bert", rows)

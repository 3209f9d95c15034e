"""What the ORM writes of acquired rows: at each flush the database is asked once whose they are."""

from __future__ import annotations

import contextlib
import datetime
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from jobboard.exceptions import ClaimLost
from jobboard.orm import JobLostError, Updates
from tests.orm.models import ClaimedFirst, Drawing, Part, Picture, Shared
from tests.orm.test_claimable import overtake, pictures, stored

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

__all__ = ["pictures"]


@contextlib.contextmanager
def statements(engine: sa.Engine) -> Iterator[list[str]]:
    """What is sent meanwhile."""
    sent: list[str] = []

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


def test_a_flush_asks_once_for_all_its_rows(engine: sa.Engine, session: Session) -> None:
    session.add_all([Picture() for _ in range(100)])
    session.commit()
    with statements(engine) as sent, Picture.acquiring(engine, "anna") as rows:
        del sent[:]
        for number, row in enumerate(rows):
            if number % 2:
                row.done = True
            else:
                rows.session.delete(row)
        rows.session.commit()
        # To begin a transaction that writes, to lock, to update, to delete.
        assert len(sent) <= 4, sent
    assert session.scalar(sa.select(sa.func.count()).where(Picture.done)) == 50
    assert session.scalar(sa.select(sa.func.count()).select_from(Picture)) == 50


def test_the_kinds_of_a_table_are_locked_each_by_one_statement(engine: sa.Engine, session: Session) -> None:
    session.add_all([kind() for kind in (Picture, Drawing) for _ in range(5)])
    session.commit()
    with Picture.acquiring(engine, "anna") as rows, statements(engine) as sent:
        for row in rows:
            row.done = True
        rows.session.commit()
        assert len([text for text in sent if text.startswith("SELECT")]) == 2


def test_one_lost_row_keeps_all_of_the_flush_from_being_written(
    engine: sa.Engine, session: Session, other: Session, pictures: list[int]
) -> None:
    rows = Picture.acquire(session, "anna", limit=5)
    overtake(other, rows[3])
    with statements(engine) as sent:
        for row in rows:
            row.done = True
        with pytest.raises(ClaimLost, match=str(pictures[3])):
            session.flush()
        session.rollback()
        assert not [text for text in sent if text.startswith("UPDATE")]
    assert [row.acquisition is not None and row.acquisition.lost for row in rows] == [False, False, False, True, False]
    assert not stored(other, pictures[0]).done


def test_only_what_is_written_must_be_held(session: Session, other: Session, pictures: list[int]) -> None:
    rows = Picture.acquire(session, "anna", limit=3)
    overtake(other, rows[0])
    rows[1].done = True
    session.commit()
    assert stored(other, pictures[1]).done


@pytest.mark.backends("postgresql")
def test_each_flush_asks_anew(session: Session, other: Session, pictures: list[int]) -> None:
    """What a savepoint has locked is free again when it is rolled back."""
    [row] = Picture.acquire(session, "anna", limit=1)
    savepoint = session.begin_nested()
    row.rank = 7
    session.flush()
    savepoint.rollback()
    overtake(other, row)
    row.rank = 8
    with pytest.raises(ClaimLost):
        session.flush()


def test_a_key_of_several_columns_is_asked_for_once_too(engine: sa.Engine, session: Session) -> None:
    day = datetime.date(2020, 1, 1)
    session.add_all([Part(of=uuid.UUID(int=number), name="a", day=day) for number in range(20)])
    session.commit()
    with Part.acquiring(engine, "anna") as rows, statements(engine) as sent:
        for row in rows:
            rows.session.delete(row)
        rows.session.commit()
        assert len(rows) == 20
        assert len(sent) <= 3, sent


@pytest.mark.parametrize("model", [Shared, ClaimedFirst])
def test_who_is_claimed_and_tracked_must_hold_both(session: Session, other: Session, model: Any) -> None:
    session.add_all([model.create(name, status=10) for name in ("a", "b")])
    session.commit()
    [claimed, locked] = model.acquire(session, "anna")
    locked.lock_it(session, 20)
    claimed.data = locked.data = "mine"
    session.commit()

    model.unacquire(other, "anna", where=model.id == "a")
    claimed.data = "stale"
    with pytest.raises(ClaimLost, match="'a': another has it"):
        session.commit()
    session.rollback()
    assert claimed.acquisition.lost

    other.get(model, "b").lock_it(other, 20, expire=0)
    other.commit()
    locked.data = "stale"
    with pytest.raises(JobLostError):
        session.commit()
    session.rollback()
    assert not locked.acquisition.lost
    with pytest.raises(JobLostError):
        locked.update(session, Updates({"data": "stale"}))
    session.rollback()
    assert other.scalars(sa.select(model.data)).all() == ["mine", "mine"]

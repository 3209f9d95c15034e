"""The fence around acquired and locked rows: each flush checks once that its objects still hold their rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from jobboard.exceptions import ClaimLost
from jobboard.orm import Claimable, StatusTracker
from tests.orm.models import Drawing, Picture
from tests.orm.rows import LONG_AGO, overtake, stored

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")
ONE = pytest.mark.backends("sqlite")


@contextlib.contextmanager
def statements(engine: sa.Engine) -> Iterator[list[str]]:
    """List the statements that the engine sends in the block."""
    sent: list[str] = []

    def note(connection: object, cursor: object, statement: str, *_: object) -> None:
        sent.append(statement)

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


@pytest.mark.rule("An overtaken worker writes no row.")
def test_an_overtaken_object_can_neither_be_written_nor_deleted(
    session: Session, other: Session, pictures: list[int]
) -> None:
    rows = Picture.acquire(session, "anna", limit=2)
    for row in rows:
        overtake(other, row)
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


def test_an_object_whose_lease_lapsed_may_be_written_while_nobody_else_has_its_row(
    session: Session, pictures: list[int]
) -> None:
    [row] = Picture.acquire(session, "anna", limit=1, acquired_at=LONG_AGO)
    assert row.acquisition.lost
    row.done = True
    session.commit()
    assert stored(session, row.id).done


@ONE
def test_objects_that_hold_nothing_are_written_as_usual(session: Session, other: Session, pictures: list[int]) -> None:
    [mine] = Picture.acquire(session, "anna", limit=1)
    unaware = other.get(Picture, mine.id)
    unaware.rank = 7
    other.commit()
    Picture.unacquire(session, "anna", [mine])
    mine.done = True
    session.commit()
    after = stored(other, mine.id)
    assert (after.rank, after.done) == (7, True)


@pytest.mark.rule("A flush asks once for the rows that it writes.")
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
    # A flush checks only the rows that it writes.
    rows[1].done = True
    session.commit()
    assert [stored(other, row.id).done for row in rows[:2]] == [False, True]


@pytest.mark.rule("A flush asks once for the rows that it writes.")
def test_a_flush_checks_all_its_rows_by_one_statement_for_each_class(engine: sa.Engine, session: Session) -> None:
    session.add_all([kind() for kind in (Picture, Drawing) for _ in range(50)])
    session.commit()
    with Picture.acquiring(engine, "anna") as rows, statements(engine) as sent:
        for number, row in enumerate(rows):
            if number % 2:
                row.done = True
            else:
                rows.session.delete(row)
        rows.session.commit()
        assert len([text for text in sent if text.startswith("SELECT")]) == 2
        # An update and a delete follow. On SQLite the transaction also begins to write.
        assert len(sent) <= 6, sent
    assert session.scalar(sa.select(sa.func.count()).where(Picture.done)) == 50
    assert session.scalar(sa.select(sa.func.count()).select_from(Picture)) == 50


@pytest.mark.backends("postgresql")
def test_each_flush_checks_again(session: Session, other: Session, pictures: list[int]) -> None:
    """A rollback to a savepoint frees the rows that the savepoint has locked."""
    [row] = Picture.acquire(session, "anna", limit=1)
    savepoint = session.begin_nested()
    row.rank = 7
    session.flush()
    savepoint.rollback()
    overtake(other, row)
    row.rank = 8
    with pytest.raises(ClaimLost):
        session.flush()


@pytest.mark.rule("A class that is claimed and tracked is refused.")
@ONE
@pytest.mark.parametrize("bases", [(StatusTracker, Claimable), (Claimable, StatusTracker)])
def test_a_class_that_is_acquired_and_locked_is_refused(bases: tuple[type, ...]) -> None:
    with pytest.raises(TypeError, match=r"Shared derives from \w+ and \w+, .* take one of them"):
        type("Shared", bases, {})

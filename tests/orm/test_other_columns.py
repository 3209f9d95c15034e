"""Columns of the user's that change with each update of a row: leases and statuses leave them as they are."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from jobboard.orm import Claimable, StatusTracker, Updates
from jobboard.testing import eventually
from tests.orm.rows import LONG_AGO

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

_numbers = itertools.count(1)


class Base(DeclarativeBase):
    pass


class Edited:
    edition: Mapped[int] = mapped_column(default=0, onupdate=lambda: next(_numbers))
    # On MariaDB the server writes it.
    edited: Mapped[str | None] = mapped_column(sa.String(30), server_onupdate=sa.FetchedValue())


class Page(Claimable, Edited, Base):
    __tablename__ = "pages_with_editions"

    id: Mapped[int] = mapped_column(primary_key=True)
    text: Mapped[str] = mapped_column(sa.String(20), default="")


class Report(StatusTracker, Edited, Base):
    __tablename__ = "reports_with_editions"


Shown = Callable[[], list[Any]]


@pytest.fixture
def engine(backend: str, users_url: Callable[[str], sa.URL]) -> Iterator[sa.Engine]:
    engine = sa.create_engine(users_url("columns"))
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        if backend == "mariadb":
            for table in Base.metadata.tables:
                # The second is a column that no class knows.
                for change in ("MODIFY edited", "ADD `on`"):
                    column = "TIMESTAMP(6) NOT NULL DEFAULT '2000-01-01' ON UPDATE CURRENT_TIMESTAMP(6)"
                    connection.exec_driver_sql(f"ALTER TABLE {table} {change} {column}")
    with Session(engine) as session:
        session.add_all([Page(id=1), Page(id=2), Report.create("a", 10)])
        session.commit()
    yield engine
    Base.metadata.drop_all(engine)
    engine.dispose()


def shown(engine: sa.Engine, table: Any) -> Shown:
    """Return a function that reads the columns which change with each update of a row."""
    own = sa.Table(table.name, sa.MetaData(), autoload_with=engine).c
    columns = [own[name] for name in ("edition", "edited", "on")[: 3 if "on" in own else 1]]

    def read() -> list[Any]:
        with engine.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.select(*columns).order_by(own.id))]

    return read


@pytest.mark.rule("Leases and statuses leave columns with onupdate and ON UPDATE as they are.")
def test_leases_leave_other_columns_as_they_are(engine: sa.Engine) -> None:
    read = shown(engine, Page.__table__)
    before = read()
    with Session(engine) as session:
        rows = Page.acquire(session, "me")
        assert len(rows) == 2
        assert read() == before, "acquire"
        assert Page.reacquire(session, "me").lost == []
        assert read() == before, "reacquire"
        assert Page.unacquire(session, "me", rows[:1]) == 1
        assert Page.unacquire(session, "me") == 1
        assert read() == before, "unacquire"
        Page.acquire(session, "me", acquired_at=LONG_AGO)
        assert Page.unacquire_timed_out(session) == 2
        assert read() == before, "unacquire_timed_out"
    with Page.acquiring(engine, "me", timeout=0.6) as batch:
        held = batch[0].acquisition
        assert held is not None
        first = held._deadline
        eventually(lambda: held._deadline > first)
    assert read() == before, "acquiring"


def test_the_holders_own_changes_move_them(engine: sa.Engine) -> None:
    read = shown(engine, Page.__table__)
    first, second = read()
    with Page.acquiring(engine, "me", order_by=Page.id) as rows:
        rows[0].text = "changed"
    after = read()
    assert after[1] == second
    assert all(new != old for new, old in zip(after[0], first, strict=True))


def start(engine: sa.Engine, **options: Any) -> Any:
    return Report.start(engine, "a", 10, 20, 30, 40, 50, expire=900, max_retry=3, **options)


@pytest.mark.rule("Leases and statuses leave columns with onupdate and ON UPDATE as they are.")
def test_statuses_leave_other_columns_as_they_are(engine: sa.Engine) -> None:
    read = shown(engine, Report.__table__)
    before = read()
    with start(engine) as (job, _):
        assert read() == before, "start"
        assert job.status == 20
    assert read() == before, "success"
    with start(engine, more_pending_status=40, skip_error=True):
        raise ValueError("no report")
    assert read() == before, "failure"
    with Session(engine) as session:
        job = session.get_one(Report, "a")
        session.rollback()
        job.lock_it(session, 20)
        assert job.status == 20
    assert read() == before, "lock_it"


def test_updates_of_the_users_columns_move_them(engine: sa.Engine) -> None:
    read = shown(engine, Report.__table__)
    [before] = read()
    with start(engine) as (job, updates):
        updates.set("data", [1])
    [after] = read()
    assert all(new != old for new, old in zip(after, before, strict=True))
    job.update(engine, Updates({"data": [2]}))
    assert read() != [after]

"""Tables that the libraries have made which users come from."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from jobboard.orm import Claimable, JobLockedError, StatusTracker

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

DOCS = Path(__file__).parents[2] / "docs"
THEN = datetime.datetime(2023, 9, 19, 19, 23, 1, 250000, tzinfo=datetime.UTC)

# What sqlalchemy_mate's columns become, and two of its rows; MariaDB wants a length for each VARCHAR, and quotes.
_TRACKED = """CREATE TABLE mates (
    id {text} NOT NULL, status INTEGER NOT NULL, create_at {time} NOT NULL, update_at {time} NOT NULL, {lock} {text},
    lock_at {time} NOT NULL, retry INTEGER NOT NULL, data JSON, errors JSON, PRIMARY KEY (id))"""

_ROWS = """INSERT INTO mates VALUES
    ('new', 10, '2023-09-19 19:23:01', '2023-09-19 19:23:01', NULL, '1970-01-01 00:00:00', 0, '[1]', '[]'),
    ('crashed', 20, '2023-09-19 19:23:01', '2023-09-19 19:23:01',
     '0123456789abcdef', '2023-09-19 19:23:01', 1, 'null', '[]')"""

# What Django's migration of a Scalable model becomes.
_SCALABLE = """CREATE TABLE pictures_of_django (
    id {serial} PRIMARY KEY, acquired_at {time} NULL, acquired_by VARCHAR(255) NULL, done BOOLEAN NOT NULL)"""


class Base(DeclarativeBase):
    pass


class Mate(StatusTracker, Base):
    __tablename__ = "mates"


class Picture(Claimable, Base):
    __tablename__ = "pictures_of_django"

    id: Mapped[int] = mapped_column(primary_key=True)
    done: Mapped[bool]


class Queued(Claimable, Base):
    __tablename__ = "queue"

    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(sa.String(20))


@pytest.fixture
def run(engine: sa.Engine) -> Iterator[Callable[..., None]]:
    def run(*statements: str) -> None:
        with engine.begin() as connection:
            for statement in statements:
                connection.execute(sa.text(statement))

    yield run
    Base.metadata.drop_all(engine)


def start(engine: sa.Engine, id_: str, **options: Any) -> Any:
    return Mate.start(engine, id_, 10, 20, 30, 40, 50, expire=900, max_retry=3, **options)


def test_a_table_of_sqlalchemy_mates_works_as_it_is(engine: sa.Engine, backend: str, run: Callable[..., None]) -> None:
    own = {
        "sqlite": {"text": "VARCHAR", "time": "DATETIME", "lock": '"lock"'},
        "postgresql": {"text": "VARCHAR", "time": "TIMESTAMP WITHOUT TIME ZONE", "lock": "lock"},
        "mariadb": {"text": "VARCHAR(100)", "time": "DATETIME", "lock": "`lock`"},
    }[backend]
    run(_TRACKED.format(**own), _ROWS)
    with start(engine, "new") as (job, updates):
        assert job.data == [1]
        with pytest.raises(JobLockedError):
            start(engine, "new").__enter__()
        updates.set("data", {"version": 2})
    with start(engine, "crashed", skip_error=True):
        raise ValueError("no picture")
    Mate.create_and_save(engine, "mine", 10)
    with Session(engine) as session:
        jobs = {job.id: job for job in session.scalars(sa.select(Mate))}
        assert {id_: (job.status, job.retry, job.lock) for id_, job in jobs.items()} == {
            "new": (40, 0, None),
            "crashed": (50, 3, None),
            "mine": (10, 0, None),
        }
        assert jobs["new"].data == {"version": 2}
        assert jobs["new"].create_at == datetime.datetime(2023, 9, 19, 19, 23, 1)  # noqa: DTZ001


@pytest.mark.backends("postgresql", "mariadb")
def test_a_table_of_djangos_works_once_it_is_altered(engine: sa.Engine, backend: str, run: Callable[..., None]) -> None:
    document = (DOCS / "coming-from" / "django-scalable.rst").read_text()
    [block] = re.findall(rf"On {backend}:\n\n.. code-block:: sql\n\n((?:   .*\n|\n)+)", document, re.IGNORECASE)
    statements = [each.replace("pictures", "pictures_of_django") for each in block.split(";") if each.strip()]
    own, acquired = {
        "postgresql": (
            {"serial": "SERIAL", "time": "TIMESTAMP WITH TIME ZONE"},
            "UPDATE pictures_of_django SET acquired_at = '2023-09-19 21:23:01.25+02' WHERE acquired_by = 'anna'",
        ),
        "mariadb": (
            {"serial": "INTEGER AUTO_INCREMENT", "time": "DATETIME(6)"},
            "UPDATE pictures_of_django SET acquired_at = '2023-09-19 19:23:01.25' WHERE acquired_by = 'anna'",
        ),
    }[backend]
    run(
        _SCALABLE.format(**own),
        "CREATE INDEX by_whom ON pictures_of_django (acquired_by)",
        "CREATE INDEX at_what_time ON pictures_of_django (acquired_at)",
        "INSERT INTO pictures_of_django (acquired_by, done) VALUES ('anna', false), (NULL, false)",
        acquired,
        *statements,
    )
    [held] = Picture.acquired(engine, "anna")
    assert (held.acquired_at, held.acquired_until) == (THEN, THEN + datetime.timedelta(seconds=600))
    assert [row.acquired_token for row in Picture.acquire(engine, "bert", limit=3)] == [1, 1]
    assert Picture.acquired(engine, "Bert") == []
    names = {column["name"] for column in sa.inspect(engine).get_columns(Picture.__tablename__)}
    assert names == set(Picture.__table__.columns.keys())
    # The ORM can add to it.
    with Session(engine) as session:
        session.add(Picture(done=False))
        session.commit()


@pytest.mark.backends("mariadb")
def test_a_queue_by_hand_works_once_it_is_altered(engine: sa.Engine, run: Callable[..., None]) -> None:
    document = (DOCS / "coming-from" / "mysql-queue.rst").read_text()
    [create] = re.findall(r" (CREATE TABLE queue \(\n.*?\n   \));", document, re.DOTALL)
    [alter] = re.findall(r" (ALTER TABLE queue\n.*?);", document, re.DOTALL)
    alter = alter.replace("utf8mb4_0900_bin", "utf8mb4_nopad_bin")
    run(create, "INSERT INTO queue (kind, owner) VALUES ('mail', 'anna'), ('picture', NULL)", alter)
    assert [row.kind for row in Queued.acquire(engine, "bert", limit=1)] == ["mail"]
    assert [row.kind for row in Queued.acquire(engine, "Bert")] == ["picture"]
    assert len(Queued.acquired(engine, "bert")) == 1

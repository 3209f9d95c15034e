"""Mapped classes of the tests, and of the processes that tests start."""

import datetime
import enum
import uuid

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from jobboard.orm import Claimable, StatusTracker


class Base(DeclarativeBase):
    pass


class Picture(Claimable, Base):
    __tablename__ = "pictures"

    id: Mapped[int] = mapped_column(primary_key=True)
    rank: Mapped[int] = mapped_column(default=0)
    done: Mapped[bool] = mapped_column(default=False)
    kind: Mapped[str] = mapped_column(sa.String(10), default="picture")

    __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "picture"}  # noqa: RUF012


class Drawing(Picture):
    """A class in the table of its parent."""

    __mapper_args__ = {"polymorphic_identity": "drawing"}  # noqa: RUF012


class Film(Picture):
    """A class with a table of its own beside that of its parent."""

    __tablename__ = "films"

    id: Mapped[int] = mapped_column(sa.ForeignKey("pictures.id"), primary_key=True)

    __mapper_args__ = {"polymorphic_identity": "film"}  # noqa: RUF012


class Part(Base, Claimable):
    """A class whose key has three columns of several types."""

    __tablename__ = "parts"

    of: Mapped[uuid.UUID] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(20), primary_key=True)
    day: Mapped[datetime.date] = mapped_column(primary_key=True)


class Done(Base):
    """The worker and the token that have finished a row."""

    __tablename__ = "done"

    number: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(sa.String(50))
    who: Mapped[str] = mapped_column(sa.String(50))
    token: Mapped[int] = mapped_column(default=0)


class Status(enum.IntEnum):
    PENDING = 10
    IN_PROGRESS = 20
    FAILED = 30
    SUCCEEDED = 40
    IGNORED = 50


class Word(enum.Enum):
    PENDING = "p"
    IN_PROGRESS = "w"
    FAILED = "f"
    SUCCEEDED = "s"
    IGNORED = "i"


class Job(StatusTracker, Base):
    __tablename__ = "jobs"


class ShardJob(StatusTracker, Base):
    """A class whose key has two columns, whose statuses are words, and whose versions the ORM counts."""

    __tablename__ = "shard_jobs"

    id = None
    shard: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(sa.String(20), primary_key=True)
    status: Mapped[Word] = mapped_column(sa.Enum(Word))
    edition: Mapped[int] = mapped_column()

    __mapper_args__ = {"version_id_col": edition}  # noqa: RUF012

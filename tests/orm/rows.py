"""Acquired rows, as tests look at them and take them away."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.orm import Session

from tests.orm.models import Picture

LONG_AGO = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


def ids(rows: Sequence[Picture]) -> list[int]:
    return [row.id for row in rows]


def stored(session: Session, id_: int) -> Picture:
    """Return a row as it is stored. The session ends its transaction."""
    row = session.get(Picture, id_, populate_existing=True)
    session.commit()
    assert row is not None
    return row


def every(other: Session) -> list[Picture]:
    """Return all rows as they are stored, in order."""
    rows = list(other.scalars(sa.select(Picture).order_by(Picture.id).execution_options(populate_existing=True)))
    other.commit()
    return rows


def owners(other: Session) -> list[str | None]:
    return [row.acquired_by for row in every(other)]


def overtake(other: Session, row: Picture, who: str = "bert") -> None:
    """Let the lease of a row lapse, and acquire the row for another worker. No renewal comes in between."""
    other.commit()
    with other.begin():
        other.execute(sa.update(Picture).where(Picture.id == row.id).values(acquired_until=LONG_AGO))
        assert ids(Picture.acquire(other, who, where=Picture.id == row.id)) == [row.id]

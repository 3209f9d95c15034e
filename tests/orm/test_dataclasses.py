"""Classes that SQLAlchemy makes dataclasses of."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedAsDataclass, Session, mapped_column

from jobboard.exceptions import ClaimLost
from jobboard.orm import Claimable


class Base(MappedAsDataclass, DeclarativeBase):
    pass


class Photo(Claimable, Base):
    __tablename__ = "photos"

    id: Mapped[int] = mapped_column(primary_key=True, init=False)
    done: Mapped[bool] = mapped_column(default=False)


@pytest.mark.backends("sqlite")
def test_a_mapped_dataclass_is_acquired(engine: sa.Engine) -> None:
    Base.metadata.create_all(engine)
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
    Base.metadata.drop_all(engine)

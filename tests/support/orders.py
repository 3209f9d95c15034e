"""Handlers with typed details, and their types."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import uuid
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, computed_field, field_validator
from pydantic_core import PydanticCustomError
from typing_extensions import TypedDict

if TYPE_CHECKING:
    from pathlib import Path

    from jobboard import ClaimedJob


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Size:
    width: int
    height: int = 1


@dataclasses.dataclass
class Order:
    id: uuid.UUID
    sizes: list[Size] = dataclasses.field(default_factory=list)


@dataclasses.dataclass(kw_only=True)
class Rush(Order):
    by: uuid.UUID


@dataclasses.dataclass
class Counted:
    number: int = dataclasses.field(init=False, default=3)


class Model(BaseModel):
    id: uuid.UUID
    size: Size = Size(1)
    depth: Annotated[int, Field(alias="deep", ge=0)] = 0

    @computed_field
    def area(self) -> int:
        return self.size.width * self.size.height

    @field_validator("id")
    @classmethod
    def known(cls, value: uuid.UUID) -> uuid.UUID:
        if value == SECRET:
            raise ValueError(f"{value} is not known")
        return value


class Open(BaseModel):
    model_config = ConfigDict(extra="allow")


class Keyed(TypedDict, total=False):
    id: uuid.UUID


@dataclasses.dataclass
class Incomplete:
    path: Path


class Login(BaseModel):
    password: SecretStr


class NoJSON: ...


SECRET = uuid.UUID("5ec2e700-0000-4000-8000-000000000000")


def refuse(value: str) -> str:
    raise PydanticCustomError("not_known", f"{value} is not known")  # type: ignore[arg-type]


def checked(*, path: Annotated[str, AfterValidator(refuse)]) -> None: ...


def every_kind(
    *,
    id: uuid.UUID,  # noqa: A002
    at: datetime.datetime,
    day: datetime.date,
    price: decimal.Decimal,
    colour: Colour,
    delay: datetime.timedelta,
    size: Size,
    sizes: list[Size],
    place: tuple[int, str],
    width: int = 3,
    untyped=None,  # type: ignore[no-untyped-def]
    anything: Any = None,
) -> str:
    return repr((id, at.isoformat(), day, price, colour, delay, size, sizes, place, width, untyped, anything))


KINDS = {
    "id": uuid.uuid4(),
    "at": datetime.datetime(2030, 1, 2, 3, 4, 5, 6, datetime.UTC),
    "day": datetime.date(2030, 1, 2),
    "price": decimal.Decimal("1.50"),
    "colour": Colour.RED,
    "delay": datetime.timedelta(hours=1.5, microseconds=1),
    "size": Size(3),
    "sizes": [Size(3, 4)],
    "place": (1, "a"),
}


def whole(order: Order) -> str:
    return repr(order)


def job_and_whole(job: ClaimedJob, order: Model) -> str:
    return f"{job.name} {order!r}"


def counted(order: Counted) -> str:
    return repr(order)


def keyed(order: Keyed) -> str:
    return repr(order)


def opened(order: Open) -> str:
    return repr(order)


def unresolved(job: Nowhere) -> str:  # type: ignore[name-defined]  # noqa: F821
    return str(job.name)


def unresolved_detail(job: ClaimedJob, *, path: Path) -> None: ...


def incomplete(order: Incomplete) -> None: ...


async def whole_on_a_loop(order: Order) -> str:
    return repr(order)

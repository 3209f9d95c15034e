"""The columns of a claimable model. Migrations name these classes: names, arguments and what is stored stay."""

from __future__ import annotations

import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models

from jobboard.arguments import aware
from jobboard.states import instant, moment

_COLLATIONS = {"postgresql": "C", "mariadb": "utf8mb4_nopad_bin", "mysql": "utf8mb4_0900_bin"}
"""Those that compare byte by byte, as SQLite does by itself."""


class _LeftAlone(models.Field):
    """A column that the save of an object leaves alone, so that nobody writes back what has been long ago."""

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        if not add:
            return models.F(self.attname)
        # A new row is nobody's, also where the object shows another one's values, as a copy does.
        value = self.get_default()
        setattr(model_instance, self.attname, value)
        return value


class NameField(_LeftAlone, models.CharField):
    """Who holds a row; compared byte by byte."""

    def db_parameters(self, connection: Any) -> Any:
        vendor = "mariadb" if getattr(connection, "mysql_is_mariadb", False) else connection.vendor
        return {**super().db_parameters(connection), "collation": _COLLATIONS.get(vendor)}


class MomentField(_LeftAlone):
    """A time, aware of its zone; stored as µs since 1970, UTC.

    It is no ``BigIntegerField``, as what goes by a field's class would take its values for integers; nor a
    ``DateTimeField``, as ``__year`` and the like would not work on such a column.
    """

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def from_db_value(self, value: int | None, *args: object) -> datetime.datetime | None:
        return None if value is None else moment(value)

    def to_python(self, value: Any) -> datetime.datetime | None:
        """:raises ValidationError: neither an aware datetime, nor one in the ISO format."""
        if value is None:
            return None
        try:
            time = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
            aware(self.name, time)
        except (TypeError, ValueError) as error:
            raise ValidationError(str(error), code="invalid") from None
        return time

    def get_prep_value(self, value: Any) -> int | None:
        time = self.to_python(super().get_prep_value(value))
        return None if time is None else instant(time)

    def value_to_string(self, obj: models.Model) -> str:
        time = self.value_from_object(obj)
        return "" if time is None else time.isoformat()


class TokenField(_LeftAlone, models.BigIntegerField):
    """The fencing token, which rises with every acquisition of a row."""

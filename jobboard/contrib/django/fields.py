"""Columns of claimable models. Migrations name these classes: names, arguments and stored values stay."""

from __future__ import annotations

import datetime
from typing import Any

from django.core.exceptions import ValidationError
from django.db import models

from jobboard.arguments import aware
from jobboard.states import instant, moment

_COLLATIONS = {"postgresql": "C", "mariadb": "utf8mb4_nopad_bin", "mysql": "utf8mb4_0900_bin"}
"""Collations that compare byte by byte, as SQLite does by itself."""


class _LeftAlone(models.Field):
    """A column that no ``save()`` writes, so that old values of an object never reach the table."""

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        if not add:
            return models.F(self.attname)
        # A new row is nobody's, even if the object shows the values of another row, as a copy does.
        value = self.get_default()
        setattr(model_instance, self.attname, value)
        return value


class NameField(_LeftAlone, models.CharField):
    """The name of a row's holder, compared byte by byte."""

    def db_parameters(self, connection: Any) -> Any:
        vendor = "mariadb" if getattr(connection, "mysql_is_mariadb", False) else connection.vendor
        return {**super().db_parameters(connection), "collation": _COLLATIONS.get(vendor)}


class MomentField(_LeftAlone):
    """An aware time, stored as microseconds since 1970 in UTC.

    The class is no ``BigIntegerField``, as code that goes by a field's class would take its values for integers. It is
    no ``DateTimeField`` either, as lookups like ``__year`` do not work on such a column.
    """

    def get_internal_type(self) -> str:
        return "BigIntegerField"

    def from_db_value(self, value: int | None, *args: object) -> datetime.datetime | None:
        return None if value is None else moment(value)

    def to_python(self, value: Any) -> datetime.datetime | None:
        """Return an aware datetime.

        :raises ValidationError: the value is no aware datetime, and no text of one in ISO format.
        """
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


class TokenField(_LeftAlone, models.BigIntegerField):
    """The fencing token, which rises with every acquisition of a row."""

"""The types of SQLAlchemy in the signatures of verbs, for type checkers only: nothing is imported at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from sqlalchemy import Connection as SQLConnection
    from sqlalchemy.orm import Session, scoped_session
    from sqlalchemy.sql.elements import ColumnElement

    Condition: TypeAlias = ColumnElement[bool]
    Connection: TypeAlias = SQLConnection | Session | scoped_session[Any]

"""Statements that MariaDB reads once for a connection: ``PREPARE`` gives one a name, ``EXECUTE`` runs it by that.

To read a text costs the server more than to run a short one. PyMySQL sends texts alone, and so the values go as
literals, as in any other statement: types, collations and plans are the same.

Names live in the session. Whoever puts another in its place, as a proxy may, or resets it, has rolled back the
transaction, too, and with it all locks are gone. So a statement whose name is lost is not sent again as a text, which
would go on without these locks: the connection is given up, and the whole transaction is repeated on another
(:class:`Lost`). Nothing of it was committed: what commits comes last, and within one such statement.
"""

from __future__ import annotations

import re
import secrets
from typing import Any

from jobboard.sql.dialects import Database, Raw, Trouble

# Unknown; and to be read anew again and again, as the server keeps too few tables open.
_LOST = frozenset({1243, 1615})
_VALUE = re.compile(r"%\((\w+)\)s|%%")


class Lost(Exception):
    """The session does not know the name of a statement any more. Nothing was committed."""


class NamedStatements:
    """Those of one connection."""

    def __init__(self, product: Database, raw: Raw) -> None:
        self._product = product
        self._raw = raw
        self._calls: dict[str, str] = {}
        """By its text, how a statement is called."""
        self._refused = False
        # A name of nobody else's: where a proxy lends one session to several, theirs would run another statement.
        self.prefix = f"jobboard_{secrets.token_hex(8)}_"
        self._count = 0

    def execute(self, cursor: Any, text: str, values: dict[str, Any]) -> None:
        call = text if self._refused else self._call(cursor, text)
        try:
            cursor.execute(call, values)
        except Exception as error:
            if call is not text and error.args[:1] and error.args[0] in _LOST:
                raise Lost from error
            raise

    def _call(self, cursor: Any, text: str) -> str:
        """A statement that comes for the first time stays a text: many a connection sends it but once."""
        call = self._calls.get(text)
        if call is None:
            self._calls[text] = text
            return text
        if call is not text:
            return call
        name = f"{self.prefix}{self._count}"
        self._count += 1
        order: list[str] = []
        try:
            cursor.execute(f"PREPARE {name} FROM %(text)s", {"text": _VALUE.sub(lambda at: _place(at, order), text)})
        except Exception as error:
            # As with max_prepared_stmt_count, or where something stands before the server. It has done nothing.
            if self._product.trouble(error, self._raw) is not Trouble.OTHER:
                raise
            self._refused = True
            return text
        using = ", ".join(f"%({each})s" for each in order)
        call = self._calls[text] = f"EXECUTE {name} USING {using}"
        return call


def _place(found: re.Match[str], order: list[str]) -> str:
    if found[1] is None:
        return "%"
    order.append(found[1])
    return "?"

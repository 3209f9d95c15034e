"""Weaknesses of a board's database: settings that may lose acknowledged data, and transactions that stay open.

The statement ``settings`` of each database reads the settings, and :data:`_SAFE` has their safe values. An unsafe value
makes the characteristic ``durable`` false, and the notes of the characteristics name the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jobboard.backends.sql.statements import Statements
from jobboard.exceptions import JobFailure
from jobboard.primitives import Oddity

LONG = 60.0
"""The seconds after which the doctor names an open transaction."""

Query = Callable[[str], Sequence[Sequence[Any]]]
"""Runs a statement by its name, and returns the rows."""

_SAFE: dict[str, tuple[str, ...]] = {
    "fsync": ("on",),
    "synchronous_commit": ("on", "local", "remote_write", "remote_apply"),
    "innodb_flush_log_at_trx_commit": ("1",),
}
"""The values of settings that lose no acknowledged data, by the names of the settings. The first value is advised."""


def weak_settings(statements: Statements, query: Query, synchronous: str) -> Iterator[str]:
    """Yield the settings by which a crash of the server's machine may lose acknowledged data: one request, and none to
    SQLite.

    :param synchronous: the board's own option, for SQLite.
    """
    if "settings" not in statements:
        if synchronous != "full":
            yield "the option synchronous is normal, leave it out"
        return
    for name, value in query("settings"):
        if str(value) not in _SAFE[name]:
            yield f"{name} is {value}, set it to {_SAFE[name][0]}"


def open_transactions(statements: Statements, query: Query, since: float = LONG) -> Iterator[Oddity]:
    """Yield the transactions that have been open for longer than ``since`` seconds, as far as the board's user may see
    them. Rows that were changed since one began stay, and a look for jobs walks past them."""
    if "open_transactions" not in statements:
        return
    try:
        rows = query("open_transactions")
    except JobFailure:
        # MariaDB and MySQL show these only to users with the privilege PROCESS.
        return
    for what, who, state, age, end in rows:
        if age is not None and age >= since:
            shown = f" ({state})" if state else ""
            reason = f"its transaction has been open for {int(age)} s{shown}: what was done since can't be cleared away"
            yield Oddity(f"{what} of {who}" if who else str(what), reason, f"have it end, or end it: {end}")

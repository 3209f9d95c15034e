"""Connections that will not come about before somebody has changed something: the user, the password, the database."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path

from sqlalchemy.engine import URL

# libpq gives no code for why there is no connection, only the server's text, which we know in English.
_TEXT_OF_POSTGRESQL = re.compile(
    r'invalid \S+ value|definition of service ".*" not found|service file ".*" not found|'
    r"authentication failed|no password supplied|pg_hba\.conf|permission denied for database|"
    r'(?:role|database) ".*" (?:does not exist|is not permitted to log in|is not currently accepting connections)'
)
_STATES_OF_POSTGRESQL = ("28", "3D000", "42501")
# Access, database, host, privilege, password to be changed, account locked, TLS demanded.
_OF_MYSQL = frozenset({1044, 1045, 1049, 1130, 1142, 1143, 1227, 1698, 1820, 1862, 3118, 3159, 4151})
# The number is that of any trouble with TLS.
_WITHOUT_TLS = re.compile("SSL is required but the server doesn't support it")
# PERM, READONLY, FULL, AUTH, NOTADB
_OF_SQLITE = frozenset({3, 8, 13, 23, 26})


def refusal(error: BaseException, url: URL) -> str | None:
    """Why there is no connection, in a few words; None where to try again may help."""
    reason = _REASONS.get(url.get_backend_name())
    return reason(error, url) if reason is not None else None


def _of_postgresql(error: BaseException, url: URL) -> str | None:
    state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""
    text = str(error)
    return text if state.startswith(_STATES_OF_POSTGRESQL) or _TEXT_OF_POSTGRESQL.search(text) else None


def _of_mysql(error: BaseException, url: URL) -> str | None:
    if not error.args or not (error.args[0] in _OF_MYSQL or _WITHOUT_TLS.search(str(error))):
        return None
    return str(error.args[-1])


def _of_sqlite(error: BaseException, url: URL) -> str | None:
    """SQLite itself says no more than that it can't open the file."""
    path = Path(str(url.database))
    # Not by opening it: to close it again would give up all locks that this process has on it.
    if not path.parent.is_dir():
        return f"there is no folder {path.parent}"
    if path.is_dir():
        return "it is a folder"
    if not os.access(path if path.exists() else path.parent, os.R_OK | os.W_OK):
        return "permission denied"
    return str(error) if getattr(error, "sqlite_errorcode", 0) & 0xFF in _OF_SQLITE else None


_REASONS: Mapping[str, Callable[[BaseException, URL], str | None]] = {
    "postgresql": _of_postgresql,
    "mysql": _of_mysql,
    "mariadb": _of_mysql,
    "sqlite": _of_sqlite,
}

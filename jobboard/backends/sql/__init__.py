"""The SQL board. Each module says more of itself; what they are for:

The board
    ``board`` is the engine, ``store`` what it rests on: a transaction that locks what a call reads, as ``calls`` has
    it. ``engines``, ``tables``, ``migrations`` and ``doctor`` are about the database.
Rows
    ``statements`` has what runs on every database. ``rows``, ``sides`` and ``outcomes`` turn rows into what an engine
    knows, ``answers`` keeps what calls did. ``reading`` shows, ``writing`` changes many, ``oddities`` are damaged ones.
Takes
    ``taking`` carries out what ``looking`` asks for: by one of the ``shortcuts`` of a database (``postgresql``,
    ``mariadb``, ``sqlite``), or else in the general way.
Limits
    ``scopes`` is how a scope is stored. On PostgreSQL ``limited`` chooses among the statements of ``entering``, and
    ``lanes`` looks beside full groups; on SQLite ``crowds`` and ``heads`` do. In the general way ``ahead`` shows
    what may be had. ``settling`` waits for claims that a new limit was too late for.
Dead entries of indexes
    ``dear`` notices them. On PostgreSQL ``lookout`` then has takes look ``behind`` the ``floors``; on MariaDB ``skims``
    pass them, from the ``lows`` on.
Others
    ``waiting`` wakes who waits, ``transactions`` follows those of callers.
"""

from jobboard.backends.sql.board import SQLEngine

__all__ = ["SQLEngine"]

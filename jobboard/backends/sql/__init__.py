"""The SQL board. Each module says more of itself; what they are for:

The board
    ``board`` is the engine, ``store`` what it rests on: a transaction that locks what a call reads, as ``calls`` has
    it. ``engines``, ``tables``, ``migrations`` and ``doctor`` are about the database.
Rows
    ``statements`` has what runs on every database. ``rows``, ``sides`` and ``outcomes`` turn rows into what an engine
    knows, ``answers`` keeps what calls did. ``reading`` shows, ``writing`` changes many, ``oddities`` are damaged ones.
Takes
    ``taking`` carries out what ``looking`` asks for: by the ``shortcuts`` of a database, which are in ``postgresql``,
    ``mariadb`` and ``sqlite``, or else in the general way. ``heads`` finds the first job of each group, and ``dear``
    notices looks that meet many dead entries.
Limits
    ``scopes`` is how a scope is stored. In the general way ``ahead`` shows what may be had. ``settling`` waits for
    claims that a new limit was too late for, and ``counting`` lists those that stood.
Others
    ``waiting`` wakes who waits, ``transactions`` follows those of callers.
"""

from jobboard.backends.sql.board import SQLEngine

__all__ = ["SQLEngine"]

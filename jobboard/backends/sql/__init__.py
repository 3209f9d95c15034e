"""The SQL board: the store of boards in SQLite, PostgreSQL, MariaDB and MySQL.

``store`` is the store under the engine, and ``fast_paths`` does the plain case of a call in one request. ``statements``
loads the statements, which are texts: ``common.sql`` has the shared ones, ``postgresql.sql``, ``mariadb.sql`` and
``sqlite.sql`` have their own. ``columns`` has the columns of records, and their lists in statements. ``rows`` turns
rows into records. ``scopes`` locks and counts for limits, and ``starts`` has the points at which takes begin on aged
tables. ``conditions`` is about ``where=``, ``callers`` about ``connection=``, and ``waiters`` about waiting.
``options``, ``tables``, ``layout`` and ``doctor`` are about the database. Nothing here decides what becomes of a job:
``jobboard/engine`` does.
"""

from jobboard.backends.sql.store import SQLStore

__all__ = ["SQLStore"]

"""The SQL board. ``store`` is the store under the engine, and ``fast`` does the plain case of a call in one request.

``statements`` loads the statements, which are texts: ``postgresql.sql``, ``mariadb.sql`` and ``sqlite.sql``. ``rows``
turns rows into records. ``scopes`` locks and counts for limits, and ``starts`` has the points at which takes begin on
aged tables. ``conditions`` is about ``where=``, ``joined`` about ``connection=``, and ``waiting`` about waiters.
``options``, ``tables``, ``layout`` and ``doctor`` are about the database.
"""

from jobboard.backends.sql.store import SQLStore

__all__ = ["SQLStore"]

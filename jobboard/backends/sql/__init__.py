"""The SQL board."""

from jobboard.backends.sql.board import SQLEngine

__all__ = ["SQLEngine"]

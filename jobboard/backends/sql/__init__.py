"""The SQL board."""

from jobboard.backends.sql.board import SQLJobBoard

__all__ = ["SQLJobBoard"]

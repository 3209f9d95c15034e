"""Fixtures of the conformance suite, for tests of boards on memory and SQLite."""

from jobboard.testing.conformance.outcomes import keeper
from jobboard.testing.conformance.support import board, other

__all__ = ["board", "keeper", "other"]

"""Lengths of time in microseconds, the unit of all stored times."""

SECOND = 1_000_000
"""The µs of a second."""

MINUTE = 60 * SECOND
"""The µs of a minute."""

HOUR = 3600 * SECOND
"""The µs of an hour."""

"""Jobs as an engine and its stores have them, made with defaults."""

from typing import Any

from jobboard import codec
from jobboard.primitives import Draft
from jobboard.states import CLAIMED, SCHEDULED, Record, State

NOW = 1_000_000_000_000_000
SECOND = 1_000_000
TOKEN = 7


def uuid_of(number: int) -> str:
    """Return a uuid that shows its number."""
    return f"00000000-0000-4000-8000-{number:012d}"


def make_draft(uuid: str | int = 1, wire: str = "json", details: Any = None, **fields: Any) -> Draft:
    """Return a job to be stored: a job called ``a`` with empty details and without a key."""
    defaults = {
        "name": "a",
        "priority": 100,
        "key": None,
        "version": codec.VERSION,
        "posting": codec.encode(codec.Content(details or {}, None), wire),
        "max_attempts": None,
        "delay": None,
        "due": None,
    }
    return Draft(uuid if isinstance(uuid, str) else uuid_of(uuid), **{**defaults, **fields})


def make_record(state: State = CLAIMED, **fields: Any) -> Record:
    """Return a stored job. A claimed job is anna's, with a lease of another second at ``NOW``."""
    defaults = {
        "uuid": "u",
        "name": "n",
        "priority": 2,
        "sequence": 3,
        "key": "k",
        "version": 1,
        "posting": b"p",
        "attempts": 1,
        "max_attempts": None,
        "token": TOKEN,
        "who": "anna" if state == CLAIMED else None,
        "keeper": None,
        "lock_until": NOW + SECOND if state in (CLAIMED, SCHEDULED) else None,
        "created_on": NOW - SECOND,
        "modified_on": NOW - SECOND,
    }
    return Record(state=state, **{**defaults, **fields})

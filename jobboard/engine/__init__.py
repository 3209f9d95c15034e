"""The engine: every transition of a job, decided over a store that only keeps records, compares and sets.

Here lie the calls that a board makes, the contract of a store, and the rules of keys, limits, schedules and outcomes.
The lifecycle of a single record lies in :mod:`jobboard.states`. Arguments are checked by the board, and servers are
reached by the stores of :mod:`jobboard.backends`.
"""

from jobboard.engine.answers import Answer, Deed, slot_of
from jobboard.engine.committer import Committer, Plan, Result, held_key
from jobboard.engine.doctor import weaknesses
from jobboard.engine.ends import Recent
from jobboard.engine.engine import Engine
from jobboard.engine.keys import Remembered
from jobboard.engine.limits import LOCK_WAIT, SCOPE, ClosedScope, Listed, revive
from jobboard.engine.outcomes import StoredOutcome
from jobboard.engine.retrying import RetryingEngine, time_left
from jobboard.engine.rules import Grouped, Rules, damaged_gate, damaged_value
from jobboard.engine.schedules import DuePosts, Make, StoredSchedule, Unreadable
from jobboard.engine.store import (
    ANY_TERMS,
    GATE,
    KINDS,
    LAPSING,
    NO_GATE,
    OVERDUE,
    RETRY_HELD,
    BoardMissing,
    Change,
    ClaimTerms,
    Committed,
    CommitTerms,
    Found,
    Hears,
    HeldTooLong,
    Life,
    LimitScope,
    Look,
    Mark,
    Occupied,
    Seat,
    SetupStep,
    Side,
    Stale,
    Store,
    Stored,
    Traits,
    library_version,
    reschedules,
    too_new,
    turns,
)

__all__ = [
    "ANY_TERMS",
    "GATE",
    "KINDS",
    "LAPSING",
    "LOCK_WAIT",
    "NO_GATE",
    "OVERDUE",
    "RETRY_HELD",
    "SCOPE",
    "Answer",
    "BoardMissing",
    "Change",
    "ClaimTerms",
    "ClosedScope",
    "CommitTerms",
    "Committed",
    "Committer",
    "Deed",
    "DuePosts",
    "Engine",
    "Found",
    "Grouped",
    "Hears",
    "HeldTooLong",
    "Life",
    "LimitScope",
    "Listed",
    "Look",
    "Make",
    "Mark",
    "Occupied",
    "Plan",
    "Recent",
    "Remembered",
    "Result",
    "RetryingEngine",
    "Rules",
    "Seat",
    "SetupStep",
    "Side",
    "Stale",
    "Store",
    "Stored",
    "StoredOutcome",
    "StoredSchedule",
    "Traits",
    "Unreadable",
    "damaged_gate",
    "damaged_value",
    "held_key",
    "library_version",
    "reschedules",
    "revive",
    "slot_of",
    "time_left",
    "too_new",
    "turns",
    "weaknesses",
]

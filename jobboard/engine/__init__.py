"""What a board holds: an engine. One is written once, over stores that only keep records, compare and set."""

from jobboard.engine.calls import Answer, Committer, Deed, Plan, Result, held_key
from jobboard.engine.contract import Engine, Life, Seat
from jobboard.engine.done import Done
from jobboard.engine.ending import Recent
from jobboard.engine.engine import StoreEngine
from jobboard.engine.keys import Remembered
from jobboard.engine.limits import SCOPE, Limits, LimitScope, Listed, lane, revive
from jobboard.engine.rules import GATE, Rules, SetLimit
from jobboard.engine.scheduling import Due, StoredSchedule, Unreadable
from jobboard.engine.store import (
    HELD,
    LAPSING,
    LISTED,
    PAGED,
    Change,
    Committed,
    Found,
    Lane,
    Look,
    Mark,
    Side,
    Stale,
    Store,
    Stored,
    reschedules,
    turns,
)

__all__ = [
    "GATE",
    "HELD",
    "LAPSING",
    "LISTED",
    "PAGED",
    "SCOPE",
    "Answer",
    "Change",
    "Committed",
    "Committer",
    "Deed",
    "Done",
    "Due",
    "Engine",
    "Found",
    "Lane",
    "Life",
    "LimitScope",
    "Limits",
    "Listed",
    "Look",
    "Mark",
    "Plan",
    "Recent",
    "Remembered",
    "Result",
    "Rules",
    "Seat",
    "SetLimit",
    "Side",
    "Stale",
    "Store",
    "StoreEngine",
    "Stored",
    "StoredSchedule",
    "Unreadable",
    "held_key",
    "lane",
    "reschedules",
    "revive",
    "turns",
]

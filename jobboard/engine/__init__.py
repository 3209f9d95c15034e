"""What a board holds: an engine. One is written once, over stores that only keep records, compare and set."""

from jobboard.engine.calls import Answer, Committer, Deed, Plan, Result, held_key
from jobboard.engine.contract import Engine, Life, Seat
from jobboard.engine.done import Done
from jobboard.engine.ending import Recent
from jobboard.engine.engine import StoreEngine
from jobboard.engine.examining import weaknesses
from jobboard.engine.keys import Remembered
from jobboard.engine.limits import SCOPE, Grouped, Limits, LimitScope, Listed, lane, revive
from jobboard.engine.rules import GATE, Rules, SetLimit, damaged_gate, damaged_value
from jobboard.engine.scheduling import DuePosts, StoredSchedule, Unreadable
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
    "DuePosts",
    "Engine",
    "Found",
    "Grouped",
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
    "damaged_gate",
    "damaged_value",
    "held_key",
    "lane",
    "reschedules",
    "revive",
    "turns",
    "weaknesses",
]

"""What a board holds: an engine. One is written once, over stores that only keep records, compare and set."""

from jobboard.engine.contract import Engine, Life, Seat
from jobboard.engine.engine import StoreEngine
from jobboard.engine.store import Change, Committed, Found, Look, Mark, Side, Stale, Store, Stored

__all__ = [
    "Change",
    "Committed",
    "Engine",
    "Found",
    "Life",
    "Look",
    "Mark",
    "Seat",
    "Side",
    "Stale",
    "Store",
    "StoreEngine",
    "Stored",
]

"""What a board holds: an engine. One is written once, over stores that only keep records, compare and set."""

from jobboard.engine.contract import Engine, Life, Seat
from jobboard.engine.engine import StoreEngine
from jobboard.engine.store import Answer, Change, Found, Look, Slot, Stale, Store, Stored

__all__ = [
    "Answer",
    "Change",
    "Engine",
    "Found",
    "Life",
    "Look",
    "Seat",
    "Slot",
    "Stale",
    "Store",
    "StoreEngine",
    "Stored",
]

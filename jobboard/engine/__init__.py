"""What a board holds."""

from jobboard.engine.contract import Engine, Life, Seat

__all__ = ["Engine", "Life", "Seat"]

"""The move of a board's jobs to another board, on any two backends; ``jobboard move`` runs it."""

from jobboard.moving.mover import Mover, SameBoard, survey
from jobboard.moving.origin import Left, Moved

__all__ = ["Left", "Moved", "Mover", "SameBoard", "survey"]

"""Carrying the jobs of one board to another, on any two backends; ``jobboard move`` runs it."""

from jobboard.moving.listing import Left, Moved
from jobboard.moving.mover import Mover
from jobboard.moving.surveying import survey

__all__ = ["Left", "Moved", "Mover", "survey"]

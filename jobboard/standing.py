"""How a claim stands, as far as its own process knows: the states, and the only table of their steps.

It decides nothing about the job: that the server does, by the fencing token. That a lease has run out is no state, for
no trigger tells of it; :attr:`Claim.lost <jobboard.job.Claim.lost>` reads the clock each time.
"""

from __future__ import annotations

import enum


class Standing(enum.StrEnum):
    HELD = enum.auto()
    """Nothing speaks against it."""

    LOST = enum.auto()
    """The server has refused the claim, or its holder has read that it is lost and may have dropped the job. The
    heartbeat no longer renews the claim. Only a successful act of the holder shows that the claim still stands."""

    GIVEN_UP = enum.auto()
    """Nobody waits for the work any longer; the claim itself stands until it is ended."""

    ENDED = enum.auto()
    """Ended through this object."""

    ENDED_LOST = enum.auto()
    """Ended, and the work under it, where it goes on, is to see that it was given up or overtaken."""


class Trigger(enum.StrEnum):
    EXTENDED = enum.auto()
    """The holder has extended it."""

    READ_LOST = enum.auto()
    """The holder has read that it is lost."""

    REFUSED = enum.auto()
    """The server, or the end of the board, says that it is lost."""

    GIVEN_UP = enum.auto()
    """The conductor waits for the work no longer."""

    ENDED = enum.auto()
    """An act that ends it has succeeded."""


STEPS: dict[Standing, dict[Trigger, Standing]] = {
    Standing.HELD: {
        Trigger.READ_LOST: Standing.LOST,
        Trigger.REFUSED: Standing.LOST,
        Trigger.GIVEN_UP: Standing.GIVEN_UP,
        Trigger.ENDED: Standing.ENDED,
    },
    Standing.LOST: {
        Trigger.EXTENDED: Standing.HELD,
        Trigger.GIVEN_UP: Standing.GIVEN_UP,
        Trigger.ENDED: Standing.ENDED,
    },
    Standing.GIVEN_UP: {Trigger.ENDED: Standing.ENDED_LOST},
    Standing.ENDED: {Trigger.REFUSED: Standing.ENDED_LOST, Trigger.GIVEN_UP: Standing.ENDED_LOST},
    Standing.ENDED_LOST: {},
}
"""Where each trigger leads from a standing; one that is not named changes nothing."""

ENDED = frozenset({Standing.ENDED, Standing.ENDED_LOST})
TOLD = frozenset({Standing.LOST, Standing.GIVEN_UP, Standing.ENDED_LOST})
"""Whoever works under such a claim reads that it is lost, whatever the clock says."""

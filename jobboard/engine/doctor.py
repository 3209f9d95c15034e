"""The doctor: weaknesses among a board's characteristics, damaged jobs, a damaged gate, and unreadable schedules.

A store examines the settings of its server when it opens, as ``backends/sql/doctor.py`` does.

Each oddity names its repair. Other damaged side records count as absent, and are written again in time."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from jobboard.engine.committer import Committer
from jobboard.engine.rules import Rules
from jobboard.engine.schedules import Unreadable, schedule_of
from jobboard.engine.store import GATE
from jobboard.exceptions import JobFailure
from jobboard.primitives import Characteristics, Oddity


def weaknesses(found: Characteristics, has_replicas: bool) -> Iterator[Oddity]:
    """Yield each characteristic by which the server may lose what it has acknowledged.

    The other characteristics are properties of a backend, which no setting changes: they cost time, and lose nothing.

    :param has_replicas: whether a replica may take the place of the server. Without one, there is no switch to survive.
    """
    if not found.durable:
        yield Oddity(
            "characteristic durable",
            f"it is false: a crash may lose what was acknowledged ({found.notes})",
            "take a durable backend, or set up the server: see Durability on the page 'Production checklist' of the "
            "documentation",
        )
    if has_replicas and not found.survives_failover:
        yield Oddity(
            "characteristic survives_failover",
            f"it is false: a switch to a replica may lose what was acknowledged ({found.notes})",
            "let each call wait for the replicas; on Redis, by the option min_replicas",
        )


def oddities(committer: Committer) -> Iterator[Oddity]:
    """Yield the defects of the store. Reads in pages, and writes nothing."""
    try:
        Rules.of(committer.store.read([], [GATE]).sides[0])
    except JobFailure as error:
        yield Oddity(committer.store.traits.gate_place, str(error), "delete it, and set pauses and limits again")
    yield from committer.store.oddities()
    for side in committer.read_all("schedule").sides:
        match schedule_of(side):
            case Unreadable(id_, why, newer):
                # An argument that begins with a dash would be an option.
                shown = f"{'-- ' if id_.startswith('-') else ''}{shlex.quote(id_)}"
                advice = "upgrade the library here" if newer else f"set it again, or: jobboard schedule remove {shown}"
                yield Oddity(f"schedule {id_}", f"it posts nothing here: {why}", advice)

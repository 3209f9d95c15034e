"""The doctor: weaknesses of a board's server, unreadable side records, and keys that jobs have and do not hold.

The doctor uses the reads of the other calls. Each oddity names its repair."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Any

from jobboard.engine.committer import PAGE, Committer, held_key
from jobboard.engine.entities import StoredEntity
from jobboard.engine.keys import holder_of
from jobboard.engine.limits import SCOPE, Listed
from jobboard.engine.rules import Rules
from jobboard.engine.schedules import StoredSchedule, Unreadable, schedule_of
from jobboard.engine.store import GATE, Side, Store, Stored
from jobboard.exceptions import JobFailure
from jobboard.primitives import Characteristics, Oddity
from jobboard.states import LIVE, Record, moment


def weaknesses(found: Characteristics, has_replicas: bool) -> Iterator[Oddity]:
    """Yield each characteristic by which the server may lose what it has acknowledged.

    The other characteristics are properties of a backend, which no setting changes: they cost time, and lose nothing.

    :param has_replicas: whether a replica may take the place of the server. Without one, there is no switch to survive.
    """
    if not found.durable:
        yield Oddity(
            "characteristic durable",
            f"it is false: a crash of the server's machine may lose what was acknowledged ({found.notes})",
            "let the server write to its disk before it acknowledges, or take a backend that does: see Durability in "
            "docs/production/checklist.rst",
        )
    if has_replicas and not found.survives_failover:
        yield Oddity(
            "characteristic survives_failover",
            f"it is false: a switch to a replica may lose what was acknowledged ({found.notes})",
            "let each call wait for the replicas; on Redis, by the option min_replicas",
        )


def oddities(committer: Committer) -> Iterator[Oddity]:
    """Yield what is odd in the store. Reads in pages, and writes nothing."""
    try:
        Rules.of(committer.store.read([], [GATE]).sides[0])
    except JobFailure as error:
        yield Oddity(committer.store.gate_place, str(error), "delete it, and set pauses and limits anew")
    yield from committer.store.oddities()
    yield from _schedules(committer)
    yield from _entities(committer)
    yield from _scopes(committer.store)
    yield from _unheld(committer.store)
    yield from _remembered(committer.store)


def _schedules(committer: Committer) -> Iterator[Oddity]:
    for side in committer.listed("schedule").sides:
        match schedule_of(side):
            case StoredSchedule():
                continue
            case Unreadable(id_, why, newer):
                # An argument that begins with a dash would be an option.
                shown = f"{'-- ' if id_.startswith('-') else ''}{shlex.quote(id_)}"
                advice = "upgrade the library here" if newer else f"set it again, or: jobboard schedule remove {shown}"
                yield Oddity(f"schedule {id_}", f"it posts nothing here: {why}", advice)


def _entities(committer: Committer) -> Iterator[Oddity]:
    found = committer.listed("entity")
    for side in found.sides:
        if side.stands(found.now) and not _shows(side):
            advice = "the next heartbeat of its process writes it again"
            yield Oddity(f"entity {side.key}", "it can't be read, and is not listed", advice + _end(side))


def _shows(side: Side) -> bool:
    entity = StoredEntity.of(side)
    try:
        return entity is not None and isinstance(json.loads(entity.metadata), dict)
    except (ValueError, TypeError):
        return False


def _scopes(store: Store) -> Iterator[Oddity]:
    for side in _walked(store, SCOPE):
        try:
            Listed.read(side)
        except ValueError as error:
            name, grouped, group = side.key.partition("\n")
            whose = f"jobs named {name!r}" + (f" of the group {group!r}" if grouped else "")
            yield Oddity(
                f"the claims that limits count of {whose}",
                f"{error}, so that claims which stand are not counted",
                "the next claim writes it again; without a claim, an open board drops it within a quarter of an hour",
            )


def _remembered(store: Store) -> Iterator[Oddity]:
    for side in _walked(store, "key"):
        if side.until is not None and holder_of(side) is None:
            yield Oddity(f"key {side.key}", "its job can't be read", "its window runs all the same" + _end(side))


def _walked(store: Store, kind: str) -> Iterator[Side]:
    place: Any = None
    while True:
        found, place = store.sides(kind, place, PAGE)
        yield from (side for side in found.sides if side.stands(found.now))
        if place is None:
            return


def _end(side: Side) -> str:
    return "" if side.until is None else f"; else it goes by itself at {moment(side.until):%Y-%m-%d %H:%M:%SZ}"


def _unheld(store: Store) -> Iterator[Oddity]:
    after: Record | None = None
    while page := store.page(after, PAGE, None, LIVE)[1]:
        for stored in _there(store, _strange(store, page)):
            # One commit removes a job and its key. The key is missing only if the job is unchanged.
            if _strange(store, [stored]) and _there(store, [stored]) == [stored]:
                yield _of_key(stored.record)
        after = page[-1].record


def _strange(store: Store, jobs: list[Stored]) -> list[Stored]:
    """Return the jobs whose keys belong to no job or to another one."""
    keyed = [(key, stored) for stored in jobs if (key := held_key(stored.record)) is not None]
    sides = store.read([], [("key", key) for key in {key for key, _ in keyed}]).sides if keyed else []
    holders = {side.key: side.value for side in sides}
    return [stored for key, stored in keyed if holders[key] != stored.record.uuid.encode()]


def _there(store: Store, jobs: list[Stored]) -> list[Stored]:
    found = store.read([stored.record.uuid for stored in jobs]).jobs if jobs else []
    return [stored for stored in found if stored is not None]


def _of_key(record: Record) -> Oddity:
    uuid = shlex.quote(record.uuid)
    return Oddity(
        f"job {record.uuid}",
        f"its key {record.key!r} is not held: another job can be posted with it",
        f"'jobboard cancel {uuid}', then 'jobboard trash restore {uuid}' gives it back, unless another job has it now; "
        "let the work on a claimed job end",
    )

"""``jobboard entities``: the conductors and other registered entities of a board."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jobboard.cli.common import BoardOptions, command
from jobboard.cli.summary import named, other_boards_if_empty
from jobboard.cli.tables import WIDE, Column, name_column, show

if TYPE_CHECKING:
    from jobboard.job import Entity

_SHOWN = ("host", "pid", "names", "running", "slots", "hung", "consumed")
"""The metadata that has columns."""

_UNSHOWN = ("claim_ttl", "clock", "dispatched", "hanging", "readable", "seconds", "started", "workers")
"""The metadata of a conductor that only JSON has."""


@command("jobboard entities", "jobboard entities --json | jq -r .name")
def entities(settings: BoardOptions) -> None:
    """List the conductors, and other entities, that are alive."""
    with settings.opened() as board:
        there, name = board.entities(), named(board)
        nothing = "" if there else f"Nobody is on {name}{other_boards_if_empty(board)}."
    show(settings, there, ENTITY, title=f"entities of {name}", nothing=lambda: nothing, limit=len(there))


def _field(name: str) -> Any:
    return lambda entity: None if (value := entity.metadata.get(name)) is None else _text(value)


def _text(value: object) -> str:
    """Return a value of an entity's metadata: JSON, unless it is a str."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _runs(entity: Entity) -> str:
    """Return the names of the jobs that a conductor handles."""
    names = entity.metadata.get("names")
    if not isinstance(names, list):
        return "any job" if entity.kind == "conductor" else ""
    return ", ".join(map(_text, names))


def _running(entity: Entity) -> str | None:
    """Return the number of running jobs and of slots, and of the handlers that still run after their timeout."""
    running, slots, hung = map(entity.metadata.get, ("running", "slots", "hung"))
    text = running if running is None or slots is None else f"{running} of {slots}"
    return f"{text}, {hung} hung" if hung else text


def _more(entity: Entity) -> str:
    rest = {name: value for name, value in entity.metadata.items() if name not in _SHOWN}
    if entity.kind == "conductor":
        rest = {name: value for name, value in rest.items() if value and name not in _UNSHOWN}
    return ", ".join(f"{name}={_text(value)}" for name, value in rest.items())


ENTITY: list[Column[Entity]] = [
    Column("kind", lambda entity: entity.kind, "who", whole=True),
    name_column("name", lambda entity: entity.name),
    Column("metadata", lambda entity: entity.metadata),
    Column(None, _field("host"), "host", least=WIDE),
    Column(None, _field("pid"), "pid", whole=True),
    Column(None, _runs, "runs"),
    Column(None, _running, "running", number=True),
    Column(None, _field("consumed"), "done", number=True),
    Column(None, _more, "more", least=WIDE),
]

"""``jobboard entities``: the conductors and other registered entities of a board."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from jobboard.cli.common import BoardOptions, command
from jobboard.cli.jobs import WIDE
from jobboard.cli.summary import named
from jobboard.cli.tables import Column, show

if TYPE_CHECKING:
    from jobboard.job import Entity

_SHOWN = ("host", "pid", "names", "other_names", "running", "slots", "hung", "consumed")
"""The metadata that has columns."""

_UNSHOWN = ("dispatched", "seconds", "started", "workers")
_SELDOM = ("abandoned", "trashed", "lost")
"""The counts of a conductor that are shown if they are not 0."""


@command("jobboard entities", "jobboard entities --json | jq -r .name")
def entities(settings: BoardOptions) -> None:
    """List the conductors, and other entities, that are alive."""
    with settings.opened() as board:
        there, name = board.entities(), named(board)
    show(settings, there, ENTITY, title=f"entities of {name}", nothing=lambda: f"Nobody is on {name}.", every=True)


def _field(name: str) -> Any:
    return lambda entity: None if (value := entity.metadata.get(name)) is None else _text(value)


def _text(value: object) -> str:
    """Return a value of an entity's metadata: JSON, unless it is a str."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _runs(entity: Entity) -> str:
    """Return the names of the jobs that a conductor handles."""
    names, others = entity.metadata.get("names"), entity.metadata.get("other_names")
    if not isinstance(names, list):
        return "any job" if entity.kind == "conductor" else ""
    return ", ".join(map(_text, names)) + (f", {others} more" if others else "")


def _running(entity: Entity) -> str | None:
    """Return the jobs at work, of as many as there may be, and the handlers that go on after their time was up."""
    running, slots, hung = map(entity.metadata.get, ("running", "slots", "hung"))
    text = running if running is None or slots is None else f"{running} of {slots}"
    return f"{text}, {hung} hung" if hung else text


def _more(entity: Entity) -> str:
    rest = {name: value for name, value in entity.metadata.items() if name not in _SHOWN}
    if entity.kind == "conductor":
        dull = {*_UNSHOWN, *(name for name in _SELDOM if not rest.get(name))}
        rest = {name: value for name, value in rest.items() if name not in dull}
    return ", ".join(f"{name}={_text(value)}" for name, value in rest.items())


ENTITY: list[Column[Entity]] = [
    Column("kind", lambda entity: entity.kind, "who", whole=True),
    Column("name", lambda entity: entity.name, "name"),
    Column("metadata", lambda entity: entity.metadata),
    Column(None, _field("host"), "host", least=WIDE),
    Column(None, _field("pid"), "pid", whole=True),
    Column(None, _runs, "runs"),
    Column(None, _running, "running", number=True),
    Column(None, _field("consumed"), "done", number=True),
    Column(None, _more, "more", least=WIDE),
]

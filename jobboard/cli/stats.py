"""``jobboard stats``: counts of a board."""

from __future__ import annotations

import dataclasses
from operator import itemgetter

from jobboard.cli.common import BoardOptions, command
from jobboard.cli.entities import ENTITY
from jobboard.cli.output import say_json
from jobboard.cli.summary import (
    kept_dict,
    kept_line,
    named,
    others,
    rules_dict,
    rules_lines,
    unhandled_line,
    unhandled_on,
)
from jobboard.cli.tables import Column, say_lines, table

_COUNTS: list[Column[tuple[str, int]]] = [
    Column(None, itemgetter(0), "state"),
    Column(None, itemgetter(1), "jobs", number=True),
]


@command("jobboard stats", "jobboard stats --json | jq .unclaimed")
def stats(settings: BoardOptions) -> None:
    """Count the jobs in each state, and show who works on them.

    Names of waiting jobs that no conductor handles are shown, as far as the first 500 jobs have them.
    """
    with settings.opened() as board:
        counted, entities = board.stats(), board.entities()
        rules, kept = board.engine.rules(), board.kept_stats()
        missing = unhandled_on(board, rules, entities)
        empty = not (counted.on_board or counted.trashed)
        title = f"{named(board)} is empty{others(board)}" if empty and not settings.json else named(board)
    counts = dataclasses.asdict(counted)
    if settings.json:
        counts |= {"on_board": counted.on_board, **rules_dict(rules), **kept_dict(kept), "unhandled": missing}
        say_json({"board": board.name, **counts, "entities": [dataclasses.asdict(entity) for entity in entities]})
        return
    say_lines(title, *rules_lines(rules), kept_line(kept), unhandled_line(missing))
    table(_COUNTS, counts.items())
    if entities:
        table(ENTITY, entities)

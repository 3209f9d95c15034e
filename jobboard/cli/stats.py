"""``jobboard stats``: counts of a board."""

from __future__ import annotations

from dataclasses import asdict
from operator import itemgetter

from jobboard.cli.common import BoardOptions, command
from jobboard.cli.entities import ENTITY
from jobboard.cli.output import say_json
from jobboard.cli.summary import is_empty, named, other_boards, remarks, remarks_dict
from jobboard.cli.tables import Column, say_lines, table
from jobboard.obstacles import first_jobs, unhandled

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
        counted, entities, rules = board.stats(), board.entities(), board.engine.rules()
        kept, missing = board.kept_stats(), unhandled(first_jobs(board), rules, entities)
        empty = not settings.json and is_empty(board)
        title = f"{named(board)} is empty{other_boards(board)}" if empty else named(board)
    counts = asdict(counted)
    if settings.json:
        counts |= {"on_board": counted.on_board, **remarks_dict(rules, kept, missing)}
        say_json({"board": board.name, **counts, "entities": [asdict(entity) for entity in entities]})
        return
    say_lines(title, *remarks(rules, kept, missing))
    table(_COUNTS, counts.items())
    if entities:
        table(ENTITY, entities)

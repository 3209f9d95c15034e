"""``jobboard doctor``: defects of a board, and what keeps its jobs from being worked on."""

from __future__ import annotations

from dataclasses import asdict

from jobboard.cli.common import DONE, FAILED, BoardOptions, command
from jobboard.cli.output import one_line, say, say_json
from jobboard.cli.summary import is_empty, named, refuse_memory, warn_of_empty
from jobboard.cli.tables import say_lines
from jobboard.obstacles import Obstacle, obstacles
from jobboard.primitives import Oddity


@command("jobboard doctor", "jobboard doctor --json | jq -r .place")
def doctor(settings: BoardOptions) -> int:
    """Report defects, and what jobs wait for, with advice.

    Defects are damaged entries, entries without their counterpart, postings that can't be read, settings of the server
    that may lose jobs, and wrong clocks. What keeps jobs from being worked on: names that no conductor handles, slots
    that hang, two conductors of one name, schedules whose key is taken; and pauses, full limits and used-up rates.

    The command reads all of the board, and changes no job. The exit status is 0 where nothing is odd, and 1 otherwise.
    Pauses, limits and rates are not odd: the board does as it was told.
    """
    refuse_memory(settings.uri)
    odd = 0
    with settings.opened() as board:
        warn_of_empty(board)
        found = obstacles(board)
        for each in found:
            _say(settings, each, asdict(each))
            odd += each.is_odd
        for defect in board.examine():
            _say(settings, defect, defect._asdict())
            odd += 1
        told = (
            f", and {named(board)} is empty" if is_empty(board) else ": the board does as it was told" if found else ""
        )
    if not settings.json:
        say(f"{odd} found." if odd else f"Nothing is odd{told}.")
    return FAILED if odd else DONE


def _say(settings: BoardOptions, found: Oddity | Obstacle, fields: dict[str, object]) -> None:
    if settings.json:
        say_json(fields)
        return
    say_lines(one_line(f"{found.place}: {found.reason}"))
    say_lines(one_line(found.advice), indent=4)

"""``jobboard doctor``: defects of a board."""

from __future__ import annotations

from jobboard.cli.common import DONE, FAILED, BoardOptions, command
from jobboard.cli.output import safe, say, say_json
from jobboard.cli.summary import refuse_memory, warn_of_empty


@command("jobboard doctor", "jobboard doctor --json | jq -r .place")
def doctor(settings: BoardOptions) -> int:
    """Check the board, and report defects with advice.

    Defects are damaged entries, entries without their counterpart, postings that can't be read, settings of the server
    that may lose jobs, and a wrong clock. The command reads all of the board, and changes no job. The exit status is 0
    without a defect, and 1 otherwise.
    """
    found = 0
    refuse_memory(settings.uri)
    with settings.opened() as board:
        warn_of_empty(board)
        for odd in board.examine():
            found += 1
            if settings.json:
                say_json(odd._asdict())
                continue
            say(f"{safe(odd.place)}: {safe(odd.reason)}")
            if odd.advice:
                say(f"    {safe(odd.advice)}")
    if not settings.json:
        say(f"{found} found." if found else "Nothing is odd.")
    return FAILED if found else DONE

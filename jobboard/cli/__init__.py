"""The command ``jobboard``: one module per group of commands, imported when its command is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(args: Sequence[str] | None = None, program: str = "jobboard") -> int:
    """Run a command line, and return its exit status.

    The status is 0 when the command is done, 1 when it failed, 2 when it was wrong, and 3 when the backend can't be
    reached.

    :param program: the words before a command, as a user types them.
    """
    try:
        from jobboard.cli.root import run

        return run(args, program)
    except KeyboardInterrupt:
        # An interrupt may also come while modules are imported, which takes a moment.
        sys.stderr.write("jobboard: interrupted\n")
        return INTERRUPTED

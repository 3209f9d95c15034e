"""The command ``jobboard``: one module per group of commands, imported when its command is called."""

from __future__ import annotations

import sys
from collections.abc import Sequence

INTERRUPTED = 130


def main(args: Sequence[str] | None = None) -> int:
    """Run the command line; its exit status: 0 done, 1 failed, 2 wrongly called, 3 the backend can't be reached."""
    try:
        from jobboard.cli.root import run

        return run(args)
    except KeyboardInterrupt:
        # Before a command has begun, too: to import what it needs takes a moment.
        sys.stderr.write("jobboard: interrupted\n")
        return INTERRUPTED

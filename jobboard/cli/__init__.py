"""The command ``jobboard``: one module per group of commands, imported when its command is called."""

from __future__ import annotations

from collections.abc import Sequence

INTERRUPTED = 130


def main(args: Sequence[str] | None = None, program: str = "jobboard") -> int:
    """Run a command line, and return its exit status; see :func:`jobboard.cli.root.main`."""
    try:
        # Not above: an interrupt during these imports would print a traceback.
        from jobboard.cli import root

        return root.main(args, program)
    except KeyboardInterrupt:
        return INTERRUPTED

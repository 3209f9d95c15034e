"""The command ``jobboard``: one module per group of commands, imported when its command is called."""

from jobboard.cli.root import main

__all__ = ["main"]

"""The root of the commands, and the end of each of them."""

from __future__ import annotations

import contextlib
import errno
import importlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from jobboard.cli import INTERRUPTED
from jobboard.cli.common import DONE, FAILED, UNREACHABLE, USAGE, group
from jobboard.cli.output import hinting, one_line
from jobboard.cli.redaction import without_secrets

LOG = logging.getLogger(__name__)

_UNWRITTEN = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""The errors of a write. One that names no file is of standard output: boards raise errors of their own."""

# Before click 8.2, it printed the help by itself.
_NO_COMMAND = getattr(click.exceptions, "NoArgsIsHelpError", ())

COMMANDS = {
    "setup": "setup:setup",
    "post": "post:post",
    "list": "list:list_jobs",
    "show": "show:show",
    "stats": "stats:stats",
    "entities": "entities:entities",
    "doctor": "doctor:doctor",
    "top": "top:top",
    "watch": "watch:watch",
    "web": "web:web",
    "work": "work:work",
    "pause": "pause:pause",
    "resume": "pause:resume",
    "limit": "limit:limit",
    "release": "release:release",
    "cancel": "release:cancel",
    "trash": "trash:trash",
    "schedule": "schedule:schedule",
    "done": "done:done",
    "move": "move:move",
    "loop": "loop:loop",
    "demo": "demo:demo",
}


class Root(click.Group):
    """The group of all commands, whose modules are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(f"jobboard.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _done_by_closed_pipe():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> object:
        with _done_by_closed_pipe():
            return super().invoke(ctx)


@contextlib.contextmanager
def _done_by_closed_pipe() -> Iterator[None]:
    """End the command with success if the reader of its output has gone. click would make a failure of it."""
    try:
        yield
    except BrokenPipeError:
        _discard_output()
        raise click.exceptions.Exit(DONE) from None


def _discard_output() -> None:
    # Python flushes at exit, and would complain again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


@click.version_option(package_name="jobboard")
def jobboard() -> None:
    """Post jobs, claim them, work, consume them.

    The exit status is 0 when it is done, 1 when it failed, 2 when the command was wrong, and 3 when the backend can't
    be reached.
    """


root = group(
    "jobboard demo",
    "jobboard --board sqlite:///jobs.db post resize --details '{\"width\": 300}'",
    "jobboard --board sqlite:///jobs.db work handlers:resize",
    cls=Root,
    # Their names alone, among which click finds the one that a mistyped name is near to.
    commands=dict.fromkeys(COMMANDS),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)(jobboard)


def main(args: Sequence[str] | None = None, program: str = "jobboard") -> int:
    """Run a command line, and return its exit status.

    The status is 0 when the command is done, 1 when it failed, 2 when it was wrong, and 3 when the backend can't be
    reached.

    :param program: the words before a command, as a user types them.
    """
    words = list(sys.argv[1:] if args is None else args)
    for name in ("stdout", "stderr"):
        # What is written to a closed stream is discarded, and a character that the encoding lacks is escaped.
        stream = getattr(sys, name) or Path(os.devnull).open("w")  # noqa: SIM115
        setattr(sys, name, stream)
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    # The error repeats what a driver logs while it connects; with -v the driver's own lines are shown.
    logging.getLogger("jobboard.drivers").setLevel(logging.CRITICAL)
    try:
        status = root.main(args=words, prog_name=program, standalone_mode=False)
        # Here, where errors are reported: what is written may lie in a buffer until now.
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        click.echo("jobboard: interrupted", err=True)
        return INTERRUPTED
    except click.UsageError as error:
        if error.ctx is not None and isinstance(error, _NO_COMMAND):
            click.echo(error.ctx.get_help(), err=True)
            return USAGE
        where = error.ctx.command_path if error.ctx else program
        _complain(error.format_message(), words, program)
        click.echo(f"See '{where} --help'.", err=True)
        return USAGE
    except click.ClickException as error:
        return _complain(error.format_message(), words, program)
    except BrokenPipeError:
        _discard_output()
    except Exception as error:
        from jobboard.exceptions import ConnectionFailure, JobBoardError

        LOG.debug("failed", exc_info=True)
        if isinstance(error, OSError) and error.errno in _UNWRITTEN and error.filename is None:
            _discard_output()
            return _complain(f"can't write to standard output: {error.strerror}", words, program)
        expected = isinstance(error, JobBoardError | OSError | ValueError) and str(error)
        _complain(str(error) if expected else f"{type(error).__name__}: {error}", words, program)
        return UNREACHABLE if isinstance(error, ConnectionFailure) and not error.refused else FAILED
    else:
        return status if isinstance(status, int) else DONE
    return DONE


def _complain(message: str, words: Sequence[str], program: str) -> int:
    for uri in (os.environ.get("JOBBOARD_URL"), *words, *(word.partition("=")[2] for word in words)):
        message = without_secrets(message, uri)
    click.echo(f"jobboard: {hinting(one_line(message), program)}", err=True)
    return FAILED

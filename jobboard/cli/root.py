"""The root of the commands, and how each of them ends."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from jobboard.cli import INTERRUPTED
from jobboard.cli.common import (
    DONE,
    FAILED,
    UNREACHABLE,
    USAGE,
    BoardOptions,
    Group,
    board_options,
    example,
    one_line,
    without_secrets,
)

LOG = logging.getLogger(__name__)

# Before click 8.2, it printed the help by itself.
_NO_COMMAND = getattr(click.exceptions, "NoArgsIsHelpError", ())

COMMANDS = {
    "setup": "setting_up:setup",
    "post": "posting:post",
    "list": "looking:list_jobs",
    "show": "looking:show",
    "stats": "looking:stats",
    "entities": "looking:entities",
    "doctor": "doctoring:doctor",
    "top": "topping:top",
    "watch": "watching:watch",
    "work": "working:work",
    "pause": "ruling:pause",
    "resume": "ruling:resume",
    "limit": "limiting:limit",
    "release": "acting:release",
    "cancel": "acting:cancel",
    "trash": "trashing:trash",
    "schedule": "scheduling:schedule",
    "done": "done:done",
    "move": "moving:move",
    "loop": "loops:loop",
    "demo": "demo:demo",
    "completion": "completing:completion",
}


class LazyGroup(Group):
    """Imports a command when it is called, so that none pays for what only another needs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].partition(":")
        command = getattr(importlib.import_module(f"jobboard.cli.{module}"), name)
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Here, as click would make a failure of it.
            return _unread()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=example(
        "jobboard demo",
        "jobboard --board sqlite:///jobs.db post resize --details '{\"width\": 300}'",
        "jobboard --board sqlite:///jobs.db work handlers:resize",
    ),
)
@click.version_option(package_name="jobboard")
@board_options
@click.pass_context
def root(context: click.Context, settings: BoardOptions) -> None:
    """Post jobs, claim them, work, consume them.

    The exit status is 0 when it is done, 1 when it failed, 2 when the command was wrong, and 3 when the backend can't
    be reached.
    """
    context.obj = settings


def run(args: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if args is None else args)
    _make_streams_safe()
    # What a driver says while it connects is said once more by the error; with -v it is shown.
    logging.getLogger("jobboard.drivers").setLevel(logging.CRITICAL)
    try:
        status = root.main(args=words, prog_name="jobboard", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as end:
        return end.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("jobboard: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        return _unread()
    except click.UsageError as error:
        if error.ctx is not None and isinstance(error, _NO_COMMAND):
            click.echo(error.ctx.get_help(), err=True)
            return USAGE
        where = error.ctx.command_path if error.ctx else "jobboard"
        _complain(error.format_message(), words)
        click.echo(f"See '{where} --help'.", err=True)
        return USAGE
    except click.ClickException as error:
        return _complain(error.format_message(), words)
    except Exception as error:
        LOG.debug("failed", exc_info=True)
        return _failed(error, words)
    return status if isinstance(status, int) else DONE


def _make_streams_safe() -> None:
    """A closed one loses what is written; what its encoding does not have is escaped."""
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None:
            # In this order, the number that is free goes to the right one, and not to a database.
            setattr(sys, name, Path(os.devnull).open("w" if number else "r"))  # noqa: SIM115
        elif number and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _unread() -> int:
    """Whoever read the output has seen enough."""
    # Python flushes at exit, and would complain again.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    return DONE


def _failed(error: Exception, words: Sequence[str]) -> int:
    from jobboard.exceptions import ConnectionFailure, JobBoardError

    expected = isinstance(error, JobBoardError | OSError | ValueError)
    _complain(str(error) if expected and str(error) else f"{type(error).__name__}: {error}", words)
    return UNREACHABLE if isinstance(error, ConnectionFailure) and not error.refused else FAILED


def _complain(message: str, words: Sequence[str]) -> int:
    for uri in (os.environ.get("JOBBOARD_URL"), *words, *(word.partition("=")[2] for word in words)):
        message = without_secrets(message, uri)
    click.echo(f"jobboard: {one_line(message)}", err=True)
    return FAILED

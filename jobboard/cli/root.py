"""The root of the commands, and how each of them ends."""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Sequence

import click

from jobboard.cli.common import (
    DONE,
    FAILED,
    INTERRUPTED,
    UNREACHABLE,
    USAGE,
    Settings,
    board_options,
    example,
    one_line,
    without_secrets,
)

LOG = logging.getLogger(__name__)

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
    "release": "acting:release",
    "cancel": "acting:cancel",
    "trash": "trashing:trash",
    "move": "moving:move",
    "loop": "loops:loop",
    "demo": "demo:demo",
    "completion": "completing:completion",
}


class LazyGroup(click.Group):
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
def root(context: click.Context, settings: Settings) -> None:
    """Post jobs, claim them, work, consume them.

    The exit status is 0 when it is done, 1 when it failed, 2 when the command was wrong, and 3 when the backend can't
    be reached.
    """
    context.obj = settings


def run(args: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if args is None else args)
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
        if not words:
            click.echo(root.get_help(click.Context(root, info_name="jobboard")), err=True)
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

"""The frame of each command: its options, its board, the jobs that its arguments name, and the form of its results."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jobboard.cli.loading import load
from jobboard.cli.output import say, say_json
from jobboard.cli.redaction import without_secrets

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.job import Job
    from jobboard.results import Outcome

F = TypeVar("F", bound=Callable[..., Any])

DONE, FAILED, USAGE, UNREACHABLE = range(4)
DEFAULT_NAME = "jobboard"

SHORTEST = 8
"""The fewest first characters that stand for a uuid, and the number of them that a terminal shows."""

UUID_LENGTH = 36

SEARCHED = 50_000
"""The largest number of jobs that are searched for a uuid by its first characters."""

_LISTED = 10
_ELSEWHERE = "it may be gone, or on another board (--name)"
_BOARD = "The board's backend.  [env: JOBBOARD_URL]"
_NAME = f"The board's name.  [env: JOBBOARD_NAME; default: {DEFAULT_NAME}]"


@dataclass(frozen=True)
class BoardOptions:
    """The board of a command, from its options and the environment, and the form of its results.

    given: the URI of ``--board``. json: the result is JSON.
    """

    given: str | None = None
    name: str | None = None
    json: bool = False

    @property
    def uri(self) -> str:
        uri = self.given or os.environ.get("JOBBOARD_URL")
        if not uri:
            raise click.UsageError(
                "no board: give --board URI or set JOBBOARD_URL, for example to sqlite:///jobboard.db"
            )
        return uri

    @property
    def board_name(self) -> str:
        return self.name or os.environ.get("JOBBOARD_NAME") or DEFAULT_NAME

    def fetch(self, **options: Any) -> JobBoard:
        """Return the board, not connected yet. An error in its URI is a wrong call."""
        from jobboard.backends import fetch
        from jobboard.exceptions import NotFound

        try:
            board: JobBoard = fetch(self.board_name, {"board": self.uri, **options})
        except (NotFound, TypeError, ValueError) as error:
            raise click.UsageError(without_secrets(str(error), self.uri)) from None
        return board

    @contextlib.contextmanager
    def opened(self, *, create: bool = False, **options: Any) -> Iterator[JobBoard]:
        """Give the connected board.

        :param create: create the tables and the like that are missing. A command that only looks creates nothing, as
            its URI may be mistyped.
        """
        board = self.fetch(**options if create else {"auto_setup": False, **options})
        try:
            with naming(board):
                board.connect()
            yield board
        finally:
            board.close()

    def tell(self, text: object, **result: Any) -> None:
        """Print the result of a command: ``result`` with ``--json``, else ``text``."""
        if self.json:
            say_json(result)
        else:
            say(text)

    def report(self, act: str, count: int, failed: int = 0, what: str = "job") -> int:
        """Print how many things were acted on, and return the exit status."""
        self.tell(f"{plural(count, what)} {act}.", **{act: count, "failed": failed})
        return FAILED if failed else DONE


@contextlib.contextmanager
def naming(board: JobBoard) -> Iterator[None]:
    """Name the board in the error of an outage. A driver may not name its server, and a move has two boards."""
    from jobboard.exceptions import ConnectionFailure

    try:
        yield
    except ConnectionFailure as error:
        raise ConnectionFailure(f"{board}: {error}", error.cause, error.outcome, error.refused) from error


def plural(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def command(
    *examples: str,
    group: click.Group | None = None,
    name: str | None = None,
    board: str | None = _BOARD,
    board_name: str | None = _NAME,
) -> Callable[[Callable[..., Any]], click.Command]:
    """Make a command of a function, which gets its :class:`BoardOptions` as the first argument.

    :param examples: command lines that end the help.
    :param board: the help of ``--board``; None hides the option of a command that has no use for it.
    :param board_name: the same of ``--name``.
    """

    def make(function: Callable[..., Any]) -> click.Command:
        taken = _with_board_options(function, board, board_name)
        decorator = click.command if group is None else group.command
        return decorator(name, epilog=example(*examples))(taken)

    return make


def group(
    *examples: str, cls: type[click.Group] = click.Group, **attrs: Any
) -> Callable[[Callable[[], None]], click.Group]:
    """Make a group of commands, which has the name and the docstring of a function."""

    def make(function: Callable[[], None]) -> click.Group:
        @functools.wraps(function)
        def enter(settings: BoardOptions) -> None:
            click.get_current_context().obj = settings

        return click.group(cls=cls, epilog=example(*examples), **attrs)(_with_board_options(enter))

    return make


def _with_board_options(function: F, board: str | None = _BOARD, name: str | None = _NAME) -> F:
    """Add the options of every command, which count before and after its name."""

    @functools.wraps(function)
    def wrapper(*args: Any, board_uri: str | None, board_name: str | None, as_json: bool, **kwargs: Any) -> Any:
        for option, given in (("--board", board_uri), ("--name", board_name)):
            # A shell variable was perhaps not set. Another board than the one that was meant could be harmed.
            if given == "":
                raise click.UsageError(f"{option} is empty")
        before = click.get_current_context().obj or BoardOptions()
        settings = BoardOptions(board_uri or before.given, board_name or before.name, as_json or before.json)
        return function(settings, *args, **kwargs)

    own = wrapper.__dict__.pop("__click_params__", [])
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines."),
        click.option("--name", "board_name", metavar="NAME", help=name, hidden=name is None),
        click.option("--board", "board_uri", metavar="URI", help=board, hidden=board is None),
    ):
        option(wrapper)
    wrapper.__dict__["__click_params__"] += own
    return wrapper  # type: ignore[return-value]


def _load(context: click.Context, option: click.Option, spec: str | None) -> object:
    return None if spec is None else load(spec)


cipher_option = click.option(
    "--cipher", metavar="MODULE:NAME", callback=_load, help="The cipher object that decrypts details and results."
)


def example(*lines: str) -> str:
    """Return the end of a help text: commands to copy."""
    return "\b\nFor example:\n" + "\n".join(f"  {line}" for line in lines)


def find_job(board: JobBoard, word: str, *, to_act: bool = False) -> Job:
    """Return the job with this uuid, or the only job with a uuid that begins so.

    :param to_act: return a job with unreadable details as well, if ``word`` is its whole uuid.
    :raises NotFound: there is none.
    :raises JobFailure: several uuids begin so, or the board is too large to search.
    """
    from jobboard.exceptions import ConnectionFailure, JobFailure, NotFound
    from jobboard.job import Job

    try:
        return board.get(word)
    except NotFound as error:
        if len(word) >= UUID_LENGTH:
            raise NotFound(f"{error}: {_ELSEWHERE}") from None
        if len(word) < SHORTEST or not re.fullmatch(r"[0-9a-f][0-9a-f-]*", word):
            advice = f"give its uuid, or the first {SHORTEST} characters at least, as 'jobboard list' shows them"
            raise NotFound(f"{error}; {advice}") from None
    except JobFailure as error:
        if isinstance(error, ConnectionFailure) or not to_act:
            raise
        [seen] = board.engine.read([word])
        if seen.record is None:
            raise
        return Job(board, seen.record, seen.record.posting, seen.state)
    return board.get(_whole(board, word))


def _whole(board: JobBoard, start: str) -> str:
    """Return the only uuid that begins so."""
    from jobboard.exceptions import JobFailure, NotFound

    found: dict[str, str] = {}
    jobs: Iterator[Job | Outcome] = itertools.chain(board.iterjobs(), board.trashed(), board.outcomes())
    for number, each in enumerate(jobs):
        if number == SEARCHED:
            raise JobFailure(
                f"{start!r} is too short for a board with more than {SEARCHED:,} jobs: give the whole uuid, as "
                "'jobboard list --json' prints it"
            )
        if each.uuid.startswith(start):
            found[each.uuid] = each.name
    if not found:
        raise NotFound(f"no job has a uuid that begins with {start!r}: {_ELSEWHERE}")
    if len(found) > 1:
        listed = ", ".join(f"{uuid} ({name!r})" for uuid, name in list(found.items())[:_LISTED])
        more = " and others" if len(found) > _LISTED else ""
        raise JobFailure(f"{start!r} begins the uuids of {len(found)} jobs, give more of one: {listed}{more}")
    return next(iter(found))


@contextlib.contextmanager
def named_options() -> Iterator[None]:
    """Raise a board's error about its arguments in the words of the options of the running command."""
    try:
        yield
    except (TypeError, ValueError) as error:
        options = [each for each in click.get_current_context().command.params if isinstance(each, click.Option)]
        names = "|".join(str(each.name) for each in options)

        def option(found: re.Match[str]) -> str:
            return f"--{found[1].replace('_', '-')}{' ' if found[2] else ''}"

        raise click.UsageError(re.sub(rf"\b({names})=(?=([^\s,;.)]?))", option, str(error))) from None


def _names(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    if "" in names:
        raise click.UsageError("--job is empty", ctx)
    return names


names_option = click.option(
    "--job",
    "names",
    multiple=True,
    metavar="NAME",
    callback=_names,
    help="Only jobs of this name; may be repeated.",
)


def duration(value: str | float) -> float:
    """Return the seconds of ``90``, ``90s``, ``15m``, ``12h`` or ``7d``: a type of options."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", str(value).strip())
    if not found:
        raise click.BadParameter(f"{value!r} is not a time: write 0.5s, 90s, 15m, 12h or 7d")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]


def positive_duration(value: str | float) -> float:
    if not (seconds := duration(value)):
        raise click.BadParameter("must be more than 0")
    return seconds

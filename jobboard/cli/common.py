"""What the commands share: which board they are about, how they open it, and how errors end them."""

from __future__ import annotations

import contextlib
import difflib
import functools
import os
import re
import secrets
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from jobboard.cli.output import safe

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.job import Job

UUID_LENGTH = 36
FEWEST = 4
"""So many first characters of a uuid are taken for it, at least."""
AMONG = 1000
"""So many jobs of a board, and of its trash, are looked through for one whose uuid begins so."""
_LISTED = 10

F = TypeVar("F", bound=Callable[..., Any])

DONE, FAILED, USAGE, UNREACHABLE = range(4)
DEFAULT_NAME = "jobboard"
_SECRET_LENGTH = 3


@dataclass(frozen=True)
class BoardOptions:
    """Where to work, as the options and the environment have it. ``asked_for``: the board given by an option."""

    asked_for: str | None = None
    name: str | None = None
    json: bool = False

    @property
    def uri(self) -> str:
        uri = self.asked_for or os.environ.get("JOBBOARD_URL")
        if not uri:
            raise click.UsageError(
                "no board: give --board URI or set JOBBOARD_URL, for example to sqlite:///jobboard.db"
            )
        return uri

    @property
    def board_name(self) -> str:
        return self.name or os.environ.get("JOBBOARD_NAME") or DEFAULT_NAME


def worker_name() -> str:
    """Return a name for this process among workers: its host, its pid and a random suffix.

    Containers may have one host name, and in each the worker may be process 1.
    """
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"


_BOARD = "The board's backend.  [env: JOBBOARD_URL]"
_NAME = f"The board's name.  [env: JOBBOARD_NAME; default: {DEFAULT_NAME}]"


def board_options(function: F, board: str | None = _BOARD, name: str | None = _NAME) -> F:
    """Options of every command, taken before or after its name; the function gets them as its first argument.

    :param board: the help of ``--board``; None hides the option of a command that has no use for it.
    :param name: the same of ``--name``.
    """

    @functools.wraps(function)
    def wrapper(*args: Any, board_uri: str | None, board_name: str | None, as_json: bool, **kwargs: Any) -> Any:
        context = click.get_current_context()
        for option, given in (("--board", board_uri), ("--name", board_name)):
            # As from a variable that is not set: to take another board instead may do harm.
            if given == "":
                raise click.UsageError(f"{option} is empty")
        before = context.obj if isinstance(context.obj, BoardOptions) else BoardOptions()
        settings = replace(
            before,
            asked_for=board_uri or before.asked_for,
            name=board_name or before.name,
            json=as_json or before.json,
        )
        return function(settings, *args, **kwargs)

    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines."),
        click.option("--name", "board_name", metavar="NAME", help=name, hidden=name is None),
        click.option("--board", "board_uri", metavar="URI", help=board, hidden=board is None),
    ):
        option(wrapper)
    return wrapper  # type: ignore[return-value]


def example(*lines: str) -> str:
    """The end of a help text: commands to copy."""
    return "\b\nFor example:\n" + "\n".join(f"  {line}" for line in lines)


def fetch_board(uri: str, name: str, **options: Any) -> JobBoard:
    """A board that is not connected yet; what is wrong with its URI is a wrong call."""
    from jobboard.backends import fetch
    from jobboard.exceptions import NotFound

    try:
        board: JobBoard = fetch(name, {"board": uri, **options})
    except (NotFound, TypeError, ValueError) as error:
        raise click.UsageError(without_secrets(str(error), uri)) from None
    return board


@contextlib.contextmanager
def opened(settings: BoardOptions, *, create: bool = False, **options: Any) -> Iterator[JobBoard]:
    """:param create: make what is missing on the backend; not for who only looks, and may have mistyped the URI."""
    if not create:
        options["auto_setup"] = False
    board = fetch_board(settings.uri, settings.board_name, **options)
    try:
        board.connect()
        yield board
    finally:
        board.close()


def find_job(board: JobBoard, uuid: str, *, to_act: bool = False) -> Job:
    """The job with this uuid; of a small board, the only one whose uuid begins so.

    :param to_act: also one whose details can't be read.
    :raises NotFound: there is none.
    :raises JobFailure: several begin so, or there are too many jobs to tell.
    """
    from jobboard.exceptions import JobFailure, NotFound

    try:
        return board._to_act_on(uuid) if to_act else board.get(uuid)
    except NotFound:
        if not re.fullmatch(rf"[0-9a-f-]{{{FEWEST},{UUID_LENGTH - 1}}}", uuid):
            raise
    found: dict[str, Job] = {}
    for jobs in (board.iterjobs(ensure_fresh=True), board.trashed()):
        for number, job in enumerate(jobs):
            if number == AMONG:
                raise JobFailure(f"the board has more than {AMONG} jobs: give the whole uuid instead of {uuid!r}")
            if job.uuid.startswith(uuid):
                found[job.uuid] = job
    if not found:
        raise NotFound(f"there is no job whose uuid begins with {uuid!r}")
    if len(found) > 1:
        listed = ", ".join(list(found)[:_LISTED]) + (" and others" if len(found) > _LISTED else "")
        raise JobFailure(f"{uuid!r} is how the uuids of {len(found)} jobs begin: {listed}")
    return found.popitem()[1]


def wrong_call(error: Exception) -> click.UsageError:
    """What a board says of its arguments, by the names that the options of the running command have for them."""
    options = [each for each in click.get_current_context().command.params if isinstance(each, click.Option)]
    names = "|".join(str(each.name) for each in options)
    text = re.sub(rf"\b({names})=(?=[^\s,;.)])", lambda found: f"{_option(found[1])} ", str(error))
    return click.UsageError(re.sub(rf"\b({names})=", lambda found: _option(found[1]), text))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class Group(click.Group):
    """Commands; a mistyped one is met with the nearest that there is."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


def without_secrets(text: str, word: str | None) -> str:
    """What a driver says about a failure may quote what it was given, and click what it does not understand.

    :param word: of the command line or the environment; perhaps a URI, and perhaps a mistyped one.
    """
    for secret in _secrets(word or ""):
        # To blot out every "a" would make the text unreadable and still give the secret away.
        if len(secret) >= _SECRET_LENGTH:
            text = text.replace(secret, "***")
    return text


def _secrets(word: str) -> list[str]:
    """What may be a password in it, the longest first, as it stands there and as messages may have it."""
    from urllib.parse import unquote

    before, at, _ = word.rpartition("@")
    # Behind any of the colons, as there may be some in a password; a user who has none is no secret.
    ends = (
        [] if not at or re.fullmatch("[^:]*://[^:]*", before) else [each.end() for each in re.finditer(":/*", before)]
    )
    found = [before[end:] for end in ends]
    found += re.findall(r"(?s)://([^/?#@]*:(?!\d+(?:[/?#,]|$)).*)", word)
    for end in ("[^&]*", ".*"):
        found += re.findall(rf"(?s)[?&]\w*(?:password|secret|token)\w*=({end})", word)
    if found:
        # Cut in pieces, one of these could hide another's beginning.
        found.append(word)
    forms = {form for each in found for text in (each, unquote(each)) for form in (text, repr(text)[1:-1])}
    return sorted(forms, key=len, reverse=True)


def one_line(text: str) -> str:
    # Other separators than these are nobody's layout: they are shown.
    return safe(re.sub("[ \t\r\n]+", " ", text).strip(" "))


class Duration(click.ParamType):  # type: ignore[type-arg]  # not before click 8.4
    """Seconds, or a number and its unit, as :func:`age` takes them.

    :param positive: 0 is refused.
    """

    name = "duration"

    def __init__(self, *, positive: bool = False) -> None:
        self._positive = positive

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        seconds = value if isinstance(value, float) else age(value)
        if self._positive and not seconds:
            self.fail("must be more than 0", param, ctx)
        return seconds


def age(value: str) -> float:
    """``90``, ``90s``, ``15m``, ``12h`` or ``7d`` in seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", value.strip())
    if not found:
        raise click.BadParameter(f"{value!r} is not a time: write 90s, 15m, 12h or 7d")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}[found[2]]

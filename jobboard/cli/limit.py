"""``jobboard limit``: limits of claims of a name or group, at once or within a time."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from jobboard.cli.common import BoardOptions, command, duration, group, named_options
from jobboard.cli.summary import limit_text, named, rate_text, refuse_memory
from jobboard.cli.tables import Column, name_column, show
from jobboard.exceptions import NotFound
from jobboard.primitives import Per

if TYPE_CHECKING:
    from jobboard.primitives import Limit

_per = click.Choice(["name", "group"])
_name = click.argument("name")
_LIMIT: list[Column[Limit]] = [
    name_column("name", lambda limit: limit.name),
    Column("per", lambda limit: limit.per, "per", whole=True),
    Column("concurrency", lambda limit: limit.concurrency, "at once", number=True),
    Column("rate", lambda limit: limit.rate, "rate", lambda limit: limit.rate and rate_text(limit.rate), whole=True),
]


@group(
    "jobboard limit set resize --concurrency 4 --per group",
    "jobboard limit set mail --rate 100/60s",
    "jobboard limit list",
)
def limit() -> None:
    """Limit the number of claims at once, or within a time.

    All processes together obey a limit. A job that has to wait is passed over, and the others keep their order.
    """


@command("jobboard limit list", "jobboard limit list --json", group=limit, name="list")
def list_limits(settings: BoardOptions) -> None:
    """List the limits."""
    with settings.opened() as board:
        found, name = board.limits(), named(board)
    nothing = f"There are no limits on {name}."
    show(settings, found, _LIMIT, title=f"limits of {name}", nothing=lambda: nothing, limit=len(found))


def _rate(value: str) -> tuple[int, float]:
    number, slash, seconds = value.partition("/")
    if not (number.isdecimal() and slash and seconds):
        raise click.BadParameter(f"{value!r} is not a rate: write 100/60s for 100 claims within 60 seconds")
    return int(number), duration(seconds)


@command(
    "jobboard limit set resize --concurrency 4 --per group",
    "jobboard limit set mail --rate 100/60s",
    group=limit,
    name="set",
)
@_name
@click.option("--concurrency", type=int, metavar="N", help="The largest number of claims at once.")
@click.option("--rate", type=_rate, metavar="N/DURATION", help="The largest number of claims that begin within a time.")
@click.option(
    "--per", type=_per, default="name", show_default=True, help="Limit all jobs of the name together, or each group."
)
def set_limit(
    settings: BoardOptions, name: str, concurrency: int | None, rate: tuple[int, float] | None, per: Per
) -> None:
    """Limit the claims of jobs called NAME.

    An earlier limit of the same NAME and --per is replaced. Claims that already exist go on. On SQL they count;
    elsewhere those from before the first limit may not.
    """
    if concurrency is None and rate is None:
        raise click.UsageError("give --concurrency or --rate; 'jobboard limit remove' takes a limit away")
    refuse_memory(settings.uri)
    with settings.opened(create=True) as board, named_options():
        made = board.set_limit(name, concurrency=concurrency, rate=rate, per=per)
    settings.tell(limit_text(made), **asdict(made))


@command("jobboard limit remove resize", "jobboard limit remove resize --per group", group=limit)
@_name
@click.option("--per", type=_per, help="Only the limit of this kind.  [default: both]")
def remove(settings: BoardOptions, name: str, per: Per | None) -> None:
    """Remove the limits of NAME."""
    only = f" per {per}" if per else ""
    with settings.opened() as board, named_options():
        try:
            board.remove_limit(name, per)
        except NotFound:
            raise click.ClickException(
                f"there is no limit of {name!r}{only}; 'jobboard limit list' shows them"
            ) from None
    settings.tell(f"{name}: not limited any more{only}.", removed=name, per=per)

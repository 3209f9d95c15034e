"""``jobboard limit``: how many jobs of a name or group are claimed at once, or within a time."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from jobboard.cli.common import DONE, BoardOptions, Group, age, board_options, example, opened, wrong_call
from jobboard.cli.completing import job_names
from jobboard.cli.naming import limit_told, named, rate_told, refuse_memory
from jobboard.cli.output import say, say_json, table
from jobboard.exceptions import NotFound

if TYPE_CHECKING:
    from jobboard.primitives import Limit

_per = click.Choice(["name", "group"])
_name = click.argument("name", shell_complete=job_names)


@click.group(
    cls=Group,
    epilog=example(
        "jobboard limit set resize --concurrency 4 --per group",
        "jobboard limit set mail --rate 100/60s",
        "jobboard limit list",
    ),
)
@board_options
@click.pass_context
def limit(context: click.Context, settings: BoardOptions) -> None:
    """Bound how many jobs are claimed at once, or within a time, by all processes together.

    What has to wait is passed over, and the rest keeps its order.
    """
    context.obj = settings


@limit.command("list", epilog=example("jobboard limit list", "jobboard limit list --json"))
@board_options
def list_limits(settings: BoardOptions) -> None:
    """List the limits that are set."""
    with opened(settings) as board:
        found = board.limits()
        if settings.json:
            for each in found:
                say_json(dataclasses.asdict(each))
        elif not found:
            say(f"There are no limits on {named(board)}.")
        else:
            say(f"limits of {named(board)}")
            table(("name", "per", "at once", "rate"), map(_row, found))


class _RateType(click.ParamType):  # type: ignore[type-arg]  # not before click 8.4
    name = "rate"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, float]:
        number, slash, seconds = value.partition("/")
        if not (slash and number.isdecimal()):
            self.fail(f"{value!r} is not a rate: write 100/60s for 100 claims within 60 seconds", param, ctx)
        return int(number), age(seconds)


@limit.command(
    "set",
    epilog=example("jobboard limit set resize --concurrency 4 --per group", "jobboard limit set mail --rate 100/60s"),
)
@_name
@click.option("--concurrency", type=int, metavar="N", help="How many may be claimed at once.")
@click.option("--rate", type=_RateType(), metavar="N/DURATION", help="How many claims may begin within which time.")
@click.option(
    "--per", type=_per, default="name", show_default=True, help="All jobs of the name, or each group of them."
)
@board_options
def set_limit(
    settings: BoardOptions, name: str, concurrency: int | None, rate: tuple[int, float] | None, per: str
) -> int:
    """Limit the claims of jobs called NAME; an earlier limit of the same NAME and --per is replaced.

    Claims that already exist go on. On SQL they count; elsewhere those from before the first limit may not.
    """
    if concurrency is None and rate is None:
        raise click.UsageError("give --concurrency or --rate; 'jobboard limit remove' takes a limit away")
    refuse_memory(settings.uri)
    with opened(settings, create=True) as board:
        try:
            made = board.set_limit(name, concurrency=concurrency, rate=rate, per=per)
        except (TypeError, ValueError) as error:
            raise wrong_call(error) from None
    if settings.json:
        say_json(dataclasses.asdict(made))
    else:
        say(limit_told(made))
    return DONE


@limit.command(epilog=example("jobboard limit remove resize", "jobboard limit remove resize --per group"))
@_name
@click.option("--per", type=_per, help="Only this one.  [default: both]")
@board_options
def remove(settings: BoardOptions, name: str, per: str | None) -> int:
    """Take the limits of NAME away."""
    with opened(settings) as board:
        try:
            board.remove_limit(name, per)
        except NotFound:
            told = f"there is no limit of {name!r}" + (f" per {per}" if per else "")
            raise click.ClickException(f"{told}; 'jobboard limit list' shows them") from None
        except ValueError as error:
            raise wrong_call(error) from None
    if settings.json:
        say_json({"removed": name, "per": per})
    else:
        say(f"{name}: not limited any more" + (f" per {per}." if per else "."))
    return DONE


def _row(limit: Limit) -> tuple[str, ...]:
    at_once = "" if limit.concurrency is None else str(limit.concurrency)
    rate = "" if limit.rate is None else rate_told(limit.rate)
    return limit.name, limit.per, at_once, rate

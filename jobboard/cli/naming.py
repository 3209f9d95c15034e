"""Which board a command is about; and what else there is, for who has mistyped its name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from jobboard.cli.output import span, warn

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.engine import Rules
    from jobboard.primitives import KeptStats, Limit, Paused


_FEW = 5
"""How many limits are told of in a line."""


def named(board: JobBoard) -> str:
    return f"board {board.name!r}"


def paused_on(paused: Paused) -> str:
    """What is paused on a board; "" if nothing is."""
    told = ["everything"] * paused.everything + [repr(name) for name in paused.names]
    return f"paused: {', '.join(told)}" if told else ""


def limits_on(limits: Iterable[Limit]) -> str:
    """The limits of a board in a few words; "" if there is none."""
    told = [limit_told(limit) for limit in limits]
    if len(told) > _FEW:
        told[_FEW:] = [f"{len(told) - _FEW} more, see 'jobboard limit list'"]
    return f"limits: {'; '.join(told)}" if told else ""


def limit_told(limit: Limit) -> str:
    """One limit in a few words."""
    told = [] if limit.concurrency is None else [f"{limit.concurrency} at once"]
    told += [] if limit.rate is None else [rate_told(limit.rate)]
    return f"{limit.name} {', '.join(told)}{' per group' if limit.per == 'group' else ''}"


def rate_told(rate: tuple[int, float]) -> str:
    return f"{rate[0]} in {span(rate[1])}"


def rules_on(rules: Rules) -> list[str]:
    """A line of what is paused, and one of the limits, if there are such."""
    return [line for line in (paused_on(rules.paused), limits_on(rules.limits)) if line]


def rules_as_dict(rules: Rules) -> dict[str, Any]:
    """As ``--json`` tells of them."""
    return {"paused": asdict(rules.paused), "limits": [asdict(limit) for limit in rules.limits]}


def kept_on(kept: KeptStats) -> list[str]:
    """A line of the schedules and the outcomes, if there are such."""
    told = []
    if kept.schedules:
        late = f", {span(kept.late)} late" if kept.late >= 1 else ""
        due = f", next due {kept.next_due:%Y-%m-%d %H:%M:%S}Z" if kept.next_due is not None else ""
        told.append(f"schedules: {kept.schedules}{late or due}")
    if kept.outcomes:
        told.append(f"outcomes: {kept.outcomes}")
    return [", ".join(told)] if told else []


def kept_as_dict(kept: KeptStats) -> dict[str, Any]:
    """As ``--json`` tells of them."""
    due = None if kept.next_due is None else kept.next_due.isoformat()
    return {"schedules": kept.schedules, "next_due": due, "late": round(kept.late, 3), "outcomes": kept.outcomes}


def named_with_rules(board: JobBoard) -> str:
    """The board, and what is paused or limited on it."""
    return ", ".join([named(board), *rules_on(board.door.rules())])


def others(board: JobBoard) -> str:
    """How what is said about an empty board goes on."""
    from jobboard.primitives import mentioned

    there = mentioned(board.siblings())
    return f"{there} (see --name)" if there else ""


def warn_of_empty(board: JobBoard) -> None:
    """Who works on an empty board waits for jobs, and who examines one finds nothing odd, which is right, unless the
    jobs are on another."""
    there = "" if board.job_count else others(board)
    if there:
        warn(f"{named(board)} is empty{there}")


def refuse_read_only(board: JobBoard) -> None:
    """For commands that would be refused what they do again and again."""
    if board._conf["read_only"]:
        raise click.UsageError(f"{named(board)} is opened for looking only: leave out read_only to work on it")


def refuse_memory(uri: str) -> None:
    """For commands that would leave jobs behind."""
    if uri.partition(":")[0] == "memory":
        raise click.UsageError(f"{uri!r} ends with this command, and all that is on it")

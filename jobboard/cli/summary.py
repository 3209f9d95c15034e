"""A board in a few words: its name, its pauses and limits, and the names of jobs that wait in vain."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from jobboard.cli.output import time_of, warn
from jobboard.obstacles import unhandled_obstacle
from jobboard.primitives import span

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.engine import Rules
    from jobboard.primitives import KeptStats, Limit, Paused

_FEW = 5
"""The number of limits, or of names, that one line shows."""


def named(board: JobBoard) -> str:
    return f"board {board.name!r}"


def pauses(paused: Paused) -> str:
    """Return the pauses of a board; "" if there are none."""
    shown = ["everything"] * paused.everything + [repr(name) for name in paused.names]
    return f"paused: {', '.join(shown)}" if shown else ""


def limit_text(limit: Limit) -> str:
    shown = [] if limit.concurrency is None else [f"{limit.concurrency} at once"]
    shown += [] if limit.rate is None else [rate_text(limit.rate)]
    return f"{limit.name} {', '.join(shown)}{' per group' if limit.per == 'group' else ''}"


def rate_text(rate: tuple[int, float]) -> str:
    return f"{rate[0]} in {span(rate[1])}"


def rules_lines(rules: Rules) -> list[str]:
    """Return a line of pauses and a line of limits, if there are any."""
    limits = _few([limit_text(limit) for limit in rules.limits], "; ", ", see 'jobboard limit list'")
    return [line for line in (pauses(rules.paused), f"limits: {limits}" if limits else "") if line]


def _few(texts: list[str], separator: str, more: str = "") -> str:
    if len(texts) > _FEW:
        texts[_FEW:] = [f"{len(texts) - _FEW} more{more}"]
    return separator.join(texts)


def kept_line(kept: KeptStats) -> str:
    """Return the number of schedules and outcomes; "" if there are none."""
    shown = []
    if kept.schedules:
        late = f", {span(kept.late)} late" if kept.late >= 1 else ""
        due = f", next due {time_of(kept.next_due)}Z" if kept.next_due is not None else ""
        shown.append(f"schedules: {kept.schedules}{late or due}")
    if kept.outcomes:
        shown.append(f"outcomes: {kept.outcomes}")
    return ", ".join(shown)


def remarks(rules: Rules, kept: KeptStats, missing: Sequence[str]) -> list[str]:
    """Return the lines about a board that stand above its figures."""
    return [line for line in (*rules_lines(rules), kept_line(kept), unhandled_line(missing)) if line]


def remarks_dict(rules: Rules, kept: KeptStats, missing: Sequence[str]) -> dict[str, Any]:
    return {
        "paused": asdict(rules.paused),
        "limits": [asdict(limit) for limit in rules.limits],
        **asdict(kept),
        "late": round(kept.late, 3),
        "unhandled": missing,
    }


def unhandled_line(names: Sequence[str]) -> str:
    """Return a warning about names that no conductor handles; "" if there are none."""
    return str(unhandled_obstacle(names)) if names else ""


def other_boards(board: JobBoard) -> str:
    """Return the end of a sentence about an empty board: the other boards of its store."""
    from jobboard.primitives import mentioned

    there = mentioned(board.siblings())
    return f"{there} (see --name)" if there else ""


def is_empty(board: JobBoard) -> bool:
    """Return whether a board has no job, no trash and no worker, as a board of a mistyped name."""
    engine = board.engine
    return not (engine.page(None, 1, None, None) or engine.trash_page(None, 1) or board.entities())


def other_boards_if_empty(board: JobBoard) -> str:
    """Return the end of a sentence that finds nothing on a board: the other boards of its store, if it is empty."""
    return other_boards(board) if is_empty(board) else ""


def warn_of_empty(board: JobBoard) -> None:
    """Warn that a board is empty, and that the jobs are perhaps on another board."""
    if there := other_boards_if_empty(board):
        warn(f"{named(board)} is empty{there}")


def refuse_read_only(board: JobBoard) -> None:
    """Refuse a board that would refuse each act of a worker, or of a move."""
    if board.options["read_only"]:
        raise click.UsageError(f"{board} is opened for looking only: leave out read_only to change anything")


def refuse_memory(uri: str) -> None:
    """Refuse a board that would lose the jobs that a command leaves behind."""
    if uri.partition(":")[0] == "memory":
        raise click.UsageError(
            f"{uri!r} is an in-memory board: its jobs end with this command. Name a stored board, such as "
            "sqlite:///jobs.db"
        )

"""A board in a few words: its name, its pauses and limits, and the names of jobs that wait in vain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from jobboard.cli.output import span, time_of, warn

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.engine import Rules
    from jobboard.job import Entity
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


def rules_dict(rules: Rules) -> dict[str, Any]:
    return {"paused": asdict(rules.paused), "limits": [asdict(limit) for limit in rules.limits]}


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


def kept_dict(kept: KeptStats) -> dict[str, Any]:
    return {**asdict(kept), "late": round(kept.late, 3)}


def unhandled(waiting: Iterable[str], running: Iterable[str], rules: Rules, entities: Iterable[Entity]) -> list[str]:
    """Return the names of waiting jobs that no conductor handles, the most frequent first.

    Paused names are left out, and names with a claimed job: a worker without a conductor runs them.
    """
    handled = set(running)
    for entity in entities:
        if entity.kind == "conductor":
            names = entity.metadata.get("names")
            if names is None or entity.metadata.get("other_names"):
                return []  # any name, or more names than the conductor reports
            handled.update(map(str, names))
    counts = Counter(name for name in waiting if name not in handled and name not in rules.paused)
    return [name for name, _ in counts.most_common()]


def unhandled_line(names: list[str]) -> str:
    """Return a warning about names that no conductor handles; "" if there are none."""
    shown = _few([repr(name) for name in names], ", ")
    return f"no conductor handles {shown}: start one with 'jobboard work MODULE:NAME'" if names else ""


def unhandled_on(board: JobBoard, rules: Rules, entities: Iterable[Entity]) -> list[str]:
    """Return the names of :func:`unhandled` among the first waiting jobs of a board."""
    from jobboard.primitives import PAGE
    from jobboard.states import CLAIMED, UNCLAIMED

    seen = [each for each in board.engine.page(None, PAGE, None, None) if each.record is not None]
    waiting, running = (
        [each.record.name for each in seen if each.record is not None and each.state == state]
        for state in (UNCLAIMED, CLAIMED)
    )
    return unhandled(waiting, running, rules, entities)


def others(board: JobBoard) -> str:
    """Return the end of a sentence about an empty board: the other boards of its store."""
    from jobboard.primitives import mentioned

    there = mentioned(board.siblings())
    return f"{there} (see --name)" if there else ""


def warn_of_empty(board: JobBoard) -> None:
    """Warn a worker, or a doctor, that a board is empty and that its jobs are perhaps on another board."""
    there = "" if board.job_count else others(board)
    if there:
        warn(f"{named(board)} is empty{there}")


def refuse_read_only(board: JobBoard) -> None:
    """Refuse a board that would refuse each act of a worker."""
    if board.options["read_only"]:
        raise click.UsageError(f"{named(board)} is opened for looking only: leave out read_only to work on it")


def refuse_memory(uri: str) -> None:
    """Refuse a board that would lose the jobs that a command leaves behind."""
    if uri.partition(":")[0] == "memory":
        raise click.UsageError(
            f"{uri!r} is an in-memory board: its jobs end with this command. Name a stored board, such as "
            "sqlite:///jobs.db"
        )

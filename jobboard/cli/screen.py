"""What ``jobboard top`` shows of what its sampler knows: as a screen, as a line of text, as JSON."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jobboard.cli.looking import OF_METADATA, of_metadata
from jobboard.cli.output import last_line, safe, span
from jobboard.cli.rates import TOLD, Rate
from jobboard.cli.sampling import RATES, Sampler
from jobboard.job import Entity
from jobboard.states import Record

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

_STATES = ("unclaimed", "scheduled", "claimed", "trashed")
_BY_NAME = ("waiting", "scheduled", "running")
_NAMES = 6
_FIXED = 6 + _NAMES
"""How many lines a screen takes at most beside its lists."""

_AROUND_LIST = 3
"""How many lines a list takes beside its rows."""


def as_json(known: Sampler, trouble: str | None) -> dict[str, Any]:
    """One snapshot. What is not known is null; ``seen`` says how many jobs the lists are made of, ``of``
    how many there are."""
    stats = known.stats
    running = known.running
    return {
        "time": _when(known.now),
        "board": known.board.name,
        "trouble": trouble,
        "counts": None if stats is None else {**asdict(stats), "on_board": stats.on_board},
        "change_per_second": {name: _rounded(known.changes.get(name)) for name in (*_STATES, "on_board")},
        "rate_per_second": {name: _rounded(known.rates.get(name)) for name in RATES.values()},
        "seen": {"waiting": len(known.waiting), "running": len(running)},
        "of": {"waiting": known.waiting_of, "running": known.running_of},
        "by_name": [dict(zip(("name", *_BY_NAME), each, strict=True)) for each in known.by_name],
        "oldest_waiting": _waiting_as_dict(known, known.oldest_waiting),
        "running": [
            {
                "uuid": record.uuid,
                "name": record.name,
                "owner": record.who,
                "seconds": round(_lasted(known, record), 3),
                "attempts": record.attempts,
                "kept": record.keeper is not None,
                "lease": _lease_seconds(known, record),
            }
            for record in running
        ],
        "entities": [
            {**asdict(entity), "consumed_per_second": _rounded(known.conductors.rates_of(entity).get("consumed"))}
            for entity in known.entities
        ],
        "errors": [
            {"uuid": record.uuid, "name": record.name, "state": str(record.state), "error": last_line(error)}
            for record, error in known.errors
        ],
    }


def as_line(known: Sampler, trouble: str | None) -> str:
    """One snapshot for a file or a pipe."""
    at = _when(known.now)
    if trouble is not None:
        return f"{at} away: {safe(trouble)}"
    assert known.stats is not None
    parts = [f"{state} {count}" for state, count in asdict(known.stats).items()]
    parts += [f"{name} {known.rates[name].short:.1f}/s" for name in RATES.values() if name in known.rates]
    oldest, running = known.oldest_waiting, known.running
    if oldest is not None:
        parts.append(f"oldest waiting {span(known.now - oldest.created_on / 1e6)} {safe(oldest.name)}")
    if running:
        first = running[0]
        parts.append(f"oldest running {span(_lasted(known, first))} {safe(first.name)}")
    return f"{at} {', '.join(parts)}"


def render(known: Sampler, trouble: str | None, height: int, *, live: bool = True) -> RenderableType:
    """The screen, to fit into ``height`` lines."""
    from rich.console import Group
    from rich.table import Table

    claims = _claims(known)
    there = [_of_entity(known, entity) for entity in known.entities]
    errors = [
        (f"{span(known.now - record.modified_on / 1e6)} ago", record.name, record.state.lower(), last_line(error))
        for record, error in known.errors
    ]
    wanted = [len(claims), len(there), len(errors)]
    sizes = _shares(max(3, height - _FIXED - _AROUND_LIST * sum(map(bool, wanted))), wanted)
    above = Table.grid(padding=(0, 2))
    above.add_row(_counts(known), _rates(known), _names(known, _NAMES))
    parts: list[RenderableType] = [_head(known, trouble, live), above, _below(known)]
    if claims:
        title = f"running, the longest first{_of(sizes[0], len(claims), known.running_of)}"
        parts.append(_list(title, ("for", "name", "owner", "lease", "attempt", "uuid"), claims[: sizes[0]]))
    if there:
        title = f"who is there{_of(sizes[1], len(there), len(there))}"
        parts.append(_list(title, ("name", *_OF_ENTITY), there[: sizes[1]]))
    if errors:
        parts.append(_list("last errors", ("when", "name", "state", "error"), errors[: sizes[2]]))
    return Group(*parts)


_OF_ENTITY = (*OF_METADATA[:-1], "/min", OF_METADATA[-1])


def _of_entity(known: Sampler, entity: Entity) -> tuple[object, ...]:
    *told, more = of_metadata(entity)
    rate = known.conductors.rates_of(entity).get("consumed")
    return entity.name, *told, None if rate is None else f"{rate.long * 60:.0f}", more


def _shares(room: int, wanted: Sequence[int]) -> list[int]:
    """How many rows each list gets: an even share, and what others leave over."""
    given = [0] * len(wanted)
    while room > 0 and any(have < want for have, want in zip(given, wanted, strict=True)):
        for index, want in enumerate(wanted):
            if given[index] < want and room > 0:
                given[index] += 1
                room -= 1
    return given


def _head(known: Sampler, trouble: str | None, live: bool) -> Text:
    from rich.text import Text

    every = f"every {known.interval:.1f} s, " if live and known.interval else ""
    line = Text(safe(known.board.name), style="bold", no_wrap=True, overflow="ellipsis")
    rest = f"  {_when(known.now)}  {every}{'q quits  ' if live else ''}{safe(_place(known))}"
    line.append(rest, style="not bold dim")
    if trouble is not None:
        line.append(f"\nAWAY, trying again: {safe(' '.join(trouble.split()))}", style="bold red")
    return line


def _place(known: Sampler) -> str:
    return repr(known.board).rpartition(" at ")[2].removesuffix(">").removesuffix(", closed")


def _counts(known: Sampler) -> Table:
    made = _table(("jobs", "", "change/s"), right=(1, 2))
    for state in (*_STATES, "on_board"):
        count = "" if known.stats is None else f"{getattr(known.stats, state):,}"
        rate = known.changes.get(state)
        made.add_row(state.replace("_", " "), count, "" if rate is None else f"{rate.short:+.1f}")
    return made


def _rates(known: Sampler) -> Table:
    made = _table(("rates", "/s", "/min"), right=(1, 2))
    for name in RATES.values() if known.told else TOLD.values():
        rate = known.rates.get(name)
        made.add_row(name, *(("", "") if rate is None else (f"{rate.short:.1f}", f"{rate.long * 60:.0f}")))
    return made


def _names(known: Sampler, most: int) -> Table:
    made = _table(("by name", *_BY_NAME), right=(1, 2, 3))
    names = known.by_name
    for name, *counts in names if len(names) < most else names[: most - 2]:
        made.add_row(_cell(name), *map(str, counts))
    if len(names) >= most:
        rest = names[most - 2 :]
        sums = (sum(counts) for counts in list(zip(*rest, strict=True))[1:])
        made.add_row(f"({len(rest)} more)", *map(str, sums))
    return made


def _below(known: Sampler) -> Text:
    from rich.text import Text

    oldest, stats = known.oldest_waiting, known.stats
    if oldest is not None:
        said = f"{safe(oldest.name)}, posted {span(known.now - oldest.created_on / 1e6)} ago  {oldest.uuid}"
    else:
        said = "none" if stats is not None and not stats.unclaimed else "not seen yet"
    shown = Text(f"\noldest waiting  {said}", no_wrap=True, overflow="ellipsis")
    if not known.told:
        shown.append("\nrates: what conductors tell of themselves, every third of their claim_ttl", style="dim")
    seen, total = len(known.waiting), known.waiting_of
    if seen < total:
        shown.append(f"\nby name, and errors: of the first {seen:,} of {total:,} that wait", style="dim")
    return shown


def _claims(known: Sampler) -> list[tuple[object, ...]]:
    return [
        (
            span(_lasted(known, record)),
            record.name,
            record.who,
            _lease(known, record),
            f"{record.attempts}" if record.max_attempts is None else f"{record.attempts} of {record.max_attempts}",
            record.uuid,
        )
        for record in known.running
    ]


def _lasted(known: Sampler, record: Record) -> float:
    return max(0.0, known.running_at - record.modified_on / 1e6)


def _lease_seconds(known: Sampler, record: Record) -> float | None:
    """None: as long as its process lives."""
    return None if record.lock_until is None else round(record.lock_until / 1e6 - known.running_at, 3)


def _lease(known: Sampler, record: Record) -> str:
    seconds = _lease_seconds(known, record)
    kept = "kept" if record.keeper is not None else "fixed"
    return kept if seconds is None else f"{kept}, {span(seconds)}"


def _of(shown: int, seen: int, total: int) -> str:
    """How much of a list is on the screen, and how much of what there is was seen."""
    if shown < seen:
        return f": {shown} of {seen:,} shown" + (f", the first of {total:,}" if seen < total else "")
    return f": the first {seen:,} of {total:,}" if seen < total else ""


def _list(title: str, columns: Sequence[str], rows: Iterable[Iterable[object]]) -> Table:
    made = _table(columns, title=title)
    for row in rows:
        made.add_row(*(_cell(cell) for cell in row))
    return made


def _cell(value: object) -> Text:
    from rich.text import Text

    return Text(safe("" if value is None else " ".join(str(value).split())))


def _table(columns: Sequence[str], *, right: Sequence[int] = (), title: str | None = None) -> Table:
    from rich.table import Table
    from rich.text import Text

    made = Table(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        title=None if title is None else Text("\n" + title, style="bold cyan"),
        title_justify="left",
        header_style="dim" if title is not None else "bold cyan",
    )
    for index, column in enumerate(columns):
        made.add_column(Text(column), justify="right" if index in right else "left", no_wrap=True, overflow="ellipsis")
    return made


def _when(seconds: float) -> str:
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M:%S}"


def _rounded(rate: Rate | None) -> float | None:
    return None if rate is None else round(rate.short, 3)


def _waiting_as_dict(known: Sampler, record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    seconds = round(known.now - record.created_on / 1e6, 3)
    return {"uuid": record.uuid, "name": record.name, "seconds": seconds}

"""What ``jobboard top`` shows of what its sampler knows: as a screen, as a line of text, as JSON."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from jobboard.cli.fitting import GAP, Column, Fitted, cut
from jobboard.cli.looking import OF_METADATA, of_metadata
from jobboard.cli.naming import kept_as_dict, kept_on, rules_as_dict, rules_on
from jobboard.cli.output import last_line, safe, span
from jobboard.cli.rates import TOLD, Rate
from jobboard.cli.sampling import RATES, Sampler
from jobboard.job import Entity
from jobboard.states import Record

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

_STATES = ("unclaimed", "scheduled", "claimed", "trashed")
_BY_NAME = ("waiting", "scheduled", "running")
_NAMES, _FEWEST_NAMES = 6, 3
"""How many lines the names of jobs take at most, and at least."""

_COUNTED = 6
"""How many lines the counts take."""

_AROUND_LIST = 3
"""How many lines a list takes beside its rows, its blank one included."""

_TIGHT = 26
"""Up to so many lines, a screen has no blank ones between its lists."""


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
        **rules_as_dict(known.rules),
        **kept_as_dict(known.kept),
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
    parts += map(safe, (*rules_on(known.rules), *kept_on(known.kept)))
    if oldest is not None:
        parts.append(f"oldest waiting {span(known.now - oldest.created_on / 1e6)} {safe(oldest.name)}")
    if running:
        first = running[0]
        parts.append(f"oldest running {span(_lasted(known, first))} {safe(first.name)}")
    return f"{at} {', '.join(parts)}"


def render(known: Sampler, trouble: str | None, height: int, width: int, *, live: bool = True) -> RenderableType:
    """The screen, to fit into ``height`` lines of ``width``."""
    from rich.console import Group
    from rich.text import Text

    claims = Fitted(_RUNNING, _claims(known))
    there = Fitted(_THERE, (_of_entity(known, entity) for entity in known.entities))
    errors = Fitted(
        _FAILED,
        (
            (f"{span(known.now - record.modified_on / 1e6)} ago", record.name, record.state.lower(), last_line(error))
            for record, error in known.errors
        ),
    )
    lists = (claims, there, errors)
    wanted = [len(each.rows) for each in lists]
    around = (_AROUND_LIST if height > _TIGHT else _AROUND_LIST - 1) * sum(map(bool, wanted))
    fixed = _head_and_below(known, trouble) + _COUNTED
    above, names = _above(known, height - fixed - around - len(lists), width)
    sizes = _shares(max(3, height - fixed - around - names), wanted)
    titles = (
        f"running, the longest first{_of(sizes[0], wanted[0], known.running_of)}",
        f"who is there{_of(sizes[1], wanted[1], wanted[1])}",
        "last errors",
    )
    parts: list[RenderableType] = [_head(known, trouble, live, width), *above, _below(known, width)]
    for title, each, size in zip(titles, lists, sizes, strict=True):
        if each.rows:
            each.rows = each.rows[:size]
            space = "\n" if height > _TIGHT else ""
            parts += [
                Text(space + title, style="bold cyan", no_wrap=True, overflow="ellipsis"),
                each.table(width, "dim"),
            ]
    return Group(*parts)


_RUNNING = (
    Column("for", "number"),
    Column("name"),
    Column("owner"),
    Column("lease", "number"),
    Column("attempt", "number"),
    Column("uuid", "uuid"),
)
# As of_metadata() has them, and how many it does in a minute before the rest.
_GIVES_WAY = {"more": 1, "runs": 2, "host": 3}
_THERE = (
    Column("name"),
    *(
        Column(title, "number" if title in ("pid", "running", "done", "/min") else "text", _GIVES_WAY.get(title, 0))
        for title in (*OF_METADATA[:-1], "/min", OF_METADATA[-1])
    ),
)
_FAILED = (Column("when", "number"), Column("name"), Column("state", "number"), Column("error"))


def _of_entity(known: Sampler, entity: Entity) -> tuple[object, ...]:
    *told, more = of_metadata(entity)
    rate = known.conductors.rates_of(entity).get("consumed")
    return entity.name, *told, None if rate is None else f"{rate.long * 60:.0f}", more


def _above(known: Sampler, room: int, width: int) -> tuple[list[RenderableType], int]:
    """Counts, rates and names, beside each other as far as there is room; and how many lines those take that stand
    below the counts."""
    from rich.table import Table

    rows: list[list[Fitted]] = []
    for block in (_counts(known), _rates(known), _names(known, _NAMES)):
        if rows and sum(each.natural + 2 * GAP for each in rows[-1]) + block.natural <= width:
            rows[-1].append(block)
        else:
            rows.append([block])
    if len(rows) > 1:
        rows[-1][-1] = _names(known, max(_FEWEST_NAMES, min(_NAMES, room)))
    drawn: list[RenderableType] = []
    for row in rows:
        grid = Table.grid(padding=(0, 2 * GAP, 0, 0))
        grid.add_row(*(block.table(width, "bold cyan", range(1, len(block.columns))) for block in row))
        drawn.append(grid)
    return drawn, sum(1 + max(len(block.rows) for block in row) for row in rows[1:])


def _shares(room: int, wanted: Sequence[int]) -> list[int]:
    """How many rows each list gets: an even share, and what others leave over."""
    given = [0] * len(wanted)
    while room > 0 and any(have < want for have, want in zip(given, wanted, strict=True)):
        for index, want in enumerate(wanted):
            if given[index] < want and room > 0:
                given[index] += 1
                room -= 1
    return given


def _head(known: Sampler, trouble: str | None, live: bool, width: int) -> Text:
    from rich.cells import cell_len
    from rich.text import Text

    every = f"every {known.interval:.1f} s, " if live and known.interval else ""
    when = f"  {_when(known.now)}"
    name = cut(safe(known.board.name), width - len(when))
    rest = f"  {every}{'q quits  ' if live else ''}{safe(_place(known))}"
    line = Text(name, style="bold", no_wrap=True, overflow="ellipsis")
    line.append(when + cut(rest, width - cell_len(name) - len(when)), style="not bold dim")
    if trouble is not None:
        line.append(f"\nAWAY, trying again: {safe(' '.join(trouble.split()))}", style="bold red")
    return line


def _head_and_below(known: Sampler, trouble: str | None) -> int:
    """How many lines :func:`_head` and :func:`_below` take."""
    more = (trouble is not None, not known.told, len(known.waiting) < known.waiting_of)
    return 3 + sum(more) + len(rules_on(known.rules)) + len(kept_on(known.kept))


def _place(known: Sampler) -> str:
    return repr(known.board).rpartition(" at ")[2].removesuffix(">").removesuffix(", closed")


def _counts(known: Sampler) -> Fitted:
    rows = []
    for state in (*_STATES, "on_board"):
        count = "" if known.stats is None else f"{getattr(known.stats, state):,}"
        rate = known.changes.get(state)
        rows.append((state.replace("_", " "), count, "" if rate is None else f"{rate.short:+.1f}"))
    return Fitted((Column("jobs"), Column("", "number"), Column("change/s", "number")), rows)


def _rates(known: Sampler) -> Fitted:
    rows = []
    for name in RATES.values() if known.told else TOLD.values():
        rate = known.rates.get(name)
        rows.append((name, *(("", "") if rate is None else (f"{rate.short:.1f}", f"{rate.long * 60:.0f}"))))
    return Fitted((Column("rates"), Column("/s", "number"), Column("/min", "number")), rows)


def _names(known: Sampler, most: int) -> Fitted:
    names = known.by_name
    rows: list[Iterable[object]] = list(names if len(names) < most else names[: most - 2])
    if len(names) >= most:
        rest = names[most - 2 :]
        rows.append((f"({len(rest)} more)", *(sum(counts) for counts in list(zip(*rest, strict=True))[1:])))
    return Fitted((Column("by name"), *(Column(title, "number") for title in _BY_NAME)), rows)


def _below(known: Sampler, width: int) -> Text:
    from rich.text import Text

    oldest, stats = known.oldest_waiting, known.stats
    said = "oldest waiting  "
    if oldest is not None:
        since = f", posted {span(known.now - oldest.created_on / 1e6)} ago"
        said += cut(safe(oldest.name), width - len(said) - len(since)) + since
        said += f"  {oldest.uuid}" if width >= len(said) + 2 + len(oldest.uuid) else ""
    else:
        said += "none" if stats is not None and not stats.unclaimed else "not seen yet"
    shown = Text(f"\n{said}", no_wrap=True, overflow="ellipsis")
    for line in rules_on(known.rules):
        shown.append(f"\n{safe(line)}", style="bold yellow")
    for line in kept_on(known.kept):
        shown.append(f"\n{line}", style="bold yellow" if known.kept.late >= 1 else "dim")
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


def _when(seconds: float) -> str:
    return f"{datetime.datetime.fromtimestamp(seconds, datetime.UTC):%Y-%m-%d %H:%M:%S}"


def _rounded(rate: Rate | None) -> float | None:
    return None if rate is None else round(rate.short, 3)


def _waiting_as_dict(known: Sampler, record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    seconds = round(known.now - record.created_on / 1e6, 3)
    return {"uuid": record.uuid, "name": record.name, "seconds": seconds}

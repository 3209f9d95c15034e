"""Tables: one list of columns for each kind of row makes its table, its lines of text and its JSON.

A terminal gets lines that fit its width, with uuids cut to their first characters. In a pipe or a file nothing is cut,
unless ``COLUMNS`` says how wide a line is.
"""

from __future__ import annotations

import io
import itertools
import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from jobboard.cli.common import SHORTEST, BoardOptions
from jobboard.cli.output import one_line, safe, say, say_json

if TYPE_CHECKING:
    from rich.console import JustifyMethod, RenderableType
    from rich.table import Table
    from rich.text import Text

T = TypeVar("T")

SHOWN = 100
"""The number of rows that a pipe gets of a long list, without ``--limit``."""

CHUNK = 500
"""The number of rows that a pager gets at once."""

_AROUND = 5
"""The lines of a terminal that go to the title of a table, and to the shell's prompt."""

FEWEST = 8
"""The number of characters that a text keeps in a table, if it is so long. Columns at the right go first."""

_GAP = 2
"""The blanks between two columns."""

_UNLIMITED = 100_000
"""The width of a line that is not limited: more than any row has."""

limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"The largest number of rows.  [default: all on a terminal, through $PAGER, and with --json; else {SHOWN}]",
)


@dataclass(frozen=True)
class Column(Generic[T]):
    """A field of a kind of row.

    value: returns the value in JSON, of which a table shows the text. key: the field's name in JSON; None: it is not
    there. title: the column's title; None: tables don't have the column. text: returns the text for tables instead.
    whole: the text is never cut, but for ``brief``, the number of characters that a terminal shows. number: the text is
    whole, and flush right. least: the width of the narrowest terminal that shows the column. size: the width in a table
    without end, where columns without a size share the rest by ``share``.
    """

    key: str | None
    value: Callable[[T], Any]
    title: str | None = None
    text: Callable[[T], object] | None = None
    whole: bool = False
    number: bool = False
    brief: int | None = None
    least: int = 0
    size: int | None = None
    share: int = 1

    @property
    def is_whole(self) -> bool:
        return self.whole or self.number

    @property
    def justify(self) -> JustifyMethod:
        return "right" if self.number else "left"

    def cell(self, row: T, width: int | None) -> str:
        found = (self.text or self.value)(row)
        text = "" if found is None else one_line(found)
        return text if self.brief is None or width is None else text[: self.brief]


def uuid_column(value: Callable[[T], str]) -> Column[T]:
    return Column("uuid", value, "uuid", whole=True, brief=SHORTEST, size=SHORTEST)


def as_dict(columns: Iterable[Column[T]], row: T) -> dict[str, Any]:
    """Return a row as its JSON object."""
    return {column.key: column.value(row) for column in columns if column.key is not None}


def line_width() -> int | None:
    """Return the number of characters of a line on standard output; None: no limit."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None


def made(columns: Iterable[Column[T]], rows: Iterable[T], width: int | None, style: str = "") -> Table:
    """Return a table of one line for each row. Where the width is limited, empty columns are left out, and as many at
    the right as take the others' texts below :data:`FEWEST` characters.

    :param style: the style of the titles.
    """
    from rich.cells import cell_len
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style=style)
    shown = [column for column in columns if column.title is not None and (width is None or width >= column.least)]
    cells = [[column.cell(row, width) for column in shown] for row in rows]
    kept = [at for at in range(len(shown)) if width is None or any(row[at] for row in cells) or not cells]
    sizes = [max(map(cell_len, [str(column.title), *(row[at] for row in cells)])) for at, column in enumerate(shown)]
    needed = [size if column.is_whole else min(size, FEWEST) for size, column in zip(sizes, shown, strict=True)]
    while width is not None and len(kept) > 1 and sum(needed[at] + _GAP for at in kept) - _GAP > width:
        kept.pop()
    for at in kept:
        # Only columns that may wrap are made narrower. Their cells do not wrap: they are cut.
        table.add_column(_cell(shown[at].title), no_wrap=shown[at].is_whole, justify=shown[at].justify)
    for row in cells:
        table.add_row(*(_cell(row[at]) for at in kept))
    return table


def stream_line(columns: Iterable[Column[T]], row: T | None, width: int | None) -> str:
    """Return one line of a table without end, in which no column's width depends on the rows; None: the titles."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), show_header=False, expand=width is not None)
    shown = [column for column in columns if column.title is not None and (width is None or width >= column.least)]
    for column in shown:
        share = None if width is None or column.is_whole else column.share
        size = None if width is None and column.brief is not None else column.size
        table.add_column(width=size, ratio=share, no_wrap=True, justify=column.justify)
    table.add_row(*(_cell(column.title if row is None else column.cell(row, width)) for column in shown))
    return drawn(table, width=width)


def _cell(text: str | None) -> Text:
    from rich.text import Text

    return Text(text or "", no_wrap=True, overflow="ellipsis")


def drawn(*parts: RenderableType, width: int | None) -> str:
    """Return text for standard output, without colours and without blanks at the ends of lines."""
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width or _UNLIMITED, markup=False, emoji=False, highlight=False, color_system=None).print(
        *parts, no_wrap=True
    )
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def table(columns: Sequence[Column[T]], rows: Iterable[T]) -> None:
    """Print a table."""
    width = line_width()
    click.echo(drawn(made(columns, rows, width), width=width), nl=False)


def say_lines(*lines: str) -> None:
    """Print lines, folded where a terminal has no room for them. Empty ones are left out."""
    width = line_width() or _UNLIMITED
    say(
        "\n".join(
            textwrap.fill(safe(line), width, break_on_hyphens=False, subsequent_indent="  ") for line in lines if line
        )
    )


def show(
    settings: BoardOptions,
    rows: Iterable[T],
    columns: Sequence[Column[T]],
    *,
    title: str,
    nothing: Callable[[], str],
    limit: int | None = None,
    every: bool = False,
    go_on: Callable[[T], str] = lambda last: "see --limit",
) -> None:
    """Print a list: as JSON, in a pager on a terminal that has no room for it, or its first rows elsewhere.

    :param title: stands above the table; ``nothing`` stands in place of an empty one.
    :param limit: the largest number of rows; None: all on a terminal and as JSON, else :data:`SHOWN`.
    :param every: all rows are printed everywhere, without a pager.
    :param go_on: says how to see the rows behind the last one.
    """
    left = iter(rows)
    if settings.json:
        for row in itertools.islice(left, limit):
            say_json(as_dict(columns, row))
        return
    paged = limit is None and not every and sys.stdout.isatty()
    room = None if every else max(1, shutil.get_terminal_size().lines - _AROUND) if paged else limit or SHOWN
    shown = list(itertools.islice(left, room))
    if not shown:
        say(nothing())
        return
    more = next(left, None)
    if more is not None and paged:
        chunks = _chunks(columns, itertools.chain(shown, [more], left))
        click.echo_via_pager(itertools.chain([f"{safe(title, lines=True)}\n"], chunks))
        return
    say_lines(*title.splitlines())
    table(columns, shown)
    if more is not None:
        say_lines(f"There are more than {len(shown)}; {go_on(shown[-1])}.")


def _chunks(columns: Sequence[Column[T]], rows: Iterator[T]) -> Iterator[str]:
    """Yield tables as the pager reads them, so that only some of many rows are in memory."""
    width = line_width()
    while chunk := list(itertools.islice(rows, CHUNK)):
        yield drawn(made(columns, chunk, width), width=width)

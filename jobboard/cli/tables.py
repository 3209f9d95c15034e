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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import click

from jobboard.cli.common import SHORTEST, BoardOptions
from jobboard.cli.output import hinting, one_line, safe, say, say_json

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.measure import Measurement
    from rich.table import Table

T = TypeVar("T")

SHOWN = 100
"""The number of rows of a long list without ``--limit``."""

NARROW, WIDE = 72, 90
"""The least widths of terminals that have room for a few more columns, and for all."""

LEAST_NAME = 16
"""The width to which a long name is not cut while there is room."""

_UNLIMITED = 100_000
"""The width of a line that is not limited: more than any row has."""

limit_option = click.option(
    "--limit", type=click.IntRange(min=1), help=f"The largest number of rows.  [default: {SHOWN}; all with --json]"
)


@dataclass(frozen=True)
class Column(Generic[T]):
    """A field of a kind of row.

    value: returns the value in JSON, of which a table shows the text. key: the field's name in JSON; None: it is not
    there. title: the column's title; None: tables don't have the column. text: returns the text for tables instead.
    whole: the text is never cut. number: nor is it here, and it is flush right. size: the number of characters that a
    terminal shows. least: the width of the narrowest terminal that shows the column. cut: makes a text fit a width; the
    default cuts its end off.
    """

    key: str | None
    value: Callable[[T], Any]
    title: str | None = None
    text: Callable[[T], object] | None = None
    whole: bool = False
    number: bool = False
    size: int | None = None
    least: int = 0
    cut: Callable[[str, int], str] | None = None

    def cell(self, row: T) -> str:
        found = (self.text or self.value)(row)
        return "" if found is None else one_line(found)


def name_column(key: str, value: Callable[[T], str | None], title: str | None = None, **more: Any) -> Column[T]:
    """Return a column of names, of jobs or workers. Their ends tell them apart, so they are cut in the middle."""
    return Column(key, value, title or key, cut=cut_middle, **more)


def cut_middle(text: str, width: int) -> str:
    """Return a text of at most ``width`` cells: its first third and its end."""
    from rich.cells import set_cell_size

    first = (width - 1) // 3
    last = set_cell_size(text[::-1], width - 1 - first)[::-1]
    return f"{set_cell_size(text, first).rstrip()}…{last.lstrip()}"


def cut_end(text: str, width: int) -> str:
    """Return the first cells of a text, at most ``width``."""
    from rich.cells import set_cell_size

    return f"{set_cell_size(text, max(0, width - 1)).rstrip()}…"


def uuid_column(value: Callable[[T], str]) -> Column[T]:
    return Column("uuid", value, "uuid", size=SHORTEST)


def as_dict(columns: Iterable[Column[T]], row: T) -> dict[str, Any]:
    """Return a row as its JSON object."""
    return {column.key: column.value(row) for column in columns if column.key is not None}


def line_width() -> int | None:
    """Return the number of characters of a line on standard output; None: no limit."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return shutil.get_terminal_size().columns
    return None


def table_of(
    columns: Iterable[Column[T]], rows: Iterable[T], width: int | None, *, stream: bool = False, titles: bool = True
) -> Table:
    """Return a table of one line for each row. Where the width is limited, empty columns are left out.

    :param stream: the rows are a piece of a table without end: no width depends on them.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=titles)
    table.expand = stream and width is not None
    shown = [column for column in columns if column.title is not None and (width is None or width >= column.least)]
    cells = [[column.cell(row) for column in shown] for row in rows]
    kept = [at for at in range(len(shown)) if stream or width is None or not cells or any(row[at] for row in cells)]
    for column in (shown[at] for at in kept):
        # Only columns that may wrap are made narrower. Their cells do not wrap: they are cut.
        table.add_column(
            Text(column.title or "", overflow="ellipsis", no_wrap=True),
            no_wrap=column.whole or column.number,
            justify="right" if column.number else "left",
            width=column.size if width is not None else None,
            # A long name leaves room to the others.
            max_width=max(LEAST_NAME, width // 4)
            if width is not None and not stream and column.cut is cut_middle
            else None,
            ratio=1 if table.expand and column.size is None else None,
        )
    for row in cells:
        table.add_row(*(_Cell(row[at], shown[at]) for at in kept))
    return table


class _Cell:
    """The text of a cell, which is cut to the width that the table has for it."""

    def __init__(self, text: str, column: Column[Any]) -> None:
        self._text, self._cut, self._is_cropped = text, column.cut or cut_end, column.size is not None

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        from rich.cells import cell_len
        from rich.measure import Measurement

        length = cell_len(self._text)
        return Measurement(length, length)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        from rich.cells import cell_len
        from rich.text import Text

        width = options.max_width
        is_cut = cell_len(self._text) > width and not self._is_cropped
        yield Text(self._cut(self._text, width) if is_cut else self._text, overflow="crop", no_wrap=True)


def drawn(*parts: RenderableType, width: int | None) -> str:
    """Return text for standard output, without colours and without blanks at the ends of lines."""
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width or _UNLIMITED, markup=False, emoji=False, highlight=False, color_system=None).print(
        *parts
    )
    return "".join(line.rstrip() + "\n" for line in out.getvalue().splitlines())


def table(columns: Sequence[Column[T]], rows: Iterable[T], *, stream: bool = False, titles: bool = True) -> None:
    """Print a table, or the next rows of a table without end: see :func:`table_of`."""
    width = line_width()
    click.echo(drawn(table_of(columns, rows, width, stream=stream, titles=titles), width=width), nl=False)


def say_lines(*lines: str, indent: int = 0) -> None:
    """Print lines, folded where a terminal has no room for them. Empty ones are left out."""
    from rich.padding import Padding

    for line in filter(None, lines):
        click.echo(drawn(Padding(hinting(safe(line)), (0, 0, 0, indent), expand=False), width=line_width()), nl=False)


def show(
    settings: BoardOptions,
    rows: Iterable[T],
    columns: Sequence[Column[T]],
    *,
    title: str,
    nothing: Callable[[], str],
    limit: int | None,
    go_on: Callable[[T], str] = lambda last: "see --limit",
) -> None:
    """Print a list as JSON or as a table.

    :param title: stands above the table; ``nothing`` stands in place of an empty one.
    :param limit: the largest number of rows; None: all as JSON, else :data:`SHOWN`.
    :param go_on: says how to see the rows behind the last one.
    """
    left = iter(rows)
    if settings.json:
        for row in itertools.islice(left, limit):
            say_json(as_dict(columns, row))
        return
    shown = list(itertools.islice(left, limit or SHOWN))
    if not shown:
        say(nothing())
        return
    say_lines(*title.splitlines())
    table(columns, shown)
    if next(left, None) is not None:
        say_lines(f"There are more than {len(shown)}; {go_on(shown[-1])}.")

"""Tables that fit into a terminal: a number is shown whole or not at all, texts are cut, and uuids give way first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from jobboard.cli.common import one_line

if TYPE_CHECKING:
    from rich.table import Table

GAP = 2
"""Blanks between two columns."""

SHORT_UUID = 8
"""How much of a uuid is shown where it does not fit: what lies before its first dash."""

_COMFORT, _LEAST = 12, 8
"""What the texts of a row get before a uuid is left out, and before another column is."""


class Column(NamedTuple):
    """``kind``: number, text or uuid. ``gives_way``: left out where there is no room, those with the lowest first."""

    title: str
    kind: str = "text"
    gives_way: int = 0


class Fitted:
    """Rows of cells under columns. Control characters in them are shown as escapes."""

    def __init__(self, columns: Sequence[Column], rows: Iterable[Iterable[object]]) -> None:
        from rich.cells import cell_len

        self.columns = columns
        self.rows = [[_shown(cell) for cell in row] for row in rows]
        table = [[column.title for column in columns], *self.rows]
        self._natural = [max(map(cell_len, cells)) for cells in zip(*table, strict=True)]

    @property
    def natural(self) -> int:
        """How wide it is with nothing cut."""
        return _total(self._natural)

    def widths(self, width: int) -> list[int]:
        """How wide each column is to be: 0 where it is left out."""
        if self.natural <= width:
            return self._natural
        uuids = [index for index, column in enumerate(self.columns) if column.kind == "uuid"]
        others = sorted((column.gives_way, at) for at, column in enumerate(self.columns) if column.gives_way)
        plans: list[tuple[int, list[int]]] = [(_COMFORT, [])] if uuids else []
        plans += [(_LEAST, uuids + [at for _, at in others[:count]]) for count in range(len(others) + 1)]
        plans += [(1, plans[-1][1])]
        found: list[int] = []
        for least, left_out in plans:
            found = [
                0 if at in left_out else min(SHORT_UUID, w) if at in uuids else w for at, w in enumerate(self._natural)
            ]
            texts = [at for at, column in enumerate(self.columns) if column.kind == "text" and found[at] > least]
            while texts and _total(found) > width:
                widest = max(texts, key=lambda at: found[at])
                found[widest] -= 1
                if found[widest] <= least:
                    texts.remove(widest)
            if _total(found) <= width:
                break
        return found

    def table(self, width: int, heading: str, right: Sequence[int] = ()) -> Table:
        """:param heading: the style of the columns' titles.
        :param right: which columns are flush right."""
        from rich.table import Table
        from rich.text import Text

        widths = self.widths(width)
        made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style=heading)
        shown = [at for at, wide in enumerate(widths) if wide]
        for at in shown:
            title, kind, _ = self.columns[at]
            made.add_column(
                Text(title),
                width=widths[at],
                justify="right" if at in right else "left",
                no_wrap=True,
                overflow="crop" if kind == "uuid" else "ellipsis",
            )
        for row in self.rows:
            made.add_row(*(Text(row[at]) for at in shown))
        return made


def cut(text: str, width: int) -> str:
    """As much of a text as fits."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…" if width > 0 else ""


def _total(widths: Iterable[int]) -> int:
    shown = [width for width in widths if width]
    return sum(shown) + GAP * (len(shown) - 1)


def _shown(value: object) -> str:
    return "" if value is None else one_line(str(value))

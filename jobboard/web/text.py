"""Texts, times and numbers as HTML.

Names, errors and details of jobs are anybody's text. No character of theirs acts on a browser or misleads a reader.
"""

from __future__ import annotations

import datetime
import json
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

from markupsafe import Markup, escape

LONGEST = 64 * 1024
"""The number of characters of one value that a page shows."""

_UNUSUAL = re.compile(r"[^ -~]")

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")

_UNITS = ((1, "s", 90), (60, "min", 90), (3600, "h", 36), (86400, "days", float("inf")))
"""The size of a unit in seconds, its name, and the number of units from which the next unit is used."""


def inert(text: object, lines: bool = False) -> Markup:
    """Return text as HTML with a direction of its own. Control characters are written out, and colour codes dropped.

    :param lines: keep line ends and tabs.
    """
    kept, whole = "\n\t" if lines else "", _COLOURS.sub("", str(text))
    cut = len(whole) - LONGEST
    shown = Markup(_UNUSUAL.sub(lambda found: _shown(found[0], kept), str(escape(whole[:LONGEST]))))
    more = Markup(' <span class="ctl">{} more characters</span>').format(number(cut)) if cut > 0 else ""
    return Markup("<bdi>{}{}</bdi>").format(shown, more)


def _shown(each: str, kept: str) -> str:
    if each.isprintable() or each in kept or unicodedata.category(each) == "Zs":
        return each
    return " " if each in "\n\t\r" else f'<span class="ctl">U+{ord(each):04X}</span>'


def plain(text: object) -> str:
    """Return text for a place that holds no HTML, such as a title."""
    return "".join(each if each.isprintable() or unicodedata.category(each) == "Zs" else "\ufffd" for each in str(text))


def listed(texts: Iterable[object], most: int = 5) -> Markup:
    """Return the first texts with commas, and the number of the others."""
    every = list(texts)
    shown = Markup(", ").join(inert(each) for each in every[:most])
    return shown if len(every) <= most else Markup("{} and {} more").format(shown, number(len(every) - most))


def number(value: float, cap: float | None = None) -> str:
    """Return a number with thin spaces.

    :param cap: a count of so much means so many or more.
    """
    return f"{value:,.0f}".replace(",", "\u202f") + ("+" if cap is not None and value >= cap else "")


def plural(count: int, what: str, cap: float | None = None) -> str:
    """Return a number and its noun."""
    return f"{number(count, cap)} {what}{'' if count == 1 else 's'}"


def words(seconds: float) -> str:
    """Return a duration in one unit: ``4 min``, ``2 h``, ``3 days``."""
    seconds = max(0.0, seconds)
    size, unit, _ = next(each for each in _UNITS if seconds < each[0] * each[2])
    return f"{seconds / size:.0f}\u00a0{unit}"


def took(seconds: float) -> str:
    """Return the duration of work."""
    return f"{seconds:.2f}\u00a0s" if seconds < 10 else words(seconds)


def ago(when: datetime.datetime | None, now: float, ahead: bool = False, bare: bool = False) -> Markup:
    """Return the time since an instant in words, with the instant itself for machines and for a pointer.

    :param now: the server's time in seconds.
    :param ahead: the time until the instant.
    :param bare: leave out "ago", as a column does whose title says so.
    """
    if when is None:
        return Markup("")
    seconds = when.timestamp() - now if ahead else now - when.timestamp()
    text = f"in {words(seconds)}" if ahead else words(seconds) + ("" if bare else " ago")
    if seconds <= 0:
        text = "due now" if ahead else "now"
    return Markup('<time datetime="{:%Y-%m-%dT%H:%M:%S}Z" title="{:%Y-%m-%d %H:%M:%S} UTC">{}</time>').format(
        when, when, text
    )


def pretty(value: Any) -> str:
    """Return a value as indented JSON."""
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)

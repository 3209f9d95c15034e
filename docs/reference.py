"""The page of options, from the code: ``python docs/reference.py > docs/reference/options.rst``.

A test compares the two, so that the page in a clone says what the code says.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any

from jobboard.conf import COMMON, Option

BACKENDS = {"SQL": "sqlite", "Redis": "redis", "ZooKeeper": "zookeeper", "etcd": "etcd", "the memory board": "memory"}
"""A title for each store, and an entry point that loads it."""

TYPES = {
    "text": "text",
    "flag": "true or false",
    "mapping": "dict",
    "table_name": "text",
    "_cert_reqs": "none or optional or required",
    "_clock": "callable",
    "_namespace": "text or bytes",
    "_hosts": "hosts, as a text or a list",
    "_chroot": "path",
    "path": "path",
    "_handler": "text, or a handler",
    "_retry": "dict",
    "_pairs": "list of pairs",
    "_acls": "list",
    "Seal": "object",
}
"""What a function that reads an option takes."""

BEGIN = """Options
=======

Every option of a board, by its backend. Options follow the ``?`` of a URI, or are keys of a dict.

.. code-block:: python

    import jobboard

    board = jobboard.fetch("pictures", "sqlite:///jobs.db?claim_ttl=60&keep_done=3600")
    same = jobboard.fetch("pictures", {"board": "sqlite:///jobs.db", "claim_ttl": 60, "keep_done": 3600})

An unknown option raises a ``ValueError`` that names the nearest known option. Values in a URI are percent-encoded. A
flag is ``true`` or ``false``; a list has commas.
"""


def options() -> str:
    return "\n".join([BEGIN, *_options()]).rstrip() + "\n"


def store_classes() -> dict[str, Any]:
    points = {point.name: point for point in metadata.entry_points(group="jobboard.backends")}
    return {title: points[name].load() for title, name in BACKENDS.items()}


def _options() -> Iterable[str]:
    columns = ("option", "type", "default", "what it is")
    yield _title("Options of every board", "-")
    yield _table(columns, map(_option, COMMON.items()))
    for title, store in store_classes().items():
        yield _title(f"Options of {title}", "-")
        yield _table(columns, map(_option, store.options.items()))
    yield _title("Arguments that a backend adds", "-")
    yield _table(("argument", "backend", "verbs"), _added())


def _added() -> Iterable[tuple[str, ...]]:
    for title, store in store_classes().items():
        for name in dict.fromkeys(name for names in store.extras.values() for name in sorted(names)):
            verbs = [verb for verb, names in store.extras.items() if name in names]
            yield f"``{name}``", title, ", ".join(f":meth:`~jobboard.board.JobBoard.{verb}`" for verb in verbs)


def _option(item: tuple[str, Option]) -> tuple[str, ...]:
    name, option = item
    nothing = option.default is None or option.default in ("", ())
    return f"``{name}``", _type(option.parse), "" if nothing else f"``{_as_written(option.default)}``", option.help


def _type(parse: Callable[[Any], Any]) -> str:
    kind = parse.__qualname__.partition(".")[0]
    if kind in TYPES:
        return TYPES[kind]
    given = inspect.getclosurevars(parse).nonlocals
    if kind in ("integer", "seconds"):
        bounds = f"{given['low']:,} to {given['high']:,}".replace(".0", "")
        return f"int, {bounds}" if kind == "integer" else f"seconds, {bounds}"
    assert kind == "choice", kind
    return " or ".join(given["names"])


def _as_written(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode()
    if callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{value:g}" if isinstance(value, float) else value


def _title(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", "   :class: options", ""]
    for row in [columns, *rows]:
        lines += [f"   {mark} - {cell}".rstrip() for mark, cell in zip("*" + " " * 9, row)]  # noqa: B905
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(options(), end="")

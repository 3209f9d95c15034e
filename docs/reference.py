"""Writes docs/reference.rst from the code: ``python docs/reference.py > docs/reference.rst``.

A test compares the two, so that what can be read in a clone is what the code says.
"""

from __future__ import annotations

import enum
import inspect
import re
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any

import jobboard
from jobboard import board
from jobboard.conf import COMMON, Option
from jobboard.job import INTERNAL, Act, Claim, Entity, Job, Posting
from jobboard.outcomes import Reject, Retry, RetryPolicy

BACKENDS = {"SQL": "sqlite", "Redis": "redis", "ZooKeeper": "zookeeper", "etcd": "etcd", "Memory": "memory"}
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
}
"""What a function that reads an option takes."""

BEGIN = """Reference
=========

Every option, verb and attribute, in one place. This page is written by ``docs/reference.py`` from the code; :doc:`api`
has the whole documentation of each, once the documents are built.
"""

_ROLE = re.compile(r":\w+:`~?([^`<]*?)(?:\s*<[^`]*>)?`")


def reference() -> str:
    parts = [BEGIN, *_options(), *_verbs(), *_attributes()]
    return "\n".join(parts).rstrip() + "\n"


def store_classes() -> dict[str, Any]:
    points = {point.name: point for point in metadata.entry_points(group="jobboard.backends")}
    return {title: points[name].load() for title, name in BACKENDS.items()}


def _options() -> Iterable[str]:
    yield _title("Options", "-")
    yield "In a URI they follow a ``?``, in a dict they are its keys: see :doc:`configuration`.\n"
    columns = ("option", "type", "default", "what it is")
    yield _title("Of every board", "^")
    yield _table(columns, map(_option, COMMON.items()))
    for title, store in store_classes().items():
        yield _title(title, "^")
        yield _table(columns, map(_option, store.options.items()))


def _option(item: tuple[str, Option]) -> tuple[str, ...]:
    name, option = item
    nothing = option.default is None or option.default in ("", ())
    return f"``{name}``", _type(option.parse), "" if nothing else f"``{_as_written(option.default)}``", option.help


def _type(parse: Callable[[Any], Any]) -> str:
    kind = parse.__qualname__.partition(".")[0]
    given = inspect.getclosurevars(parse).nonlocals
    if kind in ("integer", "seconds"):
        bounds = f"{given['low']:,} to {given['high']:,}".replace(".0", "")
        return f"int, {bounds}" if kind == "integer" else f"seconds, {bounds}"
    return " or ".join(given["names"]) if kind == "choice" else TYPES[kind]


def _as_written(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return value.decode()
    if callable(value):
        return f"{value.__module__}.{value.__qualname__}"
    return f"{value:g}" if isinstance(value, float) else value


def _verbs() -> Iterable[str]:
    yield _title("Verbs", "-")
    yield _title("The board", "^")
    yield _members(jobboard.JobBoard)
    for title, store in store_classes().items():
        added = [
            f"``{verb}({', '.join(f'{name}=' for name in sorted(names))})``" for verb, names in store.extras.items()
        ]
        if added:
            yield f"The {title} board adds {', '.join(added)}.\n"
    yield _title("A claim", "^")
    yield _members(Claim)
    yield _title("A conductor", "^")
    yield _members(jobboard.Conductor)
    yield _title("Functions", "^")
    functions = {name: getattr(jobboard, name) for name in ("fetch", "backend", "cancelled")}
    yield _table(("function", "what it does"), ((_call(n, f), _first(f)) for n, f in functions.items()))


def _attributes() -> Iterable[str]:
    yield _title("A job", "-")
    yield _members(Job)
    yield _title("What verbs take, and what work raises", "-")
    classes = (Posting, Act, Entity, Retry, Reject, RetryPolicy)
    yield _table(("class", "what it is"), ((_call(cls.__name__, cls), _first(cls)) for cls in classes))


_SAID = {
    "JobBoard.name": "its name",
    "Conductor.name": "its name, as which it claims",
    "Conductor.board": "the board that it works on",
    "Job.board": "the board that it is on",
    "Job.claim": "the claim that was made through this object; it stays when that has ended. None before",
    "Job.context": "what programs around the work tell each other, a dict of str",
    "Job.seen_state": "the state that the last read has brought along; ``state`` asks the server",
    "Job.uuid": "what it is known by, in its store and to people",
    "Job.name": "the name that handlers and ``names=`` go by",
    "Job.details": "what the work needs, a dict; as posted",
    "Job.key": "as posted: at most one live job has it",
    "Job.created": "whether the post that this answers has made it; False where another job had its key",
    "Job.replaced": "whether that job has got what this post brings, by ``on_key='replace'``",
    "Job.max_attempts": "as posted: with which failure or lapse it goes to the trash; None for never",
    "Job.created_on": "when it was posted, an aware datetime on the server's clock",
    "Job.last_modified": "when it last changed, likewise",
    "Job.book_name": "the name of the book that was posted with it",
    "Job.book_uuid": "and its uuid",
    "Claim.deadline": "until when it surely stands, on this machine's clock; None: as long as the process",
    "Claim.kept": "whether the board keeps it alive; else its lease is fixed",
    "Claim.token": "the fencing token: it rises with each claim of the job",
    "Claim.who": "whom it was made as",
    "Claim.uuid": "that of the job",
    "Claim.job": "the job that was claimed",
}
"""Of attributes that have no documentation in the code, as their name says nearly all."""


def _members(cls: type) -> str:
    rows = []
    for name in dict.fromkeys([*_slots(cls), *_public(cls)]):
        if name in INTERNAL or name in board.INTERNAL:
            continue
        member = inspect.getattr_static(cls, name)
        if inspect.isfunction(member):
            rows.append((_call(name, member), _first(member)))
        else:
            documented = isinstance(member, property) and member.__doc__
            rows.append((f"``{name}``", _first(member) if documented else _SAID[f"{cls.__name__}.{name}"]))
    return _table(("name", "what it is"), rows)


def _slots(cls: type) -> list[str]:
    return [name for name in getattr(cls, "__slots__", ()) if not name.startswith("_")]


def _public(cls: type) -> list[str]:
    """In the order in which they are written."""
    names: list[str] = []
    for each in reversed(cls.__mro__):
        if each.__module__.startswith("jobboard"):
            names += [
                name
                for name, member in vars(each).items()
                if not name.startswith("_")
                # One without documentation is for other parts of the library.
                and (isinstance(member, property) or (inspect.isfunction(member) and member.__doc__))
            ]
    return list(dict.fromkeys(names))


def _call(name: str, function: Callable[..., Any]) -> str:
    parameters = []
    starred = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parameters.append("*")
            starred = True
        stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
        starred = starred or stars == "*"
        default = parameter.default
        written = "" if default is parameter.empty else f"={_default(default)}"
        parameters.append(f"{stars}{parameter.name}{written}")
    return f"``{name}({', '.join(parameters)})``"


def _default(value: object) -> str:
    if isinstance(value, enum.Enum):
        return str(value)
    return repr(value) if isinstance(value, str | int | float | bool | None) else "…"


def _first(documented: object) -> str:
    """The first sentence, without what only Sphinx understands."""
    text = inspect.cleandoc(documented.__doc__ or "")
    paragraph = " ".join(text.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[.:]) (?=[A-Z])", paragraph)[0].rstrip(".:")
    return _ROLE.sub(lambda found: f"``{found[1].rpartition('.')[2]}``", sentence)


def _title(text: str, line: str) -> str:
    return f"{text}\n{line * len(text)}\n"


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in [columns, *rows]:
        lines += [f"   {mark} - {cell}".rstrip() for mark, cell in zip("*" + " " * 9, row)]  # noqa: B905
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(reference(), end="")

"""Who may import whom, that a name means one class, and where SQL may not be put together.

Imports inside functions and under ``TYPE_CHECKING`` count like any other.
"""

import ast
import functools
import graphlib
import importlib
import pkgutil
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

# A part is a module or a package directly below jobboard/ or jobboard/backends/; "" is
# jobboard/__init__.py. Each may import its own layer, without a circle, and the layers before it.
LAYERS = (
    ("states", "exceptions", "forks", "threads", "conf"),
    ("primitives",),
    ("codec", "notifier", "retry", "priorities", "job", "logs", "tracing", "timetable"),
    ("arguments", "outcomes", "heartbeat"),
    ("engine",),
    ("kv",),
    ("claims", "waiting", "results", "schedules", "iterator", "work", "board"),
    ("backends",),
    ("conductor", "moving", "taskloop", "orm"),
    ("aio",),
    ("cli", "contrib"),
)
# A backend may import what lies below the board.
BACKENDS_LAYER = "kv"
# These import nothing else: of jobboard, and of what is not in the standard library.
ONLY = {
    "sql": ({"exceptions", "forks", "retry", "threads"}, {"sqlalchemy"}),
    "backends": ({"board", "conf", "exceptions"}, {"stevedore"}),
    "": (set(), set()),
}
# These are imported by nobody else.
USERS = {
    "": {"cli", "contrib", "testing"},
    "sql": {"backends.sql", "taskloop", "orm", "contrib"},
    "testing": set(),
}
DRIVERS = {
    "sqlalchemy": {"contrib", "sql", "backends.sql", "taskloop", "orm", "testing"},
    "psycopg": {"backends.sql", "testing"},
    "pymysql": {"backends.sql", "testing"},
    # Beside its backend, what reads TaskFlow's boards.
    "redis": {"backends.redis", "contrib", "testing"},
    "kazoo": {"backends.zookeeper", "contrib", "testing"},
    "etcd3gw": {"contrib"},
    "taskflow": {"contrib", "testing"},
    "prometheus_client": {"contrib"},
    "opentelemetry": {"contrib"},
    "django": {"contrib"},
}
# Calls that take a statement as it stands, whatever it looks like.
STATEMENT_CALLS = {"text", "DDL", "exec_driver_sql"}
BACKEND_NAME = re.compile(r"jobboard\.backends\.\w[\w.:]*")
SQL = re.compile(
    r"\b(?:SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|DROP|ALTER|PRAGMA|LISTEN|NOTIFY|WHERE)\b"
    r"|(?i:^\s*(?:select\s.+\sfrom|insert\s+into|delete\s+from|update\s+\S+\s+set)\s)"
)


class Import(NamedTuple):
    line: int
    target: str
    # Within a function, or for type checkers alone.
    lazy: bool


# What one test has parsed the others have, too.
pytestmark = pytest.mark.xdist_group("architecture")


@functools.cache
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def module_of(path: Path) -> str:
    """``sql.dialects`` for jobboard/sql/dialects.py, "" for jobboard/__init__.py."""
    parts = path.relative_to(ROOT / "jobboard").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def part_of(module: str) -> str:
    names = module.split(".")
    return ".".join(names[: 2 if names[0] == "backends" else 1])


SOURCES = {module_of(path): path for path in sorted((ROOT / "jobboard").rglob("*.py"))}
LAYERED = [part for layer in LAYERS for part in layer]
PLACED = {*LAYERED, *ONLY, *USERS}
KNOWN = {*SOURCES, *PLACED}


def is_placed(part: str) -> bool:
    return part in PLACED or part.startswith("backends.")


def rank(part: str) -> int:
    part = BACKENDS_LAYER if part.startswith("backends.") else part
    return next(number for number, layer in enumerate(LAYERS) if part in layer)


def imports(module: str, source: str, *, package: bool = False) -> Iterator[Import]:
    """Every import in ``source``; what is of jobboard as ``jobboard.X``, also where X is a name."""
    base = ["jobboard", *(module.split(".") if module else [])]
    lazy: set[ast.AST] = set()
    for node in ast.walk(parsed(source)):
        guarded = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if guarded or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            lazy.update(ast.walk(node))
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(node.lineno, alias.name, node in lazy)
        elif isinstance(node, ast.ImportFrom):
            keep = len(base) - node.level + package
            origin = ".".join([*(base[:keep] if node.level else []), *filter(None, [node.module])])
            for alias in node.names:
                yield Import(node.lineno, f"{origin}.{alias.name}", node in lazy)
        elif isinstance(node, ast.Constant) and BACKEND_NAME.fullmatch(str(node.value)):
            yield Import(node.lineno, str(node.value).partition(":")[0], lazy=True)


def part_imported(target: str) -> str | None:
    """The part of jobboard that ``target`` belongs to; None where it is somebody else's."""
    top, *rest = target.split(".")
    if top != "jobboard":
        return None
    while rest and ".".join(rest) not in KNOWN:
        rest.pop()
    return part_of(".".join(rest))


def why_not(me: str, other: str) -> str | None:
    if other.startswith("backends."):
        return "a backend is loaded through its entry point alone"
    if other in USERS and me not in USERS[other]:
        return f"only {sorted(USERS[other]) or 'tests'} may"
    if other in USERS or me == "testing":
        return None
    if me in ONLY:
        allowed = ONLY[me][0]
        return None if other in allowed else f"it may import {sorted(allowed)} alone"
    if not is_placed(other):
        return "that is in no layer of the table"
    return "that lies to its right" if rank(other) > rank(me) else None


def why_not_foreign(me: str, top: str) -> str | None:
    if top in DRIVERS and me not in DRIVERS[top]:
        return f"only {sorted(DRIVERS[top])} may"
    if me in ONLY and top not in ONLY[me][1] and top not in sys.stdlib_module_names:
        return f"of others' it may import {sorted(ONLY[me][1])} alone"
    return None


def import_faults(module: str, source: str, *, package: bool = False) -> list[str]:
    me = part_of(module)
    if not is_placed(me):
        return [f"{me} is in no layer of the table"]
    faults = []
    for line, target, lazy in imports(module, source, package=package):
        other = part_imported(target)
        if other is None:
            reason = why_not_foreign(me, target.partition(".")[0])
        elif other == me or (me == "" and lazy and other in LAYERED):
            reason = None
        else:
            reason = why_not(me, other)
        if reason:
            faults.append(f"line {line}: {me or 'jobboard'} imports {target}: {reason}")
    return faults


def is_sql(node: ast.JoinedStr) -> bool:
    constants = [each.value for each in node.values if isinstance(each, ast.Constant)]
    return SQL.search(" ? ".join(map(str, constants))) is not None


def sql_faults(source: str) -> list[str]:
    lines = set()
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.JoinedStr) and is_sql(node):
            lines.add(node.lineno)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            formatted = any(isinstance(each, ast.JoinedStr) for each in node.args)
            if name in STATEMENT_CALLS and formatted:
                lines.add(node.lineno)
    return [f"line {line}: SQL put together in an f-string" for line in sorted(lines)]


def imports_of_nothing(source: str) -> list[str]:
    """The names of jobboard's that are imported from where they are not. What needs a package that is not here, as the
    bridge to TaskFlow does, is checked where its tests run."""
    faults = []
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "jobboard":
            for alias in node.names:
                name = f"{node.module}.{alias.name}".removesuffix(".*")
                try:
                    pkgutil.resolve_name(name)
                except (ImportError, AttributeError):
                    if not needs_another_package(node.module) and not needs_another_package(name):
                        faults.append(f"line {node.lineno}: {node.module} has no {alias.name}")
    return faults


def needs_another_package(module: str) -> bool:
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        return part_imported(error.name or "jobboard") is None
    return False


def circle(graph: dict[str, set[str]]) -> list[str]:
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


@pytest.mark.parametrize("module", SOURCES)
def test_imports_keep_to_the_layers(module: str) -> None:
    path = SOURCES[module]
    package = path.name == "__init__.py"
    assert import_faults(module, path.read_text(), package=package) == []


def test_no_part_imports_itself_through_another() -> None:
    graph: dict[str, set[str]] = {}
    for module, path in SOURCES.items():
        me = part_of(module)
        found = imports(module, path.read_text(), package=path.name == "__init__.py")
        others = {part_imported(each.target) for each in found} - {me, None, ""}
        if me:
            graph.setdefault(me, set()).update(other for other in others if other)
    assert circle(graph) == []


@pytest.mark.parametrize("module", SOURCES)
def test_no_sql_in_f_strings(module: str) -> None:
    assert sql_faults(SOURCES[module].read_text()) == []


@pytest.mark.parametrize("folder", ["tests", "benchmarks", "examples", "docs"])
def test_what_is_imported_outside_of_the_package_is_there(folder: str) -> None:
    """A type checker reads the package alone, and a name that has moved may be imported by a test that is run last."""
    files = {str(path.relative_to(ROOT)): path for path in (ROOT / folder).rglob("*.py")}
    assert {name: faults for name, path in files.items() if (faults := imports_of_nothing(path.read_text()))} == {}


def test_the_checker_catches_an_import_of_nothing() -> None:
    source = "import os\nfrom jobboard.job import Job, Jobs\ndef f():\n    from jobboard.jobs import Job\n"
    assert imports_of_nothing(source) == ["line 2: jobboard.job has no Jobs", "line 4: jobboard.jobs has no Job"]
    assert imports_of_nothing("from jobboard.testing.conformance import *\nfrom jobboard import exceptions") == []


def classes(source: str) -> Iterator[str]:
    """The names of all classes, those within functions and classes too."""
    return (node.name for node in ast.walk(parsed(source)) if isinstance(node, ast.ClassDef))


def named_twice(sources: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for module, source in sources.items():
        for name in classes(source):
            # With or without an underscore it is read as the same name.
            found.setdefault(name.lstrip("_"), []).append(module)
    return {name: modules for name, modules in found.items() if len(modules) > 1}


def test_no_two_classes_of_one_name() -> None:
    assert named_twice({module: path.read_text() for module, path in SOURCES.items()}) == {}


def test_the_checker_catches_two_classes_of_one_name() -> None:
    nested = "def f():\n    class _Ear: ...\n"
    assert named_twice({"a": "class Ear: ...", "b": nested, "c": "class Eye: ..."}) == {"Ear": ["a", "b"]}


PARTS_OF_THE_BOARD = ("board", "claims", "waiting", "results", "work", "iterator", "job", "heartbeat", "engine", "kv")
"""The parts whose underscores nobody else reads, beside those of ``backends``."""


def is_inside(module: str) -> bool:
    return part_of(module) in PARTS_OF_THE_BOARD or module.startswith("backends")


def hidden(source: str) -> set[str]:
    """The names with one underscore that classes have: their methods, and what methods set."""
    names: set[str] = set()
    for node in ast.walk(parsed(source)):
        if isinstance(node, ast.ClassDef):
            names |= {each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
            names |= {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute) and is_own(each)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")} - set(dir(Import))


def is_own(node: ast.Attribute) -> bool:
    """Return whether an attribute is one of the object itself."""
    value = node.value
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        return value.func.id == "super"
    return isinstance(value, ast.Name) and value.id in ("self", "cls")


def border_faults(source: str, secrets: set[str], own: set[str] = frozenset()) -> list[str]:
    """The reads of underscores of the board.

    :param own: names that the reader's own package has, too.
    """
    return sorted(
        f"line {node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(parsed(source))
        if isinstance(node, ast.Attribute) and node.attr in secrets - own and not is_own(node)
    )


def test_nobody_reads_an_underscore_of_the_board() -> None:
    secrets = set().union(*(hidden(path.read_text()) for module, path in SOURCES.items() if is_inside(module)))
    own: dict[str, set[str]] = {}
    for module, path in SOURCES.items():
        own.setdefault(part_of(module), set()).update(hidden(path.read_text()))
    faults = {
        module: found
        for module, path in SOURCES.items()
        if not is_inside(module) and part_of(module) != "testing"
        if (found := border_faults(path.read_text(), secrets, own[part_of(module)]))
    }
    assert faults == {}


def test_the_checker_catches_a_read_across_the_border() -> None:
    secrets = hidden("class JobBoard:\n    def _end(self): self._ttl = 1\n    def close(self): ...\n")
    assert secrets == {"_end", "_ttl"}
    assert border_faults("board._end(); self.board._ttl; self._ttl; board.close()", secrets) == [
        "line 1: board._end",
        "line 1: self.board._ttl",
    ]


def test_contributors_are_told_the_layers_as_they_are() -> None:
    told = (ROOT / "CONTRIBUTING.rst").read_text().partition("what lies to its left::\n")[2].partition("\n\nHere")[0]
    assert [set(layer.split()) for layer in told.split("<-")] == [set(layer) for layer in LAYERS]


def where_to_look(text: str) -> dict[str, list[str]]:
    """Of each question in CONTRIBUTING.rst, what its answer quotes."""
    section = text.partition("\nWhere to look\n")[2].partition("\nGlossary\n")[0]
    _, *parts = re.split(r"^\*\*(.*\?)\*\*$", section, flags=re.MULTILINE)
    return {ask: re.findall("``([^`]+)``", answer) for ask, answer in zip(parts[::2], parts[1::2], strict=True)}


def misleading(quoted: list[str]) -> list[str]:
    """The paths that do not exist, and the names that are in none of the files."""
    paths = [word for word in quoted if "/" in word or word == "setup.cfg"]
    there = [ROOT / path for path in paths if (ROOT / path).exists()]
    files = [file for path in there for file in (path.rglob("*.py") if path.is_dir() else [path])]
    words = set(re.findall(r"\w+", " ".join(file.read_text() for file in files)))
    names = [word for word in quoted if word not in paths]
    return [path for path in paths if not (ROOT / path).exists()] + [
        name for name in names if not set(re.findall(r"\w+", name)) <= words
    ]


def test_the_map_of_the_sql_board_has_all_of_it() -> None:
    folder = ROOT / "jobboard" / "backends" / "sql"
    shown = re.findall(r"``(\w+)``", ast.get_docstring(ast.parse((folder / "__init__.py").read_text())) or "")
    assert sorted(shown) == sorted({module.stem for module in folder.glob("*.py")} - {"__init__"})


def test_where_to_look_leads_somewhere() -> None:
    answers = where_to_look((ROOT / "CONTRIBUTING.rst").read_text())
    assert len(answers) >= 10
    assert {ask: wrong for ask, quoted in answers.items() if (wrong := misleading(quoted) or not quoted)} == {}


def test_the_checker_catches_a_wrong_path_and_a_wrong_name() -> None:
    assert misleading(["jobboard/states.py", "settle"]) == []
    assert misleading(["jobboard/state.py", "jobboard/states.py", "setle"]) == ["jobboard/state.py", "setle"]


ALLOWED = [
    ("job", "from jobboard.states import State"),
    ("job", "from jobboard import codec"),
    ("job", "from . import exceptions"),
    ("board", "import os, msgpack\nimport jobboard.outcomes"),
    ("backends.memory", "from jobboard.engine import time_left"),
    ("backends.memory", "from jobboard.backends.memory import forget"),
    ("backends.sql.store", "from jobboard.backends.sql import tables\nimport sqlalchemy"),
    ("backends.sql.store", "from . import tables\nfrom ...sql import dialects"),
    ("backends", "import stevedore\nfrom jobboard.conf import parse"),
    ("sql.dialects", "import sqlalchemy\nfrom jobboard import retry\nfrom jobboard.sql import x"),
    ("orm.claimable", "from jobboard.sql import dialects"),
    ("cli.post", "from jobboard import fetch\nfrom jobboard.cli import base"),
    ("cli.post", "from jobboard.backends import fetch"),
    ("testing.faults", "import psycopg\nfrom jobboard import fetch\nfrom jobboard.job import Job"),
    ("", "def __getattr__(name):\n    from jobboard.board import JobBoard"),
    ("", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from jobboard.job import Job"),
]

FORBIDDEN = [
    ("backends.memory", "from jobboard.board import JobBoard"),
    ("states", "from jobboard.job import Job"),
    ("states", "def f():\n    from jobboard.job import Job"),
    ("states", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import jobboard.board"),
    ("codec", "from jobboard import board"),
    ("codec", "from . import board"),
    ("outcomes", "from .conductor import Conductor"),
    ("job", "from jobboard import fetch"),
    ("board", "from jobboard.backends import fetch"),
    ("board", "from jobboard.backends.memory import MemoryJobBoard"),
    ("board", "from jobboard.testing import eventually"),
    ("board", "import sqlalchemy"),
    ("conductor", "from jobboard.backends import sql"),
    ("conductor", "import_module('jobboard.backends.sql')"),
    ("conductor", "PLUGIN = 'jobboard.backends.sql:SQLJobBoard'"),
    ("cli.post", "from jobboard.backends.memory import forget"),
    ("cli.post", "from jobboard.sql import dialects"),
    ("testing.faults", "from jobboard.backends.memory import forget"),
    ("backends", "from jobboard.conductor import Conductor"),
    ("backends", "import tenacity"),
    ("backends.memory", "from jobboard.conductor import Conductor"),
    ("backends.memory", "from jobboard.backends import fetch"),
    ("backends.memory", "from jobboard.backends.sql import tables"),
    ("backends.memory", "from jobboard.sql import dialects"),
    ("backends.memory", "from ..sql import tables"),
    ("backends.redis.board", "import kazoo.client"),
    ("sql.dialects", "import psycopg"),
    ("sql.dialects", "from oslo_utils import netutils"),
    ("sql.dialects", "from jobboard.states import State"),
    ("orm.claimable", "from jobboard.aio import AsyncJobBoard"),
    ("", "from jobboard.board import JobBoard"),
    ("", "import click"),
    ("", "def __getattr__(name):\n    from jobboard.backends.memory import MemoryJobBoard"),
    ("", "def __getattr__(name):\n    from jobboard.testing import faults"),
    ("novelty", "import os"),
    ("job", "from jobboard.novelty import x"),
]


@pytest.fixture
def whole_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the checker knows the backends that the snippets name, whichever exist."""
    known = {"novelty", "backends.memory", "backends.sql", "backends.sql.tables", "backends.redis"}
    monkeypatch.setattr(sys.modules[__name__], "KNOWN", KNOWN | known)


@pytest.mark.usefixtures("whole_package")
@pytest.mark.parametrize(("module", "source"), ALLOWED)
def test_the_checker_lets_pass(module: str, source: str) -> None:
    assert import_faults(module, source, package=module in ("", "backends")) == []


@pytest.mark.usefixtures("whole_package")
@pytest.mark.parametrize(("module", "source"), FORBIDDEN)
def test_the_checker_catches(module: str, source: str) -> None:
    assert len(import_faults(module, source, package=module in ("", "backends"))) == 1


@pytest.mark.parametrize(
    "source",
    [
        'f"SELECT id FROM {table}"',
        'f"select id from {table}"',
        'f"{verb} x WHERE id = {job}"',
        'x = (\n    "WITH y AS"\n    f" (SELECT 1 FROM {table})")',
        'f"NOTIFY {channel}"',
        'f"delete from {table}"',
        'sqlalchemy.text(f"{statement}")',
        'connection.exec_driver_sql(f"vacuum {table}")',
    ],
)
def test_the_checker_catches_sql(source: str) -> None:
    assert len(sql_faults(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        'f"no job {uuid} on the board to select from"',
        'f"{name} has been updated; set it again"',
        '"SELECT 1"',
        'text("SELECT 1")',
        'print(f"{a}")',
    ],
)
def test_the_checker_lets_pass_what_is_not_sql(source: str) -> None:
    assert sql_faults(source) == []


def test_the_checker_catches_a_circle() -> None:
    assert set(circle({"job": {"codec"}, "codec": {"retry"}, "retry": {"job"}})) == {
        "job",
        "codec",
        "retry",
    }
    assert circle({"job": {"codec", "retry"}, "codec": {"retry"}}) == []

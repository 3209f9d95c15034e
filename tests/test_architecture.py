"""Rules of the architecture that no linter knows: the border of the board, names, and the map in CONTRIBUTING.rst.

``lint-imports`` checks who may import whom: see ``[tool.importlinter]`` in pyproject.toml.
"""

import ast
import pkgutil
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from jobboard.backends.sql import statements

ROOT = Path(__file__).parents[1]


def module_of(path: Path) -> str:
    """``sql.dialects`` for jobboard/sql/dialects.py, "" for jobboard/__init__.py."""
    parts = path.relative_to(ROOT / "jobboard").with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


SOURCES = {module_of(path): path for path in sorted((ROOT / "jobboard").rglob("*.py"))}


def test_what_benchmarks_import_is_there() -> None:
    """No test runs all of them, and no type checker reads them."""
    for path in (ROOT / "benchmarks").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "jobboard":
                for alias in node.names:
                    pkgutil.resolve_name(f"{node.module}.{alias.name}")


def test_planted_faults_have_their_texts() -> None:
    """A fault whose text has gone is planted in the line that keeps its rule now."""
    for fault in tomllib.loads((ROOT / "tests/faults/planted.toml").read_text())["fault"]:
        assert (ROOT / fault["file"]).read_text().count(fault["old"]) == 1, fault["name"]


def classes(source: str) -> Iterator[str]:
    """The names of all classes, those within functions and classes too."""
    return (node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef))


def named_twice(sources: Mapping[str, str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for module, source in sources.items():
        for name in classes(source):
            # With or without an underscore it is read as the same name.
            found.setdefault(name.lstrip("_"), []).append(module)
    return {name: modules for name, modules in found.items() if len(modules) > 1}


RUNTIME = {
    "datetime.datetime": {"now", "today", "utcnow"},
    "os": {"urandom"},
    "queue": {"LifoQueue", "PriorityQueue", "Queue", "SimpleQueue"},
    "random": None,
    "secrets": None,
    "threading": {
        "Barrier", "BoundedSemaphore", "Condition", "Event", "Lock", "RLock", "Semaphore", "Thread", "Timer",
        "current_thread", "get_ident", "local",
    },
    "time": {
        "clock_gettime", "clock_gettime_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "sleep",
        "time", "time_ns",
    },
    "uuid": {"uuid1", "uuid4"},
    "oslo_utils.uuidutils": {"generate_uuid"},
}  # fmt: skip
"""What jobboard.runtime stands for, by module. None: all of the module."""

OWN_CLOCKS = {
    "runtime": "the place where they come from",
    "cli": "serves a person, in a process of its own, and no simulated process runs it",
    "contrib": "belongs to other frameworks, with their clocks and threads",
    "testing": "measures the library from outside",
}


def past_the_runtime(source: str) -> list[str]:
    """The uses of clocks, threads, random numbers and uuids that jobboard.runtime does not see."""
    tree, bound, found = ast.parse(source), {}, []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            bound |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (module := f"{node.module}.{alias.name}") in RUNTIME:
                    bound[alias.asname or alias.name] = module
                elif node.module == "jobboard.runtime" or is_of_the_runtime(node.module, alias.name):
                    found.append(module)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name, _, rest = ast.unparse(node.value).partition(".")
            module = ".".join(filter(None, (bound.get(name), rest)))
            if name in bound and is_of_the_runtime(module, node.attr):
                found.append(f"{module}.{node.attr}")
    return found


def is_of_the_runtime(module: str | None, name: str) -> bool:
    names = RUNTIME.get(module, set())
    return names is None or name in names


@pytest.mark.rule(
    "All clocks, threads, random numbers and uuids come from jobboard.runtime, and freezegun freezes none of them."
)
def test_all_clocks_threads_and_random_numbers_come_from_the_runtime() -> None:
    """A simulator replaces them there. A test that needs a late clock finds it in one place."""
    for module, path in SOURCES.items():
        if module.partition(".")[0] not in OWN_CLOCKS:
            assert past_the_runtime(path.read_text()) == [], module


@pytest.mark.rule(
    "All clocks, threads, random numbers and uuids come from jobboard.runtime, and freezegun freezes none of them."
)
def test_the_checker_catches_a_clock_of_its_own() -> None:
    assert past_the_runtime("import time as t\nt.monotonic()") == ["time.monotonic"]
    assert past_the_runtime("from uuid import uuid4, uuid5") == ["uuid.uuid4"]
    assert past_the_runtime("from oslo_utils import uuidutils\nuuidutils.generate_uuid()") != []
    assert past_the_runtime("from jobboard.runtime import boottime") != []
    assert past_the_runtime("import datetime\ndatetime.datetime.now()") == ["datetime.datetime.now"]
    assert past_the_runtime("import threading\nthreading.main_thread()\nthreading.Lock") == ["threading.Lock"]


@pytest.mark.rule("No two classes have one name.")
def test_no_two_classes_of_one_name() -> None:
    assert named_twice({module: path.read_text() for module, path in SOURCES.items()}) == {}


@pytest.mark.rule("No two classes have one name.")
def test_the_checker_catches_two_classes_of_one_name() -> None:
    nested = "def f():\n    class _Ear: ...\n"
    assert named_twice({"a": "class Ear: ...", "b": nested, "c": "class Eye: ..."}) == {"Ear": ["a", "b"]}


RAW = {"jobboard/testing/conformance/harness.py", "tests/unit/test_retrying.py", "tests/test_architecture.py"}
"""The files that may name the engine under the retrying engine: the harness, and the tests of the retrying engine."""

RAW_USE = re.compile(r"engine\.raw\b|setattr\((engine_of|Harness)\(|engine_of\([^\n]*\)\.\w+ = ")


def test_tests_reach_the_engine_in_one_place() -> None:
    """A test patches the requests of a store, see jobboard/testing/requests.py, and passes nonces by ``engine_of``."""
    sources = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "jobboard/testing").rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in sources if RAW_USE.search(path.read_text())}
    assert found - RAW == set()


def test_the_checker_catches_a_patch_of_the_engine() -> None:
    for line in ("board.engine.raw.take = slow", 'setattr(engine_of(board), "take", slow)', "engine_of(b).take = slow"):
        assert RAW_USE.search(line), line
    assert not RAW_USE.search("taken = engine_of(board).take(nonce)")


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


@pytest.mark.rule("The maps of the documents have all modules of the SQL board.")
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


@pytest.mark.parametrize("path", sorted(ROOT.glob("jobboard/backends/sql/*.sql")), ids=lambda path: path.name)
def test_a_file_has_one_statement_of_a_name(path: Path) -> None:
    names = re.findall(r"^-- name: (\w+)$", path.read_text(), re.MULTILINE)
    assert len(names) > 20
    assert sorted(names) == sorted(set(names))


TEXTS = sorted(path for ending in ("sql", "lua") for path in (ROOT / "jobboard").rglob(f"*.{ending}"))


def large_numbers(text: str) -> list[str]:
    """The lines of SQL or Lua with a number above 100, outside of comments, strings, names and versions of MySQL."""
    found = []
    for line in text.splitlines():
        code = re.sub(r"--.*|'[^']*'|/\*M?!\d*", " ", line)
        if any(int(number) > 100 for number in re.findall(r"(?<![\w{.])\d+", code)):
            found.append(line)
    return found


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_numbers_in_sql_and_lua_come_from_python(path: Path) -> None:
    """``NUMBERS`` in statements.py and ``_WORDS`` in scripts.py state each once, with its reason."""
    assert large_numbers(path.read_text()) == []


def test_the_checker_catches_a_large_number() -> None:
    assert large_numbers("limit 101") == ["limit 101"]
    assert large_numbers("limit 100 -- of 500") == []
    assert large_numbers("'1970-01-01', utf8mb4, varchar({most_text}) /*!80000 x */") == []
    assert large_numbers("local now = time[1] * 1000000") == ["local now = time[1] * 1000000"]


def test_texts_use_each_number() -> None:
    text = "".join(path.read_text() for path in TEXTS if path.suffix == ".sql")
    assert [name for name in statements.NUMBERS if f"{{{name}}}" not in text] == []


def test_a_batch_and_a_page_have_one_size() -> None:
    """Another size has a name that says why."""
    stated = [
        (module, name)
        for module, path in SOURCES.items()
        for name in re.findall(r"^_?(BATCH|PAGE)(?:: int)? = ", path.read_text(), re.MULTILINE)
    ]
    assert stated == [("primitives", "BATCH"), ("primitives", "PAGE")]

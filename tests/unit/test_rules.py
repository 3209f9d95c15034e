"""The list of rules in ``tests/rules.toml``, and the gate that protects it: ``tools/faults``."""

import ast
import importlib.machinery
import importlib.util
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT_A_TEST = "Rules that no test holds by name"


def named_tests(path: Path) -> Iterator[str]:
    """Yield the ids of the tests that a file defines, without an import of the file."""
    file = path.relative_to(ROOT)
    for node in ast.parse(path.read_text()).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{file}::{node.name}::" if isinstance(node, ast.ClassDef) else f"{file}::"
        for each in inner:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name.startswith("test_"):
                yield prefix + each.name


@pytest.fixture(scope="module")
def faults() -> Iterator[ModuleType]:
    """``tools/faults`` as a module."""
    loader = importlib.machinery.SourceFileLoader("tools_faults", str(ROOT / "tools/faults"))
    spec = importlib.util.spec_from_loader("tools_faults", loader)
    assert spec is not None
    sys.modules["tools_faults"] = module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    yield module
    del sys.modules["tools_faults"]


@pytest.fixture(scope="module")
def there() -> set[str]:
    """The ids of all tests."""
    files = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "jobboard/testing").rglob("*.py")]
    return {name for path in files for name in named_tests(path)}


def test_each_promise_of_the_manual_has_tests_that_exist(there: set[str]) -> None:
    page = (ROOT / "docs/proof/promises.rst").read_text()
    named = re.findall(r"^    - ``(\S+)``$", page, re.MULTILINE)
    assert len(named) > 40
    assert [test for test in named if test not in there] == [], "name the tests that hold the promises now"
    bare = re.findall(r"^([A-Z`].*\.)\n(?=\n)", page.partition("\n--")[2].partition("See also")[0], re.MULTILINE)
    assert not bare, "these promises have no test"


def test_each_rule_has_tests_that_exist(there: set[str]) -> None:
    areas = tomllib.loads((ROOT / "tests/rules.toml").read_text())
    gone = [
        f"{rule} {test}"
        for rules in areas.values()
        for rule, tests in rules.items()
        for test in tests
        if test not in there
    ]
    assert not gone, "these tests are gone: name the tests that hold their rules now"
    bare = [
        rule for area, rules in areas.items() if area != WITHOUT_A_TEST for rule, tests in rules.items() if not tests
    ]
    assert not bare, "these rules have no test"


def test_mutants_change_code_and_neither_texts_nor_logs(
    faults: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(faults, "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(
        '"""1 text."""\n'
        "def f(a: int = 1) -> 'Literal[1]':\n"
        "    LOG.info('%d', 1)\n"
        "    if a < 2 and not a:\n"
        "        raise ValueError(f'{a + 1}')\n"
        "    return 'ä' + str(a - 3)\n"
        "def __repr__(self): return 1 if self else 2\n"
    )
    found = {mutant.text for mutant in faults.mutants_of(path)}
    changed = {line for text in found for line in text.splitlines() if line not in path.read_text().splitlines()}
    assert changed == {
        "def f(a: int = (2)) -> 'Literal[1]':",
        "    if (not (a < 2 and (not a))):",
        "    if (a < 2 or not a):",
        "    if (a <= 2) and not a:",
        "    if (a >= 2) and not a:",
        "    if a < (3) and not a:",
        "    if a < 2 and (a):",
        "        pass",
        "    return None",
        "    return 'ä' + str((a + 3))",
        "    return 'ä' + str(a - (4))",
    }


def test_mutants_meet_the_tests_of_their_lines(
    faults: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A line that runs at import meets the tests of what it defines."""
    monkeypatch.setattr(faults, "ROOT", tmp_path)
    (tmp_path / "one.py").write_text("MOST = 1\nFEW = 2\n\n\ndef f(a=3):\n    return a + 4\n")
    (tmp_path / "two.py").write_text("import one\n\n\ndef g():\n    return one.MOST\n")
    tests_of = {
        "one.py": {1: [""], 2: [""], 5: [""], 6: ["wide", "narrow"]},
        "two.py": {4: ["", "wide"], 5: ["limit", "wide"]},
    }
    met: dict[str, list[str]] = {}
    for mutant in faults.mutants_of(tmp_path / "one.py"):
        met.setdefault(mutant.name.split(":")[1], faults.nearest(mutant, tests_of))
    assert met == {"1": ["limit", "wide"], "2": ["narrow", "wide"], "5": ["narrow", "wide"], "6": ["narrow", "wide"]}


def test_a_seed_draws_the_same_mutants_again(faults: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(faults, "SUBJECTS", ["jobboard/states.py"])
    one, same, other = (faults.draw(seed, 20) for seed in (1, 1, 2))
    assert one == same != other
    assert len({mutant.name for mutant in one}) == 20
    for mutant in one:
        ast.parse(mutant.text)

"""The list of rules, ``tests.rules``, and the gate that protects it: ``tools/faults``."""

import ast
import importlib.machinery
import importlib.util
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests import rules


@pytest.fixture(scope="module")
def faults() -> Iterator[ModuleType]:
    """``tools/faults`` as a module."""
    loader = importlib.machinery.SourceFileLoader("tools_faults", str(rules.ROOT / "tools/faults"))
    spec = importlib.util.spec_from_loader("tools_faults", loader)
    assert spec is not None
    sys.modules["tools_faults"] = module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    yield module
    del sys.modules["tools_faults"]


@pytest.fixture(scope="module")
def tests() -> dict[str, list[str]]:
    """The ids of all tests, with the rules that they hold."""
    return dict(rules.all_tests())


def test_each_promise_of_the_manual_has_tests_that_exist(tests: dict[str, list[str]]) -> None:
    page = (rules.ROOT / "docs/proof/promises.rst").read_text()
    named = re.findall(r"^    - ``(\S+)``$", page, re.MULTILINE)
    assert len(named) > 40
    assert [test for test in named if test not in tests] == [], "name the tests that hold the promises now"
    bare = re.findall(r"^([A-Z`].*\.)\n(?=\n)", page.partition("\n--")[2].partition("See also")[0], re.MULTILINE)
    assert not bare, "these promises have no test"


def test_no_rule_is_lost(tests: dict[str, list[str]], capsys: pytest.CaptureFixture[str]) -> None:
    held = rules.held(tests.items())
    unheld = [rule for each in rules.UNHELD.values() for rule in each]
    assert len(held) == rules.COUNT, "a rule went with its test or was reworded in one test; else change COUNT"
    assert not held.keys() & set(unheld), "these rules have tests: they are no longer unheld"
    assert [rule for rule in [*held, *unheld] if not rule.endswith(".") or rule != rule.strip()] == []
    rules.main(["OPEN", "files"])
    printed = capsys.readouterr().out
    assert printed.startswith(
        "An idle connection to etcd is checked by poll(), also with a thousand open files.\n    no "
    )


def test_the_list_finds_each_way_to_name_a_rule(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rules, "ROOT", tmp_path)
    path = tmp_path / "test_one.py"
    path.write_text(
        "@pytest.mark.rule('Jobs' ' stay.')\n@pytest.mark.rule('Claims end.')\ndef test_two(): ...\n"
        "class TestOne:\n    @holds('Jobs stay.')\n    async def test_one(self): ...\n    def test_none(self): ...\n"
        "class Machine:\n    class Inner:\n"
        "        @holds('Leases lapse.')\n        @other\n        def step(self): ...\n"
        "    def helper(self): ...\n"
    )
    found = dict(rules.tests_of(path))
    assert found == {
        "test_one.py::test_two": ["Jobs stay.", "Claims end."],
        "test_one.py::TestOne::test_one": ["Jobs stay."],
        "test_one.py::TestOne::test_none": [],
        "test_one.py::Machine::Inner::step": ["Leases lapse."],
    }
    both = ["test_one.py::test_two", "test_one.py::TestOne::test_one"]
    assert rules.held(found.items())["Jobs stay."] == both


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

"""The rules that fixes have set, with the tests that hold them: ``python -m tests.rules [WORD ...]`` prints them.

A test names each rule that it holds by ``@pytest.mark.rule("...")``, and by ``@holds("...")`` in the suites of
``jobboard.testing``. Several tests may hold one rule, in the same words. The files are read, not imported.
"""

import ast
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]

COUNT = 803
"""The number of rules that tests hold. A rule never goes with its test: another test holds the rule first."""

UNHELD = {
    "A fault costs requests or time, and changes no outcome.": [
        "A released or abandoned job that comes back to its own taker wakes no other waiter on Redis.",
        "A first call for a side record and for the time is one statement on SQL.",
        "Side records on Redis are dropped 200 at a time.",
        "A tidying in memory lets others have their turn between two steps.",
        "MariaDB's statements find their rows by keys, whatever its statistics say: held by hints in the statements.",
    ],
    "The moment lies between two steps that no hook separates.": [
        "A shortened lease wakes the waiters on SQL, who then know of the earlier lapse.",
        "A Redis claim that was handed to a waiter stores the number of the waiter's try.",
        "A claim that a session keeps counts its margin from the commit, and not from the look.",
        "A waiter on etcd is woken by news that came between the two looks of a take under limits.",
        "A rate's window allows for the coarse clock of SQLite.",
    ],
    "The test would need a client that stops late, a thousand open files, or the end of an interpreter.": [
        "A ZooKeeper client that stops too late is closed, and leaves no socket open.",
        "A shared KazooClient is started once for all boards of the TaskFlow bridge.",
        "An idle connection to etcd is checked by poll(), also with a thousand open files.",
        "The end of a forked child's interpreter closes nothing of the parent's SQL connections.",
    ],
    "No test has been written yet.": [
        "MariaDB sweeps for a take of several names of which all are paused.",
        "The log of resume() names no name that was not paused.",
    ],
}
"""The rules that no test holds, by the reason."""

MARKERS = ("pytest.mark.rule", "holds")

Test = tuple[str, list[str]]


def tests_of(path: Path) -> Iterator[Test]:
    """Yield the id of each function in a file that is a test or names rules, with its rules."""
    nodes: list[tuple[str, ast.stmt]] = [("", node) for node in ast.parse(path.read_text()).body]
    for prefix, node in nodes:
        if isinstance(node, ast.ClassDef):
            nodes += [(f"{prefix}{node.name}::", inner) for inner in node.body]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            rules = list(named_by(node.decorator_list))
            if rules or node.name.startswith("test_"):
                yield f"{path.relative_to(ROOT)}::{prefix}{node.name}", rules


def named_by(decorators: Iterable[ast.expr]) -> Iterator[str]:
    """Yield the rules that decorators name."""
    for each in decorators:
        if isinstance(each, ast.Call) and ast.unparse(each.func) in MARKERS:
            (rule,) = each.args
            yield ast.literal_eval(rule)


def all_tests() -> Iterator[Test]:
    """Yield the id of each test of the repository, with its rules."""
    for folder in ("tests", "jobboard/testing"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield from tests_of(path)


def held(tests: Iterable[Test]) -> dict[str, list[str]]:
    """Return the tests of each rule."""
    found: dict[str, list[str]] = {}
    for test, rules in tests:
        for rule in rules:
            found.setdefault(rule, []).append(test)
    return found


def main(words: Sequence[str]) -> None:
    """Print the rules that have all these words, each with its tests."""
    without = {rule: [f"no test: {reason}"] for reason, rules in UNHELD.items() for rule in rules}
    for rule, tests in sorted((held(all_tests()) | without).items()):
        if all(word.lower() in rule.lower() for word in words):
            print(rule, *tests, sep="\n    ")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Tools for tests: the kit for programs that use boards; for backends the conformance suite, a proxy that loses
requests or replies, and judges of a history.

Nothing in the library imports this package.
"""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from jobboard.testing.kit import assert_posted as assert_posted
    from jobboard.testing.kit import drain as drain

__all__ = ["assert_posted", "drain", "eventually", "holds"]

_T = TypeVar("_T")


def eventually(condition: Callable[[], _T], seconds: float = 20) -> _T:
    """Call ``condition`` until it gives something true, and return that.

    Raises AssertionError after ``seconds``.
    """
    limit = time.monotonic() + seconds
    while not (result := condition()):
        if time.monotonic() > limit:
            raise AssertionError(f"not within {seconds} s; the last answer was {result!r}")
        time.sleep(0.01)
    return result


def holds(rule: str) -> Callable[[_T], _T]:
    """Name a rule that the decorated test holds, for readers and for a list of all rules.

    The suites have no markers of pytest for this: their users would have to register them.
    """

    def named(test: _T) -> _T:
        return test

    return named


def __getattr__(name: str) -> Any:
    # The tests' servers are started by a Python that has none of the library's dependencies yet.
    if name in __all__:
        from jobboard.testing import kit

        return getattr(kit, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The suite that every backend has to pass, with the same assertions.

A backend's author writes a test module with one import and one fixture::

    from jobboard.testing.conformance import *

    @pytest.fixture
    def board_conf():
        \"\"\"A configuration for jobboard.fetch that shares jobs with no other test.\"\"\"
        return {"board": "mine://localhost", "namespace": uuid.uuid4().hex}

    @pytest.fixture
    def make_board(board_conf):
        with contextlib.ExitStack() as stack:
            def make(name="board", **options):
                board = jobboard.fetch(name, {**board_conf, **options})
                stack.callback(board.close)
                board.connect()
                return board
            yield make

``make_board(name, **options)`` gives a connected board, and another handle on the same board for the same name. The
backend is found through its entry point, in other processes too, to which ``board_conf`` travels as JSON.

What may differ between backends is asked of ``board.characteristics``, and nothing is skipped. Leases and delays run on
the server's clock, in real time; the suite takes a minute or less. A class with ``any_driver = True`` sends the server
nothing that others do not send, too: once it has passed, it need not be run with another version of the driver.
"""

from __future__ import annotations

import importlib
import pkgutil

import pytest

_MODULES = [module.name for module in pkgutil.iter_modules(__path__)]
# Before they are imported: otherwise a failing assertion would not say what the values were.
pytest.register_assert_rewrite(*(f"{__name__}.{name}" for name in _MODULES))

from jobboard.testing.conformance.moves import elsewhere  # noqa: E402
from jobboard.testing.conformance.outcomes import keeper  # noqa: E402
from jobboard.testing.conformance.processes import puppet  # noqa: E402
from jobboard.testing.conformance.rules import astray  # noqa: E402
from jobboard.testing.conformance.support import board, other  # noqa: E402
from jobboard.testing.conformance.wire import wire  # noqa: E402

__all__ = ["astray", "board", "elsewhere", "keeper", "other", "puppet", "wire"]

for _name in _MODULES:
    _module = importlib.import_module(f"{__name__}.{_name}")
    # A module may import tests of another one.
    _tests = {name: test for name, test in vars(_module).items() if getattr(test, "__module__", "") == _module.__name__}
    _tests = {name: test for name, test in _tests.items() if name.startswith("Test")}
    globals().update(_tests)
    __all__ += list(_tests)

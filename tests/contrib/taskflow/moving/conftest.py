"""Servers with TaskFlow's own boards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.servers import KINDS as SERVERS
from tests.support.servers import selected_backends

if TYPE_CHECKING:
    from tests.contrib.taskflow.moving.origins import Origin

KINDS = ("redis", "zookeeper", "etcd")

if find_spec("taskflow") is None:
    # They have an environment of their own.
    collect_ignore_glob = ["test_*.py"]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "kinds(*names): this test concerns TaskFlow's boards of these kinds alone")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "origin" in metafunc.fixturenames:
        marker = metafunc.definition.get_closest_marker("kinds")
        wanted = marker.args if marker else KINDS
        # Not a backend of ours that is tested yet.
        chosen = [*selected_backends(), "etcd"]
        metafunc.parametrize("origin", [kind for kind in wanted if kind in chosen], indirect=True)


@pytest.fixture(scope="session")
def etcd() -> Iterator[str]:
    from tests.contrib.taskflow.moving.origins import EtcdServer

    with EtcdServer() as server:
        yield server.uri


@pytest.fixture
def server_of(private_server: Callable[..., Any]) -> Callable[[str], Any]:
    """Starts a server of this kind for the test alone."""
    from tests.contrib.taskflow.moving.origins import EtcdServer

    return lambda kind: private_server(SERVERS.get(kind, EtcdServer))


@pytest.fixture
def origin(request: pytest.FixtureRequest, server_uris: dict[str, str]) -> Iterator[Origin]:
    from tests.contrib.taskflow.moving.origins import origin_of

    kind = request.param
    server = request.getfixturevalue("etcd") if kind == "etcd" else server_uris[kind]
    with origin_of(kind, server) as made:
        yield made

"""Servers with TaskFlow's own boards."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest

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
        metafunc.parametrize("origin", [kind for kind in wanted if kind in selected_backends()], indirect=True)


@pytest.fixture
def origin(request: pytest.FixtureRequest, server_uris: dict[str, str]) -> Iterator[Origin]:
    from tests.contrib.taskflow.moving.origins import origin_of

    with origin_of(request.param, server_uris[request.param]) as made:
        yield made

"""What Prometheus is told, by its own client and read by that one's own parser."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

import jobboard
from jobboard.contrib.prometheus import BoardCollector
from jobboard.testing import eventually

MakeBoard = Callable[..., Any]


def parsed(text: str) -> dict[tuple[str, ...], float]:
    """Values by metric and its labels' values."""
    families = text_string_to_metric_families(text)
    samples = [sample for family in families for sample in family.samples]
    values = {(sample.name, *sample.labels.values()): sample.value for sample in samples}
    assert len(values) == len(samples)
    return values


def read(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    return parsed(generate_latest(registry).decode())


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry(auto_describe=True)


@pytest.fixture
def scrape(registry: CollectorRegistry) -> Iterator[Callable[[], dict[tuple[str, ...], float]]]:
    """As Prometheus itself does it."""
    server, thread = start_http_server(0, "127.0.0.1", registry)

    def get() -> dict[tuple[str, ...], float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30) as reply:
            return parsed(reply.read().decode())

    yield get
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.backends("sqlite", "redis")
def test_a_scrape_counts_jobs_by_state(
    make_board: MakeBoard, registry: CollectorRegistry, scrape: Callable[[], dict[tuple[str, ...], float]]
) -> None:
    board, other = make_board("pictures"), make_board("sounds")
    registry.register(BoardCollector(board, other, max_age=0))
    board.post_many([{"name": "resize"}] * 5)
    board.post("resize", delay=1000)
    board.claim_many("anna", 2)
    board.cancel(next(board.iterjobs(only_unclaimed=True)))
    counts = {"unclaimed": 2.0, "scheduled": 1.0, "claimed": 2.0, "trashed": 1.0}
    assert scrape() == {
        ("jobboard_up", "pictures"): 1.0,
        ("jobboard_up", "sounds"): 1.0,
        **{("jobboard_jobs", "pictures", state): count for state, count in counts.items()},
        **{("jobboard_jobs", "sounds", state): 0.0 for state in counts},
    }


@pytest.mark.backends("sqlite")
def test_scrapes_share_a_count_that_is_young_enough(make_board: MakeBoard, registry: CollectorRegistry) -> None:
    board = make_board()
    registry.register(BoardCollector(board, max_age=1000))
    assert read(registry)["jobboard_jobs", "board", "unclaimed"] == 0
    board.post("resize")
    assert read(registry)["jobboard_jobs", "board", "unclaimed"] == 0


@pytest.mark.backends("redis")
def test_an_outage_breaks_no_scrape(
    backend: str, private_server: Callable[..., Any], registry: CollectorRegistry, make_board: MakeBoard
) -> None:
    server = private_server("redis")
    with jobboard.backend("pictures", f"{server.uri}?retry_for=600") as board:
        registry.register(BoardCollector(board, make_board("sounds"), max_age=0, timeout=0.5))
        assert read(registry)["jobboard_up", "pictures"] == 1
        server.kill()
        values = read(registry)
        assert values["jobboard_up", "pictures"] == 0
        assert ("jobboard_jobs", "pictures", "unclaimed") not in values
        assert values["jobboard_up", "sounds"] == 1
        server.start()
        eventually(lambda: read(registry)["jobboard_up", "pictures"] == 1)


@pytest.mark.backends("sqlite")
def test_a_closed_board_is_down(make_board: MakeBoard, registry: CollectorRegistry) -> None:
    board = make_board()
    registry.register(BoardCollector(board))
    board.close()
    assert read(registry) == {("jobboard_up", "board"): 0.0}

"""Metrics for OpenTelemetry, collected by its SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric
from prometheus_client import CollectorRegistry

import jobboard
from jobboard import Conductor, Posting
from jobboard.contrib.figures import BUCKETS
from jobboard.contrib.opentelemetry import measure
from jobboard.contrib.prometheus import BoardCollector, ConductorMetrics

MakeBoard = Callable[..., Any]


class Meters:
    """An SDK and its metrics."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider([self._reader])

    def metrics(self) -> list[Metric]:
        data = self._reader.get_metrics_data()
        if data is None:
            return []
        return [each for found in data.resource_metrics for scope in found.scope_metrics for each in scope.metrics]

    def values(self) -> dict[tuple[str, ...], float]:
        """Return values by metric and attributes, as Prometheus names them: those of a histogram are counts."""
        found = {}
        for metric in self.metrics():
            for point in metric.data.data_points:
                value = point.count if hasattr(point, "count") else point.value
                name = metric.name.replace(".", "_") + "_seconds" * (metric.unit == "s")
                found[name, *(f"{key}={label}" for key, label in sorted(point.attributes.items()))] = value
        return found


@pytest.fixture
def meters() -> Iterator[Meters]:
    meters = Meters()
    yield meters
    meters.provider.shutdown()


def scraped(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    return {
        (
            sample.name.removesuffix("_total").removesuffix("_count"),
            *(f"{key}={label}" for key, label in sorted(sample.labels.items())),
        ): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith(("_created", "_bucket", "_sum"))
    }


@pytest.mark.backends("memory", "sqlite")
def test_it_collects_what_prometheus_scrapes(make_board: MakeBoard, meters: Meters, backend: str) -> None:
    board, other = make_board("pictures", keep_done=60), make_board("sounds")
    conductor = Conductor("worker", board, lambda job: None)
    registry = CollectorRegistry()
    registry.register(BoardCollector(board, other, max_age=0))
    ConductorMetrics(registry).observe(conductor)
    measure(board, other, conductor, meter_provider=meters.provider, max_age=0)
    board.set_limit("resize", concurrency=4, per="group", rate=(100, 50))
    due = board.schedule("ping", name="ping", every=3600).next_due
    board.post_many([Posting("resize", group="anna"), Posting("resize"), Posting("crop")])
    conductor.run(max_dispatches=2)
    board.set_limit("crop", concurrency=9)
    board.pause(["crop"])
    other.pause()
    other.post("hum", delay=1000)
    found, same = meters.values(), scraped(registry)
    ages = [each for each in found if each[0].endswith("oldest_seconds")]
    # Time goes on between the two.
    assert all(found.pop(age) <= same.pop(age) for age in ages)
    assert found == same
    assert len(ages) == (4 if backend == "sqlite" else 2)
    points = [point for each in meters.metrics() for point in each.data.data_points]
    assert {point.explicit_bounds for point in points if hasattr(point, "explicit_bounds")} == {BUCKETS}
    assert found["jobboard_jobs", f"board={board.name}", "state=unclaimed"] == 1
    assert found["jobboard_limit", f"board={board.name}", "job_name=resize", "per=group"] == 4
    assert found["jobboard_limit", f"board={board.name}", "job_name=crop", "per=name"] == 9
    assert found["jobboard_rate_limit", f"board={board.name}", "job_name=resize", "per=group"] == 2
    assert found["jobboard_paused", f"board={board.name}", "job_name=crop"] == 1
    assert found["jobboard_paused", f"board={other.name}", "job_name="] == 1
    assert found["jobboard_schedules", f"board={board.name}"] == 1
    assert found["jobboard_schedules_next_due_seconds", f"board={board.name}"] == due.timestamp()
    assert found["jobboard_schedules_late_seconds", f"board={board.name}"] == 0
    assert found["jobboard_outcomes", f"board={board.name}"] == 2
    assert found["jobboard_job_events", f"board={board.name}", "event=consumed", "job_name=resize"] == 2
    assert found["jobboard_job_wait_seconds", f"board={board.name}", "job_name=resize"] == 2


@pytest.mark.rule("OpenTelemetry is told the figures that Prometheus is told.")
@pytest.mark.backends("memory")
def test_each_collection_counts_once_and_anew(make_board: MakeBoard, meters: Meters) -> None:
    board = make_board("pictures")
    asked: list[int] = []
    count = board.stats
    board.stats = lambda: asked.append(1) or count()
    measure(board, meter_provider=meters.provider, max_age=0)
    for number in range(3):
        assert meters.values()["jobboard_jobs", f"board={board.name}", "state=unclaimed"] == number
        board.post("resize")
    assert len(asked) == 3


@pytest.mark.backends("memory")
def test_only_boards_and_conductors_are_measured() -> None:
    with pytest.raises(TypeError, match="a board or a conductor, not str"):
        measure("sqlite:///jobs.db")  # type: ignore[arg-type]


@pytest.mark.backends("memory")
def test_metrics_need_no_sdk(make_board: MakeBoard) -> None:
    board: jobboard.JobBoard = make_board()
    conductor = Conductor("worker", board, lambda job: None)
    measure(board, conductor)
    board.post("resize")
    conductor.run(max_dispatches=1)

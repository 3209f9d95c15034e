"""Metrics for Prometheus, served by its client and read by its parser."""

from __future__ import annotations

import time
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.parser import text_string_to_metric_families

import jobboard
from jobboard import Conductor, Posting, Reject, reading
from jobboard.backends.memory import ManualClock
from jobboard.contrib import figures
from jobboard.contrib.prometheus import BoardCollector, ConductorMetrics
from jobboard.testing import eventually
from tests.conftest import Runner
from tests.support.conductors import Hanging

MakeBoard = Callable[..., Any]


def parsed(text: str) -> dict[tuple[str, ...], float]:
    """Return values by metric and its labels' values, in the order of the labels' names."""
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
    """Give a function that scrapes as Prometheus does."""
    server, thread = start_http_server(0, "127.0.0.1", registry)

    def get() -> dict[tuple[str, ...], float]:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics", timeout=30) as reply:
            return parsed(reply.read().decode())

    yield get
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.rule("Boards of one name are told apart, or refused.")
@pytest.mark.backends("memory")
def test_boards_of_one_name_can_not_be_told_apart(make_board: MakeBoard) -> None:
    with pytest.raises(ValueError, match="told apart by their names, and these are 'pictures"):
        BoardCollector(make_board("pictures"), make_board("pictures"))


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
    found = {key: value for key, value in scrape().items() if key[0] in ("jobboard_up", "jobboard_jobs")}
    assert found == {
        ("jobboard_up", "pictures"): 1.0,
        ("jobboard_up", "sounds"): 1.0,
        **{("jobboard_jobs", "pictures", state): count for state, count in counts.items()},
        **{("jobboard_jobs", "sounds", state): 0.0 for state in counts},
    }


@pytest.mark.backends("sqlite", "redis")
def test_a_scrape_shows_conductors_and_waiting_jobs(
    make_board: MakeBoard, registry: CollectorRegistry, start: Runner, backend: str
) -> None:
    """By name where the board has an index by name."""
    board, hanging = make_board(claim_ttl=3), Hanging()
    registry.register(BoardCollector(board, max_age=0))
    for name, slots in (("one", 3), ("two", 2)):
        start(Conductor(name, board, {"slow": hanging}, max_simultaneous_jobs=slots, job_timeout=0.01))
    board.post("slow", max_attempts=1)
    try:
        hanging.await_begin()
        board.post("b")
        board.post_many([{"name": "a", "priority": "HIGH"}] * 2 + [{"name": "b", "delay": 99}])
        of_conductors = [(f"jobboard_{name}", "board") for name in ("conductors", "slots", "slots_hung")]

        def scraped() -> Any:
            values = read(registry)
            return [values[name] for name in of_conductors] == [2, 5, 1] and values

        values = eventually(scraped)
    finally:
        hanging.gate.set()
    ages = {key[1:]: value for key, value in values.items() if key[0].endswith("oldest_seconds")}
    waiting = {key[2]: value for key, value in values.items() if key[0] == "jobboard_name_waiting"}
    # The only reading by names may have met the job at work.
    assert {name: value for name, value in waiting.items() if value} == (
        {"a": 2, "b": 1} if backend == "sqlite" else {}
    )
    assert set(ages) == {("board",), *(("board", name) for name in waiting)}
    assert ages["board",] == max(ages.values()) > 0


@pytest.mark.rule("Names without end make no series without end.")
@pytest.mark.backends("sqlite")
def test_names_without_end_on_a_board_share_a_series(
    make_board: MakeBoard, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the names change from scrape to scrape."""
    monkeypatch.setattr(figures, "MAX_NAMES", 2)
    monkeypatch.setitem(reading.PARTS, "names", reading.PARTS["names"]._replace(interval=0))
    board = make_board()
    registry.register(BoardCollector(board, max_age=0))

    def waiting() -> dict[str, float]:
        return {key[2]: value for key, value in read(registry).items() if key[0] == "jobboard_name_waiting"}

    board.post_many([{"name": name} for name in ("c", "c", "b", "d", "a")])
    assert waiting() == {"c": 2, "a": 1, "(other)": 2}
    for job in board.iterjobs():
        board.cancel(job)
    board.post_many([{"name": "e"}, {"name": "a"}])
    eventually(lambda: waiting() == {"a": 1, "(other)": 1})


@pytest.mark.backends("sqlite")
def test_scrapes_share_a_count_that_is_young_enough(make_board: MakeBoard, registry: CollectorRegistry) -> None:
    board = make_board()
    registry.register(BoardCollector(board, max_age=1000))
    assert read(registry)["jobboard_jobs", "board", "unclaimed"] == 0
    board.post("resize")
    assert read(registry)["jobboard_jobs", "board", "unclaimed"] == 0


@pytest.mark.rule("An outage breaks no scrape.")
@pytest.mark.backends("redis")
def test_an_outage_breaks_no_scrape(
    backend: str, private_server: Callable[..., Any], registry: CollectorRegistry, make_board: MakeBoard
) -> None:
    server = private_server("redis")
    with jobboard.backend("pictures", f"{server.uri}?retry_for=600") as board:
        registry.register(BoardCollector(board, make_board("sounds"), max_age=0, timeout=0.5))
        # A board that answers later than that, as the machine has much to do, is down for this scrape.
        eventually(lambda: read(registry)["jobboard_up", "pictures"] == 1)
        server.kill()

        def one_is_down() -> bool:
            values = read(registry)
            assert values["jobboard_up", "pictures"] == 0
            assert ("jobboard_jobs", "pictures", "unclaimed") not in values
            return values["jobboard_up", "sounds"] == 1

        eventually(one_is_down)
        server.start()
        eventually(lambda: read(registry)["jobboard_up", "pictures"] == 1)


@pytest.mark.rule("An outage breaks no scrape.")
@pytest.mark.backends("sqlite")
def test_a_closed_board_is_down(make_board: MakeBoard, registry: CollectorRegistry) -> None:
    board = make_board()
    registry.register(BoardCollector(board))
    board.close()
    assert read(registry) == {("jobboard_up", "board"): 0.0}


@pytest.mark.backends("sqlite")
def test_events_of_jobs_are_counted(
    make_board: MakeBoard, registry: CollectorRegistry, scrape: Callable[[], dict[tuple[str, ...], float]]
) -> None:
    board = make_board("pictures")
    metrics = ConductorMetrics(registry)

    def resize(job: jobboard.Job) -> None:
        if job.attempts == 1:
            raise ValueError("no room")

    def crop(job: jobboard.Job) -> None:
        raise Reject("no picture")

    board.post_many([Posting("resize"), Posting("resize"), Posting("crop")])
    retry = jobboard.RetryPolicy(base=1e-6)
    for handlers, jobs in (({"resize": resize}, 4), ({"crop": crop}, 1)):
        conductor = Conductor("worker", board, handlers, retry=retry)
        metrics.observe(conductor)
        conductor.run(max_dispatches=jobs)
    values = scrape()
    told = {labels[2:]: value for labels, value in values.items() if labels[0] == "jobboard_job_events_total"}
    assert told == {
        **dict.fromkeys([(event, "resize") for event in ("claimed", "started", "finished")], 4),
        **dict.fromkeys([(event, "resize") for event in ("failed", "abandoned", "consumed")], 2),
        **dict.fromkeys([(event, "crop") for event in ("claimed", "started", "finished", "trashed")], 1),
    }
    assert values["jobboard_job_run_seconds_count", "pictures", "resize"] == 4
    assert values["jobboard_job_run_seconds_bucket", "pictures", "resize", "10000.0"] == 4
    assert values["jobboard_job_wait_seconds_count", "pictures", "resize"] == 2, "the first claim of each"
    assert values["jobboard_job_wait_seconds_count", "pictures", "crop"] == 1


@pytest.mark.backends("memory")
def test_waits_and_runs_are_measured(make_board: MakeBoard, registry: CollectorRegistry) -> None:
    """A job has not waited before it was due."""
    clock = ManualClock()
    board = make_board("pictures", clock=clock)
    conductor = Conductor("worker", board, lambda job: time.sleep(0.01))
    ConductorMetrics(registry).observe(conductor)
    board.post("resize")
    board.post("resize", delay=60)
    for seconds in (7, 57):
        clock.advance(seconds)
        conductor.run(max_dispatches=1)
    values = read(registry)
    name, *labels = next(labels for labels in values if labels[0] == "jobboard_job_wait_seconds_sum")
    assert values[name, *labels] == 7 + 4
    assert values["jobboard_job_run_seconds_sum", *labels] >= 0.02


@pytest.mark.rule("Names without end make no series without end.")
@pytest.mark.rule("A job is shown by the label of its context, else by its name.")
@pytest.mark.backends("sqlite")
def test_names_without_end_make_no_series_without_end(
    make_board: MakeBoard, registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "MAX_NAMES", 2)
    board = make_board()
    board.post_many([Posting(name) for name in ("a", "b", "c", "d")] + [Posting("e", context={"label": "a"})])
    conductor = Conductor("worker", board, lambda job: None)
    ConductorMetrics(registry).observe(conductor)
    conductor.run(max_dispatches=5)
    values = read(registry)
    counter = ("jobboard_job_events_total", "board", "consumed")
    consumed = {labels[3]: value for labels, value in values.items() if labels[:3] == counter}
    assert consumed == {"a": 2, "b": 1, "(other)": 2}

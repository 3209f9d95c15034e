"""The dashboard and the alert rules of ``examples/observability``: each metric, label and value in them exists."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

import jobboard
from jobboard.contrib import figures
from jobboard.contrib.prometheus import BoardCollector, ConductorMetrics

FOLDER = Path(__file__).parents[2] / "examples" / "observability"
EVENTS = {"claimed", "started", "finished", "failed", "consumed", "abandoned", "trashed", "lost"}
STATES = {"unclaimed", "scheduled", "claimed", "trashed"}
METRIC = re.compile(r"\b(jobboard_\w+)")
SELECTOR = re.compile(r"\b(jobboard_\w+)\{([^}]*)\}")
CONDITION = re.compile(r'(\w+)=~?"([^"]*)"')
GROUPED = re.compile(r"\bby \(([^)]*)\)")


def dashboard() -> Any:
    return json.loads((FOLDER / "dashboard.json").read_text())


def rules() -> list[Any]:
    groups = yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[str]:
    for panel in dashboard()["panels"]:
        yield from (target["expr"] for target in panel["targets"])
    for variable in dashboard()["templating"]["list"][1:]:
        yield variable["definition"].removeprefix("label_values(").rpartition(",")[0]
    yield from (rule["expr"] for rule in rules())


@pytest.fixture
def metrics() -> dict[str, set[str]]:
    """The names of metrics, as a server of metrics stores them, and the names of their labels."""
    registry = CollectorRegistry()
    with jobboard.backend("pictures", "memory") as board:
        registry.register(BoardCollector(board))
        ConductorMetrics(registry)
        described = re.findall(r"^# TYPE (\w+) ", generate_latest(registry).decode(), re.MULTILINE)
    labels = {
        f"jobboard_{figure.name}": {*figure.labels}
        for figure in (*figures.OF_BOARDS, figures.EVENTS, figures.RUN, figures.WAIT)
    }
    found: dict[str, set[str]] = {}
    for name in described:
        known = labels[name.removesuffix("_seconds").removesuffix("_total")]
        found |= {name: known, f"{name}_bucket": {*known, "le"}}
    return found


@pytest.mark.backends("memory")
def test_each_metric_label_and_value_exists(metrics: dict[str, set[str]]) -> None:
    for text in expressions():
        names = METRIC.findall(text)
        assert names, text
        assert {*names} <= {*metrics}, text
        for name, conditions in SELECTOR.findall(text):
            for label, value in CONDITION.findall(conditions):
                assert label in metrics[name], text
                known = {"event": EVENTS, "state": STATES}.get(label)
                assert known is None or {*value.split("|")} <= known, text
        for grouped in GROUPED.findall(text):
            assert {*re.split(r",\s*", grouped)} <= set.union(*(metrics[name] for name in names)), text


@pytest.mark.backends("memory")
def test_the_dashboard_shows_every_metric(metrics: dict[str, set[str]]) -> None:
    shown = {
        name
        for panel in dashboard()["panels"]
        for target in panel["targets"]
        for name in METRIC.findall(target["expr"])
    }
    missing = {name for name in metrics if not name.endswith(("_bucket", "_created"))} - {
        name.removesuffix("_bucket") for name in shown
    }
    assert missing == set()

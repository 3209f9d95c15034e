"""TaskFlow's own examples with a jobboard, on ours: with another configuration, and another client.

They are shortened by what they are configured by: how many jobs they post, and for how long they sleep between two.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from oslo_utils import timeutils
from taskflow.jobs import backends
from taskflow.utils import kazoo_utils

from tests.contrib.taskflow.boards import make_client

pytestmark = pytest.mark.backends("sqlite", "redis", "zookeeper")

Example = Callable[..., ModuleType]

NO_CLIENT = SimpleNamespace(close=lambda: None)
"""For the examples, which close the client that they make, where our board takes none."""


@pytest.fixture
def example(theirs_conf: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Example]:
    """``example(name, conf, **settings)``: one of them, whose constant ``conf`` leads to our board."""
    clients = contextlib.ExitStack()
    fetch = backends.fetch

    def client(conf: dict[str, Any]) -> Any:
        made = make_client(theirs_conf["url"]) or NO_CLIENT
        # They close it as it is, which kazoo allows only once it is stopped.
        clients.callback(made.close)
        made.close = clients.callback(getattr(made, "stop", made.close))
        return made

    def fetch_without(*args: Any, client: Any = None, **kwargs: Any) -> Any:
        return fetch(*args, client=None if client is NO_CLIENT else client, **kwargs)

    monkeypatch.setattr(backends, "fetch", fetch_without)

    def load(name: str, conf: str, **settings: Any) -> ModuleType:
        module = importlib.import_module(f"taskflow.examples.{name}")
        monkeypatch.setattr(module, conf, dict(theirs_conf))
        for constant, value in settings.items():
            monkeypatch.setattr(module, constant, value)
        return module

    monkeypatch.setattr(kazoo_utils, "make_client", client)
    with clients:
        yield load


def test_producers_and_consumers_of_colors(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    delays = {"WORKER_DELAY": 0.05, "PRODUCER_DELAY": 0.05}
    colors = example(
        "jobboard_produce_consume_colors", "SHARED_CONF", PRODUCERS=2, PRODUCER_UNITS=2, EXPECTED_UNITS=4, **delays
    )
    assert colors.main() == 0
    assert capsys.readouterr().out.count("[consumed]") == 4


def test_a_song_by_conductors(
    example: Example, make_theirs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bottles = example(
        "99_bottles", "JB_CONF", HOW_MANY_BOTTLES=3, TAKE_DOWN_DELAY=0, PASS_AROUND_DELAY=0, PERSISTENCE_URI=""
    )
    bottles.PERSISTENCE_URI = f"sqlite:///{tmp_path}/bottles.db"
    bottles.run_poster()
    bottles.run_conductor(only_run_once=True)
    said = capsys.readouterr().out
    assert [f"{count} bottles of beer" in said for count in range(3)] == [True] * 3
    assert make_theirs().job_count == 0


def test_reviews_by_a_parallel_engine(
    example: Example, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = ""

    class UntilReviewed(timeutils.StopWatch):
        """Not after a time: nobody knows how busy the machine is."""

        def expired(self) -> bool:
            nonlocal said
            said += capsys.readouterr().out
            return "Removing" in said or super().expired()

    reviews = example("tox_conductor", "JOBBOARD_CONF", RUN_TIME=30, REVIEW_CREATION_DELAY=0.2)
    monkeypatch.setattr(reviews, "timeutils", SimpleNamespace(StopWatch=UntilReviewed))
    reviews.main()
    assert "Posting review '0'" in said
    assert "Cloning review '0'" in said
    assert "Removing" in said

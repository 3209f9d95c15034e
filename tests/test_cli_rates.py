"""How fast things go, as top shows it: by the board's own events, or by what its conductors report of themselves."""

import threading
from typing import Any

import pytest

from jobboard import Conductor, Entity
from jobboard.cli import sampler as rates
from jobboard.cli.sampler import Conductors, Sampler
from jobboard.cli.top import as_json, as_line
from jobboard.testing import eventually
from tests.test_cli_looking import screen_of

NOTHING: dict[str, int] = {"dispatched": 0, "consumed": 0, "abandoned": 0, "trashed": 0}


def one(name: str, seconds: float, consumed: int, **more: Any) -> Entity:
    return Entity("conductor", name, {**NOTHING, "pid": 1, "seconds": seconds, "consumed": consumed, **more})


def test_a_rate_is_taken_over_the_conductors_own_time() -> None:
    conductors = Conductors()
    conductors.hear([one("a", 100, 5, trashed=5)])
    assert conductors.rates == {}
    for seconds, consumed in ((110, 25), (120, 85), (130, 86)):
        conductors.hear([one("a", seconds, consumed, trashed=consumed)])
    assert conductors.rates["consumed"] == conductors.rates["trashed"] == (86 - 5) / 30
    assert conductors.rates["started"] == 0
    for seconds in range(140, 170, 10):
        conductors.hear([one("a", seconds, 86)])
    assert conductors.rates["consumed"] == 0


def test_who_tells_nothing_new_is_as_fast_as_before() -> None:
    conductors = Conductors()
    for _ in range(3):
        for seconds, consumed in ((10, 0), (20, 40)):
            conductors.hear([one("a", seconds, consumed)])
        conductors.hear([one("a", 20, 40)])
        assert conductors.rates["consumed"] == 4


def test_several_are_summed_while_they_are_there() -> None:
    conductors = Conductors()
    conductors.hear([one("a", 10, 0), one("b", 1000, 300), one("c", 5, 0)])
    conductors.hear([one("a", 20, 40), one("b", 1010, 310), one("c", 5, 0)])
    assert conductors.rates["consumed"] == 5
    assert conductors.rates_of(one("b", 1010, 310))["consumed"] == 1
    assert conductors.rates_of(one("c", 5, 0)) == conductors.rates_of(one("d", 5, 0)) == {}
    conductors.hear([one("b", 1020, 320)])
    assert conductors.rates["consumed"] == 1


def test_one_that_was_started_anew_counts_from_0() -> None:
    conductors = Conductors()
    conductors.hear([one("a", 10, 5000)])
    conductors.hear([one("a", 20, 5040)])
    conductors.hear([one("a", 11, 0, pid=2)])
    assert conductors.rates == {}
    conductors.hear([one("a", 21, 30, pid=2)])
    assert conductors.rates["consumed"] == 3


@pytest.mark.parametrize("metadata", [{}, {"seconds": 1}, {**NOTHING, "seconds": "long"}, {**NOTHING, "seconds": None}])
def test_who_does_not_count_has_no_rate(metadata: dict[str, Any]) -> None:
    conductors = Conductors()
    for kind in ("conductor", "monitor"):
        conductors.hear([Entity(kind, "a", metadata)])
        assert conductors.rates == {}


@pytest.mark.backends("sqlite", "postgresql", "etcd", "zookeeper")
def test_conductors_tell_where_the_board_does_not(make_board: Any, start: Any) -> None:
    board = make_board(claim_ttl=1.5)
    running, over = threading.Event(), threading.Event()

    def hold(job: Any) -> None:
        running.set()
        over.wait(30)

    start(Conductor("busy", board, {"quick": lambda job: None, "long": hold}, max_simultaneous_jobs=3))
    board.post("long")
    assert running.wait(30)
    sampler = Sampler(make_board())
    try:

        def rated() -> bool:
            board.post_many([{"name": "quick"}] * 5)
            sampler.count()
            sampler.ask_entities()
            # It lapses for a moment where its heartbeat comes late.
            return (
                all(sampler.rates[name] > 0 for name in ("started", "consumed") if sampler.rates)
                and sampler.rates != {}
                and [entity.metadata["running"] > 0 for entity in sampler.entities] == [True]
                and sampler.conductors.rates_of(sampler.entities[0]) == sampler.rates
            )

        eventually(rated, 20)
    finally:
        over.set()
    shown = as_json(sampler, None)
    assert shown["rate_per_second"]["posted"] is None
    assert shown["rate_per_second"]["consumed"] > 0
    assert shown["entities"][0]["consumed_per_second"] == shown["rate_per_second"]["consumed"]
    assert "consumed " in as_line(sampler, None)
    assert "posted " not in as_line(sampler, None)
    assert " of 3 " in screen_of(sampler)
    assert "report of themselves" in screen_of(sampler)


@pytest.mark.backends("redis")
def test_what_is_trashed_is_not_told_twice(make_board: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of the trash changes, and events tell of the same: two figures, and not their sum."""
    monkeypatch.setattr(rates, "SHORTEST", 1e-9)
    board = make_board()
    sampler = Sampler(board)
    sampler.count()
    for _ in range(3):
        board.cancel(board.post("a"))
    eventually(lambda: sampler._events["trashed"] == 3)
    sampler.count()
    for told in (sampler.changes, sampler.rates):
        assert told["trashed"] * sampler.interval == pytest.approx(3)

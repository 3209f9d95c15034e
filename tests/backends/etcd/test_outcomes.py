"""What outcomes cost on etcd, where what is read costs by all that lies in the range that is asked for."""

from collections.abc import Callable
from typing import Any

import pytest

from jobboard.backends.etcd.keys import end_of
from jobboard.backends.etcd.requests import span
from jobboard.engine import Done, Mark, Side
from jobboard.job import Posting
from jobboard.testing.conformance.support import take

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]

SECOND = 1_000_000
MANY = 300


@pytest.fixture
def store(make_board: Callable[..., Any]) -> Any:
    """It has an outcome for each of the last seconds, which end in the seconds to come."""
    board = make_board(keep_done=0.001)
    board.engine.tidy()
    store = board.engine._opened
    [one] = board.post_many([Posting("mail")])
    board.consume(take(board), "anna")
    [first] = store.read([], [("outcome", one.uuid)]).sides
    done = Done.of(first)
    assert done is not None
    now = store.clock.now()

    def kept(at: int) -> Mark:
        record = done.record._replace(uuid=str(at), sequence=at, modified_on=now - at * SECOND)
        side = Side("outcome", record.uuid, None, None, None)
        return Mark(side, done._replace(record=record).packed(), until=now + at * SECOND)

    for at in range(0, MANY, 30):
        store.commit([], [kept(at + more) for more in range(30)])
    return store


@pytest.fixture
def counts(store: Any) -> list[int]:
    """How many keys there are in each range that is read from now on."""
    counts: list[int] = []
    read = store.link.read

    def reading(operations: Any) -> Any:
        answer = read(operations)
        counts.extend(answer.counts)
        return answer

    store.link.read = reading
    return counts


def test_they_are_dropped_by_short_ranges(store: Any, counts: list[int]) -> None:
    far = store.clock.now() + 2 * MANY * SECOND
    assert not store.outcomes.tidy(far, 60)
    assert max(counts) <= MANY // 2
    assert store.link.read([span(store.keys.dropped, end_of(store.keys.dropped))]).found == [[]]
    # The next one goes on from there.
    counts.clear()
    assert not store.outcomes.tidy(far, 60)
    assert len(counts) <= 8


def test_they_are_shown_by_short_ranges(store: Any, counts: list[int]) -> None:
    shown: list[str] = []
    after = None
    while True:
        sides = store.newest("outcome", after, 20).sides
        assert max(counts) <= MANY // 2
        shown += [side.key for side in sides]
        if len(sides) < 20:
            break
        after = sides[-1]
    assert [uuid for uuid in shown if uuid.isdecimal()] == [str(at) for at in range(MANY)]


def test_one_of_a_clock_that_is_ahead_comes_first(store: Any) -> None:
    [second] = store.newest("outcome", None, 2).sides[1:]
    done = Done.of(second)
    assert done is not None
    ahead = done.record._replace(uuid="ahead", modified_on=store.clock.now() + 3600 * SECOND)
    mark = Mark(Side("outcome", "ahead", None, None, None), done._replace(record=ahead).packed(), until=2**50)
    store.commit([], [mark])
    assert [side.key for side in store.newest("outcome", None, 1).sides] == ["ahead"]

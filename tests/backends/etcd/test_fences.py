"""Fences: a reading takes short ranges of a long index, and still finds every name."""

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jobboard.backends.etcd import fences
from jobboard.backends.etcd.driver import EtcdDriver
from jobboard.backends.etcd.requests import end_of, get
from jobboard.kv import layout
from jobboard.kv.driver import Op, Range

pytestmark = [pytest.mark.backends("etcd"), pytest.mark.timeout(120)]

SECOND = 1_000_000
START = 1_790_000_000 * SECOND


def ready(number: int, rank: int = 100) -> str:
    return str(layout.Entry(rank, number, f"uuid-{number}", 1, "mail", None))


def done(number: int) -> str:
    return layout.newest_name(START + number * SECOND, number, f"uuid-{number}")


def over(name: str) -> str:
    """Return the name by which an outcome is dropped after an hour."""
    ended = 10**18 - int(name.partition(".")[0])
    return layout.over_name(ended + 3600 * SECOND, name)


def add(driver: EtcdDriver, index: str, *names: str) -> None:
    for start in range(0, len(names), 500):
        driver.commit([Op("add", f"{index}/{name}") for name in names[start : start + 500]])


def remove(driver: EtcdDriver, index: str, *names: str) -> None:
    for start in range(0, len(names), 500):
        driver.commit([Op("remove", f"{index}/{name}") for name in names[start : start + 500]])


def first(driver: EtcdDriver, index: str, most: int, after: str = "") -> list[str]:
    return driver.read([], [Range(index, most, after)]).names[0]


def stored(driver: EtcdDriver, folder: str) -> list[str]:
    start = driver.key(f"{folder}/")
    return [kv.key[len(start) :] for kv in driver.link.read([get(start, end_of(start), only="keys")]).found[0]]


@pytest.fixture
def driver(make_driver: Callable[..., Any]) -> EtcdDriver:
    driver: EtcdDriver = make_driver()
    return driver


@pytest.fixture
def counts(driver: EtcdDriver, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of keys in the ranges that the driver reads from now on."""
    counts: list[int] = []
    read = driver.link.read

    def reading(operations: Any) -> Any:
        answer = read(operations)
        counts.extend(answer.counts)
        return answer

    monkeypatch.setattr(driver.link, "read", reading)
    return counts


def naming() -> Iterator[tuple[str, Callable[[int], str]]]:
    yield "ready", lambda number: ready(number * 700_000, number % 3)
    yield "timed", lambda number: layout.timed_name(START + number * SECOND, number, "S", f"uuid-{number}")
    yield "done", done
    yield "over", lambda number: layout.over_name(START + number % 5 * SECOND, done(number))


@pytest.mark.rule("Each name of a long index on etcd has a fence before it, so that a reading comes by it.")
@pytest.mark.parametrize(("index", "name"), list(naming()), ids=lambda each: each if isinstance(each, str) else "")
def test_each_name_has_a_fence_before_it_in_its_window(
    driver: EtcdDriver, make_driver: Any, index: str, name: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any additions and removals of names and fences."""
    monkeypatch.setattr(fences, "_OFTEN", 8)
    window, draw, there = fences.WINDOWS[index], random.Random(index), set[str]()
    drivers = [driver, make_driver()]
    for step in range(12):
        new = {name(draw.randrange(2000)) for _ in range(draw.choice([1, 5, 60]))} - there
        gone = set(sorted(there)[: draw.choice([0, len(there) // 2, len(there)])])
        add(drivers[step % 2], index, *new)
        remove(drivers[step % 2], index, *gone)
        there = (there | new) - gone
        assert first(drivers[step % 3 % 2], index, 1000) == sorted(there)[:1000]
        places = stored(driver, f"fence/{index}")
        for each in there:
            assert any(place <= each and place[:window] == each[:window] for place in places)
    remove(driver, index, *there)
    for _ in range(2):
        assert first(driver, index, 10) == []
    assert len(stored(driver, f"fence/{index}")) < 4


@pytest.mark.rule("A look, and a page of outcomes, reads short ranges, however large the board is.")
@pytest.mark.parametrize(("index", "name"), [("ready", ready), ("done", done)], ids=["ready", "done"])
def test_a_look_reads_no_more_of_a_larger_board(
    driver: EtcdDriver, counts: list[int], index: str, name: Callable[[int], str]
) -> None:
    names = sorted(map(name, range(1, 4001)))
    add(driver, index, *names)
    assert first(driver, index, 101) == names[:101]
    assert max(counts) <= 2500
    counts.clear()
    for start in range(100, 500, 20):
        remove(driver, index, *names[start - 20 : start])
        assert first(driver, index, 20, names[start]) == names[start + 1 : start + 21]
    assert sum(counts) <= 20 * 2500


@pytest.mark.rule("A look, and a page of outcomes, reads short ranges, however large the board is.")
def test_deleted_names_of_one_priority_do_not_slow_another(driver: EtcdDriver, counts: list[int]) -> None:
    """The names of each priority have fences of their own. A reading passes over deleted names."""
    low = [ready(number, 200) for number in range(1, 1001)]
    add(driver, "ready", *low)
    for number in range(1, 6):
        high = [ready(number * 2000 + more, 0) for number in range(1, 6) for more in range(200)]
        add(driver, "ready", *high)
        assert first(driver, "ready", 3) == high[:3]
        remove(driver, "ready", *high)
        assert first(driver, "ready", 3) == low[:3]
    counts.clear()
    assert first(driver, "ready", 3) == low[:3]
    assert len(counts) < 16


@pytest.mark.rule("A repeated look behind an empty part is one request.")
def test_a_repeated_look_behind_an_empty_part_is_one_request(
    driver: EtcdDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One empty part is too little for the removal of its fence."""
    names = [ready(number * 700_000) for number in range(1, 4)]
    add(driver, "ready", *names)
    remove(driver, "ready", names[0])
    assert first(driver, "ready", 1) == names[1:2]
    requests, call = list[str](), driver.link.call
    monkeypatch.setattr(driver.link, "call", lambda path, *args: requests.append(path) or call(path, *args))
    assert first(driver, "ready", 1) == names[1:2]
    assert len(requests) == 1


@pytest.mark.rule("Each name of a long index on etcd has a fence before it, so that a reading comes by it.")
def test_a_fence_that_another_reading_removes_hides_no_name(
    driver: EtcdDriver, make_driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the requests of a reading, another reading finds the range empty, and names come back to it."""
    monkeypatch.setattr(fences, "_OFTEN", 2)
    names, other = [ready(number) for number in range(1, 200)], make_driver()
    stays = names[150]
    add(driver, "ready", *names)
    read = driver.link.read

    def between(operations: Any) -> Any:
        answer = read(operations)
        remove(other, "ready", *(name for name in names if name != stays))
        assert first(other, "ready", 10) == [stays]
        return answer

    monkeypatch.setattr(driver.link, "read", between)
    assert stays in first(driver, "ready", 1000)
    assert stored(other, "fence/ready")


@pytest.mark.rule("Each name of a long index on etcd has a fence before it, so that a reading comes by it.")
def test_the_last_fence_before_a_name_stays(
    driver: EtcdDriver, make_driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One reading removes the fence at a deleted name, another the fence before it, and the name comes back."""
    monkeypatch.setattr(fences, "_OFTEN", 1)
    names, other = [ready(number) for number in range(1, 12)], make_driver()
    add(driver, "ready", *names)
    remove(driver, "ready", *names[:-1])
    txn = driver.link.txn

    def between(compare: Any, success: Any, changes: bool = True) -> Any:
        if "request_delete_range" not in "".join(success):
            return txn(compare, success, changes)
        monkeypatch.setattr(driver.link, "txn", txn)
        monkeypatch.setattr(fences, "_OFTEN", 10**9)
        add(other, "ready", names[-2])
        remove(other, "ready", names[-1])
        assert first(other, "ready", 10) == [names[-2]]
        remove(other, "ready", names[-2])
        add(other, "ready", names[-1])
        taken.append(names[-1] not in stored(other, "fence/ready"))
        return txn(compare, success, changes)

    taken: list[bool] = []
    monkeypatch.setattr(driver.link, "txn", between)
    assert first(driver, "ready", 10) == names[-1:]
    assert taken == [True]
    assert first(other, "ready", 10) == names[-1:]


def test_tidying_leaves_no_fence_of_deleted_names(
    driver: EtcdDriver, make_driver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So it is with outcomes, which nobody may ever list, and whose last names are dropped first."""
    monkeypatch.setattr(fences, "_OFTEN", 8)
    tidying = make_driver()
    outcomes = sorted(map(done, range(0, 3000, 5)))
    add(driver, "done", *outcomes)
    add(driver, "over", *map(over, outcomes))
    kept = outcomes[:5]
    for gone in (outcomes[5:], kept):
        remove(driver, "done", *gone)
        remove(driver, "over", *map(over, gone))
        list(tidying.tidying())
        assert all(fence <= kept[-1] for fence in stored(driver, "fence/done"))
    assert stored(driver, "fence") == []

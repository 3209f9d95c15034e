"""What ZooKeeper's driver alone does: counters that are replaced, marks, and what was damaged by hand."""

import threading
from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

from jobboard.backends.zookeeper.driver import ZooKeeperDriver
from jobboard.exceptions import JobFailure
from jobboard.kv import layout
from jobboard.kv.driver import ANY, Op, Range, Refused

pytestmark = pytest.mark.backends("zookeeper")

Make = Callable[..., ZooKeeperDriver]


def root(driver: ZooKeeperDriver) -> str:
    return driver.place(layout.LAYOUT).removesuffix("/layout")


def numbered(driver: ZooKeeperDriver, *paths: str) -> int:
    for beaten in (False, True, True, True, True):
        numbers = driver.number(len(paths), beaten)
        try:
            driver.commit([*(Op("create", path) for path in paths), *numbers.ops])
        except Refused:
            continue
        return numbers.first
    raise AssertionError("beaten again and again")


# Numbers


def test_a_counter_is_replaced_before_its_version_ends(
    make_driver: Make, caller: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version of ZooKeeper's begins anew, below zero, at 2**31. One who remembers the old counter finds the new."""
    monkeypatch.setattr(ZooKeeperDriver, "renewed_at", 5)
    one, two, given = make_driver(), make_driver(), [0]
    for step in range(30):
        driver, size = (one, two)[step % 3 == 1], 1 + step % 3
        first = numbered(driver, *(f"job/{step}-{number}" for number in range(size)))
        assert first > given[-1]
        given += range(first, first + size)
        [name] = caller.get_children(f"{root(one)}/next")
        assert caller.get(f"{root(one)}/next/{name}")[1].version <= 5 + size
    assert len(given) == len(set(given))
    assert given[-1] <= 2 * len(given), "numbers have few gaps"


def test_many_who_draw_while_the_counter_is_replaced(make_driver: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ZooKeeperDriver, "renewed_at", 3)
    drivers = [make_driver() for _ in range(4)]
    given: list[list[int]] = [[] for _ in drivers]

    def draw(which: int) -> None:
        for _ in range(25):
            given[which] += [drivers[which].number(1, True).first]

    threads = [threading.Thread(target=draw, args=(which,)) for which in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    numbers = sorted(number for some in given for number in some)
    assert numbers == list(range(1, 101))
    assert all(some == sorted(some) for some in given)


def test_a_large_batch_costs_one_write_of_the_counter(make_driver: Make) -> None:
    driver = make_driver()
    assert len(driver.number(500, False).ops) == 2
    assert numbered(driver, *(f"job/{number}" for number in range(500))) == 1
    assert numbered(driver, "job/next") == 501


def test_a_counter_that_was_deleted_goes_on_above_all_numbers(make_driver: Make, caller: KazooClient) -> None:
    driver, other = make_driver(), make_driver()
    last = numbered(driver, "job/1")
    numbered(other, "job/2")
    for step in range(2):
        for counter in caller.get_children(f"{root(driver)}/next"):
            caller.delete(f"{root(driver)}/next/{counter}")
        for each in (driver, other):
            first = numbered(each, f"job/{step}-{each is driver}")
            assert last < first < 10**16
            last = first


# Records


def test_a_record_that_was_written_by_hand_can_be_changed_and_deleted(make_driver: Make, caller: KazooClient) -> None:
    driver = make_driver()
    for path in ("job/1", "job/2", "job/3"):
        driver.commit([Op("create", path, b"a")])
        caller.set(driver.place(path), b"garbage")
        caller.create(f"{driver.place(path)}/stray")
    [one, two, three] = driver.read(["job/1", "job/2", "job/3"]).nodes
    assert one is not None
    assert two is not None
    assert three is not None
    assert one.value == b"garbage"
    made = driver.commit([Op("put", "job/1", b"b", one.version), Op("delete", "job/2", version=two.version)])
    assert driver.read(["job/1", "job/2"]).nodes == [(b"b", made["job/1"]), None]
    driver.commit([Op("check", "job/3", version=three.version)])
    driver.commit([Op("delete", "job/1", version=made["job/1"]), Op("delete", "job/3")])
    with pytest.raises(Refused):
        driver.commit([Op("put", "job/1", b"c", one.version)])
    assert driver.read(["job/1", "job/3"]).nodes == [None, None]


def test_a_record_and_its_mark_are_two_znodes(make_driver: Make, caller: KazooClient) -> None:
    driver = make_driver()
    made = driver.commit([Op("create", "job/1", b"a")])
    [mark] = caller.get_children(driver.place("job/1"))
    assert caller.get(driver.place("job/1"))[0] == mark.encode() + b"a"
    driver.commit([Op("put", "job/1", b"b", made["job/1"])])
    assert caller.get_children(driver.place("job/1")) == [mark]
    driver.commit([Op("delete", "job/1")])
    assert caller.exists(driver.place("job/1")) is None


def test_any_version_of_a_record_that_others_change_meanwhile(make_driver: Make) -> None:
    driver, other = make_driver(), make_driver()
    made = driver.commit([Op("create", "job/1", b"a")])
    commit, changed = driver.connection.commit, []

    def meanwhile(ops: object) -> object:
        if not changed:
            changed.append(other.commit([Op("delete", "job/1", version=made["job/1"])]))
            other.commit([Op("create", "job/1", b"b")])
        return commit(ops)  # type: ignore[arg-type]

    driver.connection.commit = meanwhile  # type: ignore[method-assign, assignment]
    driver.commit([Op("put", "job/1", b"c", ANY)])
    assert [node and node.value for node in other.read(["job/1"]).nodes] == [b"c"]


# What a board has


def test_a_board_that_was_deleted_is_not_made_anew(make_driver: Make, caller: KazooClient) -> None:
    driver = make_driver()
    caller.delete(root(driver), recursive=True)
    acts: list[Callable[[], object]] = [
        lambda: driver.read([layout.GATE_PATH], [Range(layout.READY, 1)]),
        lambda: driver.read(["side/key/a"]),
        lambda: driver.commit([Op("create", "job/1"), Op("add", "ready/100.0000000000000001.u.1.n.")]),
        lambda: driver.number(1, True),
        driver.session,
        driver.watch,
    ]
    for act in acts:
        with pytest.raises(JobFailure, match="was deleted"):
            act()
    assert caller.exists(root(driver)) is None
    again = make_driver()
    assert numbered(again, "job/1") == 1

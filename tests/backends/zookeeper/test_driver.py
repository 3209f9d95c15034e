"""Counters of jobs and marks of records, which the driver of ZooKeeper alone has."""

from collections.abc import Callable

import pytest
from kazoo.client import KazooClient

from jobboard.backends.zookeeper.driver import ZooKeeperDriver
from jobboard.kv.driver import Op, Refused
from jobboard.testing.drivers import at_once, numbered
from tests.backends.zookeeper.conftest import root_of

pytestmark = pytest.mark.backends("zookeeper")

Make = Callable[..., ZooKeeperDriver]


# Numbers


@pytest.mark.rule("A counter of jobs is replaced before its version ends, and numbers rise.")
def test_a_counter_is_replaced_before_its_version_ends(
    make_driver: Make, caller: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Versions start again below zero at 2**31. A driver that remembers the old counter finds the new one."""
    monkeypatch.setattr(ZooKeeperDriver, "renewed_at", 5)
    one, two, given = make_driver(), make_driver(), [0]
    for step in range(30):
        driver, size = (one, two)[step % 3 == 1], 1 + step % 3
        first = numbered(driver, *(f"job/{step}-{number}" for number in range(size)))
        assert first > given[-1]
        given += range(first, first + size)
        [name] = caller.get_children(f"{root_of(one)}/next")
        assert caller.get(f"{root_of(one)}/next/{name}")[1].version <= 5 + size
    assert len(given) == len(set(given))
    assert given[-1] <= 2 * len(given), "numbers have few gaps"


@pytest.mark.rule("A counter of jobs is replaced before its version ends, and numbers rise.")
def test_numbers_rise_while_the_counter_is_replaced(make_driver: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ZooKeeperDriver, "renewed_at", 3)
    drivers = [make_driver() for _ in range(4)]
    given: list[list[int]] = [[] for _ in drivers]

    def draw(which: int) -> None:
        for _ in range(25):
            given[which] += [drivers[which].number(1, True).first]

    at_once(*(lambda which=which: draw(which) for which in range(4)))
    numbers = sorted(number for some in given for number in some)
    assert numbers == list(range(1, 101))
    assert all(some == sorted(some) for some in given)


def test_a_large_batch_costs_one_write_of_the_counter(make_driver: Make) -> None:
    driver = make_driver()
    assert len(driver.number(500, False).ops) == 2
    assert numbered(driver, *(f"job/{number}" for number in range(500))) == 1
    assert numbered(driver, "job/next") == 501


@pytest.mark.rule("A counter of jobs is replaced before its version ends, and numbers rise.")
def test_a_counter_that_was_deleted_goes_on_above_all_numbers(make_driver: Make, caller: KazooClient) -> None:
    driver, other = make_driver(), make_driver()
    last = numbered(driver, "job/1")
    numbered(other, "job/2")
    for step in range(2):
        for counter in caller.get_children(f"{root_of(driver)}/next"):
            caller.delete(f"{root_of(driver)}/next/{counter}")
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
    driver.commit([Op("delete", "job/1", version=made["job/1"]), Op("delete", "job/3", version=three.version)])
    with pytest.raises(Refused):
        driver.commit([Op("put", "job/1", b"c", one.version)])
    assert driver.read(["job/1", "job/3"]).nodes == [None, None]

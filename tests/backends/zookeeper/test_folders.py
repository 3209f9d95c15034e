"""Folders of names: they stay small, however much a board holds, and go when they are empty."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from jobboard.backends.zookeeper import driver as module
from jobboard.backends.zookeeper.driver import ZooKeeperDriver
from jobboard.backends.zookeeper.folders import FolderWalk
from jobboard.kv import layout
from jobboard.kv.driver import ALIVE, Op, Range
from jobboard.testing import eventually
from tests.backends.zookeeper.conftest import root_of
from tests.full import FULL

pytestmark = [pytest.mark.backends("zookeeper"), pytest.mark.timeout(240)]

MANY = 20_000 if FULL else 4_000
"""More names than a folder may have, and than the jobs of one instant would have in one folder."""

SECOND = 10**6

Make = Callable[..., ZooKeeperDriver]

LOOK = [Range(layout.READY, 10), Range(layout.TIMED, 101), Range(layout.HOLDERS, 101), Range(ALIVE, 1_000)]


def entry(sequence: int, rank: int = 100) -> str:
    return str(layout.Entry(rank, sequence, f"{sequence:036d}", 1, "resize", None))


def add(driver: ZooKeeperDriver, names: list[str]) -> None:
    for start in range(0, len(names), 1_000):
        driver.commit([Op("add", name) for name in names[start : start + 1_000]])


def cost(driver: ZooKeeperDriver, act: Callable[[], Any]) -> tuple[int, int, int]:
    """Return the requests of an act, the names that they list, and the names of the longest list."""
    sent, read, lists = driver.connection.sent, driver.connection.read, []

    def reading(*args: Any, **more: Any) -> Any:
        found = read(*args, **more)
        lists.extend(len(names) for names in found[1] if names is not None)
        return found

    driver.connection.read = reading  # type: ignore[method-assign]
    try:
        act()
    finally:
        del driver.connection.read  # type: ignore[method-assign]
    return driver.connection.sent - sent, sum(lists), max(lists, default=0)


def below(caller: KazooClient, path: str) -> Iterator[str]:
    for name in caller.get_children(path):
        yield f"{path}/{name}"
        yield from below(caller, f"{path}/{name}")


@pytest.mark.rule("No folder that a look reads is long.")
@pytest.mark.parametrize(
    ("gap", "step"),
    [(60 * SECOND // MANY, 1), (SECOND // MANY, 1), (0, 1), (SECOND // MANY, 7_919), (-SECOND // MANY, 1)],
    ids=["due in a minute", "due in a second", "due at once", "in no order", "overdue"],
)
def test_a_look_lists_no_long_folder_of_due_jobs(make_driver: Make, gap: int, step: int) -> None:
    driver = make_driver()
    start = driver.now() + (60 * SECOND if gap >= 0 else -60 * SECOND)
    names = [layout.timed_name(start + n * abs(gap), n * step % 10**7, "S", f"{n:036d}") for n in range(MANY)]
    add(driver, [f"{layout.TIMED}/{name}" for name in names])
    assert len(short_look(make_driver())[1]) == 101


@pytest.mark.rule("No folder that a look reads is long.")
def test_a_look_lists_no_long_folder_of_ready_jobs(make_driver: Make) -> None:
    add(make_driver(), [f"{layout.READY}/{entry(number)}" for number in range(1, MANY + 1)])
    assert short_look(make_driver())[0] == [entry(number) for number in range(1, 11)]


def short_look(driver: ZooKeeperDriver) -> list[list[str]]:
    """Look twice, and return the names. The second look takes one request: it knows where the names are."""
    for most in (20, 1):
        # A reading asks for the time every ten seconds.
        driver.now()
        requests, shown, longest = cost(driver, lambda: driver.read(["gate"], LOOK))
        assert requests <= most
        assert shown <= 1_500
        assert longest <= 1_000
    return driver.read([], LOOK).names


@pytest.mark.rule("No folder that a look reads is long.")
def test_jobs_that_are_due_now_are_found_in_order(make_driver: Make) -> None:
    """Most jobs of the folder are due later, and the numbers of the jobs say nothing about their times."""
    driver = make_driver()
    start = (driver.now() // 100_000 + 600) * 100_000
    times = [start + (number * 7_919 % 1_000) * 90 for number in range(1_000)]
    names = [layout.timed_name(when, number * 37, "S", f"{number:036d}") for number, when in enumerate(times)]
    add(driver, [f"{layout.TIMED}/{name}" for name in names])
    for now in (start, start + 50_000, start + 99_999):
        walk = FolderWalk(layout.TIMED, "", now, driver.listings)
        assert list(itertools.islice(walk.names(), 101)) == sorted(names)[:101]
    # Long before, none of these jobs is due, and any will do.
    found = driver.read([], [Range(layout.TIMED, 101)]).names[0]
    assert len(set(found) & set(names)) == 101


@pytest.mark.rule("Folders are made with what lies in them, whoever was quicker, and go once they stay empty.")
def test_folders_that_stay_empty_go_with_a_look(
    make_driver: Make, caller: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, other = make_driver(), make_driver()
    names = [f"{layout.READY}/{entry(number)}" for number in range(1, 1_001)]
    add(driver, names)
    driver.commit([Op("remove", name) for name in names[:-1]])
    folder = f"{root_of(driver)}/ready/100.000000000000"
    other.read([], LOOK)
    assert len(caller.get_children(folder)) == 6, "a folder that is empty for a moment stays"
    monkeypatch.setattr(module, "_EMPTY", 0.0)
    other.read([], LOOK)
    eventually(lambda: len(caller.get_children(folder)) == 1)
    # A driver that remembers the folders makes them again.
    driver.commit([Op("add", names[0])])
    assert other.read([], LOOK).names[0] == [entry(1), entry(1_000)]


@pytest.mark.rule("Tidying leaves no empty folder, in short steps.")
def test_tidying_leaves_no_empty_folder(make_driver: Make, caller: KazooClient) -> None:
    driver = make_driver()
    before = set(below(caller, root_of(driver)))
    names = [
        f"{layout.LIVE}/{entry(1)}",
        f"{layout.TIMED}/{layout.timed_name(driver.now(), 1, 'S', 'uuid')}",
        f"{layout.TRASH}/{layout.newest_name(driver.now(), 1, 'uuid')}",
        f"{layout.KEPT}/{layout.kept_name('session', 1, 'uuid')}",
    ]
    records = [*(f"side/key/{number}" for number in range(1_000)), "job/uuid"]
    made = driver.commit([*(Op("create", path) for path in records), *(Op("add", name) for name in names)])
    driver.commit(
        [*(Op("delete", path, version=made[path]) for path in records), *(Op("remove", name) for name in names)]
    )
    list(driver.tidying())
    left = set(below(caller, root_of(driver))) - before
    assert left == {
        f"{root_of(driver)}/{name}" for name in ("live", "timed", "trash", "kept", "job", "side", "side/key")
    }
    driver.commit([*(Op("create", path) for path in records), *(Op("add", name) for name in names)])


@pytest.mark.rule("Folders are made with what lies in them, whoever was quicker, and go once they stay empty.")
def test_drivers_that_make_the_same_folders_all_succeed(make_driver: Make) -> None:
    one, two = make_driver(), make_driver()
    for number in range(1, 2_000, 200):
        one.commit([Op("add", f"{layout.READY}/{entry(number)}"), Op("create", f"job/{number}")])
        two.commit([Op("add", f"{layout.READY}/{entry(number + 1)}"), Op("create", f"job/{number + 1}")])
    assert len(one.read([], [Range(layout.READY, 100)]).names[0]) == 20

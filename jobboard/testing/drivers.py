"""The conformance suite of drivers: every rule of :mod:`jobboard.kv.driver`, as tests that each driver has to pass.

The author of a driver writes a test module with one import and one fixture::

    from jobboard.testing.drivers import *

    @pytest.fixture
    def build():
        \"\"\"Return ``build(name='board', **options)``, which makes a driver that is not open yet.\"\"\"
        return functools.partial(build_driver, MyDriver, {"board": "mine://localhost", "namespace": uuid.uuid4().hex})

Two drivers of one name have one board. Only the drivers of one test share boards.
"""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from jobboard import conf
from jobboard.engine import Seat
from jobboard.kv import layout
from jobboard.kv.driver import ALIVE, JOBS, MISSED, SCHEDULES, Driver, Op, Range, Refused
from jobboard.testing import eventually, holds

MANY = 1_000
DAY = 86_400 * 10**6
START = 1_790_000_000 * 10**6

Make = Callable[..., Any]

ODD = [
    "a job",
    "b:c",
    "d%41",
    "~",
    "-",
    "_",
    "0",
    "00",
    "ä/ö.ü",
    "漢字",
    "x" * 255,
    "a\x00\x1f",
    "%2F",
    "..",
    "a+b=c&d",
]
"""Names of jobs that cannot be names of files."""


def build_driver(driver: type[Driver], where: str | Mapping[str, Any], name: str = "board", **options: Any) -> Driver:
    """Return a driver for the board called ``name``, from the configuration ``where`` and more options."""
    given = {"board": where} if isinstance(where, str) else where
    settings = conf.parse({**given, **options}, {**conf.COMMON, **driver.options}, driver.uri_parts)
    return driver(Seat(name, settings, None, settings.scheme))


@pytest.fixture
def make_driver(build: Callable[..., Driver]) -> Iterator[Callable[..., Any]]:
    """Yield ``make_driver(name='board', heard=None, **options)``, which returns an open driver on a created board.

    The driver appends the words that it hears to ``heard``."""
    with contextlib.ExitStack() as stack:

        def make(name: str = "board", heard: list[str] | None = None, **options: Any) -> Driver:
            driver = build(name, **options)
            driver.open(True, [Op("create", layout.LAYOUT, b"1")], (heard if heard is not None else []).append)
            stack.callback(driver.close)
            return driver

        yield make


@pytest.fixture
def driver(make_driver: Callable[..., Driver]) -> Driver:
    return make_driver()


def create(driver: Driver, path: str, value: bytes = b"") -> Any:
    return driver.commit([Op("create", path, value)])[path]


def values(driver: Driver, *paths: str) -> list[bytes | None]:
    return [node and node.value for node in driver.read(paths).nodes]


def names(driver: Driver, place: str, most: int = MANY, after: str = "") -> list[str]:
    return driver.read([], [Range(place, most, after)]).names[0]


def walked(driver: Driver, place: str, most: int) -> list[str]:
    """Return all names of an index or folder, read ``most`` at a time."""
    found: list[str] = []
    while some := names(driver, place, most, found[-1] if found else ""):
        assert len(some) <= most
        found += some
    return found


def numbered(driver: Driver, *paths: str) -> int:
    """Commit new records with numbers, as a store does. Return the first number."""
    for beaten in (False, *[True] * 20):
        numbers = driver.number(len(paths), beaten)
        try:
            driver.commit([*(Op("create", path) for path in paths), *numbers.ops])
        except Refused as refused:
            if not refused.paths <= {op.path for op in numbers.ops}:
                raise
            continue
        return numbers.first
    raise AssertionError("a number that was drawn is refused like a counter")


def at_once(*targets: Callable[[], object]) -> None:
    """Run these in threads, and raise the first error of a thread."""
    failed: list[BaseException] = []

    def run(target: Callable[[], object]) -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001 - it is raised by the thread of the test
            failed.append(error)

    threads = [threading.Thread(target=run, args=(target,), daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if failed:
        raise failed[0]
    assert not any(thread.is_alive() for thread in threads), "a thread has not ended within two minutes"


def rung(bell: str, heard: list[str]) -> None:
    """Wait until a bell is heard. A driver may report :data:`MISSED` in its place, after a loss of its connection."""
    eventually(lambda: bell in heard or MISSED in heard)


def entry(sequence: int, rank: int = 100, name: str = "job", group: str | None = None) -> str:
    return str(layout.Entry(rank, sequence, f"uuid-{sequence}", 1, name, group))


SHAPES: dict[str, Callable[[int], str]] = {
    layout.READY: lambda n: entry(n * 37, n % 3, ODD[n % len(ODD)], ODD[n % 7] if n % 2 else None),
    layout.LIVE: lambda n: entry(n * 37, n % 3, ODD[n % len(ODD)], ODD[n % 7] if n % 2 else None),
    layout.TIMED: lambda n: layout.timed_name(START + n * n * 10_000_000, n * 41, "SC"[n % 2], f"uuid-{n}"),
    layout.KEPT: lambda n: layout.kept_name(f"session{n % 5}", n * 37, f"uuid-{n}"),
    layout.HOLDERS: lambda n: f"session{n}",
    layout.TRASH: lambda n: layout.newest_name(START + n * n * 10_000_000, n * 37, f"uuid-{n}"),
    layout.DONE: lambda n: layout.newest_name(START + n * 1_000, n * 37, f"uuid-{n}"),
    layout.OVER: lambda n: layout.over_name(START + n // 9 * DAY, layout.newest_name(START, n, f"uuid-{n}")),
}
"""The names that a board puts into each index, by the index."""


# Records


def test_a_commit_returns_the_versions_of_its_records(driver: Driver) -> None:
    made = driver.commit([Op("create", "job/1", b"a"), Op("create", "gate"), Op("ring", JOBS)])
    assert made.keys() == {"job/1", "gate"}
    found = driver.read(["gate", "job/1"]).nodes
    assert found == [(b"", made["gate"]), (b"a", made["job/1"])]
    changed = driver.commit([Op("put", "job/1", b"\x00\xff", made["job/1"]), Op("check", "gate", version=made["gate"])])
    assert changed.keys() == {"job/1"}
    assert driver.read(["job/1"]).nodes == [(b"\x00\xff", changed["job/1"])]
    assert driver.commit([Op("delete", "job/1", version=changed["job/1"])]) == {}
    absent = driver.read(["job/1", layout.LAYOUT, "side/key/a"], [Range(layout.READY, 10), Range("side/key", 10)])
    assert [node and node.value for node in absent.nodes] == [None, b"1", None]
    assert absent.names == [[], []]


@holds("A tag of another life of a job or side record fits nothing.")
@pytest.mark.parametrize("path", ["job/0c1f", "side/answer/a%2Eb:1"])
def test_a_version_never_returns(driver: Driver, make_driver: Make, path: str) -> None:
    """A record that is deleted and created again with the same bytes has another version than before."""
    other, versions = make_driver(), []
    for maker in (driver, other, driver, driver):
        versions.append(create(maker, path, b"same"))
        versions.append(maker.commit([Op("put", path, b"same", versions[-1])])[path])
        maker.commit([Op("delete", path, version=versions[-1])])
    versions.append(create(driver, path, b"same"))
    assert not any(one == two for at, one in enumerate(versions) for two in versions[:at])
    for version in versions[:-1]:
        for op in (
            Op("put", path, b"no", version),
            Op("delete", path, version=version),
            Op("check", path, version=version),
        ):
            with pytest.raises(Refused) as refused:
                driver.commit([op])
            assert refused.value.paths <= {path}
    assert driver.read([path]).nodes == [(b"same", versions[-1])]


@pytest.mark.parametrize(
    "op",
    [
        Op("create", "job/there"),
        Op("put", "job/absent", b"x"),
        Op("delete", "job/absent"),
        Op("check", "job/absent"),
        Op("lives", "nobody"),
        Op("before", "1000000000000000"),
    ],
    ids=lambda op: f"{op.do} {op.path}",
)
def test_a_commit_is_refused_as_a_whole(driver: Driver, make_driver: Make, op: Op) -> None:
    heard: list[str] = []
    listener = make_driver(heard=heard)
    listener.watch()
    before = create(driver, "job/there", b"a")
    driver.commit([Op("add", f"{layout.READY}/{entry(1)}")])
    with pytest.raises(Refused) as refused:
        driver.commit(
            [
                Op("create", "job/new"),
                Op("put", "job/there", b"b", before)
                if op.path != "job/there"
                else Op("add", f"{layout.LIVE}/{entry(1)}"),
                Op("remove", f"{layout.READY}/{entry(1)}"),
                Op("add", f"{layout.READY}/{entry(2)}"),
                op._replace(version=before),
                Op("ring", JOBS),
            ]
        )
    assert refused.value.paths <= {op.path}
    assert values(driver, "job/new", "job/there") == [None, b"a"]
    assert names(driver, layout.READY) == [entry(1)]
    assert names(driver, layout.LIVE) == []
    driver.commit([Op("ring", SCHEDULES)])
    rung(SCHEDULES, heard)
    assert JOBS not in heard


def test_a_refusal_names_only_refused_paths(driver: Driver) -> None:
    versions = [create(driver, f"job/{number}", b"a") for number in range(6)]
    driver.commit([Op("put", "job/1", b"b", versions[1]), Op("delete", "job/3", version=versions[3])])
    with pytest.raises(Refused) as refused:
        driver.commit([Op("put", f"job/{number}", b"c", version) for number, version in enumerate(versions)])
    assert refused.value.paths <= {"job/1", "job/3"}
    assert values(driver, *(f"job/{number}" for number in range(4))) == [b"a", b"b", b"a", None]


def test_one_of_several_changes_of_a_version_succeeds(driver: Driver, make_driver: Make) -> None:
    create(driver, "side/scope/a", b"0")
    made: list[int] = []

    def count(each: Driver) -> None:
        for path in range(10):
            with contextlib.suppress(Refused):
                create(each, f"side/key/{path}")
                made.append(path)
            while True:
                [node] = each.read(["side/scope/a"]).nodes
                assert node is not None
                with contextlib.suppress(Refused):
                    each.commit([Op("put", "side/scope/a", b"%d" % (int(node.value) + 1), node.version)])
                    break

    others = [driver, driver, make_driver(), make_driver()]
    at_once(*(lambda each=each: count(each) for each in others))
    assert values(driver, "side/scope/a") == [b"40"]
    assert sorted(made) == list(range(10))


def test_records_with_odd_names_are_kept_apart(driver: Driver) -> None:
    paths = [layout.side_path("key", name) for name in ODD]
    driver.commit([Op("create", path, name.encode()) for path, name in zip(paths, ODD, strict=True)])
    assert values(driver, *paths) == [name.encode() for name in ODD]
    found = walked(driver, "side/key", 4)
    assert sorted(found) == sorted(path.rpartition("/")[2] for path in paths)


def test_a_post_of_500_large_jobs_is_one_commit(driver: Driver) -> None:
    ops = []
    for number in range(500):
        ops += [
            Op("create", f"job/uuid-{number}", b"x" * 1024),
            Op("add", f"{layout.READY}/{entry(number)}"),
            Op("add", f"{layout.LIVE}/{entry(number)}"),
        ]
    versions = driver.commit([*ops, Op("ring", JOBS)])
    assert len(versions) == 500
    assert names(driver, layout.READY) == names(driver, layout.LIVE) == [entry(number) for number in range(500)]
    found = driver.read([f"job/uuid-{number}" for number in range(500)]).nodes
    assert all(node == (b"x" * 1024, versions[f"job/uuid-{number}"]) for number, node in enumerate(found))
    with pytest.raises(Refused):
        driver.commit(
            [
                *(Op("put", path, b"y", version) for path, version in versions.items()),
                Op("check", "job/none", version=versions["job/uuid-0"]),
            ]
        )
    driver.commit([Op("delete", path, version=version) for path, version in versions.items()])
    assert names(driver, "job") == []


# Indexes


def test_a_name_that_exists_may_be_added_and_an_absent_one_removed(driver: Driver) -> None:
    first, second = (f"{layout.READY}/{entry(number)}" for number in (1, 2))
    driver.commit([Op("remove", first)])
    driver.commit([Op("add", first), Op("remove", second)])
    driver.commit([Op("add", first), Op("add", second)])
    assert names(driver, layout.READY) == [entry(1), entry(2)]
    driver.commit([Op("remove", first), Op("remove", second)])
    assert names(driver, layout.READY) == []
    driver.commit([Op("remove", first), Op("add", second)])
    assert names(driver, layout.READY) == [entry(2)]


@holds("An outcome of a clock that is ahead comes first.")
@pytest.mark.parametrize("index", SHAPES)
def test_an_index_is_read_in_the_order_of_its_names(driver: Driver, make_driver: Make, index: str) -> None:
    """The order depends neither on earlier additions and removals nor on the size of a page."""
    shape, draw, other = SHAPES[index], random.Random(index), make_driver()
    model: set[str] = set()
    for step in range(4):
        add = {shape(draw.randrange(1, 900)) for _ in range(draw.choice([1, 60, 150]))}
        remove = set(draw.sample(sorted(model - add), len(model - add) // draw.choice([1, 2, 4])))
        remove.add(shape(2_000 + step))
        ops = [*(Op("add", f"{index}/{name}") for name in add), *(Op("remove", f"{index}/{name}") for name in remove)]
        draw.shuffle(ops)
        (driver, other)[step % 2].commit(ops)
        model = (model | add) - remove
        inorder = sorted(model)
        assert names(driver, index) == inorder
        assert walked(driver, index, draw.choice([20, 40, 200])) == inorder
        for _ in range(3):
            after = shape(draw.randrange(1, 1_000))
            assert names(driver, index, 10, after) == [name for name in inorder if name > after][:10]
        list(driver.tidying())
        assert names(driver, index) == inorder
    driver.commit([Op("remove", f"{index}/{name}") for name in model])
    assert names(driver, index) == []


def test_a_walk_may_begin_between_names(driver: Driver) -> None:
    found = [(rank, sequence) for rank in (0, 100, 200) for sequence in (1, 199, 200, 49_999, 50_000, 10**15)]
    driver.commit([Op("add", f"{layout.LIVE}/{entry(sequence, rank)}") for rank, sequence in found])
    for place in [(0, 0), *found, (50, 7), (100, 300), (200, 10**15)]:
        left = [entry(sequence, rank) for rank, sequence in found if (rank, sequence) > place]
        assert names(driver, layout.LIVE, 50, layout.behind(place)) == left
        assert names(driver, layout.LIVE, 2, layout.behind(place)) == left[:2]


def test_the_names_of_one_session_are_read_by_themselves(driver: Driver) -> None:
    kept = [layout.kept_name(session, number, f"u{number}") for session in ("a", "ab", "b") for number in range(300)]
    driver.commit([Op("add", f"{layout.KEPT}/{name}") for name in kept])
    assert names(driver, layout.KEPT, 300, "ab.") == kept[300:600]


def test_many_jobs_of_one_instant_are_read_in_order(driver: Driver) -> None:
    timed = [layout.timed_name(START, number, "S", f"u{number}") for number in range(3_000)]
    mixed = random.Random(1).sample(timed, len(timed))
    for start in range(0, len(mixed), 500):
        driver.commit([Op("add", f"{layout.TIMED}/{name}") for name in mixed[start : start + 500]])
    assert names(driver, layout.TIMED, 101) == timed[:101]
    assert walked(driver, layout.TIMED, 700) == timed
    driver.commit([Op("remove", f"{layout.TIMED}/{name}") for name in timed[:500]])
    assert names(driver, layout.TIMED, 3) == timed[500:503]
    assert driver.count(layout.TIMED) in (None, 2_500)
    assert driver.count(layout.READY) in (None, 0)


def test_a_folder_of_records_is_walked_like_an_index(driver: Driver) -> None:
    """A walk shows each name once while others come and go."""
    stays = {f"stays-{number}" for number in range(300)}
    driver.commit([Op("create", f"side/key/{name}") for name in stays])
    driver.commit([Op("create", f"side/entity/{name}") for name in ("one", "two")])
    found: list[str] = []
    step = 0
    while some := names(driver, "side/key", 25, found[-1] if found else ""):
        found += some
        step += 1
        create(driver, f"side/key/comes-{step}")
        goes = create(driver, f"side/key/goes-{step}")
        driver.commit([Op("delete", f"side/key/goes-{step}", version=goes)])
    assert len(found) == len(set(found))
    assert stays <= set(found) <= stays | {f"comes-{number}" for number in range(step)}
    assert sorted(names(driver, "side/entity")) == ["one", "two"]
    assert driver.count("side/key") in (None, 300 + step)


# Reading


def test_answers_have_the_order_of_the_requests(driver: Driver) -> None:
    driver.commit(
        [
            *(Op("create", f"job/{number}", b"%d" % number) for number in range(250)),
            *(Op("add", f"{index}/{shape(number)}") for index, shape in SHAPES.items() for number in range(1, 30)),
        ]
    )
    numbers = random.Random(2).sample(range(300), 300)
    ranges = [Range(index, 20, SHAPES[index](9)) for index in SHAPES]
    found = driver.read([f"job/{number}" for number in numbers], ranges)
    told = [node and int(node.value) for node in found.nodes]
    assert told == [number if number < 250 else None for number in numbers]
    for (index, most, after), some in zip(ranges, found.names, strict=True):
        assert some == sorted(name for n in range(1, 30) if (name := SHAPES[index](n)) > after)[:most]


def test_a_fresh_reading_shows_every_acknowledged_commit(driver: Driver, make_driver: Make) -> None:
    other = make_driver()
    version = create(driver, "gate", b"0")
    for number in range(1, 40):
        writer, reader = (driver, other) if number % 2 else (other, driver)
        put = Op("put", "gate", b"%d" % number, version)
        version = writer.commit([put, Op("add", f"{layout.READY}/{entry(number)}")])["gate"]
        found = reader.read(["gate"], [Range(layout.READY, 100)], fresh=True)
        assert found.nodes[0] is not None
        assert found.nodes[0].value == b"%d" % number
        assert found.names[0] == [entry(each) for each in range(1, number + 1)]


def test_the_indexes_of_a_reading_are_not_older_than_its_records(driver: Driver, make_driver: Make) -> None:
    version = create(driver, "gate", b"0")
    other, over = make_driver(), threading.Event()

    def write() -> None:
        last = version
        try:
            for number in range(1, 100):
                old, new = (f"{layout.READY}/{entry(each)}" for each in (number - 1, number))
                put = Op("put", "gate", b"%d" % number, last)
                last = driver.commit([put, Op("remove", old), Op("add", new)])["gate"]
        finally:
            over.set()

    def read() -> None:
        while not over.is_set():
            found = other.read(["gate"], [Range(layout.READY, 10)])
            assert found.nodes[0] is not None
            told = [layout.Entry.parse(name).sequence for name in found.names[0]]
            assert not told or told[0] >= int(found.nodes[0].value)

    at_once(write, read)


def test_the_time_of_an_answer_is_not_ahead(driver: Driver) -> None:
    for _ in range(20):
        for told in (driver.now(), driver.read(["gate"]).now):
            now = time.time_ns() // 1000
            assert now - driver.precision - 60 * 10**6 <= told <= now


# Numbers


def test_numbers_rise_over_drivers_and_threads(driver: Driver, make_driver: Make) -> None:
    drivers = [driver, driver, make_driver(), make_driver()]
    given: list[list[int]] = [[] for _ in drivers]

    def post(which: int) -> None:
        for number in range(12):
            size = 1 + number % 3
            first = numbered(drivers[which], *(f"job/{which}-{number}-{each}" for each in range(size)))
            given[which] += range(first, first + size)

    at_once(*(lambda which=which: post(which) for which in range(len(drivers))))
    assert all(some == sorted(some) for some in given)
    every = [number for some in given for number in some]
    assert len(every) == len(set(every))
    assert min(every) > 0
    assert max(every) < 10**16
    assert numbered(make_driver(), "job/last") > max(every)


def test_a_beaten_driver_draws_a_number_by_a_write(driver: Driver, make_driver: Make) -> None:
    """A remembered counter may be behind. A drawn number compares nothing."""
    other = make_driver()
    last = numbered(driver, "job/1")
    for step in range(3):
        first = numbered(other, f"job/other-{step}", f"job/more-{step}")
        assert first > last
        drawn = driver.number(2, True)
        assert drawn.ops == () or not list(drawn.ops)
        assert drawn.first > first + 1
        # Others go on meanwhile.
        between = numbered(other, f"job/between-{step}")
        assert between > drawn.first + 1
        driver.commit([Op("create", f"job/drawn-{step}"), *drawn.ops])
        last = numbered(driver, f"job/again-{step}")
        assert last > between


def test_numbers_rise_after_a_refused_commit(driver: Driver, make_driver: Make) -> None:
    create(driver, "job/there")
    numbers = driver.number(1, False)
    with pytest.raises(Refused):
        driver.commit([Op("create", "job/there"), *numbers.ops])
    first = numbered(driver, "job/1")
    assert first >= numbers.first
    assert numbered(make_driver(), "job/2") > first


# Sessions


@holds("A closed board leaves no lease.")
def test_a_session_lives_until_its_driver_is_closed(driver: Driver, make_driver: Make, build: Make) -> None:
    heard: list[str] = []
    watcher = make_driver(heard=heard)
    watcher.watch()
    dying = build()
    dying.open(True, [], lambda word: None)
    session = dying.session()
    assert session
    assert "." not in session
    assert "/" not in session
    assert dying.session() == session != driver.session()
    assert session in names(driver, ALIVE)
    assert session in names(dying, ALIVE)
    driver.commit([Op("lives", session), Op("create", "job/1")])
    dying.commit([Op("lives", session), Op("create", "job/2")])
    dying.beat()
    dying.close()
    eventually(lambda: session not in names(driver, ALIVE))
    with pytest.raises(Refused) as refused:
        driver.commit([Op("lives", session), Op("create", "job/3")])
    assert refused.value.paths <= {session}
    assert values(driver, "job/1", "job/2", "job/3") == [b"", b"", None]
    eventually(lambda: MISSED in heard)
    again = build()
    again.open(True, [], lambda word: None)
    assert again.session() not in (session, driver.session())
    again.close()


def test_a_commit_is_stored_before_its_last_instant(driver: Driver, make_driver: Make) -> None:
    other = make_driver()
    soon = driver.now(exact=True) + 50_000
    driver.commit([Op("before", str(soon + 3600 * 1_000_000)), Op("create", "job/1")])
    eventually(lambda: other.now(exact=True) > soon)
    with pytest.raises(Refused):
        driver.commit([Op("before", str(soon)), Op("create", "job/2")])
    assert values(driver, "job/1", "job/2") == [b"", None]


# Bells


def test_a_bell_is_heard_by_all_watching_drivers(driver: Driver, make_driver: Make) -> None:
    heard: list[list[str]] = [[], [], []]
    first, second, _silent = (make_driver(heard=each) for each in heard)
    driver.commit([Op("ring", JOBS)])
    first.watch()
    second.watch()
    for bells in ([JOBS], [SCHEDULES], [JOBS, SCHEDULES], [JOBS]):
        for told in heard:
            told.clear()
        first.watch()
        driver.commit([Op("ring", bell) for bell in bells])
        second.watch()
        for told in heard[:2]:
            for bell in bells:
                rung(bell, told)
    # A driver that does not watch may hear of its connection.
    assert not {JOBS, SCHEDULES} & {*heard[2]}


def test_a_driver_hears_its_own_bell(make_driver: Make) -> None:
    heard: list[str] = []
    driver = make_driver(heard=heard)
    driver.watch()
    driver.commit([Op("create", "job/1"), Op("ring", JOBS)])
    rung(JOBS, heard)
    assert SCHEDULES not in heard


def test_a_bell_of_another_board_is_not_heard(driver: Driver, make_driver: Make) -> None:
    heard: list[str] = []
    driver_of_another = make_driver("another", heard=heard)
    driver_of_another.watch()
    driver.commit([Op("ring", JOBS)])
    driver_of_another.commit([Op("ring", SCHEDULES)])
    rung(SCHEDULES, heard)
    assert JOBS not in heard


# Life


def test_drivers_that_open_at_once_create_one_board(build: Make) -> None:
    drivers = [build() for _ in range(4)]
    first = [Op("create", layout.LAYOUT, b"1"), Op("create", "gate")]
    at_once(*(lambda each=each: each.open(True, first, lambda word: None) for each in drivers))
    found = [each.read([layout.LAYOUT, "gate"]).nodes for each in drivers]
    assert all(nodes == found[0] for nodes in found)
    assert None not in found[0]
    for each in drivers:
        each.close()


def test_open_creates_nothing_unless_asked(build: Make) -> None:
    """Boards that live and end with the process need no setup, and are created all the same."""
    driver = build()
    driver.open(False, [Op("create", layout.LAYOUT, b"1")], lambda word: None)
    assert values(driver, layout.LAYOUT) == [b"1" if driver.keeps == "process" else None]
    driver.close()


def test_a_closed_board_keeps_its_records(driver: Driver, build: Make) -> None:
    create(driver, "job/1", b"a")
    driver.commit([Op("add", f"{layout.READY}/{entry(1)}")])
    other = build()
    other.open(True, [Op("create", layout.LAYOUT, b"2")], lambda word: None)
    other.close()
    again = build()
    again.open(False, [], lambda word: None)
    assert values(again, layout.LAYOUT, "job/1") == [b"1", b"a"]
    assert names(again, layout.READY) == [entry(1)]
    again.close()
    assert values(driver, "job/1") == [b"a"]


def test_boards_share_nothing(driver: Driver, make_driver: Make) -> None:
    another = make_driver("another")
    create(driver, "job/1")
    driver.commit([Op("add", f"{layout.READY}/{entry(1)}")])
    assert values(another, "job/1") == [None]
    assert names(another, layout.READY) == []
    create(another, "job/1")
    told = driver.boards(1_000)
    assert len(told) >= 2
    assert len(set(told)) == len(told)
    assert any(name.startswith("another") for name in told)
    assert any(name.startswith("board") for name in told)
    assert len(driver.boards(1)) == 1


def test_a_forked_child_connects_anew(make_driver: Make) -> None:
    heard: list[str] = []
    driver = make_driver(heard=heard)
    driver.watch()
    session = driver.session()
    create(driver, "job/1", b"parent")
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        told = b"failed"
        try:
            driver.forked()
            assert values(driver, "job/1") == [b"parent"]
            create(driver, "job/2", b"child")
            numbered(driver, "job/3")
            assert driver.session() != session
            driver.close()
            told = b"ok"
        finally:
            os.write(writes, told)
            os._exit(0)
    os.close(writes)
    assert os.read(reads, 100) == b"ok"
    os.close(reads)
    os.waitpid(child, 0)
    # The parent goes on with its own connection and session.
    driver.commit([Op("lives", session), Op("create", "job/4"), Op("ring", JOBS)])
    assert session in names(driver, ALIVE)
    if driver.keeps == "session":
        assert values(driver, "job/2") == [b"child"]
    rung(JOBS, heard)


__all__ = ["build_driver", "driver", "make_driver", *(name for name in globals() if name.startswith("test_"))]  # noqa: PLE0604

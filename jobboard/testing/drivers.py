"""The suite that every driver of a key-value server has to pass: each rule of :mod:`jobboard.kv.driver`.

The author of a driver writes a test module with one import and one fixture::

    from jobboard.testing.drivers import *

    @pytest.fixture
    def build():
        \"\"\"``build(name='board', **options)``: a driver that is not open yet.\"\"\"
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
from jobboard.kv.driver import ALIVE, ANY, JOBS, MISSED, SCHEDULES, Driver, Op, Range, Refused
from jobboard.testing import eventually

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
"""Names of jobs that are no names of files."""


def build_driver(driver: type[Driver], where: str | Mapping[str, Any], name: str = "board", **options: Any) -> Driver:
    """Return a driver for the board called ``name``, from the configuration ``where`` and more options."""
    given = {"board": where} if isinstance(where, str) else where
    settings = conf.parse({**given, **options}, {**conf.COMMON, **driver.options}, driver.uri_parts)
    return driver(Seat(name, settings, None, settings.scheme))


@pytest.fixture
def make_driver(build: Callable[..., Driver]) -> Iterator[Callable[..., Any]]:
    """``make_driver(name='board', heard=None, **options)``: a driver that is open, on a board that is made."""
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
    """All names, so many at a time."""
    found: list[str] = []
    while some := names(driver, place, most, found[-1] if found else ""):
        assert len(some) <= most
        found += some
    return found


def numbered(driver: Driver, *paths: str) -> int:
    """Commit new records with numbers, as a store does; the first number."""
    for beaten in (False, *[True] * 20):
        numbers = driver.number(len(paths), beaten)
        try:
            driver.commit([*(Op("create", path) for path in paths), *numbers.ops])
        except Refused as refused:
            if not refused.paths <= {op.path for op in numbers.ops}:
                raise
            continue
        return numbers.first
    raise AssertionError("who has been beaten is beaten again")


def at_once(*targets: Callable[[], object]) -> None:
    """Run these in threads, and raise what one of them has raised."""
    failed: list[BaseException] = []

    def run(target: Callable[[], object]) -> None:
        try:
            target()
        except BaseException as error:  # noqa: BLE001 - it is raised by the thread of the test
            failed.append(error)

    threads = [threading.Thread(target=run, args=(target,)) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed, failed


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
"""The names of each index, as a board has them."""


# Records


def test_what_is_not_there_is_none(driver: Driver) -> None:
    found = driver.read(["job/1", layout.LAYOUT, "side/key/a"], [Range(layout.READY, 10), Range("side/key", 10)])
    assert found.nodes[0] is None
    assert found.nodes[2] is None
    assert found.nodes[1] is not None
    assert found.nodes[1].value == b"1"
    assert found.names == [[], []]


def test_a_record_has_the_version_that_the_commit_has_told(driver: Driver) -> None:
    made = driver.commit([Op("create", "job/1", b"a"), Op("create", "gate"), Op("ring", JOBS)])
    assert made.keys() == {"job/1", "gate"}
    found = driver.read(["gate", "job/1"]).nodes
    assert found == [(b"", made["gate"]), (b"a", made["job/1"])]
    changed = driver.commit([Op("put", "job/1", b"\x00\xff", made["job/1"]), Op("check", "gate", version=made["gate"])])
    assert changed.keys() == {"job/1"}
    assert driver.read(["job/1"]).nodes == [(b"\x00\xff", changed["job/1"])]
    assert driver.commit([Op("delete", "job/1", version=changed["job/1"])]) == {}
    assert values(driver, "job/1") == [None]


@pytest.mark.parametrize("path", ["job/0c1f", "side/key/mail 7", "side/answer/a%2Eb:1", "gate"])
def test_a_version_never_returns(driver: Driver, make_driver: Make, path: str) -> None:
    """Created, deleted and created anew with the same bytes, it is another record to all who have read it before."""
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
                op,
                Op("ring", JOBS),
            ]
        )
    assert refused.value.paths <= {op.path}
    assert values(driver, "job/new", "job/there") == [None, b"a"]
    assert names(driver, layout.READY) == [entry(1)]
    assert names(driver, layout.LIVE) == []
    driver.commit([Op("ring", SCHEDULES)])
    eventually(lambda: SCHEDULES in heard)
    assert JOBS not in heard


def test_a_refusal_names_no_path_that_was_as_required(driver: Driver) -> None:
    versions = [create(driver, f"job/{number}", b"a") for number in range(6)]
    driver.commit([Op("put", "job/1", b"b", versions[1]), Op("delete", "job/3", version=versions[3])])
    with pytest.raises(Refused) as refused:
        driver.commit([Op("put", f"job/{number}", b"c", version) for number, version in enumerate(versions)])
    assert refused.value.paths <= {"job/1", "job/3"}
    assert values(driver, *(f"job/{number}" for number in range(4))) == [b"a", b"b", b"a", None]


def test_any_version_will_do_where_none_is_named(driver: Driver) -> None:
    create(driver, "job/1", b"a")
    driver.commit([Op("check", "job/1", version=ANY)])
    driver.commit([Op("put", "job/1", b"b")])
    assert values(driver, "job/1") == [b"b"]
    driver.commit([Op("delete", "job/1")])
    assert values(driver, "job/1") == [None]


def test_of_those_who_change_one_version_one_succeeds(driver: Driver, make_driver: Make) -> None:
    create(driver, "side/scope/a", b"0")
    refusals = [0]

    def count(each: Driver) -> None:
        for _ in range(15):
            while True:
                [node] = each.read(["side/scope/a"]).nodes
                assert node is not None
                try:
                    each.commit([Op("put", "side/scope/a", b"%d" % (int(node.value) + 1), node.version)])
                except Refused:
                    refusals[0] += 1
                    continue
                break

    others = [driver, driver, make_driver(), make_driver()]
    at_once(*(lambda each=each: count(each) for each in others))
    assert values(driver, "side/scope/a") == [b"60"]


def test_of_those_who_create_one_record_one_succeeds(driver: Driver, make_driver: Make) -> None:
    made: list[int] = []
    others = [driver, make_driver(), make_driver()]

    def make(number: int) -> None:
        for path in range(20):
            try:
                create(others[number], f"side/key/{path}")
            except Refused as refused:
                if not refused.paths <= {f"side/key/{path}"}:
                    raise
            else:
                made.append(path)

    at_once(*(lambda number=number: make(number) for number in range(3)))
    assert sorted(made) == list(range(20))


def test_records_with_odd_names_are_kept_apart(driver: Driver) -> None:
    paths = [layout.side_path("key", name) for name in ODD]
    driver.commit([Op("create", path, name.encode()) for path, name in zip(paths, ODD, strict=True)])
    assert values(driver, *paths) == [name.encode() for name in ODD]
    found = walked(driver, "side/key", 4)
    assert sorted(found) == sorted(path.rpartition("/")[2] for path in paths)


def test_a_large_commit_is_one(driver: Driver) -> None:
    """A post of 500 jobs of 1 KiB each."""
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
            [*(Op("put", path, b"y", version) for path, version in versions.items()), Op("check", "job/none")]
        )
    driver.commit([Op("delete", path, version=version) for path, version in versions.items()])
    assert names(driver, "job") == []


# Indexes


def test_a_name_may_be_there_or_not(driver: Driver) -> None:
    first, second = (f"{layout.READY}/{entry(number)}" for number in (1, 2))
    driver.commit([Op("remove", first)])
    driver.commit([Op("add", first), Op("remove", second)])
    driver.commit([Op("add", first), Op("add", second)])
    assert names(driver, layout.READY) == [entry(1), entry(2)]
    driver.commit([Op("remove", first), Op("remove", second)])
    assert names(driver, layout.READY) == []
    driver.commit([Op("remove", first), Op("add", second)])
    assert names(driver, layout.READY) == [entry(2)]


@pytest.mark.parametrize("index", SHAPES)
def test_an_index_is_read_in_the_order_of_its_names(driver: Driver, make_driver: Make, index: str) -> None:
    """Whatever was added and removed before, and however many names are asked for at a time."""
    shape, draw, other = SHAPES[index], random.Random(index), make_driver()
    model: set[str] = set()
    for step in range(6):
        add = {shape(draw.randrange(1, 900)) for _ in range(draw.choice([1, 60, 150]))}
        remove = set(draw.sample(sorted(model - add), len(model - add) // draw.choice([1, 2, 4])))
        remove.add(shape(2_000 + step))
        ops = [*(Op("add", f"{index}/{name}") for name in add), *(Op("remove", f"{index}/{name}") for name in remove)]
        draw.shuffle(ops)
        (driver, other)[step % 2].commit(ops)
        model = (model | add) - remove
        inorder = sorted(model)
        assert names(driver, index) == inorder
        assert walked(driver, index, draw.choice([7, 40, 200])) == inorder
        for _ in range(5):
            after = shape(draw.randrange(1, 1_000))
            assert names(driver, index, 10, after) == [name for name in inorder if name > after][:10]
        list(driver.tidying())
        assert names(driver, index) == inorder
    driver.commit([Op("remove", f"{index}/{name}") for name in model])
    assert names(driver, index) == []


def test_a_walk_may_begin_where_no_name_was(driver: Driver) -> None:
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


def test_folders_of_records_are_walked(driver: Driver) -> None:
    """Each name once, though others come and go meanwhile."""
    stays = {f"stays-{number}" for number in range(300)}
    driver.commit([Op("create", f"side/key/{name}") for name in stays])
    driver.commit([Op("create", f"side/entity/{name}") for name in ("one", "two")])
    found: list[str] = []
    step = 0
    while some := names(driver, "side/key", 25, found[-1] if found else ""):
        found += some
        step += 1
        create(driver, f"side/key/comes-{step}")
        driver.commit([Op("create", f"side/key/goes-{step}")])
        driver.commit([Op("delete", f"side/key/goes-{step}")])
    assert len(found) == len(set(found))
    assert stays <= set(found) <= stays | {f"comes-{number}" for number in range(step)}
    assert sorted(names(driver, "side/entity")) == ["one", "two"]
    assert driver.count("side/key") in (None, 300 + step)


# Reading


def test_answers_come_in_the_order_of_the_questions(driver: Driver) -> None:
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


def test_a_reading_is_not_older_than_a_commit_that_was_told(driver: Driver, make_driver: Make) -> None:
    other = make_driver()
    create(driver, "gate", b"0")
    for number in range(1, 40):
        writer, reader = (driver, other) if number % 2 else (other, driver)
        writer.commit([Op("put", "gate", b"%d" % number), Op("add", f"{layout.READY}/{entry(number)}")])
        found = reader.read(["gate"], [Range(layout.READY, 100)], fresh=True)
        assert found.nodes[0] is not None
        assert found.nodes[0].value == b"%d" % number
        assert found.names[0] == [entry(each) for each in range(1, number + 1)]


def test_the_indexes_of_a_reading_are_not_older_than_its_records(driver: Driver, make_driver: Make) -> None:
    create(driver, "gate", b"0")
    other, over = make_driver(), threading.Event()

    def write() -> None:
        for number in range(1, 150):
            old, new = (f"{layout.READY}/{entry(each)}" for each in (number - 1, number))
            driver.commit([Op("put", "gate", b"%d" % number), Op("remove", old), Op("add", new)])
        over.set()

    def read() -> None:
        while not over.is_set():
            found = other.read(["gate"], [Range(layout.READY, 10)])
            assert found.nodes[0] is not None
            told = [layout.Entry.parse(name).sequence for name in found.names[0]]
            assert not told or told[0] >= int(found.nodes[0].value)

    at_once(write, read)


def test_the_time_is_not_ahead(driver: Driver) -> None:
    for _ in range(20):
        for told in (driver.now(), driver.read(["gate"]).now):
            now = time.time_ns() // 1000
            assert now - driver.precision - 10 * 10**6 <= told <= now


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


def test_who_is_beaten_gets_a_number_all_the_same(driver: Driver, make_driver: Make) -> None:
    """A counter that is remembered may be behind; who draws numbers compares nothing."""
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


def test_numbers_of_a_commit_that_failed_are_given_to_nobody_wrongly(driver: Driver, make_driver: Make) -> None:
    create(driver, "job/there")
    numbers = driver.number(1, False)
    with pytest.raises(Refused):
        driver.commit([Op("create", "job/there"), *numbers.ops])
    first = numbered(driver, "job/1")
    assert first >= numbers.first
    assert numbered(make_driver(), "job/2") > first


# Sessions


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
    assert dying.session() == session
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


def test_sessions_differ(driver: Driver, make_driver: Make, build: Make) -> None:
    again = build()
    seen = set()
    for _ in range(2):
        again.open(True, [], lambda word: None)
        seen.add(again.session())
        again.close()
        again = build()
    assert len({driver.session(), make_driver().session(), *seen}) == 4


def test_a_commit_of_a_session_goes_with_it_or_not_at_all(driver: Driver) -> None:
    """What a session keeps, its claims, is stored only while it lives."""
    session = driver.session()
    name = layout.kept_name(session, 1, "u")
    driver.commit([Op("lives", session), Op("add", f"{layout.KEPT}/{name}"), Op("add", f"{layout.HOLDERS}/{session}")])
    assert names(driver, layout.KEPT) == [name]
    assert names(driver, layout.HOLDERS) == [session]


# Bells


def test_a_bell_is_heard_by_all_who_watch(driver: Driver, make_driver: Make) -> None:
    heard: list[list[str]] = [[], [], []]
    first, second, _silent = (make_driver(heard=each) for each in heard)
    driver.commit([Op("ring", JOBS)])
    first.watch()
    second.watch()
    for bell in (JOBS, SCHEDULES, JOBS, JOBS):
        for told in heard:
            told.clear()
        first.watch()
        driver.commit([Op("ring", bell)])
        second.watch()
        for told in heard[:2]:
            eventually(lambda told=told, bell=bell: bell in told or MISSED in told)  # type: ignore[misc]
    assert heard[2] == []


def test_a_driver_hears_its_own_bell(make_driver: Make) -> None:
    heard: list[str] = []
    driver = make_driver(heard=heard)
    driver.watch()
    driver.commit([Op("create", "job/1"), Op("ring", JOBS)])
    eventually(lambda: JOBS in heard)
    assert SCHEDULES not in heard


def test_one_commit_rings_both_bells(driver: Driver, make_driver: Make) -> None:
    heard: list[str] = []
    listener = make_driver(heard=heard)
    listener.watch()
    driver.commit([Op("ring", JOBS), Op("create", "job/1"), Op("ring", SCHEDULES)])
    eventually(lambda: {JOBS, SCHEDULES} <= set(heard))


def test_a_bell_of_another_board_is_not_heard(driver: Driver, make_driver: Make) -> None:
    heard: list[str] = []
    driver_of_another = make_driver("another", heard=heard)
    driver_of_another.watch()
    driver.commit([Op("ring", JOBS)])
    driver_of_another.commit([Op("ring", SCHEDULES)])
    eventually(lambda: SCHEDULES in heard)
    assert JOBS not in heard


# Life


def test_a_board_is_made_once(build: Make) -> None:
    drivers = [build() for _ in range(4)]
    first = [Op("create", layout.LAYOUT, b"1"), Op("create", "gate")]
    at_once(*(lambda each=each: each.open(True, first, lambda word: None) for each in drivers))
    found = [each.read([layout.LAYOUT, "gate"]).nodes for each in drivers]
    assert all(nodes == found[0] for nodes in found)
    assert None not in found[0]
    for each in drivers:
        each.close()


def test_nothing_is_made_unasked(build: Make) -> None:
    """But for boards that live and end with the process: these need no setup."""
    driver = build()
    driver.open(False, [Op("create", layout.LAYOUT, b"1")], lambda word: None)
    assert values(driver, layout.LAYOUT) == [b"1" if driver.keeps == "process" else None]
    driver.close()


def test_a_board_that_is_closed_stays(driver: Driver, build: Make) -> None:
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
    eventually(lambda: JOBS in heard)


__all__ = ["build_driver", "driver", "make_driver", *(name for name in globals() if name.startswith("test_"))]  # noqa: PLE0604

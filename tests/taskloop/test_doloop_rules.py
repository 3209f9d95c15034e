"""What doloop's users rely on: each rule has its test."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard import taskloop
from jobboard.exceptions import JobFailure
from jobboard.taskloop import ONE_HOUR, TaskLoop

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

DAY = 24 * ONE_HOUR

BUSY = 20
"""How many seconds may pass between two statements on a machine that has much to do."""


# get


def test_get_serves_lapsed_then_never_updated_then_longest_not_updated(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(*range(1, 9))
    loop.did([1, 2, 3, 4])
    loop.age(DAY, 2)
    loop.age(2 * DAY, 4)
    loop.age(3 * DAY, 1)
    loop.bump([7, 8])
    loop.age(10, 8)
    loop.bump(5, lock_for=60)
    assert loop.get(3) == [8, 7, 6]
    assert loop.get(10) == [1, 4, 2]
    # 3 was updated just now, and 5 is locked for a minute.
    assert loop.get(10) == []
    loop.age(60, 5)
    assert loop.get(10) == [5]


def test_get_breaks_ties_of_bumped_ids_by_their_update(make_loop: Callable[..., Any]) -> None:
    loop = make_loop("updated", "never", "earlier", id_type="VARCHAR(20)")
    loop.did(["updated", "earlier"])
    loop.age(100, "earlier")
    with loop.engine.begin() as connection:
        until = sa.table(loop.table, sa.column("lock_until"))
        connection.execute(sa.update(until).values(lock_until=1000))
    assert loop.get(3) == ["never", "earlier", "updated"]


def test_get_locks_for_an_hour(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1, 2)
    [first] = loop.get(1, lock_for=30)
    [second] = loop.get(2)
    assert {first, second} == {1, 2}
    checked = loop.check([first, second])
    assert 30 - BUSY <= checked[first][1] <= 30
    assert 3600 - BUSY <= checked[second][1] <= 3600
    assert loop.get(2) == []
    loop.age(31)
    assert loop.get(2) == [first]


def test_get_takes_no_more_than_limit_and_all_there_are(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(*range(250))
    loop.bump(range(120))
    first = loop.get(230)
    assert len(first) == 230
    assert set(first[:120]) == set(range(120))
    assert sorted(first + loop.get(1000)) == list(range(250))


def test_get_checks_its_arguments(loop: TaskLoop) -> None:
    for limit in (-1, -100):
        with pytest.raises(ValueError, match=f"limit.*{limit}"):
            loop.get(limit)
    for wrong in (24.0, None, "3", [1]):
        with pytest.raises(TypeError, match="limit must be an integer"):
            loop.get(wrong)  # type: ignore[arg-type]
    for lock_for in (0, -1, -0.5, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=f"lock_for.*{lock_for}"):
            loop.get(1, lock_for=lock_for)
    for wrong in (None, [60], "60"):
        with pytest.raises(TypeError, match="lock_for must be a number"):
            loop.get(1, lock_for=wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="min_loop_time must be a number"):
            loop.get(1, min_loop_time=wrong)  # type: ignore[arg-type]
    for who in ("", 256 * "x", "anna\n", "\ud800"):
        with pytest.raises(ValueError, match=r"^who "):
            loop.get(1, who=who)
    with pytest.raises(TypeError, match="who must be a str"):
        loop.get(1, who=3)  # type: ignore[arg-type]


@pytest.mark.parametrize("beyond", [2**63, 1e30, 10**400, float("nan")], ids=["int", "float", "no float", "nan"])
def test_a_time_that_no_database_can_store_is_named(make_loop: Callable[..., Any], beyond: float) -> None:
    loop = make_loop(1)
    held = loop.get(1, who="anna")
    calls: list[tuple[str, Callable[[], object]]] = [
        ("lock_for", lambda: loop.get(1, lock_for=beyond)),
        ("lock_for", lambda: loop.extend(held, lock_for=beyond)),
        ("lock_for", lambda: loop.bump(1, lock_for=-beyond)),
        ("min_loop_time", lambda: loop.get(1, min_loop_time=beyond)),
    ]
    for name, call in calls:
        with pytest.raises(ValueError, match=f"{name} must be within"):
            call()
    longest = 2**62
    assert loop.extend(held, lock_for=longest) == 1
    assert loop.bump(1, lock_for=-longest) == 1
    assert loop.get(1, lock_for=longest, min_loop_time=longest) == [1]
    assert loop.stats()["max_lock_time"] == pytest.approx(longest)


def test_get_of_none_is_an_empty_list(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    assert loop.get(0) == []
    with pytest.raises(ValueError, match="lock_for"):
        loop.get(0, lock_for=0)


def test_lock_for_may_be_a_float_and_never_locks_for_less(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    # doloop would round the first to no lock at all.
    for lock_for, seconds in ((0.4, 1), (59.4, 60)):
        held = loop.get(1, lock_for=lock_for, who="anna")
        assert loop.rows()[1][1] == held.tokens[1] // 1_000_000 + seconds
        loop.unlock(1)


def test_min_loop_time_may_be_any_number(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    for min_loop_time in (0, -5, 0.5, -1e6):
        loop.did(1)
        assert loop.get(1, min_loop_time=ONE_HOUR) == []
        loop.age(1)
        assert loop.get(1, min_loop_time=min_loop_time) == [1]


def test_min_loop_time_leaves_bumped_ids_alone(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    loop.did(1)
    loop.bump(1)
    assert loop.get(1) == [1]


# add, remove


def test_add_counts_what_is_new(loop: Any) -> None:
    assert loop.add([1, 2, 3]) == 3
    assert loop.add([2, 3, 4]) == 1
    assert loop.add([1]) == 0
    assert loop.add(range(300)) == 296
    assert loop.rows() == dict.fromkeys(range(300), (None, None))


def test_add_leaves_what_is_there_as_it_is(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    loop.get(1)
    before = loop.rows()
    assert loop.add([1], updated=True) == 0
    assert loop.rows() == before


def test_added_as_updated_is_not_served_at_once(loop: Any) -> None:
    assert loop.add([1, 2], updated=True) == 2
    assert loop.get(2) == []
    assert loop.get(2, min_loop_time=0) in ([1, 2], [2, 1])


def test_remove_counts_what_was_there(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1, 2, 3)
    assert loop.remove([2, 3, 4]) == 2
    assert set(loop.rows()) == {1}
    # doloop's object has another argument there, which does nothing.
    assert loop.remove(1, False, True) == 1
    assert set(loop.rows()) == {1}
    assert loop.remove(1, True) == 1
    assert set(loop.rows()) == set()


def test_no_ids_are_no_work(loop: TaskLoop) -> None:
    for empty in ([], (), set[int]()):
        for verb in (loop.add, loop.remove, loop.did, loop.unlock, loop.bump):
            assert verb(empty) == 0
        assert loop.check(empty) == {}


FORMS: dict[str, Callable[[], Any]] = {
    "one": lambda: 17,
    "list": lambda: [17],
    "tuple": lambda: (17, 18),
    "set": lambda: {17, 18},
    "range": lambda: range(17, 20),
    "keys": lambda: {17: "a value"},
    "generator": lambda: (id_ for id_ in (17, 18)),
    "repeated": lambda: [17, 17, 17],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_ids_may_be_one_or_many(loop: TaskLoop, form: Callable[[], Any]) -> None:
    wanted = {17} if form() == 17 else set(form())
    assert loop.add(form()) == len(wanted)
    assert loop.bump(form()) == len(wanted)
    assert set(loop.check(form())) == wanted
    assert loop.did(form()) == len(wanted)
    assert loop.unlock(form()) == len(wanted)
    assert loop.remove(form()) == len(wanted)


def test_a_str_is_one_id(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(id_type="VARCHAR(20)")
    assert loop.add("seventeen") == 1
    assert loop.get(5) == ["seventeen"]
    assert loop.did("seventeen") == 1


def test_bytes_are_one_id(make_loop: Callable[..., Any], backend: str) -> None:
    loop = make_loop(id_type={"postgresql": "BYTEA"}.get(backend, "VARBINARY(20)"))
    assert loop.add(b"\x00\xff\x80") == 1
    assert loop.get(5) == [b"\x00\xff\x80"]
    assert loop.did(b"\x00\xff\x80") == 1


# did, unlock, bump


def test_did_updates_and_unlocks(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1, 2)
    loop.get(1)
    assert loop.did([1, 2]) == 2
    for since_updated, locked_for in loop.check([1, 2]).values():
        assert 0 <= since_updated <= BUSY
        assert locked_for is None


def test_did_adds_what_is_missing_unless_told_not_to(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    assert loop.did([1, 2], auto_add=False) == 1
    assert set(loop.rows()) == {1}
    assert loop.did([1, 2]) == 2
    assert None not in {updated for updated, _ in loop.rows().values()}


def test_did_twice_counts_twice(make_loop: Callable[..., Any]) -> None:
    """Where a database counts only what has changed, the second within a second changes nothing."""
    loop = make_loop(1)
    assert [loop.did(1) for _ in range(3)] == [1, 1, 1]


def test_unlock_does_not_mark_as_updated(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    assert loop.get(1) == [1]
    assert loop.unlock([1]) == 1
    assert loop.rows() == {1: (None, None)}
    assert loop.unlock([1, 2], auto_add=False) == 1
    assert loop.unlock([1, 2]) == 2
    assert loop.rows() == {1: (None, None), 2: (None, None)}


def test_bump_only_ever_lowers_lock_until(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    assert loop.bump(1, lock_for=100) == 1
    until = loop.rows()[1][1]
    assert loop.bump(1, lock_for=200) == 0
    assert loop.rows()[1][1] == until
    assert loop.bump(1, lock_for=50) == 1
    assert loop.rows()[1][1] < until
    assert loop.get(1) == []
    assert loop.bump(1) == 1
    assert loop.get(1) == [1]
    # What is locked is freed by it.
    assert loop.bump(1, lock_for=-600) == 1
    loop.add(2)
    loop.bump(2)
    assert loop.get(2) == [1, 2]


def test_bump_adds_what_is_missing_unless_told_not_to(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    assert loop.bump([1, 2], auto_add=False) == 1
    assert loop.bump([1, 2]) == 1
    assert set(loop.get(5)) == {1, 2}


def test_lock_for_of_bump_must_be_a_number(loop: TaskLoop) -> None:
    for wrong in (None, [1], "1"):
        with pytest.raises(TypeError, match="lock_for"):
            loop.bump([], lock_for=wrong)  # type: ignore[arg-type]
    assert loop.bump(1, lock_for=-0.5) == 1


# check, stats


def test_check_tells_times_and_none_where_unset(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1, 2, 3)
    loop.did(1)
    loop.age(100, 1)
    loop.bump(2)
    loop.age(7, 2)
    checked = loop.check([1, 2, 3, 4])
    assert set(checked) == {1, 2, 3}
    assert 100 <= checked[1][0] <= 100 + BUSY
    assert checked[1][1] is None
    assert checked[2][0] is None
    assert -7 - BUSY <= checked[2][1] <= -7
    assert checked[3] == (None, None)
    assert {type(each) for times in checked.values() for each in times} == {int, type(None)}


KEYS = {
    "bumped",
    "locked",
    "min_id",
    "max_id",
    *(f"{end}_{what}_time" for end in ("min", "max") for what in ("bump", "lock", "update")),
}


def test_stats_of_an_empty_table_has_ten_keys_and_no_least_id(loop: TaskLoop) -> None:
    stats = loop.stats()
    assert set(stats) == KEYS
    assert len(KEYS) == 10
    assert {key for key, value in stats.items() if value is None} == {"min_id", "max_id"}
    assert {value for key, value in stats.items() if not key.endswith("_id")} == {0}
    assert {type(value) for key, value in stats.items() if key.endswith("_time")} == {float}


def test_stats_of_a_loop(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(*range(10, 20))
    loop.did([10, 11, 12])
    loop.age(50, 10)
    loop.age(500, 12)
    loop.bump([13, 14, 11])
    loop.age(20, 14)
    loop.bump(15, lock_for=100)
    loop.bump(16, lock_for=1000)
    stats = loop.stats()
    assert (stats["min_id"], stats["max_id"]) == (10, 19)
    assert (stats["bumped"], stats["locked"]) == (3, 2)
    assert {type(value) for key, value in stats.items() if key.endswith("_time")} == {float}
    near = {key: pytest.approx(value, abs=2) for key, value in TIMES.items()}
    assert {key: value for key, value in stats.items() if key.endswith("_time")} == near
    # A locked id's update counts, too.
    loop.bump(12, lock_for=2000)
    assert loop.stats()["max_update_time"] == pytest.approx(500, abs=3)


@pytest.mark.parametrize(
    ("id_type", "ids"),
    [
        ("UUID", [uuid.UUID(int=1), uuid.UUID(int=2**127)]),
        ("BYTEA", [b"a", b"b"]),
        ("BOOLEAN", [False, True]),
    ],
)
@pytest.mark.backends("postgresql")
def test_ids_of_all_types_have_a_least_and_a_greatest(make_loop: Callable[..., Any], id_type: str, ids: Any) -> None:
    stats = make_loop(*reversed(ids), id_type=id_type).stats()
    assert [stats["min_id"], stats["max_id"]] == ids


TIMES = {
    "min_bump_time": 0,
    "max_bump_time": 20,
    "min_lock_time": 100,
    "max_lock_time": 1000,
    "min_update_time": 0,
    "max_update_time": 500,
}


# test=


def test_a_dry_run_answers_the_same_and_writes_nothing(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1, 2, 3)
    loop.did(3)
    loop.bump(2)
    before = loop.rows()
    calls: list[tuple[Callable[..., Any], Any]] = [
        (loop.add, [3, 4]),
        (loop.remove, [3, 4]),
        (loop.get, 5),
        (loop.did, [1, 4]),
        (loop.unlock, [1, 4]),
        (loop.bump, [1, 4]),
    ]
    for verb, argument in calls:
        dry = verb(argument, test=True)
        assert loop.rows() == before, verb
        assert dry == verb(argument), verb
        loop.remove(list(loop.rows()))
        loop.add([1, 2, 3])
        loop.did(3)
        loop.bump(2)
        before = loop.rows()


# doloop's other forms


def test_the_functions_of_doloop(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    table = make_loop().table
    with engine.connect() as connection:
        assert taskloop.add(connection, table, [1, 2, 3]) == 3
        assert taskloop.bump(connection, table, 2) == 1
        assert taskloop.get(connection, table, 1) == [2]
        assert taskloop.did(connection, table, 2) == 1
        assert taskloop.unlock(connection, table, [3]) == 1
        # doloop's function has no ``updated``: its fourth argument is ``test``, and nothing is removed.
        assert taskloop.remove(connection, table, 1, True) == 1
        assert set(taskloop.check(connection, table, [1, 2, 3])) == {1, 2, 3}
        assert taskloop.remove(connection, table, 1) == 1
        assert set(taskloop.check(connection, table, [1, 2, 3])) == {2, 3}
    assert taskloop.stats(engine, table)["max_id"] == 3
    with engine.connect() as connection, pytest.raises(JobFailure, match="already exists"):
        taskloop.create(connection, table)


def test_the_object_of_doloop_calls_for_its_connection(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    table = make_loop(1).table
    with engine.connect() as connection:
        calls: list[None] = []

        def connect() -> sa.Connection:
            calls.append(None)
            return connection

        loop = taskloop.DoLoop(connect, table)
        assert not calls
        assert loop.get(1) == [1]
        assert loop.did([1]) == 1
        assert len(calls) == 2
        assert loop.table == table
        with pytest.raises(AttributeError):
            loop.table = "other"  # type: ignore[misc]

"""The rules that doloop's users rely on."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard import taskloop
from jobboard.exceptions import JobFailure
from jobboard.taskloop import ONE_DAY, ONE_HOUR, TaskLoop
from tests.taskloop.conftest import BUSY

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")
ONE = pytest.mark.backends("sqlite")


# get


def test_get_serves_lapsed_then_never_updated_then_longest_not_updated(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(*range(1, 9))
    loop.did([1, 2, 3, 4])
    loop.age(ONE_DAY, 2)
    loop.age(2 * ONE_DAY, 4)
    loop.age(3 * ONE_DAY, 1)
    loop.bump([7, 8])
    loop.age(10, 8)
    loop.bump(5, lock_for=60)
    assert loop.get(3) == [8, 7, 6]
    assert loop.get(10) == [1, 4, 2]
    # 3 was updated just now, and 5 is locked for a minute.
    assert loop.get(10) == []
    loop.age(60, 5)
    assert loop.get(10) == [5]


def test_ids_bumped_at_once_are_served_by_their_update(make_loop: Callable[..., Any]) -> None:
    loop = make_loop("updated", "never", "earlier", id_type="VARCHAR(20)")
    loop.did(["updated", "earlier"])
    loop.age(100, "earlier")
    with loop.engine.begin() as connection:
        until = sa.table(loop.table, sa.column("lock_until"))
        connection.execute(sa.update(until).values(lock_until=1000))
    assert loop.get(3) == ["never", "earlier", "updated"]


def test_get_locks_for_an_hour_unless_told_otherwise(make_loop: Callable[..., Any]) -> None:
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


def test_get_returns_all_ids_up_to_the_limit(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(*range(250))
    loop.bump(range(120))
    first = loop.get(230)
    assert len(first) == 230
    assert set(first[:120]) == set(range(120))
    assert sorted(first + loop.get(1000)) == list(range(250))


@pytest.mark.rule("A value that a driver cannot send is a JobFailure, and a time that none can store a ValueError.")
@ONE
def test_a_wrong_argument_is_named(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    held = loop.get(1, who="anna")
    verbs: dict[str, Callable[..., object]] = {
        "get": lambda **arguments: loop.get(**{"limit": 1, **arguments}),
        "extend": lambda **arguments: loop.extend(held, **arguments),
        "bump": lambda **arguments: loop.bump(1, **arguments),
    }
    # No database can store some times.
    beyond = (2**63, -1e30, 10**400, float("nan"))
    wrong: list[tuple[type[Exception], str, str, Any]] = [
        *((ValueError, "get", "limit", -1), (TypeError, "get", "limit", 24.0), (TypeError, "get", "limit", None)),
        *((ValueError, "get", "who", each) for each in ("", 256 * "x", "anna\n", "\ud800")),
        (TypeError, "get", "who", 3),
        *((TypeError, "get", "min_loop_time", each) for each in (None, [60], "60")),
        *((ValueError, "get", "min_loop_time", each) for each in beyond),
        *((ValueError, verb, "lock_for", each) for verb in verbs for each in beyond),
        *((TypeError, verb, "lock_for", each) for verb in verbs for each in (None, [60], "60")),
        *((ValueError, verb, "lock_for", each) for verb in ("get", "extend") for each in (0, -0.5, float("inf"))),
    ]
    for error, verb, name, value in wrong:
        with pytest.raises(error, match=rf"^{name}\b"):
            verbs[verb](**{name: value})
    with pytest.raises(ValueError, match="lock_for"):
        loop.get(0, lock_for=0)
    with pytest.raises(TypeError, match="lock_for"):
        loop.bump([], lock_for=None)


def test_the_longest_time_is_stored(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    held, longest = loop.get(1, who="anna"), 2**62
    assert loop.extend(held, lock_for=longest) == 1
    assert loop.bump(1, lock_for=-longest) == 1
    assert loop.get(1, lock_for=longest, min_loop_time=longest) == [1]
    assert loop.stats()["max_lock_time"] == pytest.approx(longest)
    assert loop.get(0) == []


def test_fractions_of_lock_for_are_rounded_up(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    # doloop would round the first to no lock at all.
    for lock_for, seconds in ((0.4, 1), (59.4, 60)):
        held = loop.get(1, lock_for=lock_for, who="anna")
        assert loop.rows()[1][1] == held.tokens[1] // 1_000_000 + seconds
        loop.unlock(1)


def test_min_loop_time_may_be_any_number_and_leaves_bumped_ids_alone(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    for min_loop_time in (0, -5, 0.5, -1e6):
        loop.did(1)
        assert loop.get(1, min_loop_time=ONE_HOUR) == []
        loop.age(1)
        assert loop.get(1, min_loop_time=min_loop_time) == [1]
    loop.did(1)
    loop.bump(1)
    assert loop.get(1) == [1]


# add, remove


def test_add_counts_new_ids_and_leaves_others_as_they_are(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(500)
    assert loop.get(1) == [500]
    before = loop.rows()
    assert loop.add([500], updated=True) == 0
    assert loop.add([1, 2, 3]) == 3
    assert loop.add([2, 3, 4]) == 1
    assert loop.add(range(300)) == 296
    assert loop.rows() == {**dict.fromkeys(range(300), (None, None)), **before}


def test_ids_added_as_updated_are_not_served_at_once(loop: Any) -> None:
    assert loop.add([1, 2], updated=True) == 2
    assert loop.get(2) == []
    assert loop.get(2, min_loop_time=0) in ([1, 2], [2, 1])


@pytest.mark.rule("remove() counts the ids that were there.")
def test_remove_counts_the_ids_that_were_there(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1, 2, 3)
    assert loop.remove([2, 3, 4]) == 2
    assert set(loop.rows()) == {1}
    # The third argument has no effect, as in doloop.
    assert loop.remove(1, False, True) == 1
    assert set(loop.rows()) == {1}
    assert loop.remove(1, True) == 1
    assert set(loop.rows()) == set()


@ONE
def test_verbs_without_ids_do_nothing(loop: TaskLoop) -> None:
    for empty in ([], (), set[int]()):
        for verb in (loop.add, loop.remove, loop.did, loop.unlock, loop.bump):
            assert verb(empty) == 0
        assert loop.check(empty) == {}


@ONE
def test_ids_may_be_one_or_many(loop: TaskLoop) -> None:
    forms: list[tuple[Callable[[], Any], set[int]]] = [
        (lambda: 17, {17}),
        (lambda: [17, 17], {17}),
        (lambda: {17: "a value"}, {17}),
        (lambda: (id_ for id_ in (17, 18)), {17, 18}),
    ]
    for form, wanted in forms:
        assert loop.add(form()) == len(wanted)
        assert loop.bump(form()) == len(wanted)
        assert set(loop.check(form())) == wanted
        assert loop.did(form()) == len(wanted)
        assert loop.unlock(form()) == len(wanted)
        assert loop.remove(form()) == len(wanted)


@pytest.mark.parametrize("id_", ["seventeen", b"\x00\xff\x80"], ids=["str", "bytes"])
def test_text_and_bytes_are_single_ids(make_loop: Callable[..., Any], backend: str, id_: Any) -> None:
    binary = "BYTEA" if backend == "postgresql" else "VARBINARY(20)"
    loop = make_loop(id_type="VARCHAR(20)" if isinstance(id_, str) else binary)
    assert loop.add(id_) == 1
    assert loop.get(5) == [id_]
    assert loop.did(id_) == 1


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
    # Within a second the second one changes nothing.
    assert loop.did([1, 2]) == loop.did([1, 2]) == 2
    assert None not in {updated for updated, _ in loop.rows().values()}


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
    # A bump frees a locked id.
    assert loop.bump(1, lock_for=-600) == 1
    loop.add(2)
    loop.bump(2)
    assert loop.get(2) == [1, 2]


# check, stats


def test_check_returns_times_and_none_where_unset(make_loop: Callable[..., Any]) -> None:
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


def test_stats_of_an_empty_table_have_ten_keys(loop: TaskLoop) -> None:
    stats = loop.stats()
    assert set(stats) == KEYS
    assert len(KEYS) == 10
    assert {key for key, value in stats.items() if value is None} == {"min_id", "max_id"}
    assert {value for key, value in stats.items() if not key.endswith("_id")} == {0}
    assert {type(value) for key, value in stats.items() if key.endswith("_time")} == {float}


TIMES = {
    "min_bump_time": 0,
    "max_bump_time": 200,
    "min_lock_time": 1000,
    "max_lock_time": 2000,
    "min_update_time": 0,
    "max_update_time": 5000,
}


def test_stats_of_a_loop(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(*range(10, 20))
    loop.did([10, 11, 12])
    loop.age(500, 10)
    loop.age(5000, 12)
    loop.bump([13, 14, 11])
    loop.age(200, 14)
    loop.bump(15, lock_for=1000)
    loop.bump(16, lock_for=2000)
    stats = loop.stats()
    assert (stats["min_id"], stats["max_id"]) == (10, 19)
    assert (stats["bumped"], stats["locked"]) == (3, 2)
    assert {type(value) for key, value in stats.items() if key.endswith("_time")} == {float}
    near = {key: pytest.approx(value, abs=BUSY) for key, value in TIMES.items()}
    assert {key: value for key, value in stats.items() if key.endswith("_time")} == near
    # The update of a locked id counts, too.
    loop.bump(12, lock_for=2000)
    assert loop.stats()["max_update_time"] == pytest.approx(5000, abs=BUSY)


@pytest.mark.rule("Ids of all types have a least and a greatest.")
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


# test=


def test_a_dry_run_returns_the_same_and_writes_nothing(make_loop: Callable[..., Any]) -> None:
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


def test_each_verb_is_a_function(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
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

"""The fence around held ids: a worker that was overtaken changes nothing, and learns so."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.exceptions import ClaimLost
from jobboard.taskloop import IdsLost, TaskLoop
from tests.taskloop.conftest import BUSY

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


def test_ids_that_lapsed_and_went_to_another_are_lost(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1, 2, 3)
    mine = loop.get(3, lock_for=60, who="anna")
    loop.age(61, 1, 2)
    theirs = loop.get(2, lock_for=60, who="bert")
    assert sorted(theirs) == [1, 2]
    before = loop.rows()
    with pytest.raises(IdsLost, match=r"^2 of 3 ids are no longer anna's: [12], [12]; ") as lost:
        loop.did(mine, strict=True)
    assert sorted(lost.value.ids) == [1, 2]
    assert isinstance(lost.value, ClaimLost)
    after = loop.rows()
    assert (after[1], after[2]) == (before[1], before[2])
    assert after[3][0] is not None
    with pytest.raises(IdsLost):
        loop.unlock(mine.only([1]), strict=True)
    with pytest.raises(IdsLost):
        loop.extend(mine.only(2))
    assert loop.rows() == after
    assert loop.did(theirs, strict=True) == 2


def test_a_get_without_a_name_overtakes_too(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    mine = loop.get(1, who="anna")
    loop.bump(1)
    assert loop.get(1) == [1]
    with pytest.raises(IdsLost):
        loop.did(mine, strict=True)


def test_ids_that_lapsed_and_went_to_nobody_may_be_finished(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    mine = loop.get(1, lock_for=60, who="anna")
    loop.age(61)
    before = loop.rows()
    assert loop.did(mine, strict=True, test=True) == 1
    assert loop.rows() == before
    # The second one repeats a lost reply.
    assert loop.did(mine, strict=True) == loop.did(mine, strict=True) == 1
    assert loop.get(1) == []


@pytest.mark.rule("An id that was removed from the list stays as it is.")
def test_an_id_that_is_removed_from_the_list_stays_as_it_is(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1, 2, 3)
    mine = loop.get(3, who="anna")
    mine.remove(3)
    before = loop.rows()
    assert loop.extend(mine, lock_for=7200) == 2
    assert loop.did(mine, strict=True) == 2
    assert loop.rows()[3] == before[3]
    assert loop.unlock(mine.only(2), strict=True) == 1
    mine.append(3)
    mine.append(4)
    before = loop.rows()
    with pytest.raises(KeyError, match="4"):
        loop.did(mine, strict=True)
    assert loop.rows() == before
    assert loop.unlock(mine.only(3), strict=True) == 1


def test_extend_prolongs_the_locks_of_its_ids_alone(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1, 2)
    mine = loop.get(2, lock_for=100, who="anna")
    assert loop.extend(mine.only([1]), lock_for=1000) == 1
    assert loop.check(1)[1][1] == pytest.approx(1000, abs=BUSY)
    assert loop.check(2)[2][1] == pytest.approx(100, abs=BUSY)


@pytest.mark.parametrize("end", ["bump", "unlock", "did"])
def test_extend_restores_no_lock_that_was_taken_away(make_loop: Callable[..., Any], end: str) -> None:
    """A bump that came during the work would be lost."""
    loop = make_loop(1)
    mine = loop.get(1, who="anna")
    getattr(loop, end)(1)
    before = loop.rows()
    with pytest.raises(IdsLost):
        loop.extend(mine)
    assert loop.rows() == before


def test_a_token_rises_though_the_clock_was_set_back(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1, 2)
    ahead = 2**60
    with loop.engine.begin() as connection:
        table = sa.table(loop.table, sa.column("id"), sa.column("token"))
        connection.execute(sa.update(table).where(table.c.id == 1).values(token=ahead))
    held = loop.get(2, who="anna")
    assert held.tokens[1] == ahead + 1
    assert held.tokens[2] < ahead
    assert loop.did(held, strict=True) == 2


@pytest.mark.backends("sqlite")
def test_strict_verbs_take_results_of_get_alone(make_loop: Callable[..., Any]) -> None:
    loop: TaskLoop = make_loop(1)
    for verb in (loop.did, loop.unlock):
        with pytest.raises(TypeError, match=r"the result of get\(who=…\), .* not a list"):
            verb([1], strict=True)
    with pytest.raises(TypeError, match=r"the result of get\(who=…\), .* not a list"):
        loop.extend([1])  # type: ignore[arg-type]
    held = loop.get(1, who="anna")
    with pytest.raises(KeyError):
        held.only(2)
    assert loop.did(held.only([]), strict=True) == 0

"""Ids that are as old as each other: their own order decides, on every database."""

import random
from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

IDS = range(1, 31)


def shuffled() -> list[int]:
    ids = list(IDS)
    random.Random(3).shuffle(ids)
    return ids


@pytest.mark.rule("Ids that are equally old are served by their order.")
@pytest.mark.parametrize(
    ("how", "who"),
    [("new", "anna"), ("updated", None), ("unlocked", "anna"), ("bumped", None), ("bumped and updated", "anna")],
)
def test_ties_are_served_by_their_ids(make_loop: Callable[..., Any], how: str, who: str | None) -> None:
    loop = make_loop(*shuffled())
    if "updated" in how:
        loop.did(shuffled())
    if how == "unlocked":
        loop.unlock(loop.get(30))
    if "bumped" in how:
        loop.bump(shuffled())
    loop.age(7200)
    assert [loop.get(7, min_loop_time=0, who=who) for _ in range(5)] == [list(IDS[n : n + 7]) for n in range(0, 30, 7)]


@pytest.mark.backends("mariadb")
def test_ties_of_a_table_of_doloops_are_served_by_their_ids(doloops: Any) -> None:
    doloops.add(shuffled())
    bumped = shuffled()[:10]
    doloops.bump(bumped)
    doloops.age(60)
    assert doloops.get(30) == sorted(bumped) + sorted(set(IDS) - set(bumped))


@pytest.mark.rule("Ids that are equally old are served by their order.")
def test_ids_that_are_text_have_the_databases_order(make_loop: Callable[..., Any], engine: sa.Engine) -> None:
    words = ["b", "A", "a1", "C", "ä", "B2", "z", "Z0", "_", "10", "9"]
    loop = make_loop(*words, id_type="VARCHAR(20)")
    with engine.connect() as connection:
        table = sa.table(loop.table, sa.column("id"))
        ordered = list(connection.scalars(sa.select(table.c.id).order_by(table.c.id)))
    assert loop.get(4) + loop.get(20) == ordered

"""Leases on the first rows of any table, written once for each database."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.sql import lease
from jobboard.sql.connections import Links
from jobboard.sql.dialects import Database
from jobboard.sql.expressions import param, text
from jobboard.sql.lease import RowLease, Take, TakeAlong
from jobboard.sql.runners import CallersConnection, Runner
from jobboard.testing.conformance.support import Background

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


@pytest.fixture
def make(engine: sa.Engine) -> Iterator[Callable[..., "Rows"]]:
    made: list[Rows] = []

    def make(*key: str, product: Callable[[Database], Database] = lambda product: product) -> Rows:
        made.append(Rows(engine, key or ("id",), product))
        return made[-1]

    yield make
    for rows in made:
        rows.close()


class Rows:
    """A table with a key, an ``owner`` and a ``place`` that rows are served by, the last ids first."""

    def __init__(self, engine: sa.Engine, key: tuple[str, ...], product: Callable[[Database], Database]) -> None:
        self.engine = engine
        self.table = table = sa.Table(
            "claims_rows",
            sa.MetaData(),
            *(sa.Column(name, sa.Integer, primary_key=True, autoincrement=False) for name in key),
            sa.Column("place", sa.Integer, nullable=False),
            sa.Column("owner", sa.String(20)),
            sa.Column("since", sa.BigInteger),
            sa.Index("claims_rows_free", "owner", "place"),
        )
        table.drop(engine, checkfirst=True)
        table.create(engine)
        self.links = Links(lambda: engine, False, 10, 10, "it", "nothing")
        self.links.run(lambda link: link.end_read())
        self.product = product(self.links.known_product())
        self.lease = RowLease(table, list(table.primary_key), who=table.c.owner, since=table.c.since)
        free = table.c.owner.is_(None)
        self.walk = sa.select(*self.lease.key, table.c.place).where(free).order_by(table.c.place)
        self._along: dict[int, TakeAlong] = {}

    def fill(self, count: int) -> None:
        names = [column.name for column in self.table.primary_key]
        with self.engine.begin() as connection:
            rows = [{**dict.fromkeys(names, i), "place": count - i} for i in range(count)]
            connection.execute(sa.insert(self.table), rows)

    def take(self, run: Runner, who: str, limit: int) -> Any:
        if limit not in self._along:
            order = [self.table.c.place]
            self._along[limit] = TakeAlong(self.product, self.lease, self.walk, self.values, order, limit)
        return self._along[limit](run, {"p_who": who})

    def values(self, instant: sa.ColumnElement[int]) -> dict[Any, Any]:
        return {self.table.c.owner: text("who"), self.table.c.since: instant}

    def claim(self, who: str, limit: int) -> list[Any]:
        def work(link: Any) -> list[Any]:
            link.begin()
            rows = self.take(link, who, limit)
            link.commit()
            return list(rows)

        return self.links.run(work)

    def owners(self) -> dict[int, str | None]:
        with self.engine.connect() as connection:
            return {row[0]: row.owner for row in connection.execute(sa.select(self.table))}

    def close(self) -> None:
        self.links.close()
        self.table.drop(self.engine)


def waiting(product: Database) -> Database:
    """A database that can't skip locked rows, as older versions of MySQL and MariaDB."""
    return Database(product.dialect)


@pytest.mark.parametrize("key", [("id",), ("a", "b")], ids=["one column", "two columns"])
def test_the_first_rows_are_claimed_in_order(make: Callable[..., Rows], key: tuple[str, ...]) -> None:
    rows = make(*key)
    rows.fill(7)
    claimed = rows.claim("anna", 3)
    width = len(key)
    assert [row[:width] for row in claimed] == [(6,) * width, (5,) * width, (4,) * width]
    with rows.engine.connect() as connection:
        since = set(connection.execute(sa.select(rows.table.c.since).where(rows.table.c.owner == "anna")).scalars())
    assert {row[-1] for row in claimed} == since
    assert [row[0] for row in rows.claim("bert", 10)] == [3, 2, 1, 0]
    assert rows.claim("cleo", 1) == []
    assert rows.owners() == {i: "anna" if i > 3 else "bert" for i in range(7)}


@pytest.mark.backends("postgresql", "mariadb")
def test_rows_that_another_holds_are_passed_over(make: Callable[..., Rows]) -> None:
    rows = make()
    rows.fill(6)
    with rows.engine.begin() as connection:
        mine = rows.take(CallersConnection(connection), "anna", 1)
        assert [row[0] for row in mine] == [5]
        theirs = rows.claim("bert", 3)
        assert [row[0] for row in theirs] == [4, 3, 2]
        # However many looks that took, it is one claim.
        with rows.engine.connect() as other:
            since = other.execute(sa.select(rows.table.c.since).where(rows.table.c.owner == "bert")).scalars()
            assert {row[-1] for row in theirs} == set(since)
        assert len({row[-1] for row in theirs}) == 1
        connection.rollback()
    assert [row[0] for row in rows.claim("cleo", 10)] == [5, 1, 0]


@pytest.mark.backends("mariadb")
def test_many_rows_that_others_hold_are_passed_over(make: Callable[..., Rows], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "FAR", 3)
    rows = make()
    rows.fill(8)
    with rows.engine.begin() as connection:
        rows.take(CallersConnection(connection), "anna", 5)
        assert [row[0] for row in rows.claim("bert", 2)] == [2, 1]


@pytest.mark.backends("mariadb")
def test_rows_between_held_ones_come_in_order(make: Callable[..., Rows]) -> None:
    rows = make()
    rows.fill(20)
    c = rows.table.c
    # Which does not keep what it has only read.
    engine = rows.engine.execution_options(isolation_level="READ COMMITTED")
    with engine.begin() as connection:
        connection.execute(sa.update(rows.table).where(c.id % 3 != 1, c.id > 10).values(owner="anna"))
        assert [row[0] for row in rows.claim("bert", 3)] == [19, 16, 13]


@pytest.mark.backends("mariadb")
def test_rows_that_move_meanwhile_are_found(make: Callable[..., Rows]) -> None:
    rows = make()
    rows.fill(6)
    with rows.engine.connect() as connection:
        rows.take(CallersConnection(connection), "anna", 3)
        looks = []

        def once_anna_is_done(link: Any, *of_the_statement: Any) -> None:
            looks.append(link)
            if len(looks) == 2:
                connection.commit()

        sa.event.listen(rows.engine, "before_cursor_execute", once_anna_is_done)
        try:
            assert [row[0] for row in rows.claim("bert", 3)] == [2, 1, 0]
        finally:
            sa.event.remove(rows.engine, "before_cursor_execute", once_anna_is_done)


def test_the_first_of_named_rows_are_claimed(make: Callable[..., Rows]) -> None:
    rows = make()
    rows.fill(6)
    named = rows.walk.where(rows.table.c.id.in_([1, 3, 5])).limit(param("limit", sa.Integer()))
    first = Take(rows.product, rows.lease, named, rows.values)
    with rows.engine.begin() as connection:
        taken = first(CallersConnection(connection), {"p_who": "anna", "p_limit": 2})
    assert [row[0] for row in taken] == [5, 3]
    assert rows.owners() == {0: None, 1: None, 2: None, 3: "anna", 4: None, 5: "anna"}


@pytest.mark.parametrize("options", [{}, {"product": waiting}], ids=["as it is", "without SKIP LOCKED"])
def test_many_at_once_claim_each_row_once(make: Callable[..., Rows], options: dict[str, Any]) -> None:
    rows = make(**options)
    rows.fill(60)
    got: dict[str, list[int]] = {}

    def work(who: str) -> None:
        got[who] = []
        while batch := rows.claim(who, 4):
            got[who] += [row[0] for row in batch]

    for worker in [Background(lambda who=f"worker{i}": work(who)) for i in range(4)]:  # type: ignore[misc]
        worker.wait(60)
    assert sorted(id_ for ids in got.values() for id_ in ids) == list(range(60))
    assert rows.owners() == {id_: who for who, ids in got.items() for id_ in ids}

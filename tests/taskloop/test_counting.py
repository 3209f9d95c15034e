"""Connections that count the rows that an update has changed, and not those that it met, as MySQL's drivers do unless
SQLAlchemy makes them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.taskloop import TaskLoop

pytestmark = pytest.mark.backends("mariadb")


@pytest.fixture(params=["pymysql", "mysql.connector"])
def changed(engine: sa.Engine, request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """As ``docs/doloop.rst`` has it for a driver's own connections."""
    driver = pytest.importorskip(request.param)
    options: dict[str, Any] = {}
    if request.param == "mysql.connector":
        options["client_flags"] = [-driver.constants.ClientFlag.FOUND_ROWS]
    host = {"host": engine.url.host, "port": engine.url.port}
    login = {"user": engine.url.username, "database": engine.url.database}
    name = request.param.replace(".", "")
    engine = sa.create_engine(f"mariadb+{name}://", creator=lambda: driver.connect(**host, **login, **options))
    yield engine
    engine.dispose()


@pytest.fixture(params=["engine", "connection", "transaction"])
def counting(make_loop: Callable[..., Any], changed: sa.Engine, request: pytest.FixtureRequest) -> Iterator[Any]:
    loop = make_loop()
    if request.param == "engine":
        yield make_loop(bind=changed, table=loop.table)
        return
    with changed.connect() as connection:
        if request.param == "transaction":
            connection.begin()
        yield make_loop(bind=connection, table=loop.table)


@pytest.mark.parametrize("add", [True, False])
def test_ids_are_counted_that_nothing_changes(counting: TaskLoop, add: bool) -> None:
    assert counting.add([1, 2, 3]) == 3
    assert counting.unlock([1, 2, 3], auto_add=add) == 3
    assert [counting.did([1, 2, 3], auto_add=add) for _ in range(3)] == [3, 3, 3]
    assert counting.did([1, 2, 9], auto_add=add) == (3 if add else 2)
    assert counting.bump([1, 2], auto_add=add) == 2
    assert counting.bump([1, 2], auto_add=add) == 0


def test_strictly_too(counting: TaskLoop) -> None:
    counting.add([1, 2])
    held = counting.get(2, who="anna")
    assert counting.extend(held) == counting.extend(held) == 2
    assert counting.did(held, strict=True) == counting.did(held, strict=True) == 2
    assert counting.unlock(held, strict=True) == 2

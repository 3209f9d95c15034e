"""Connections that count the rows that an update changes, not the rows that it meets, as MySQL's drivers do by
themselves."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard.taskloop import TaskLoop

pytestmark = pytest.mark.backends("mariadb")


@pytest.fixture(params=["pymysql", "mysql.connector"])
def changed(engine: sa.Engine, request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """As ``docs/rows/task-loop.rst`` has it for a driver's own connections."""
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


def count_unchanged_ids(loop: TaskLoop) -> None:
    for add in (True, False):
        loop.remove([1, 2, 3, 9])
        assert loop.add([1, 2, 3]) == 3
        assert loop.unlock([1, 2, 3], auto_add=add) == 3
        assert [loop.did([1, 2, 3], auto_add=add) for _ in range(3)] == [3, 3, 3]
        assert loop.did([1, 2, 9], auto_add=add) == (3 if add else 2)
        assert loop.bump([1, 2], auto_add=add) == 2
        assert loop.bump([1, 2], auto_add=add) == 0
    held = loop.get(2, who="anna")
    assert loop.extend(held) == loop.extend(held) == 2
    assert loop.did(held, strict=True) == loop.did(held, strict=True) == 2
    assert loop.unlock(held, strict=True) == 2


@pytest.mark.rule("Ids are counted, however the connection counts.")
def test_ids_that_a_verb_leaves_unchanged_are_counted(make_loop: Callable[..., Any], changed: sa.Engine) -> None:
    loop = make_loop()
    count_unchanged_ids(make_loop(bind=changed, table=loop.table))
    with changed.connect() as connection:
        count_unchanged_ids(make_loop(bind=connection, table=loop.table))
        with connection.begin():
            count_unchanged_ids(make_loop(bind=connection, table=loop.table))

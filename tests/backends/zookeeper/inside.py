"""What the tests of the ZooKeeper board know of its inside."""

from typing import Any

from jobboard.backends.zookeeper.connection import Connection
from jobboard.backends.zookeeper.driver import ZooKeeperDriver
from jobboard.kv import layout


def driver_of(board: Any) -> ZooKeeperDriver:
    driver: ZooKeeperDriver = board.engine.store._driver
    return driver


def connection_of(board: Any) -> Connection:
    return driver_of(board).connection


def root_of(board: Any) -> str:
    """The path of the board's znode."""
    driver = board if isinstance(board, ZooKeeperDriver) else driver_of(board)
    return driver.place(layout.LAYOUT).removesuffix("/layout")


def path_of(board: Any, job: Any) -> str:
    """The path of a job's znode."""
    return driver_of(board).place(layout.job_path(job.uuid))


def session_of(board: Any, job: Any) -> str | None:
    """The session that keeps the claim of a job."""
    [stored] = board.engine.store.read([job.uuid]).jobs
    session: str | None = stored.tag.session
    return session

"""A server that comes back with older data, or with none: a board object that outlives it works again.

A client remembers how far it has seen its server: transaction ids, revisions, starting points of scans. A restored
backup, an emptied server or another one of the same name is behind what the client remembers.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.exceptions import ClaimLost, JobFailure, NotFound
from jobboard.job import Posting
from jobboard.states import UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import Background, Waiter
from tests.support.backups import Backup
from tests.support.servers import Server

pytestmark = [
    pytest.mark.backends("redis", "postgresql", "mariadb", "zookeeper", "etcd"),
    pytest.mark.any_driver,
    pytest.mark.timeout(300),
]

LATEST = 30.0
"""How long a waiter may sleep over a job, in seconds: less than the longest sleep between two looks on any backend."""


@pytest.fixture
def server(backend: str, private_server: Callable[..., Any]) -> Server:
    return private_server(backend)  # type: ignore[no-any-return]


@pytest.fixture
def fetch(server: Server) -> Iterator[Callable[..., Any]]:
    boards: list[Any] = []

    def fetch(**options: Any) -> Any:
        board = jobboard.fetch("board", {"board": server.uri, "retry_for": 60, "claim_ttl": 5, **options})
        boards.append(board)
        board.connect()
        return board

    yield fetch
    for board in boards:
        board.close()


def work_off(board: Any, count: int) -> None:
    """Have the client and the server come far."""
    board.post_many([Posting("past", group=f"g{number % 7}") for number in range(count)])
    while jobs := board.claim_many("anna", 100, names=["past"]):
        board.consume_many(jobs, "anna")
    board.post_many([Posting("past")] * count)
    board.post("past", priority="HIGH")
    while job := board.claim_next("anna"):
        board.consume(job, "anna")


@pytest.mark.rule("A board goes on with a server that comes back with older data, or with none.")
@pytest.mark.parametrize("emptied", [False, True], ids=["older", "emptied"])
def test_a_board_outlives_a_restored_or_emptied_server(
    server: Server, fetch: Callable[..., Any], tmp_path: Path, emptied: bool
) -> None:
    if emptied:
        backup = Backup(server, tmp_path / "backup")
    board = fetch()
    if not emptied:
        board.post("kept")
        backup = Backup(server, tmp_path / "backup")
        kept = board.claim_next("anna", timeout=60)
        board.consume(kept, "anna")
    work_off(board, 120)
    held = board.post("held")
    board.claim(held, "anna")
    waiter = Waiter(board, lambda: wait_for(board, "wanted"))
    backup.restore()
    # A process that starts now finds the board of the backup, or creates one.
    other = fetch()
    wanted = other.post("wanted")
    assert waiter.wait(LATEST) == wanted
    eventually(lambda: held.claim.lost, 60)
    with pytest.raises(ClaimLost):
        board.consume(held, "anna")
    if not emptied:
        assert take_all(board, ["kept"]) == {kept.uuid}
    mine = [board.post("again"), *board.post_many([Posting("again")] * 20)]
    assert take_all(board, ["again"], 1) | take_all(other, ["again"]) == {job.uuid for job in mine}
    board.consume(waiter.result, "bert")
    first = board.post("urgent", priority="HIGH")
    assert take_all(other, ["urgent"]) == {first.uuid}
    again = Background(lambda: wait_for(board, "last"))
    last = other.post("last")
    assert again.wait(LATEST) == last
    assert board.claim_next("anna") is None
    with pytest.raises(NotFound):
        other.get(held.uuid)
    board.abandon(again.result, "bert")
    assert last.state == UNCLAIMED


@pytest.mark.rule("A board goes on with a server that comes back with older data, or with none.")
def test_no_job_is_passed_over_beside_full_groups(server: Server, fetch: Callable[..., Any], tmp_path: Path) -> None:
    """A look remembers where only jobs of full groups are left, and the others come back."""
    board = fetch()
    board.set_limit("mail", concurrency=1, per="group")
    board.post_many([Posting("mail", group="big")] * 500)
    small = board.post_many([Posting("mail", group=f"small{number}") for number in range(5)])
    board.post_many([Posting("mail", group="big")] * 500)
    backup = Backup(server, tmp_path / "backup")
    other = fetch()
    board.post_many([Posting("mail", group=f"late{number}") for number in range(20)])
    assert other.claim_next("bert").group == "big"
    for _ in range(15):
        board.consume(board.claim_next("anna"), "anna")
    backup.restore()
    other = fetch()
    assert other.claim_next("bert").group == "big"
    assert [board.claim_next("anna") for _ in small] == small


def wait_for(board: Any, name: str) -> Any:
    """Claim the next job of that name. While the server has no board, that is refused with the way out."""
    while True:
        try:
            return board.claim_next("bert", names=[name], timeout=120)
        except JobFailure as error:
            if "jobboard setup" not in str(error) and "connect() again" not in str(error):
                raise
            time.sleep(0.05)


def take_all(board: Any, names: list[str], most: int = 1000) -> set[str]:
    """Claim and consume what there is, one by one."""
    done: set[str] = set()
    while len(done) < most and (job := board.claim_next("anna", names=names)):
        board.consume(job, "anna")
        done.add(job.uuid)
    return done

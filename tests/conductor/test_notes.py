"""Notes of handlers, in threads and in processes: the conductor's process holds the claim."""

import threading
from pathlib import Path
from typing import Any

import pytest

from jobboard.conductor import Conductor
from jobboard.outcomes import RetryPolicy
from jobboard.testing import eventually
from tests.support.conductors import WAIT
from tests.support.noting import HANDLERS

pytestmark = pytest.mark.backends("sqlite", "memory")


@pytest.fixture(params=["threads", "processes"])
def conductor(request: Any, make_board: Any) -> Conductor:
    # No beat comes within a test.
    board = make_board(claim_ttl=600)
    retry = RetryPolicy(base=0.01)
    return Conductor("one", board, HANDLERS, workers=request.param, max_simultaneous_jobs=1, retry=retry)


@pytest.mark.rule("A handler's notes reach its board, also from a worker process.")
def test_the_next_attempt_goes_on_at_the_checkpoint(conductor: Conductor, make_board: Any, tmp_path: Path) -> None:
    board = make_board()
    job = board.post("resume", details={"notes": str(tmp_path / "notes")})
    conductor.run(2)
    assert (tmp_path / "notes").read_text() == "from 0\nfrom 2\n"
    job = board.get(job.uuid)
    assert (job.seen_state, job.error) == ("TRASHED", "4 99")
    assert (job.progress.text, job.progress.percent, job.checkpoint) == ("nearly", 99, 4)


def test_notes_of_many_threads(conductor: Conductor, make_board: Any) -> None:
    board = make_board()
    job = board.post("many")
    conductor.run(1)
    job = board.get(job.uuid)
    assert (job.error, job.progress.text, job.checkpoint[1]) == ("done", "done", 19)


@pytest.mark.rule("A lost holder stores no note, and learns of the loss by flush.")
def test_a_handler_learns_of_its_loss_by_a_flush(conductor: Conductor, make_board: Any, tmp_path: Path) -> None:
    board, path = make_board(), tmp_path / "notes"
    job = board.post("lose", details={"notes": str(path)})
    thread = threading.Thread(target=conductor.run, args=(1,))
    thread.start()
    eventually(lambda: path.exists() and board.get(job.uuid).progress, WAIT)
    board.release(job)
    eventually(lambda: "begun" not in path.read_text(), WAIT)
    # The conductor also stops a process whose claim is lost.
    assert path.read_text() in ("ClaimLost\n", "Cancelled\n")
    conductor.stop()
    thread.join(WAIT)
    assert board.get(job.uuid).progress.text == "still here"


def test_wrong_notes_are_refused_in_the_handler(conductor: Conductor, make_board: Any) -> None:
    board = make_board()
    job = board.post("misuse")
    conductor.run(1)
    assert board.get(job.uuid).error == "['ValueError', 'TypeError'] None"

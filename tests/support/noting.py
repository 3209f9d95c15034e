"""Handlers that make notes, for conductors of any kind."""

import threading
import time
from pathlib import Path

import jobboard


def resume(job: jobboard.ClaimedJob) -> None:
    """Go on at the checkpoint, and fail once."""
    row = job.checkpoint or 0
    with Path(job.details["notes"]).open("a") as file:
        file.write(f"from {row}\n")
    job.note("reading", percent=50, checkpoint=row + 1)
    job.note(checkpoint=row + 2)
    if row == 0:
        raise OSError("the disk is full")
    job.claim.note("nearly", flush=True)
    job.board.note(job, percent=99)
    raise jobboard.Reject(f"{job.checkpoint} {job.progress and job.progress.percent}")


def many(job: jobboard.ClaimedJob) -> None:
    """Make large notes in threads, some of them flushed."""

    def note(number: int) -> None:
        for each in range(20):
            job.note("x" * 5000, checkpoint=[number, each], flush=each % 5 == 0)

    threads = [threading.Thread(target=note, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    job.note("done", flush=True)
    raise jobboard.Reject(str(job.progress and job.progress.text))


def lose(job: jobboard.ClaimedJob) -> None:
    """Flush notes until one is refused, and write down the error."""
    path = Path(job.details["notes"])
    path.write_text("begun\n")
    while True:
        try:
            job.note("still here", flush=True)
        except (jobboard.JobFailure, jobboard.Cancelled) as error:
            path.write_text(f"{type(error).__name__}\n")
            return
        time.sleep(0.01)


def misuse(job: jobboard.ClaimedJob) -> None:
    """Make wrong notes, and write down the errors."""
    found = []
    for percent, checkpoint in ((101, None), (None, object())):
        try:
            job.note(percent=percent, checkpoint=checkpoint)
        except (TypeError, ValueError) as error:
            found.append(type(error).__name__)
    raise jobboard.Reject(f"{found} {job.progress}")


HANDLERS = {"resume": resume, "many": many, "lose": lose, "misuse": misuse}

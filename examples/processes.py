"""A conductor that runs its handlers in processes, with limits, and tells what becomes of them. It ends by itself."""

import contextlib
import time

import jobboard
from jobboard import Conductor, RetryPolicy


def report(job, error):
    print(f"{job.name} has failed: {error}")


board = jobboard.fetch("media", "sqlite:///media.db")
conductor = Conductor(
    None,
    board,
    workers="processes",
    max_simultaneous_jobs=2,
    job_timeout=600,
    drain_timeout=25,
    on_error=report,
)


@conductor.wraps
@contextlib.contextmanager
def timed(job):
    begun = time.perf_counter()
    yield
    print(f"{job.name} took {time.perf_counter() - begun:.3f} s", flush=True)


@conductor.handles("resize", retry=RetryPolicy(base=0.1, cap=60, max_attempts=2))
def resize(job):
    if job.details["path"] == "b.jpg":
        raise OSError("b.jpg is gone")


@conductor.handles("transcode", timeout=0.5, retry=RetryPolicy(max_attempts=1))
def transcode(job):
    while True:  # heeds nothing; in a process it ends all the same
        pass


if __name__ == "__main__":
    conductor.notifier.register("job_trashed", lambda event, told: print(f"{told['job'].name} is in the trash"))
    board.connect()
    board.post("resize", details={"path": "a.jpg"})
    board.post("resize", details={"path": "b.jpg"})
    board.post("transcode")
    conductor.run(max_dispatches=4)
    board.close()
    print(conductor.tally)

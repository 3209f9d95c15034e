"""Handlers for conductors that run them in processes: these import them by name."""

import contextlib
import contextvars
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jobboard
from jobboard.testing import eventually

TENANT: contextvars.ContextVar[str] = contextvars.ContextVar("TENANT", default="nobody's")


class OddError(Exception):
    """Can be packed, but not unpacked."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def note(job: jobboard.Job, text: object) -> None:
    """For the test to read, in one write."""
    with Path(job.details["notes"]).open("a") as file:
        file.write(f"{text}\n")


def show(job: jobboard.Job) -> None:
    token, lost = job.claim.token, job.claim.lost
    note(job, [job.uuid, job.name, job.attempts, job.priority, job.key, job.max_attempts, token, lost, job.context])


def pid(job: jobboard.Job) -> None:
    note(job, os.getpid())


def idle(job: jobboard.Job) -> None:
    """Is done at once."""


def leave_variables(job: jobboard.Job) -> object:
    """What it sees of the context variables, before it sets them."""
    seen = TENANT.get()
    TENANT.set(job.uuid)
    return seen


def fail(job: jobboard.Job) -> None:
    raise ValueError("broken in there")


def fail_at_length(job: jobboard.Job) -> None:
    raise ValueError("x" * 50_000_000)


def fail_oddly(job: jobboard.Job) -> None:
    raise OddError("very ", "odd")


def echo(job: jobboard.Job) -> object:
    return job.details["returns"]


def return_oddly(job: jobboard.Job) -> object:
    """What can't be stored, and what can't travel either."""
    return {object, lambda: None}


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise self


class Abrupt(BaseException): ...


class Row(dict[str, int]):
    """Raises as it is looked at, like a row of a database whose session has ended."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(a=1)
        self._error = error

    def items(self) -> Any:
        raise self._error


def return_what_raises(job: jobboard.Job) -> object:
    return Row(Unspeakable())


def return_what_ends(job: jobboard.Job) -> object:
    return Row(Abrupt("no row any more"))


def split(job: jobboard.Job, *, parts: int = 2) -> jobboard.Then:
    """Have follow-ups, or such as do not fit."""
    return jobboard.Then(parts, [jobboard.Posting("part", details={"n": n}) for n in range(parts)])


def split_badly(job: jobboard.Job) -> jobboard.Then:
    return jobboard.Then(1, [jobboard.Posting("part"), jobboard.Posting("part", details={"n": object()})])


def later(job: jobboard.Job) -> None:
    raise jobboard.Retry("not today", delay=3600)


def refuse(job: jobboard.Job) -> None:
    raise jobboard.Reject("no such picture")


def act(job: jobboard.Job) -> None:
    job.claim.consume()


def post(job: jobboard.Job) -> None:
    job.board.post("more")


def crash(job: jobboard.Job) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def die(job: jobboard.Job) -> None:
    note(job, job.attempts)
    os.kill(os.getpid(), signal.SIGKILL)


def hang(job: jobboard.Job) -> None:
    """With a process of its own, which is to end with it."""
    started = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    note(job, f"{os.getpid()} {started.pid}")
    started.wait()


def die_by_a_signal_without_a_name(job: jobboard.Job) -> None:
    os.kill(os.getpid(), signal.SIGRTMIN + 3)


def leave_a_thread(job: jobboard.Job) -> None:
    """A thread for which the end of the process waits."""
    threading.Thread(target=threading.Event().wait).start()


def die_before_a_fork(job: jobboard.Job) -> None:
    """What it has forked has its ends of all pipes, and lives on."""
    forked = os.fork()
    if not forked:
        signal.pause()
    note(job, forked)
    os.kill(os.getpid(), signal.SIGKILL)


def fork(job: jobboard.Job) -> None:
    """A process that lives on in a group of its own."""
    forked = os.fork()
    if not forked:
        os.setsid()
        signal.pause()
    note(job, forked)


def until_lost(job: jobboard.Job) -> None:
    note(job, "begun")
    # Raised once, where the board has refused the claim.
    with contextlib.suppress(jobboard.Cancelled):
        eventually(jobboard.cancelled)
    assert job.claim.lost
    note(job, "told")


def compute(job: jobboard.Job) -> None:
    """Compute for so many seconds, and let no other thread run."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(60)
    until = time.monotonic() + job.details["seconds"]
    while time.monotonic() < until:
        pass
    lost = job.claim.lost
    sys.setswitchinterval(before)
    assert not lost


def until_there(job: jobboard.Job) -> None:
    note(job, os.getpid())
    eventually(Path(job.details["notes"] + ".go").exists)


class Unpacked:
    """Can't be loaded in another process."""

    def __init__(self) -> None:
        self.home = os.getpid()

    def __setstate__(self, state: dict[str, int]) -> None:
        if state["home"] != os.getpid():
            raise pickle.UnpicklingError("not here")

    def __call__(self, job: jobboard.Job) -> None: ...


def until_cancelled(job: jobboard.Job) -> None:
    """Let the conductor end the work, whose own errors are caught."""
    note(job, "begun")
    try:
        while True:
            with contextlib.suppress(Exception):
                signal.pause()
    except jobboard.Cancelled as error:
        note(job, f"{error.reason} {jobboard.cancelled()}")
        raise


def swallow(job: jobboard.Job) -> None:
    """Go on whatever comes, and start a process."""
    note(job, subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"]).pid)
    while True:
        try:
            threading.Event().wait()
        except BaseException:  # noqa: BLE001 - as a careless handler does
            note(job, "told")


def die_when_cancelled(job: jobboard.Job) -> None:
    """Be killed after the signal, and before the report."""
    note(job, "begun")
    try:
        signal.pause()
    except jobboard.Cancelled:
        os.kill(os.getpid(), signal.SIGKILL)


def signal_the_group(job: jobboard.Job) -> None:
    """Let SIGTERM come to all processes of the group, before the stop and while it is under way."""
    os.killpg(0, signal.SIGTERM)
    note(job, "begun")
    try:
        while True:
            threading.Event().wait(0.001)
    finally:
        for _ in range(100):
            os.killpg(0, signal.SIGTERM)
        note(job, "ended")


@contextlib.contextmanager
def swallowing(job: jobboard.Job) -> Iterator[None]:
    """A wrapper that lets no error through."""
    with contextlib.suppress(BaseException):
        yield

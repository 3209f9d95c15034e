"""A program that interrupts blocks at each of their moments: ``python -m tests.support.interrupting BLOCK TIMES URL``.

The signal is a real SIGINT, or a SIGALRM where the block handles SIGINT itself. Python acts on signals where a function
begins and where a function written in C returns. So the signal is sent at each of these moments in turn, as far as they
lie in code of the library's own: once in the whole block, or, with TIMES ``twice``, in the body and again while the
rows are given back.

Prints how many moments there were, and each one after which something was still held.
"""

import contextlib
import os
import pathlib
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.orm import Session

import jobboard
from jobboard.conductor import Conductor
from tests.orm.models import Job, Picture, Status

LIBRARY = pathlib.Path(jobboard.__file__).parent


class Subject(Protocol):
    """What is interrupted."""

    code: tuple[str, ...]
    """Whose moments are counted: beginnings of paths."""
    number: int = signal.SIGINT
    until: str = ""
    """The function that ends the count where it begins."""

    def free(self) -> None:
        """Have something there that can be held, and nothing that is."""

    def block(self) -> Any: ...

    def held(self) -> list[Any]: ...


class Rows(Subject):
    code = (str(LIBRARY / "orm"), contextlib.__file__)

    def __init__(self, url: str) -> None:
        self.engine = sa.create_engine(url)

    def free(self) -> None:
        with Session(self.engine) as session:
            session.execute(sa.delete(Picture))
            session.execute(sa.delete(Job))
            session.add_all([Picture(), Picture(), Job.create("job", Status.PENDING)])
            session.commit()

    def held(self) -> list[Any]:
        with self.engine.connect() as connection:
            pictures = sa.select(Picture.id).where(Picture.acquired_by.is_not(None))
            jobs = sa.select(Job.id).where(sa.or_(Job.lock.is_not(None), Job.status == Status.IN_PROGRESS))
            return [*connection.scalars(pictures), *connection.scalars(jobs)]


class Acquiring(Rows):
    def block(self) -> Any:
        return Picture.acquiring(self.engine, "anna")


class Started(Rows):
    def block(self) -> Any:
        return Job.start(self.engine, "job", *Status, expire=60, max_retry=3)


class Working(Subject):
    code = (str(LIBRARY / "work.py"), contextlib.__file__)

    def __init__(self, uri: str) -> None:
        self.board = jobboard.fetch("interrupted", uri)
        self.board.connect()

    def free(self) -> None:
        for job in self.board.iterjobs():
            if job.seen_state == "CLAIMED":
                # The heartbeat may have given the claim back meanwhile.
                with contextlib.suppress(jobboard.NotFound):
                    self.board.release(job)
            self.board.cancel(job)
        self.board.post("a")

    def block(self) -> Any:
        return self.board.working("anna", timeout=0)

    def held(self) -> list[Any]:
        """What is renewed. The rest lapses by itself."""
        return self.board.claims.held()


class Run(Subject):
    """The start of a conductor."""

    code = (str(LIBRARY / "conductor"), str(LIBRARY / "board.py"), str(LIBRARY / "threads.py"), contextlib.__file__)
    number = signal.SIGALRM
    until = "_wait_for_work"

    def __init__(self, uri: str) -> None:
        self.uri = uri
        signal.signal(signal.SIGALRM, signal.default_int_handler)

    def free(self) -> None:
        self.board = jobboard.fetch("interrupted", self.uri)
        self.conductor = Conductor("anna", self.board, {"a": print})

    @contextlib.contextmanager
    def block(self) -> Iterator[None]:
        self.conductor.stop()
        self.conductor.run()
        yield

    def held(self) -> list[Any]:
        """What the end of ``run()`` waits for has ended; the claimer's thread ends by itself."""
        return [
            *(["dispatching"] if self.conductor.dispatching else []),
            *([] if self.board.closed else [self.board]),
            *([] if signal.getsignal(signal.SIGINT) is signal.default_int_handler else ["SIGINT"]),
            *(each for each in threading.enumerate() if each.name.startswith(("anna-finisher", "anna-signals"))),
        ]


SUBJECTS: dict[str, Any] = {"acquiring": Acquiring, "start": Started, "working": Working, "run": Run}


class Interrupter:
    """Interrupts this thread at its moment number ``at``, counted from the call of ``since``, or from the start."""

    def __init__(self, subject: Subject, at: int, since: tuple[str, ...] = ()) -> None:
        self.left = at
        self.where = ""
        self._subject = subject
        self._since = since

    def see(self, frame: FrameType, event: str, arg: object) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(self._subject.code):
            if frame.f_code.co_name == self._subject.until:
                sys.setprofile(None)
                return
            if self._since and frame.f_code.co_name not in self._since:
                return
            self._since = ()
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} ({event} {arg})"
                os.kill(os.getpid(), self._subject.number)


def run(subject: Subject, interrupter: Interrupter, twice: bool) -> None:
    with contextlib.suppress(KeyboardInterrupt):
        sys.setprofile(interrupter.see)
        try:
            with subject.block():
                if twice:
                    os.kill(os.getpid(), signal.SIGINT)
        finally:
            sys.setprofile(None)


def main(name: str, times: str, url: str) -> None:
    subject: Subject = SUBJECTS[name](url)
    twice = times == "twice"
    number = 0
    while True:
        number += 1
        subject.free()
        interrupter = Interrupter(subject, number, ("give_back", "_fall_back") if twice else ())
        run(subject, interrupter, twice)
        if interrupter.left > 0:
            break
        if left := subject.held():
            print("left", left, "interrupted at", interrupter.where)
    print(number - 1, "moments")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""A program that interrupts blocks at each of their moments: ``python -m tests.interrupting BLOCK TIMES URL``.

The signal is a real SIGINT. Python acts on signals where a function begins and where a function written in C returns.
So the signal is sent at each of these moments in turn, as far as they lie in code of the library's own: once in the
whole block, or, with TIMES ``twice``, in the body and again while the rows are given back.

Prints how many moments there were, and each one after which something was still held.
"""

import contextlib
import os
import pathlib
import signal
import sys
from types import FrameType
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.orm import Session

import jobboard
from tests.orm.models import Job, Picture, Status

LIBRARY = pathlib.Path(jobboard.__file__).parent


class Subject(Protocol):
    """What is interrupted."""

    code: tuple[str, ...]
    """Whose moments are counted: beginnings of paths."""

    def free(self) -> None:
        """Have something there that can be held, and nothing that is."""

    def block(self) -> Any: ...

    def held(self) -> list[Any]: ...


class Rows:
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


class Working:
    code = (str(LIBRARY / "claiming.py"), contextlib.__file__)

    def __init__(self, uri: str) -> None:
        self.board = jobboard.fetch("interrupted", uri)
        self.board.connect()

    def free(self) -> None:
        for job in self.board.iterjobs():
            if job.seen_state == "CLAIMED":
                self.board.release(job)
            self.board.cancel(job)
        self.board.post("a")

    def block(self) -> Any:
        return self.board.working("anna", timeout=0)

    def held(self) -> list[Any]:
        """What is renewed. The rest lapses by itself."""
        session = self.board._session
        assert session is not None
        return session.held()


SUBJECTS: dict[str, Any] = {"acquiring": Acquiring, "start": Started, "working": Working}


class Interrupter:
    """Interrupts this thread at its moment number ``at``, counted from the call of ``since``, or from the start."""

    def __init__(self, code: tuple[str, ...], at: int, since: tuple[str, ...] = ()) -> None:
        self.left = at
        self.where = ""
        self._code = code
        self._since = since

    def see(self, frame: FrameType, event: str, arg: object) -> None:
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(self._code):
            if self._since and frame.f_code.co_name not in self._since:
                return
            self._since = ()
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} ({event} {arg})"
                os.kill(os.getpid(), signal.SIGINT)


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
        interrupter = Interrupter(subject.code, number, ("give_back", "_fall_back") if twice else ())
        run(subject, interrupter, twice)
        if interrupter.left > 0:
            break
        if left := subject.held():
            print("left", left, "interrupted at", interrupter.where)
    print(number - 1, "moments")


if __name__ == "__main__":
    main(*sys.argv[1:])

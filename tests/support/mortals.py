"""Workers that are killed, one after the other, and replaced; and what they have held, by the server's clock."""

import json
import multiprocessing
import random
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from jobboard.testing import eventually

AT_ONCE = 4
KILLED = 12
BATCHES = 5
"""So many batches a worker takes that is to be killed; the last one it holds until then."""

Work = Callable[[sa.Engine], Iterator[list["Hold"]]]


class Hold(NamedTuple):
    """What nobody else may hold from ``begin`` until ``end``; both are the server's, in one unit."""

    key: int
    begin: int
    end: int


class Mortals:
    """Several processes at once, each of which does the same work.

    :param work: a generator, which gives the holds of each batch once it has them for certain, and finishes the batch
        when it is asked for the next one.
    :param folder: where each process writes down its holds.
    """

    def __init__(self, work: Work, engine: sa.Engine, folder: Path) -> None:
        self._work = work
        self._url = engine.url.render_as_string(hide_password=False)
        self._folder = folder
        self._living: list[tuple[Any, Path]] = []

    def run(self, finished: Callable[[], bool]) -> list[Hold]:
        """Kill whoever has lived the longest, again and again; the others must finish all there is. All holds of all.

        :raises AssertionError: a worker has ended by itself, or it is not finished within 20 s.
        """
        try:
            for number in range(KILLED + AT_ONCE):
                if number >= AT_ONCE:
                    _, file = self._living[0]
                    eventually(lambda file=file: file.exists() or finished())
                    time.sleep(random.uniform(0, 0.05))  # where in its work it is killed, and not a wait for anything
                    self._kill()
                self._start(str(number), BATCHES if number < KILLED else None)
            eventually(finished)
        finally:
            while self._living:
                self._kill()
        lines = [line for file in self._folder.iterdir() for line in file.read_text().splitlines()]
        return [Hold(*hold) for line in lines for hold in json.loads(line)]

    def _start(self, name: str, batches: int | None) -> None:
        file = self._folder / name
        process = multiprocessing.get_context("fork").Process(target=_live, args=(self._work, self._url, file, batches))
        process.start()
        self._living.append((process, file))

    def _kill(self) -> None:
        process, _ = self._living.pop(0)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "it ended by itself"


def _live(work: Work, url: str, file: Path, batches: int | None) -> None:
    # Kept, so that it is not closed, which might give back what it holds.
    taken = _taken(work(sa.create_engine(url)))
    for batch in islice(taken, batches):
        with file.open("a") as opened:
            opened.write(json.dumps(batch) + "\n")
    signal.pause()


def _taken(batches: Iterable[list[Hold]]) -> Iterator[list[Hold]]:
    for batch in batches:
        if batch:
            yield batch
        else:
            time.sleep(0.01)  # the pace of one that finds nothing to do


def held_by_two(holds: Iterable[Hold]) -> list[tuple[Hold, Hold]]:
    return [(one, two) for one, two in pairwise(sorted(holds)) if one.key == two.key and two.begin < one.end]

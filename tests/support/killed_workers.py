"""Worker processes that are killed one after the other and replaced, and the record of their claims."""

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
"""The batches of a worker that is to be killed. The worker holds the last batch until then."""

Work = Callable[[sa.Engine], Iterator[list["Hold"]]]


class Hold(NamedTuple):
    """A claim of ``key`` from ``begin`` until ``end``, both by the server's clock and in one unit."""

    key: int
    begin: int
    end: int


class KilledWorkers:
    """Several processes that do the same work at the same time.

    :param work: a generator, which yields the holds of each batch once they are certain, and finishes the batch when
        the next one is asked for.
    :param folder: the folder in which each process writes down its holds.
    """

    def __init__(self, work: Work, engine: sa.Engine, folder: Path) -> None:
        self._work = work
        self._url = engine.url.render_as_string(hide_password=False)
        self._folder = folder
        self._living: list[tuple[Any, Path]] = []

    def run(self, finished: Callable[[], bool]) -> list[Hold]:
        """Kill the oldest worker, again and again, until the others have finished everything. Return all holds.

        :raises AssertionError: a worker has ended by itself, or the work is not finished within a minute.
        """
        try:
            for number in range(KILLED + AT_ONCE):
                if number >= AT_ONCE:
                    _, file = self._living[0]
                    eventually(lambda file=file: file.exists() or finished())
                    time.sleep(random.uniform(0, 0.05))  # the point of its work at which the worker is killed
                    self._kill()
                self._start(str(number), BATCHES if number < KILLED else None)
            eventually(finished, 60)
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
        assert process.exitcode == -signal.SIGKILL, "the worker has ended by itself"


def _live(work: Work, url: str, file: Path, batches: int | None) -> None:
    # The reference keeps the generator open: its end might give back the last batch.
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
            time.sleep(0.01)  # the pace of an idle worker


def held_by_two(holds: Iterable[Hold]) -> list[tuple[Hold, Hold]]:
    """Return the pairs of holds of one key that overlap."""
    return [(one, two) for one, two in pairwise(sorted(holds)) if one.key == two.key and two.begin < one.end]

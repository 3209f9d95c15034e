"""A process of the stress tests: a conductor on a board that writes down what is done to it; see test_conductors.py.

Its argument is a JSON map. SIGTERM ends it, with status 0.
"""

import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jobboard
from jobboard.exceptions import JobBoardError
from jobboard.job import Act
from jobboard.states import Verb
from jobboard.testing.recording import Recorder, to_file


class RecordedBoard:
    """The board for a conductor, with its claims and consumes recorded."""

    def __init__(self, board: Any, recorder: Recorder) -> None:
        self._board, self._recorder = board, recorder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._board, name)

    def claim_many(self, who: str, limit: int, **arguments: Any) -> list[jobboard.Job]:
        return self._recorder.claim_many(who, limit, **arguments)

    def finish_many(self, acts: Iterable[Act], who: str) -> None:
        acts = list(acts)
        verbs = {act.verb for act in acts}
        assert verbs == {Verb.CONSUME}, "a claim was lost: this machine stood still for the length of a lease"
        caught: list[JobBoardError] = []

        def finish() -> None:
            try:
                self._board.finish_many(acts, who)
            except JobBoardError as error:
                caught.append(error)
                raise

        self._recorder._act(Verb.CONSUME, [act.job for act in acts], finish)
        if caught:
            raise caught[0]


def main() -> None:
    given = json.loads(sys.argv[1])
    board = jobboard.fetch(given["board"], given["conf"])
    board.connect()
    recorded: Any = RecordedBoard(board, Recorder(board, given["process"], to_file(Path(given["file"]))))
    conductor = jobboard.Conductor(
        given["who"],
        recorded,
        lambda job: time.sleep(0.005),  # the work
        max_simultaneous_jobs=4,
        drain_timeout=given["drain_timeout"],
    )
    conductor.run()
    board.close()


if __name__ == "__main__":
    main()

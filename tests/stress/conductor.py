"""A process of the stress tests: a conductor on a board that writes down what is done to it; see test_conductors.py.

Its argument is a JSON map. SIGTERM ends it, with status 0.
"""

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jobboard
from jobboard.exceptions import JobBoardError, JobFailures
from jobboard.primitives import End
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

    def end_claims(self, ends: Sequence[tuple[jobboard.Job, End]], who: str) -> list[JobBoardError | None]:
        verbs = {end.verb for _, end in ends}
        assert verbs == {Verb.CONSUME}, "a claim was lost: this machine stood still for the length of a lease"
        errors: list[JobBoardError | None] = []
        caught: list[JobBoardError] = []

        def finish() -> None:
            try:
                errors.extend(self._board.end_claims(ends, who))
            except JobBoardError as error:
                caught.append(error)
                raise
            if failures := [error for error in errors if error is not None]:
                raise JobFailures("some claims could not be ended", failures)

        self._recorder._act(Verb.CONSUME, [job for job, _ in ends], finish)
        if caught:
            raise caught[0]
        return errors


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

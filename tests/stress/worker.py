"""A process of the stress tests: drains a board and writes down what it did; see test_drain.py.

Its argument is a JSON map. It ends with status 0 when the board is empty, and with a traceback when anything else than
a lost claim reached it.
"""

import json
import sys
import time
from pathlib import Path

import jobboard
from jobboard.exceptions import ClaimLost
from jobboard.testing.recording import Recorder, to_file


def main() -> None:
    given = json.loads(sys.argv[1])
    board = jobboard.fetch(given["board"], given["conf"])
    board.connect()
    recorder = Recorder(board, given["process"], to_file(Path(given["file"])))
    who, together, pause = given["who"], given["together"], given["pause"]
    while True:
        jobs = recorder.claim_many(who, together, timeout=0.2)
        if pause:
            time.sleep(pause)  # the work
        if len(jobs) == 1:
            recorder.consume(jobs[0])
        elif jobs:
            recorder.consume_many(jobs, who)
        elif not board.job_count:
            break
    board.close()
    for failure in recorder.failures:
        if not isinstance(failure, ClaimLost):
            raise failure
    print(len(recorder.failures))


if __name__ == "__main__":
    main()

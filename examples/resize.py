"""A conductor, and what it is to work on: run it, and stop it with Ctrl-C."""

import jobboard
from jobboard import Conductor

board = jobboard.fetch("pictures", "sqlite:///pictures.db")
conductor = Conductor(None, board, max_simultaneous_jobs=4)


@conductor.handles("resize")
def resize(job):
    if "path" not in job.details:
        raise jobboard.Reject("it names no picture")
    for _ in range(3):
        if jobboard.cancelled():
            return  # somebody else has the job by now
        print(f"resizing {job.details['path']}, attempt {job.attempts}")


if __name__ == "__main__":
    board.connect()
    board.post_many({"name": "resize", "details": {"path": f"{number}.jpg"}, "max_attempts": 3} for number in range(10))
    board.post("resize")
    conductor.run()
    board.close()
    print(conductor.tally)

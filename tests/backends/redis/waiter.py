"""A process whose threads wait for jobs; see conftest.py. It says which thread has got which job."""

import json
import sys
import threading

import jobboard


def main() -> None:
    given = json.loads(sys.argv[1])
    board = jobboard.fetch("board", given["conf"])
    board.connect()
    board.engine.store.poll_cap = given["poll_cap"]
    saying = threading.Lock()

    def say(*what: object) -> None:
        with saying:
            sys.stdout.write(json.dumps(what) + "\n")
            sys.stdout.flush()

    def wait(number: int, wish: list[str] | str | None) -> None:
        if wish == "look":
            for job in board.wait():
                say(number, job.uuid, job.name)
                break
        else:
            job = board.claim_next(f"waiter {number}", names=wish, timeout=None)
            say(number, job.uuid, job.name)

    threads = [threading.Thread(target=wait, args=each) for each in enumerate(given["wishes"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Alive until it is killed: closing the board would give the jobs back.
    threading.Event().wait()


if __name__ == "__main__":
    main()

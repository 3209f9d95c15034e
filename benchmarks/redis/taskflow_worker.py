"""TaskFlow's Redis board, in an environment of its own: commands and answers are lines of JSON.

Used as its documentation has it: what may be claimed is iterated over, the first is claimed, and consumed.
"""

import json
import sys
import time

from taskflow.jobs import backends


def post(board, jobs, details):
    for _ in range(jobs):
        board.post("resize", details=details)


def each(board, jobs):
    """Look for each job anew, as whoever works beside others has to."""
    for _ in range(jobs):
        for job in board.iterjobs(only_unclaimed=True):
            board.claim(job, "me")
            board.consume(job, "me")
            break


def scan(board, jobs):
    """Look once, and work through what was there then: what one that is alone may do."""
    for _, job in zip(range(jobs), board.iterjobs(only_unclaimed=True), strict=False):
        board.claim(job, "me")
        board.consume(job, "me")


def main():
    host, port, namespace = sys.argv[1:]
    conf = {"board": "redis", "host": host, "port": int(port), "namespace": namespace}
    board = backends.fetch("board", conf)
    board.connect()
    acts = {"post": post, "each": each, "scan": scan}
    for line in sys.stdin:
        what, *arguments = json.loads(line)
        start = time.perf_counter()
        acts[what](board, *arguments)
        print(json.dumps(time.perf_counter() - start), flush=True)


if __name__ == "__main__":
    main()

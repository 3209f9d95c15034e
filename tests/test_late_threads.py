"""Threads that go on after the main thread has ended, and load modules only then."""

import json
import subprocess
import sys
from typing import Any

PROGRAM = """
import json
import sys
import threading

import jobboard


def late():
    threading.main_thread().join()
    board = jobboard.fetch("board", json.loads(sys.argv[1]))
    board.connect()
    try:
        job = board.post("ask")
        {work}
        job.wait(30)
        print("done")
    finally:
        board.close()


threading.Thread(target=late).start()
"""

WORKS = (
    'board.consume(board.claim_next("anna", timeout=30), "anna")',
    'jobboard.Conductor("conductor", board, print).run(1)',
    'jobboard.Conductor("conductor", board, print, workers="processes").run(1)',
)


def test_a_board_works_once_the_main_thread_has_ended(board_conf: dict[str, Any]) -> None:
    # Conductors do nothing of their own with a backend.
    for work in WORKS if board_conf["board"].startswith(("redis", "sqlite")) else WORKS[:1]:
        program = PROGRAM.replace("{work}", work)
        command = [sys.executable, "-c", program, json.dumps(board_conf)]
        ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        assert "done" in ended.stdout, ended.stderr

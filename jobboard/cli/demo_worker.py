"""What the demo's workers do: ``jobboard work jobboard.cli.demo_worker:HANDLERS``.

Each appends its results to a file of its own *before* the job is consumed, so that a worker that dies in between leaves
a result behind and the job on the board: somebody does it again, and nobody misses anything.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import time
from pathlib import Path

from jobboard.cli import demo_files
from jobboard.job import Job

ROOT = "JOBBOARD_DEMO_ROOT"
RESULTS = "JOBBOARD_DEMO_RESULTS"
HOLD_AFTER = "JOBBOARD_DEMO_HOLD_AFTER"

_begun = itertools.count()


def sha256(job: Job) -> None:
    hold_after = os.environ.get(HOLD_AFTER)
    if hold_after is not None and next(_begun) == int(hold_after):
        # This worker is to be killed in the middle of its work, and this is the middle.
        _write({"held": job.uuid})
        threading.Event().wait()
    result: dict[str, object] = {"job": job.uuid, "attempt": job.attempts, "at": time.time()}
    try:
        result["digest"] = demo_files.digest(str(Path(os.environ[ROOT]) / demo_files.unpack(job.details)))
    except OSError as error:
        result["error"] = error.strerror or type(error).__name__
    _write(result)


def _write(line: dict[str, object]) -> None:
    """In one call, so that the lines of several threads do not mix."""
    file = os.open(os.environ[RESULTS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, json.dumps(line).encode() + b"\n")
    finally:
        os.close(file)


def _follow_parent() -> None:
    """Standard input ends when whoever started the demo is gone, however that came about."""
    # Not through sys.stdin, whose lock would be taken for ever, which the interpreter minds when it ends.
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


if RESULTS in os.environ:
    threading.Thread(target=_follow_parent, daemon=True).start()

HANDLERS = {"sha256": sha256}

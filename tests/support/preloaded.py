"""A WSGI application whose board is connected when it is imported, before the server forks its workers."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import jobboard

BOARD = jobboard.fetch("preloaded", json.loads(os.environ["PRELOADED_CONF"]))
BOARD.connect()
MINE = BOARD.claim_next("preloader", names=["kept"])


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Claims and consumes one job, and tells which; or tries to finish what the parent has claimed."""
    if environ["PATH_INFO"] == "/steal":
        try:
            MINE.claim.consume()
            answer = {"outcome": "stolen"}
        except jobboard.ClaimLost:
            answer = {"outcome": "refused", "lost": MINE.claim.lost}
    else:
        job = BOARD.claim_next(f"worker {os.getpid()}", names=["small"])
        job.claim.consume()
        answer = {"uuid": job.uuid, "number": job.details["number"], "pid": os.getpid()}
    start_response("200 OK", [("Content-Type", "application/json")])
    return [json.dumps(answer).encode()]

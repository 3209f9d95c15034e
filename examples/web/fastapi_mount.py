"""A FastAPI service with the page of its board under /ops/jobs."""

from __future__ import annotations

import base64
import os
import secrets
from typing import Any

from fastapi import FastAPI, Request, Response

from jobboard.web import app

PASSWORD = os.environ.get("PASSWORD", "only for trying it out")
RIGHTS = {"admin": "act", "guest": "look"}


def authorize(request: Request) -> Any:
    """Ask this service's users for the password. A real service asks its session."""
    _, _, given = request.headers.get("authorization", "").partition(" ")
    try:
        name, _, password = base64.b64decode(given).decode().partition(":")
    except ValueError:
        name = password = ""
    if name in RIGHTS and secrets.compare_digest(password.encode(), PASSWORD.encode()):
        return ("act", name) if RIGHTS[name] == "act" else "look"
    return Response("Log in first.", 401, {"WWW-Authenticate": 'Basic realm="jobs"'})


def without_secrets(job: Any, value: Any) -> Any:
    """Hide what no operator needs to see."""
    return {**value, "password": "***"} if isinstance(value, dict) and "password" in value else value


service = FastAPI()


@service.get("/health")
def health() -> dict[str, str]:
    return {"status": "ok"}


board = ("jobboard", os.environ.get("JOBBOARD_URL", "sqlite:///jobs.db"))
service.mount("/ops/jobs", app(board, authorize=authorize, details=without_secrets))

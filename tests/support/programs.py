"""Programs that a test starts, talks to, and stops as an operator would."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from jobboard.testing import eventually


@contextlib.contextmanager
def running(cwd: Path, log: Path, *arguments: str, ends: int = 0, **env: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run Python with these arguments until SIGTERM, upon which it must end in order. ``log`` gets its output.

    :param ends: the exit code.
    """
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
            cwd=cwd,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
        assert process.poll() is None, log.read_text()
    except BaseException:
        process.kill()
        raise
    finally:
        process.terminate()
        process.wait(60)
    assert process.returncode == ends, log.read_text()


@contextlib.contextmanager
def gunicorn(application: str, cwd: Path, log: Path, *arguments: str, **env: str) -> Iterator[str]:
    """Give the address of a server of ``application``."""
    bound = ("--bind", "127.0.0.1:0", "--no-control-socket")
    with running(cwd, log, "-m", "gunicorn", *bound, *arguments, application, **env) as process:

        def address() -> str | None:
            assert process.poll() is None, log.read_text()
            found = re.search(r"Listening at: (http://\S+)", log.read_text())
            return found.group(1) if found else None

        yield eventually(address, 60)

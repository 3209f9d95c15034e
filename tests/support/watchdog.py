"""The process that outlives a test run to clean up after it.

Run as a script, one per server: it waits until the process that started it asks, or dies in any
way, SIGKILL included; then it kills every process that works inside the server's folder and
removes the folder. It holds no list of process ids: who works in the folder is read from /proc at
that moment, so no server can slip through between its start and its registration, and no id kept
from earlier can have become another process's.
"""

import contextlib
import ctypes
import os
import select
import shutil
import signal
import sys
import time
from pathlib import Path


def processes_in(folder: Path) -> list[int]:
    """Return the processes whose working directory is ``folder`` or lies below it, by their ids.

    All servers of tests, their helpers and their forked processes work in the folder of their data.
    """
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        # A process may end while we look, and a zombie has no directory any more.
        with contextlib.suppress(OSError):
            cwd = Path(str((entry / "cwd").readlink()).removesuffix(" (deleted)"))
            if cwd.is_relative_to(folder):
                found.append(int(entry.name))
    return sorted(found)


def signal_all(folder: Path, number: signal.Signals) -> None:
    """Send a signal to every process in ``folder``, also to those that are forked meanwhile."""
    done: set[int] = set()
    while fresh := set(processes_in(folder)) - done:
        for pid in sorted(fresh):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        done |= fresh


def is_stopped(pid: int) -> bool:
    """Return whether SIGSTOP has stopped all threads of a process, or the process is gone."""
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            # The state follows the command's name, which is in parentheses and may hold some.
            if (task / "stat").read_text().rpartition(")")[2].split()[0] != "T":
                return False
    return True


def kill_all(folder: Path) -> None:
    """Kill every process in ``folder`` and return when none is left."""
    while processes_in(folder):
        signal_all(folder, signal.SIGKILL)
        time.sleep(0.002)


def clean_up(folder: Path) -> None:
    """Kill every process in ``folder``, free the shared memory that it names, and remove it."""
    kill_all(folder)
    _free_shared_memory(folder)
    # Threads of a killed process may still make a file, although its first thread is gone.
    until = time.monotonic() + 10
    while folder.exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)


def _free_shared_memory(folder: Path) -> None:
    # PostgreSQL guards its data folder by a System V segment that outlives a SIGKILL. Line 7: its
    # key, its id.
    for pidfile in folder.glob("*/postmaster.pid"):
        lines = pidfile.read_text(errors="replace").splitlines()
        if len(lines) >= 7 and len(words := lines[6].split()) == 2:
            ctypes.CDLL(None).shmctl(int(words[1]), 0, None)


def main(folder: Path, parent: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # The end of the pipe alone would not do: a child that the parent has forked keeps the other
    # end open.
    with contextlib.suppress(ProcessLookupError):
        alive = os.pidfd_open(parent)
        # Had the parent died before the call above, its number could be someone else's by now.
        if os.getppid() == parent:
            select.select([sys.stdin, alive], [], [])
    clean_up(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

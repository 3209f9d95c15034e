"""Pages and their commands ``jobboard``, forked from a process that has imported the library.

Imports are most of the time in which a command starts, and pages have hundreds of commands. Each of them still is a
process with a folder, streams, signals and an environment of its own. ``tests/cli`` and README's page start the real
command, and so does ``python -m tests.docs.page``.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import io
import marshal
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jobboard.cli import main
from tests.docs import page

COMMANDS: dict[str, Callable[[], int]] = {"jobboard": main, "page": page.main}

MODULES = """
jobboard.backends.sql.store jobboard.cli.common jobboard.cli.jobs jobboard.cli.list jobboard.cli.root jobboard.conductor
rich.table sqlalchemy.dialects.mysql sqlalchemy.dialects.postgresql sqlalchemy.dialects.sqlite
"""
"""What many commands import."""

LAUNCHER = """#!{python} -IS
import _signal, _socket, marshal, posix, sys

link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
link.connect({address!r})
ignored = [each for each in range(1, 32) if _signal.getsignal(each) == _signal.SIG_IGN]
request = marshal.dumps((sys.argv, posix.getcwd(), posix.environ, ignored))
streams = b"".join(each.to_bytes(4, sys.byteorder) for each in range(3))
link.sendmsg([len(request).to_bytes(4)], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
link.sendall(request)


def receive_number():
    said = link.recv(4)
    if not said:
        posix.write(2, b"the process that forks commands has ended\\n")
        posix._exit(125)
    return int.from_bytes(said, signed=True)


def pass_on(number, frame):
    try:
        posix.kill(pid, number)
    except ProcessLookupError:
        # It has ended, and its status is on the way.
        pass


pid = receive_number()
for each in {{_signal.SIGHUP, _signal.SIGINT, _signal.SIGQUIT, _signal.SIGTERM, _signal.SIGUSR1}} - {{*ignored}}:
    _signal.signal(each, pass_on)
status = receive_number()
if status < 0:
    _signal.signal(-status, _signal.SIG_DFL)
    posix.kill(posix.getpid(), -status)
posix._exit(status)
"""
"""The program in the place of the command. It has signals passed on, and ends as the forked process ends."""


@contextlib.contextmanager
def forked_commands(folder: Path, env: dict[str, str]) -> Iterator[Path]:
    """Yield a folder with :data:`COMMANDS`, for PATH.

    :param env: variables that an interpreter reads as it starts.
    """
    address = folder / "socket"
    programs = folder / "bin"
    programs.mkdir()
    for name in COMMANDS:
        (programs / name).write_text(LAUNCHER.format(python=sys.executable, address=str(address)))
        (programs / name).chmod(0o755)
    command = [sys.executable, "-m", "tests.docs.forks", address]
    # It ends with the pipe, and so with this process.
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], env={**os.environ, **env}, **pipes) as process:
        assert process.stdout.readline() == b"ready\n"
        yield programs
        process.stdin.close()


def serve(address: str) -> Callable[[], int]:
    """Fork a process for each command until standard input ends. Return what this process, or a fork, has to do."""
    for name in MODULES.split():
        importlib.import_module(name)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen(64)
    waiting = selectors.DefaultSelector()
    waiting.register(0, selectors.EVENT_READ)
    waiting.register(listener, selectors.EVENT_READ)
    # No fork goes through what is imported, which would copy its pages.
    gc.freeze()
    os.write(1, b"ready\n")
    while True:
        for key, _ in waiting.select():
            if key.fd == 0:
                return lambda: 0
            if key.fileobj is listener:
                if asked := fork_command(listener, waiting):
                    return functools.partial(run_command, *asked)
            elif key.fd in waiting.get_map():
                report_end(waiting, *key.data)


def fork_command(listener: socket.socket, waiting: selectors.BaseSelector) -> tuple[Any, ...] | None:
    """Fork a process for the next command. Return the arguments of :func:`run_command` in the fork."""
    link = listener.accept()[0]
    if not (asked := receive_request(link)):
        return None
    if not (pid := os.fork()):
        return asked
    # Processes of its own end with it.
    os.setpgid(pid, pid)
    for each in asked[-1]:
        os.close(each)
    with contextlib.suppress(OSError):
        link.sendall(pid.to_bytes(4))
    ended = os.pidfd_open(pid)
    for end in (link, ended):
        waiting.register(end, selectors.EVENT_READ, (link, pid, ended))
    return None


def report_end(waiting: selectors.BaseSelector, link: socket.socket, pid: int, ended: int) -> None:
    """Report the status of a fork that has ended. If the command was killed, the fork ends now."""
    for end in (link, ended):
        waiting.unregister(end)
    os.killpg(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        link.sendall(status.to_bytes(4, signed=True))
    link.close()
    os.close(ended)


def receive_request(link: socket.socket) -> tuple[Any, ...] | None:
    """Return the arguments of :func:`run_command`; None if the command was killed before it had sent them."""
    size, streams, *_ = socket.recv_fds(link, 4, 3)
    with link.makefile("rb") as sent:
        text = sent.read(int.from_bytes(size))
    return (*marshal.loads(text), streams) if text and len(text) == int.from_bytes(size) else None


def run_command(argv: list[str], cwd: str, env: dict[bytes, bytes], ignored: list[int], streams: list[int]) -> int:
    """Run the command as the process that its user has started."""
    for number, each in enumerate(streams):
        os.dup2(each, number)
    os.closerange(3, 4096)
    os.chdir(cwd)
    os.environb.clear()
    os.environb.update(env)
    time.tzset()
    for each in ignored:
        signal.signal(each, signal.SIG_IGN)
    # Without buffers, so that a page sees at once what a command prints.
    sys.stdin = open(0)  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(open(1, "wb", 0), write_through=True)  # noqa: SIM115
    sys.stderr = io.TextIOWrapper(open(2, "wb", 0), errors="backslashreplace", write_through=True)  # noqa: SIM115
    sys.argv, sys.path[0] = argv, str(Path(argv[0]).parent)
    # Processes that are spawned import the main module of this one.
    script = sys.modules["__main__"] = types.ModuleType("__main__")
    script.__file__ = str(Path(sys.executable).with_name("jobboard"))
    return COMMANDS[Path(argv[0]).name]()


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1])())

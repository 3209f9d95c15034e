"""The command line on a terminal: a screen that is drawn and put away, and a list that is longer than it."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from typing import Any

import pytest

from jobboard.cli import main
from jobboard.testing import eventually

pytestmark = pytest.mark.backends("sqlite")

DONE = 0


@pytest.fixture
def board(board_of_commands: Any) -> Any:
    return board_of_commands


@pytest.mark.parametrize("end", ["q", "\x03", signal.SIGTERM])
def test_top_on_a_terminal(board: Any, end: str | signal.Signals) -> None:
    """It draws, ends, and leaves the terminal as it was."""
    board.post("resize")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 110, 0, 0))
    before = termios.tcgetattr(slave)
    drawn = b""

    def draws() -> bool:
        nonlocal drawn
        if select.select([master], [], [], 0)[0]:
            drawn += os.read(master, 65536)
        return b"q quits" in drawn

    with subprocess.Popen(
        [sys.executable, "-m", "jobboard.cli", "top"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color"},
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - Ctrl-C comes from one's own terminal
    ) as process:
        try:
            eventually(draws)
            assert termios.tcgetattr(slave)[3] & (termios.ICANON | termios.ECHO) == 0
            if isinstance(end, str):
                os.write(master, end.encode())
            else:
                process.send_signal(end)
            assert eventually(lambda: [draws() and process.poll()] if process.poll() is not None else None)
        finally:
            process.kill()
    while select.select([master], [], [], 0)[0]:
        drawn += os.read(master, 65536)
    assert process.returncode == (128 + end if isinstance(end, signal.Signals) else DONE)
    assert termios.tcgetattr(slave) == before
    assert drawn.count(b"\x1b[?1049h") == drawn.count(b"\x1b[?1049l") == 1  # the other screen, and back
    assert drawn.rindex(b"\x1b[?25h") > drawn.rindex(b"\x1b[?25l")  # the cursor
    os.close(master)
    os.close(slave)


def test_a_long_list_on_a_terminal_goes_through_a_pager(
    board: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    """All of it; and a short one does not."""
    monkeypatch.setattr(sys, "stdout", _Terminal(sys.stdout))
    monkeypatch.setattr(sys, "stdin", _Terminal(sys.stdin))
    monkeypatch.setenv("PAGER", "sed s/^/paged:/")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("LINES", "24")
    board.post_many([{"name": f"job{n:04}"} for n in range(10)])
    assert main(["list"]) == DONE
    out = capfd.readouterr().out
    assert "job0009" in out
    assert "paged:" not in out
    board.post_many([{"name": f"job{n:04}"} for n in range(10, 1200)])
    assert main(["list"]) == DONE
    out = capfd.readouterr().out
    assert [line.split()[1] for line in out.splitlines() if "UNCLAIMED" in line] == [f"job{n:04}" for n in range(1200)]
    assert all(line.startswith("paged:") for line in out.splitlines())
    assert main(["list", "--limit", "30"]) == DONE
    assert "paged:" not in capfd.readouterr().out


class _Terminal:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@pytest.mark.parametrize(
    ("command", "bar", "printed"),
    [
        (["post", "--from", "FILE"], "posting", {"posted": 3}),
        (["trash", "restore", "--all"], "restoring", {"restored": 3}),
        (["move", "SOURCE", "TARGET"], "moving", {"trashed": 3}),
    ],
)
def test_bars_on_a_terminal(
    board: Any,
    command: list[str],
    bar: str,
    printed: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """And what a command prints, which may go into a file, comes without them."""
    for job in board.post_many([{"name": f"job{n}"} for n in range(3)]):
        board.cancel(job)
    (tmp_path / "jobs").write_text('{"name": "a"}\n' * 3)
    words = {"FILE": f"{tmp_path}/jobs", "SOURCE": os.environ["JOBBOARD_URL"], "TARGET": f"sqlite:///{tmp_path}/new.db"}
    monkeypatch.setattr(sys, "stderr", _Terminal(sys.stderr))
    monkeypatch.setenv("TERM", "xterm")
    assert main([*(words.get(word, word) for word in command), "--json"]) == DONE
    shown = capfd.readouterr()
    assert bar in shown.err
    assert "3/3" in shown.err
    assert printed.items() <= json.loads(shown.out).items()

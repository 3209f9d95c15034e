"""Commands on a terminal: the screen of ``top``, and progress bars."""

import fcntl
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

from jobboard.cli.common import DONE
from jobboard.testing import eventually
from tests.support.commands import Commands

pytestmark = pytest.mark.backends("sqlite")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_top_leaves_the_terminal_as_it_was(board: Any, end: signal.Signals) -> None:
    board.post("resize")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 110, 0, 0))
    before = termios.tcgetattr(slave)
    drawn = b""

    def draws() -> bool:
        nonlocal drawn
        while select.select([master], [], [], 0)[0]:
            drawn += os.read(master, 65536)
        return b"on board" in drawn

    def ended() -> bool:
        draws()  # a full terminal would keep it from ending
        return process.poll() is not None

    with subprocess.Popen(
        [sys.executable, "-m", "jobboard.cli", "top"],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm-256color"},
    ) as process:
        try:
            eventually(draws, 60)
            process.send_signal(end)
            eventually(ended, 60)
        finally:
            process.kill()
    draws()
    assert process.returncode == DONE
    assert termios.tcgetattr(slave) == before
    assert drawn.count(b"\x1b[?1049h") == drawn.count(b"\x1b[?1049l") == 1  # the other screen, and back
    assert drawn.rindex(b"\x1b[?25h") > drawn.rindex(b"\x1b[?25l")  # the cursor
    os.close(master)
    os.close(slave)


class _Terminal:
    """A stream that calls itself a terminal."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@pytest.mark.parametrize(
    ("command", "bar", "printed"),
    [
        ("post --from FILE", "posting", {"posted": 3}),
        ("trash restore --all", "restoring", {"restored": 3}),
        ("move SOURCE TARGET", "moving", {"trashed": 3}),
        ("demo FOLDER", "working", {"posted": 3}),
    ],
)
def test_a_terminal_shows_bars_beside_the_output(
    board: Any,
    run: Commands,
    command: str,
    bar: str,
    printed: dict[str, int],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Any,
) -> None:
    for job in board.post_many([{"name": f"job{n}"} for n in range(3)]):
        board.cancel(job)
    (tmp_path / "jobs").write_text('{"name": "a"}\n' * 3)
    (tmp_path / "folder").mkdir()
    for number in range(3):
        (tmp_path / "folder" / str(number)).touch()
    words = {"FILE": f"{tmp_path}/jobs", "SOURCE": os.environ["JOBBOARD_URL"], "TARGET": f"sqlite:///{tmp_path}/new.db"}
    words |= {"FOLDER": f"{tmp_path}/folder"}
    monkeypatch.setattr(sys, "stderr", _Terminal(sys.stderr))
    monkeypatch.setenv("TERM", "xterm")
    ran = run(*(words.get(word, word) for word in command.split()), "--json")
    assert bar in ran.err
    assert "3/3" in ran.err
    assert f"{bar}: " not in ran.err
    assert printed.items() <= ran.json.items()

"""Commands of ``jobboard`` as tests run them in their own process, and work that goes on meanwhile."""

from __future__ import annotations

import contextlib
import io
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

from jobboard.cli import main
from jobboard.cli.common import DONE
from jobboard.cli.top import look


class Ran:
    """The end of a command: its status, and what it printed."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """The JSON objects, one in each line."""
        return [json.loads(line) for line in self.out.splitlines()]

    def is_one_line_about(self, *words: str) -> bool:
        """Return whether the complaint is one line with these words, beside the line that refers to the help."""
        complaint = [line for line in self.err.splitlines() if not line.startswith("See ")]
        return len(complaint) == 1 and all(word in complaint[0] for word in words) and "Traceback" not in self.err


class Interrupting(io.StringIO):
    """A standard output whose reader presses Ctrl-C once ``enough`` is printed."""

    def __init__(self, enough: Callable[[str], object]) -> None:
        super().__init__()
        self._enough = enough

    def write(self, text: str) -> int:
        written = super().write(text)
        if text.strip() and self._enough(self.getvalue()):
            raise KeyboardInterrupt
        return written


class Commands:
    """Runs commands in this process: ``run("list", "--json").lines``."""

    def __init__(self, capsys: Any, monkeypatch: Any) -> None:
        self._capsys, self._monkeypatch = capsys, monkeypatch

    def __call__(self, *args: str, status: int = DONE, width: int | None = None) -> Ran:
        """Run a command to its end, which must have this status."""
        self._capsys.readouterr()
        with self._monkeypatch.context() as patch:
            if width is not None:
                patch.setenv("COLUMNS", str(width))
            ended = main(args)
        ran = Ran(ended, *self._capsys.readouterr())
        assert ran.status == status, ran.out + ran.err
        return ran

    def until(self, enough: Callable[[str], object], *args: str) -> str:
        """Run a command until ``enough(all that it has printed)``, and end it as Ctrl-C does."""
        out = Interrupting(enough)
        with self._monkeypatch.context() as patch:
            patch.setattr("sys.stdout", out)
            assert main(args) == DONE
        return out.getvalue()


@contextlib.contextmanager
def again_and_again(step: Callable[[], object], pause: float) -> Iterator[None]:
    """Repeat ``step`` on a thread meanwhile."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(pause):
            step()

    runner = threading.Thread(target=run)
    runner.start()
    try:
        yield
    finally:
        over.set()
        runner.join()


@contextlib.contextmanager
def busy(board: Any) -> Iterator[None]:
    """Jobs named 'busy' come and go meanwhile."""

    def work() -> None:
        job = board.post("busy", priority="VERY_HIGH")
        board.claim(job, "worker[/]")
        board.abandon(job, "worker[/]")
        board.claim(job, "worker[/]")
        board.consume(job, "worker[/]")

    with again_and_again(work, 0.01):
        yield


@contextlib.contextmanager
def posting(board: Any) -> Iterator[None]:
    """One job after the other is posted meanwhile, and all are gone afterwards."""
    posted: list[Any] = []
    try:
        with again_and_again(lambda: posted.append(board.post("posted[/]", priority="VERY_HIGH")), 0.05):
            yield
    finally:
        for job in posted:
            board.claim(job, "worker")
            board.consume(job, "worker")


def screen_of(board: Any, height: int = 100, width: int = 160) -> str:
    """Return the screen of ``top``."""
    from rich.console import Console

    out = io.StringIO()
    console = Console(file=out, width=width, height=height, force_terminal=True, color_system=None)
    console.print(look(board), height=height)
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().rstrip("\n").splitlines())

"""``jobboard top``: a screen of what goes on."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import click

from jobboard.cli.common import DONE, BoardOptions, board_options, example, opened
from jobboard.cli.output import console, say, say_json
from jobboard.cli.sampling import BESIDE, Sampler
from jobboard.cli.screen import as_json, as_line, render
from jobboard.exceptions import JobBoardError
from jobboard.retry import outage_pause

_TICK = 0.2
_REDRAW = 1.0


@click.command(
    epilog=example("jobboard top", "jobboard top --interval 10", "jobboard top --once --json | jq .counts.unclaimed")
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="Count the jobs so often; less often where the board would be looked at more than twice a second.",
)
@click.option("--once", is_flag=True, help="Show one snapshot, and end.")
@board_options
def top(settings: BoardOptions, interval: float, once: bool) -> int:
    """Show what goes on on a board, until q or Ctrl-C.

    The jobs in each state and of each name, how many are posted, started and done, the job that waits longest, who
    works on what and since when, the conductors, and the last errors. It looks at most twice a second, however large
    the board is; what is known of its first jobs alone is shown as such. A conductor that hangs shows as a claim
    that grows old: 'jobboard release' frees its job.

    Into a pipe, and with --json, a line is printed for each snapshot.
    """
    out = console()
    plain = not out.is_terminal or out.is_dumb_terminal
    # Whoever looks at a screen wants to see soon that the board is away.
    options: dict[str, Any] = {} if once else {"retry_for": 1}
    with opened(settings, **options) as board:
        sampler = Sampler(board)
        if once:
            while not sampler.complete:
                sampler.look()
            if settings.json:
                say_json(as_json(sampler, None))
            elif plain:
                say(as_line(sampler, None))
            else:
                out.print(render(sampler, None, 200, out.width, live=False))
            return DONE
        watcher = _Watcher(sampler, interval)
        with _ended_by_signals():
            if settings.json or plain:
                watcher.print_lines(settings.json)
            else:
                watcher.show(out)
    return DONE


class _Watcher:
    def __init__(self, sampler: Sampler, interval: float) -> None:
        self._sampler = sampler
        self._interval = interval
        self._stopped = threading.Event()
        self._news = threading.Event()
        self._trouble: str | None = None
        self._failures = 0
        # An outage is shown; logged besides, it would be written across the screen.
        logging.getLogger().addHandler(logging.NullHandler())

    def _look(self) -> float:
        """Look once; how long to wait before the next look."""
        try:
            self._sampler.look()
        except JobBoardError as error:
            self._failures += 1
            self._trouble = str(error)
            return max(self._sampler.pace.pause(), outage_pause(self._failures))
        self._trouble, self._failures = None, 0
        # The first round is not slower than it has to be.
        return max(self._sampler.pace.pause(), self._interval / (1 + BESIDE) if self._sampler.complete else 0.0)

    def print_lines(self, json: bool) -> None:
        """A line after each count, once all has been seen; and while the board is away, after each try."""
        counted = None
        while True:
            pause = self._look()
            sampler = self._sampler
            if self._trouble is not None or (sampler.complete and sampler.counted_at != counted):
                counted = sampler.counted_at
                if json:
                    say_json(as_json(sampler, self._trouble))
                else:
                    say(as_line(sampler, self._trouble))
                sys.stdout.flush()
            time.sleep(pause)

    def show(self, out: Any) -> None:
        from rich.live import Live

        asker = threading.Thread(target=self._ask, name="jobboard-top", daemon=True)
        with _Keyboard() as keyboard, Live(console=out, screen=True, auto_refresh=False) as live:
            asker.start()
            try:
                drawn = 0.0
                while "q" not in keyboard.read(_TICK).lower():
                    if self._news.is_set() or time.monotonic() - drawn >= _REDRAW:
                        self._news.clear()
                        drawn = time.monotonic()
                        live.update(render(self._sampler, self._trouble, out.height, out.width), refresh=True)
            finally:
                self._stopped.set()
        asker.join(_REDRAW)

    def _ask(self) -> None:
        while not self._stopped.is_set():
            pause = self._look()
            self._news.set()
            self._stopped.wait(pause)


class _Keyboard:
    """Keys as they are pressed, without an echo; the terminal is put back in the end, whatever happens."""

    def __init__(self) -> None:
        self._before: list[Any] | None = None

    def __enter__(self) -> _Keyboard:
        import termios

        if sys.stdin.isatty():
            self._before = termios.tcgetattr(sys.stdin)
            now = termios.tcgetattr(sys.stdin)
            now[3] &= ~(termios.ICANON | termios.ECHO)
            # Stopped by Ctrl-Z, it would leave its screen behind.
            now[6][termios.VSUSP] = b"\0"
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, now)
        return self

    def __exit__(self, *exc_info: object) -> None:
        import termios

        if self._before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, self._before)

    def read(self, seconds: float) -> str:
        """What is typed within this time."""
        if self._before is None:
            time.sleep(seconds)
        elif select.select([sys.stdin], [], [], seconds)[0]:
            typed = os.read(sys.stdin.fileno(), 1024)
            # A terminal that has gone away is always ready to be read.
            return typed.decode(errors="replace") if typed else "q"
        return ""


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Ctrl-C is the way to end it, and no failure; a SIGTERM or SIGHUP leaves the terminal as it was, too."""

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = (signal.SIGTERM, signal.SIGHUP) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)

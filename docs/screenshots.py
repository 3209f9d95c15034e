"""Makes the pictures of docs/images anew: what a real terminal shows of real commands, on a board at work, and what a
real browser shows of its page.

Needs tmux, a Redis server, Chromium and the package playwright. Run it as ``python docs/screenshots.py``, or as
``python docs/screenshots.py web`` for the picture of the page alone.
"""

import contextlib
import os
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

import jobboard
from jobboard import Conductor
from jobboard.testing import eventually
from tests.support.servers import Redis

IMAGES = Path(__file__).parent / "images"
WIDTH, HEIGHT = 116, 28
NAME = "pictures"

# No font from elsewhere: a page of the documents asks nobody but its own server.
SVG = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


@contextlib.contextmanager
def at_work(uri: str) -> Iterator[None]:
    """Three conductors, one of which hangs, and somebody who posts."""
    over = threading.Event()

    def resize(job: jobboard.Job) -> None:
        over.wait(random.uniform(0.2, 0.8))
        if random.random() < 0.1:
            raise ValueError(f"{job.details['path']}: not a picture")
        if random.random() < 0.03:
            raise jobboard.Reject(f"OSError: cannot identify image file '{job.details['path']}'")

    def report(job: jobboard.Job) -> None:
        over.wait()

    def post(board: jobboard.JobBoard) -> None:
        for number in range(10**6):
            board.post(random.choice(("resize", "thumbnail")), details={"path": f"{number}.jpg"})
            if over.wait(0.12):
                break

    with contextlib.ExitStack() as stack:
        kept = {"board": uri, "keep_done": 3600}
        boards = [stack.enter_context(jobboard.backend(NAME, kept)) for _ in range(4)]
        boards[0].post_many([{"name": "resize", "details": {"path": f"{n}.jpg"}} for n in range(700)])
        boards[0].post_many([{"name": "report", "priority": "HIGH"}] + [{"name": "report", "delay": 3600}] * 3)
        boards[0].post("index", priority="LOW")
        names = {"resize": resize, "thumbnail": resize}
        conductors = [
            Conductor("resizer-1", boards[1], names, max_simultaneous_jobs=3),
            Conductor("resizer-2", boards[2], names, max_simultaneous_jobs=2),
            Conductor("reporter", boards[3], {"report": report}),
        ]
        threads = [threading.Thread(target=conductor.run) for conductor in conductors]
        threads.append(threading.Thread(target=post, args=(boards[0],)))
        for number, thread in enumerate(threads):
            # Conductors tell where they are: not on the machine that makes the pictures.
            socket.gethostname = lambda number=number: f"worker{number + 1}"
            thread.start()
            eventually(lambda number=number: number > 2 or len(boards[0].entities()) > number)
        try:
            yield
        finally:
            over.set()
            for conductor in conductors:
                conductor.stop()
            for thread in threads:
                thread.join()


class Terminal:
    """One of tmux's own, that no other server of tmux's knows."""

    def __init__(self, uri: str) -> None:
        self._server = ("tmux", "-L", f"screenshots{os.getpid()}", "-f", "/dev/null")
        self._environment = {
            **os.environ,
            "JOBBOARD_URL": uri,
            "JOBBOARD_NAME": NAME,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PS1": "$ ",
        }
        self._tmux("new-session", "-d", "-x", str(WIDTH), "-y", str(HEIGHT), "bash --norc --noprofile")

    def _tmux(self, *words: str) -> str:
        command = [*self._server, *words]
        return subprocess.run(command, env=self._environment, check=True, capture_output=True, text=True).stdout

    def type(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def shown(self, *options: str) -> str:
        return self._tmux("capture-pane", "-p", *options)

    def picture(self, name: str, title: str, ready: Callable[[str], object]) -> None:
        eventually(lambda: ready(self.shown()), 60)
        console = Console(record=True, width=WIDTH, file=Path(os.devnull).open("w"))  # noqa: SIM115
        console.print(Text.from_ansi(self.shown("-e").rstrip("\n")))
        console.save_svg(str(IMAGES / f"{name}.svg"), title=title, code_format=SVG, unique_id=name)

    def close(self) -> None:
        self._tmux("kill-server")


def picture_of_page(uri: str) -> None:
    """Show the page in Chromium, once its lines have a shape."""
    from playwright.sync_api import sync_playwright

    command = [sys.executable, "-m", "jobboard.cli", "--board", uri, "--name", NAME, "web", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        assert server.stdout is not None
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 900, "height": 460}, color_scheme="light")
        page.goto(server.stdout.readline().split()[0])
        page.wait_for_timeout(120_000)
        # The address of the server of this run says nothing.
        page.evaluate("document.querySelector('.where').textContent = ''")
        page.screenshot(path=str(IMAGES / "web.png"))
        server.terminate()


def pictures_of_terminal(uri: str) -> None:
    began = time.monotonic()
    terminal = Terminal(uri)
    try:
        terminal.type("clear; jobboard top", "Enter")
        terminal.picture("top", "jobboard top", lambda text: time.monotonic() - began > 45)
        terminal.type("C-c")
        terminal.type("clear; jobboard list --limit 24", "Enter")
        terminal.picture("list", "jobboard list --limit 24", lambda text: "There are more" in text)
        terminal.type("clear; jobboard watch", "Enter")
        terminal.picture("watch", "jobboard watch", lambda text: text.count("CONSUMED") > 4)
        terminal.type("C-c")
    finally:
        terminal.close()


def main() -> None:
    with Redis() as server, at_work(server.uri):
        if sys.argv[1:] != ["web"]:
            pictures_of_terminal(server.uri)
        picture_of_page(server.uri)


if __name__ == "__main__":
    main()

"""The bash of a page, and the commands of its console blocks."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.docs.blocks import Block, PageError, compare, indented

STOPPED = {0, 128 + signal.SIGTERM}
# 127: the page itself has waited for the command.
ENDED = {*STOPPED, 127, 128 + signal.SIGINT, 128 + signal.SIGKILL}
HERE = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")


@dataclass(frozen=True)
class Command:
    """A command of a console block. status: its exit status. expected: its output, empty to compare nothing."""

    line: int
    text: str
    expected: str
    status: int
    stop: str | None

    @property
    def is_in_background(self) -> bool:
        return self.text.endswith("&") and not self.text.endswith("&&")


def commands(block: Block) -> list[Command]:
    """Return the commands of a block, each with the lines up to the next ``$``."""
    lines = block.source.splitlines()
    found: list[Command] = []
    number = 0
    while number < len(lines):
        start = number
        if not lines[start].startswith("$ "):
            raise PageError(block.first + start, "a console block begins with a line '$ command'")
        text = lines[start][2:]
        here = HERE.search(text)
        while text.endswith("\\") or (here and not text.endswith(f"\n{here[2]}")):
            number += 1
            if number == len(lines):
                raise PageError(block.first + start, "the command has no end")
            text += "\n" + lines[number].removeprefix("> ")
        number += 1
        expected = []
        while number < len(lines) and not lines[number].startswith("$ "):
            expected.append(lines[number])
            number += 1
        ended = (
            re.fullmatch(r"\[exit (\d+)\]", expected[-1]) if expected and (expected := _stripped(expected)) else None
        )
        status = int(ended[1]) if ended else 0
        shown = "\n".join(expected[:-1] if ended else expected)
        stop = block.stop if number == len(lines) else None
        found.append(Command(block.first + start, text.rstrip(), shown, status, stop))
    return found


def _stripped(lines: list[str]) -> list[str]:
    while lines and not lines[-1].strip():
        del lines[-1]
    return lines


class Shell:
    """One bash for all commands of a page: variables and the folder last from one to the next.

    :param scratch: a folder for scripts and outputs.
    """

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._count = 0
        self._background: list[tuple[int, Command, Path]] = []
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(
        self, command: Command, ending: Callable[[Path], contextlib.AbstractContextManager[object]] | None = None
    ) -> None:
        """Run a command to its end.

        :param ending: gives a context for the run, of the file of its output.
        :raises PageError: its status or its output is none that the page says.
        """
        self._count += 1
        script, output = self._scratch / f"command{self._count}", self._scratch / f"output{self._count}"
        script.write_text(command.text + "\n")
        output.touch()
        with ending(output) if ending else contextlib.nullcontext():
            status = self._ask(f". {script} > {output} 2>&1 < /dev/null; echo $?")
        if command.is_in_background:
            self._background.append((self._ask("echo $!"), command, output))
            return
        told = self._without_reports(output.read_text(errors="replace")).replace(f"{script}: line ", "bash: line ")
        shown = f"$ {command.text}"
        if status != command.status and not (command.stop and status in STOPPED):
            message = f"the exit status is {status} in place of {command.status}\n{indented(shown)}\n{indented(told)}"
            raise PageError(command.line, message)
        if command.expected.strip():
            compare(command.line, shown, command.expected, told)

    def _ask(self, text: str) -> int:
        """Return the number that bash prints, or its status if it ends."""
        assert self._bash.stdin is not None
        assert self._bash.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._bash.stdin.write(text + "\n")
            self._bash.stdin.flush()
        said = self._bash.stdout.readline()
        return int(said) if said.strip() else self._bash.wait()

    def _without_reports(self, told: str) -> str:
        """Leave out what bash says of killed commands: of earlier ones, too, at a moment of its own choice."""
        report = rf"^(?:Terminated|{re.escape(str(self._scratch))}\S+: line \d+: +\d+ (?:Killed|Terminated) .*)\n"
        return re.sub(report, "", told, flags=re.MULTILINE)

    def children(self) -> list[int]:
        """Return the processes of the command that runs."""
        listed = Path(f"/proc/{self._bash.pid}/task/{self._bash.pid}/children").read_text()
        return [pid for pid in map(int, listed.split()) if all(pid != each[0] for each in self._background)]

    def terminate(self) -> None:
        """End the command that runs, as an operator does."""
        for pid in self.children():
            os.kill(pid, signal.SIGTERM)

    def close(self) -> None:
        """End the commands in the background.

        :raises PageError: one of them has failed.
        """
        with self._bash:
            for pid, command, output in self._background:
                status = self._ask(f"kill {pid} 2> /dev/null; wait {pid}; echo $?")
                if status not in ENDED:
                    told = f"{indented('$ ' + command.text)}\n{indented(output.read_text())}"
                    raise PageError(command.line, f"the command has ended with the exit status {status}\n{told}")


def lines_of(blocks: list[Block]) -> Iterator[Command]:
    """The commands of all console blocks."""
    for block in blocks:
        if block.language == "console":
            yield from commands(block)

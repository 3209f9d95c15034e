"""Runs the code blocks of one page: ``python -m tests.docs.page docs/howto/unique.rst``.

The process is the page's own, and so is the folder. CONTRIBUTING.rst has the conventions of pages.
"""

from __future__ import annotations

import argparse
import configparser
import contextlib
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import tomllib
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import yaml

from tests.docs.blocks import Block, PageError, compare, indented, parse
from tests.docs.ending import BoardsOfProcesses, Ending, boards_here
from tests.docs.shell import Command, Shell, commands

PLACES = {
    "postgresql": r"postgresql(?P<driver>\+\w+)?://app(:secret)?@db/prod\b",
    "mariadb": r"(mariadb|mysql)(?P<driver>\+\w+)?://app(:secret)?@db/prod\b",
    "redis": r"redis://cache:6379/0\b",
    "zookeeper": r"zookeeper://zk1,zk2,zk3/prod\b",
    "etcd": r"etcd://etcd1,etcd2,etcd3/prod\b",
}
"""The URIs of pages that stand for the servers of a test."""

PARSERS: dict[str, Callable[[str], object]] = {
    "ini": lambda text: configparser.ConfigParser(interpolation=None).read_string(text),
    "json": json.loads,
    "toml": tomllib.loads,
    "yaml": lambda text: list(yaml.safe_load_all(text)),
}
ENVIRONMENT = {
    "COLUMNS": "80",
    "LANG": "C.UTF-8",
    "NO_COLOR": "1",
    "TZ": "UTC",
}
DRIVERS = {"postgresql": "postgresql+psycopg", "mariadb": "mariadb+pymysql", "mysql": "mysql+pymysql"}
DATABASE = re.compile(r"\b((?:sqlite|postgresql|mariadb|mysql)(?:\+\w+)?://[^\s\"'?`]+)")


class Stopped(BaseException):
    """SIGTERM has ended a Python block that has no handler of the signal."""


def replaced(text: str, servers: dict[str, str]) -> str:
    """Return a page that names the servers of the test, by kind, in place of its own."""
    for kind, uri in servers.items():
        scheme, _, rest = uri.partition("://")

        def real(found: re.Match[str], scheme: str = scheme, rest: str = rest) -> str:
            return f"{scheme}{found.groupdict().get('driver') or ''}://{rest}"

        text = re.sub(PLACES[kind], real, text)
    return text


class Runner:
    """Runs the blocks of a page, in this process and in a shell.

    :param path: the page, for tracebacks.
    :param scratch: a folder for what the runner writes itself.
    :param say: is called with the place in the page before each step.
    """

    def __init__(self, text: str, path: str, scratch: Path, say: Callable[[str], None]) -> None:
        self._text, self._path, self._scratch, self._say = text, path, scratch, say
        self._script = types.ModuleType("__main__")
        self._printed: str | None = None
        self._shell: Shell | None = None
        self._boards = BoardsOfProcesses(text)

    def run(self) -> None:
        """Run all blocks.

        :raises PageError: a block does something else than its page says.
        """
        sys.modules["__main__"] = self._script
        blocks = parse(self._text).blocks
        for block, following in zip(blocks, [*blocks, None][1:], strict=False):
            self._say(f"{block.line}: {block.language}")
            if block.skip is None:
                self._run(block, may_raise=following is not None and "output" in following.classes)
        self._say("the end of the page")
        if self._shell is not None:
            self._shell.close()
        self._boards.close()

    def _run(self, block: Block, may_raise: bool) -> None:
        if "output" in block.classes:
            if self._printed is None:
                raise PageError(block.line, "this output follows no Python block that was run")
            compare(block.line, "", block.source, self._printed)
            return
        self._printed = None
        if block.language in PARSERS:
            _parse(block)
        if block.file:
            _write(block, block.file, self._path)
        elif "other" in block.classes:
            check(block, self._path)
        elif block.language == "python":
            self._python(block, may_raise)
        elif block.language == "console":
            for command in commands(block):
                self._say(f"{command.line}: $ {command.text}")
                self._command(command)
        elif block.language == "shell":
            script = self._scratch / f"script{block.line}"
            script.write_text(block.source)
            self._command(Command(block.first, f"bash -e {script}", "", 0, block.stop))
        elif block.language == "sql" and "run" in block.classes:
            self._sql(block)

    def _python(self, block: Block, may_raise: bool) -> None:
        code = _compile(block, self._path)
        output = self._scratch / f"printed{block.line}"
        raised: BaseException | None = None
        with _captured(output), self._stopping(block, output):
            try:
                exec(code, self._script.__dict__)
            except Stopped:
                pass
            except BaseException as error:  # noqa: BLE001 - SystemExit of a page, too
                raised = error
        self._printed = output.read_text(errors="replace")
        if raised is None:
            return
        # The page may show the error as the end of the output.
        self._printed += "".join(traceback.format_exception_only(raised))
        if not may_raise:
            raise PageError(self._line_of(raised, block), f"the block raises\n{indented(_traceback(raised))}")

    def _line_of(self, error: BaseException, block: Block) -> int:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == self._path]
        return (lines and lines[-1]) or block.line

    @contextlib.contextmanager
    def _stopping(self, block: Block, output: Path) -> Iterator[None]:
        if block.stop is None:
            yield
            return

        def stop(number: int, frame: object) -> None:
            raise Stopped

        before = signal.signal(signal.SIGTERM, stop)
        try:
            with Ending(block.stop, output, boards_here, lambda: os.kill(os.getpid(), signal.SIGTERM)):
                yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _command(self, command: Command) -> None:
        shell = self._shell = self._shell or Shell(self._scratch)
        if command.stop is None:
            shell.run(command)
            return
        stop = command.stop
        shell.run(
            command,
            lambda output: Ending(stop, output, lambda: self._boards(shell.children()), shell.terminate),
        )

    def _sql(self, block: Block) -> None:
        """Run SQL on the first database that the page names."""
        import sqlalchemy

        found = DATABASE.search(self._text)
        if not found:
            raise PageError(block.line, "the page names no database on which this SQL is run")
        url = sqlalchemy.make_url(found[1])
        engine = sqlalchemy.create_engine(url.set(drivername=DRIVERS.get(url.drivername, url.drivername)))
        try:
            with engine.begin() as connection:
                for statement in filter(str.strip, block.source.split(";\n")):
                    connection.exec_driver_sql(statement)
        except sqlalchemy.exc.SQLAlchemyError as error:
            raise PageError(block.line, f"the SQL fails: {error}") from None
        finally:
            engine.dispose()


def _compile(block: Block, path: str) -> types.CodeType:
    """Return the code, whose lines are those of the page."""
    try:
        return compile("\n" * (block.first - 1) + block.source, path, "exec", dont_inherit=True)
    except SyntaxError as error:
        raise PageError(error.lineno or block.line, f"the block is no Python: {error.msg}") from None


def check(block: Block, path: str) -> None:
    """Check the syntax of code of other projects, which is not run."""
    if block.language == "python":
        _compile(block, path)
    elif block.language in ("console", "shell"):
        texts = [(each.line, each.text) for each in commands(block)] if block.language == "console" else []
        for line, text in texts or [(block.first, block.source)]:
            checked = subprocess.run(["bash", "-n"], input=text + "\n", capture_output=True, text=True, check=False)
            if checked.returncode:
                raise PageError(line, f"bash does not understand the command\n{indented(checked.stderr)}")


def _parse(block: Block) -> None:
    try:
        PARSERS[block.language](block.source)
    except (ValueError, configparser.Error, yaml.YAMLError) as error:
        raise PageError(block.line, f"the block is no {block.language}: {error}") from None


def _write(block: Block, name: str, path: str) -> None:
    if block.language == "python":
        _compile(block, path)
        # Perhaps the page shows a file again, with a change.
        sys.modules.pop(name.removesuffix(".py").replace("/", "."), None)
    file = Path(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block.source)
    # A file that the page shows again, with a change, has perhaps the size and the second of the earlier one.
    for compiled in file.parent.glob(f"__pycache__/{file.stem}.*"):
        compiled.unlink()
    importlib.invalidate_caches()


def _traceback(error: BaseException) -> str:
    """Return the traceback without the runner's own frame."""
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
    return "".join(traceback.format_exception(error))


@contextlib.contextmanager
def _captured(output: Path) -> Iterator[None]:
    """Have this process and its children print into a file."""
    sys.stdout.flush()
    before = os.dup(1)
    with output.open("wb") as file:
        os.dup2(file.fileno(), 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(before, 1)
        os.close(before)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path)
    parser.add_argument("--servers", type=json.loads, default={}, help="a JSON object: URIs of servers by their kind")
    parser.add_argument("--say", action="store_true", help="print the place of each step before it begins")
    parser.add_argument("--path", type=Path, help="a folder with commands that come before others")
    options = parser.parse_args()
    text, path = replaced(options.page.read_text(), options.servers), str(options.page.resolve())
    # Lines go to files that are watched while they grow.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    own = os.fdopen(os.dup(1), "w", buffering=1)
    sys.argv[1:] = []
    for name in [name for name in os.environ if name.startswith(("JOBBOARD", "DJANGO"))]:
        del os.environ[name]
    paths = [*([str(options.path)] if options.path else []), str(Path(sys.executable).parent), os.environ["PATH"]]
    with tempfile.TemporaryDirectory(prefix="page-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch) / "folder"
        folder.mkdir()
        os.environ.update(ENVIRONMENT, HOME=scratch, PATH=os.pathsep.join(paths))
        os.chdir(folder)
        sys.path[0] = str(folder)
        try:
            Runner(text, path, Path(scratch), lambda place: own.write(f"{place}\n") if options.say else None).run()
        except PageError as error:
            sys.stderr.write(f"{options.page}:{error.line}: {error.message}\n")
            return 1
        finally:
            os.chdir("/")
    return 0


if __name__ == "__main__":
    sys.exit(main())

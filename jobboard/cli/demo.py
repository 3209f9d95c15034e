"""``jobboard demo``: see for yourself that nothing is lost."""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import click

from jobboard.cli.common import DONE, FAILED, Settings, board_options, example, fetch_board
from jobboard.cli.output import console, say, say_json, table, warn

if TYPE_CHECKING:
    from jobboard.cli.demo_run import Advance, Report

CLAIM_TTL = 2
PROBLEMS = 20


@click.command(
    epilog=example("jobboard demo", "jobboard demo ~/Pictures", "jobboard demo --board postgresql://app@localhost/test")
)
@click.argument("path", default=".", type=click.Path(exists=True, file_okay=False, readable=True, path_type=Path))
@board_options
def demo(settings: Settings, path: Path) -> int:
    """Compute the SHA-256 of every file below PATH, and kill a worker on the way.

    One job is posted for each file, 4 worker processes share them, and one of the workers is killed while it holds
    jobs. In the end every digest is checked. PATH is the current folder unless given.

    The board is an SQLite file in a temporary folder; --board takes any other, on which the demo uses a board of its
    own. The exit status is 1 if anything was lost or wrong.
    """
    from jobboard import conf
    from jobboard.cli import demo_run

    with tempfile.TemporaryDirectory(prefix="jobboard-demo-") as made:
        folder = Path(made).resolve()
        given = settings.asked_for
        uri = _short_lived(given or f"sqlite:///{quote(str(folder))}/board.db")
        if conf.target(uri).scheme == "memory":
            raise click.UsageError("the demo's workers are processes, and a board in memory can't be shared by them")
        board = fetch_board(uri, f"demo-{uuid.uuid4()}")
        board.connect()
        try:
            if not settings.json:
                say(f"On {board!r}")
            with _progress() as advance:
                report = demo_run.run(board, uri, path.resolve(), folder, advance)
        except demo_run.Failed as error:
            raise click.ClickException(str(error)) from None
        finally:
            board.close()
    if settings.json:
        _show_json(report)
    else:
        _show(report, path)
    return DONE if report.good else FAILED


def _short_lived(uri: str) -> str:
    """The same board with a ``claim_ttl`` so short that nobody waits long; one that is given stays."""
    from jobboard import conf

    try:
        if "claim_ttl" in conf.target(uri).given:
            return uri
    except (TypeError, ValueError):
        return uri  # what is wrong with it is told where it is opened
    if "://" not in uri:
        uri += "://"
    return f"{uri}{'&' if '?' in uri else '?'}claim_ttl={CLAIM_TTL}"


def _show_json(report: Report) -> None:
    shown = dataclasses.asdict(report)
    shown["jobs_per_second"] = round(report.jobs_per_second, 1)
    shown["seconds"] = round(report.seconds, 3)
    shown["waited"] = round(report.waited, 3)
    shown["ok"] = report.good
    say_json(shown)


def _show(report: Report, path: Path) -> None:
    passed_over = ", ".join(f"{count} {reason}" for reason, count in report.skipped.items())
    if passed_over:
        say(f"Passed over: {passed_over}.")
    if not report.posted:
        say(f"There is no file to work on below {path}, so there was nothing to do and nobody to kill.")
    else:
        say(f"Killed {report.killed}.")
    rows: list[tuple[str, object]] = [
        ("posted", report.posted),
        ("consumed", report.consumed),
        ("run again after the kill", report.run_again),
        ("lost", report.lost),
        ("wrong", report.wrong),
    ]
    if report.changed:
        rows.append(("changed meanwhile, not judged", report.changed))
    rows += [
        ("seconds", f"{report.seconds:.1f}"),
        ("of these, waiting for the dead worker's claims to lapse", f"{report.waited:.1f}"),
        ("jobs/s without that wait", f"{report.jobs_per_second:.0f}"),
    ]
    table(("", "jobs"), rows, numbers=["jobs"])
    for problem in report.problems[:PROBLEMS]:
        warn(problem)
    if len(report.problems) > PROBLEMS:
        warn(f"and {len(report.problems) - PROBLEMS} more")


@contextlib.contextmanager
def _progress() -> Iterator[Advance]:
    """A bar on a terminal, else a line for each step and every tenth of the work."""
    err = console(stderr=True)
    if not err.is_terminal:
        yield _Plain()
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    tasks: dict[str, TaskID] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err) as progress:

        def advance(step: str, done: int, of: int) -> None:
            if step not in tasks:
                tasks[step] = progress.add_task(step, total=of)
            progress.update(tasks[step], completed=done)

        yield advance


class _Plain:
    def __init__(self) -> None:
        self._said: tuple[str, int] | None = None

    def __call__(self, step: str, done: int, of: int) -> None:
        tenth = (step, 10 * done // of)
        if tenth != self._said:
            self._said = tenth
            warn(f"{step}: {done} of {of}")

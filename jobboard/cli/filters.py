"""Conditions on jobs, as options of commands, and acts on all jobs that meet them."""

from __future__ import annotations

import datetime
import functools
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from jobboard.cli.common import FAILED, BoardOptions, duration, named_options, names_option, plural
from jobboard.cli.output import bars, warn
from jobboard.reasons import cause_of

if TYPE_CHECKING:
    from jobboard.board import JobBoard
    from jobboard.finding import OperatorVerb
    from jobboard.job import Job

_DOING = {
    "release": "releasing",
    "cancel": "cancelling",
    "restore": "restoring",
    "purge": "deleting",
    "post_again": "posting",
}
"""The description of each verb in a progress bar."""

SHOWN = 5
"""The number of jobs that a question shows."""


@dataclass(frozen=True)
class Conditions:
    """The conditions on jobs that a command was given."""

    names: tuple[str, ...] = ()
    states: tuple[str, ...] = ()
    group: str | None = None
    key: str | None = None
    owner: str | None = None
    error: str | None = None
    cause: str | None = None
    older: float | None = None
    newer: float | None = None

    def __bool__(self) -> bool:
        return self != Conditions()

    def find(self, board: JobBoard, *states: str) -> Iterator[Job]:
        """Return the jobs that meet the conditions. Ages count by the clock of the posts: the server's.

        :param states: the states of the jobs where no ``--state`` is given; none: all live jobs.
        """
        since, until = self._times(board)
        with named_options():
            return board.find(
                names=self.names or None,
                states=self.states or states or None,
                group=self.group,
                key=self.key,
                owner=self.owner,
                error=self.error,
                cause=self._cause,
                posted_after=since,
                posted_before=until,
            )

    def judge(self, board: JobBoard) -> Callable[[Job], bool]:
        """Return a function that tells whether a job of a list meets the conditions, but for its state."""
        if not self:
            return lambda job: True
        from jobboard.engine import Sieve, fits
        from jobboard.states import instant

        since, until = (None if time is None else instant(time) for time in self._times(board))
        texts = (self.group, self.owner, self.key, self.error, self._cause)
        sieve = Sieve(self.names or None, *texts, posted_from=since, posted_before=until)
        return lambda job: fits(sieve, job.record, job.seen_state)

    @property
    def _cause(self) -> str | None:
        """The cause as the board has it: a list of causes shows an error with its own numbers and names."""
        return self.cause and cause_of(self.cause)

    def _times(self, board: JobBoard) -> tuple[datetime.datetime | None, datetime.datetime | None]:
        now = board.engine.now() / 1e6
        since, until = (
            None if age is None else datetime.datetime.fromtimestamp(now - age, datetime.UTC)
            for age in (self.newer, self.older)
        )
        return since, until


def conditions(*states: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add the options of conditions to a command, which gets them as ``chosen``.

    :param states: the states that ``--state`` takes; without any, the command has no such option.
    """

    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            own = {name: kwargs.pop(name) for name in Conditions.__dataclass_fields__ if name in kwargs}
            return function(*args, chosen=Conditions(**own), **kwargs)

        choice = click.Choice(list(states), case_sensitive=False)
        options = [
            click.option(
                "--state", "states", multiple=True, type=choice, help="Only jobs in this state; may be repeated."
            ),
            names_option,
            click.option("--group", metavar="TEXT", help="Only jobs of this group."),
            click.option("--key", metavar="TEXT", help="Only the jobs with this key."),
            click.option("--owner", metavar="NAME", help="Only jobs of this holder, or last holder."),
            click.option(
                "--error", metavar="TEXT", help="Only jobs whose last error, or its traceback, has this text."
            ),
            click.option(
                "--cause", metavar="TEXT", help="Only jobs with this cause, as 'trash list --by-error' shows it."
            ),
            click.option(
                "--older",
                type=duration,
                metavar="AGE",
                help="Only jobs posted longer ago than this: 90s, 15m, 12h, 7d.",
            ),
            click.option("--newer", type=duration, metavar="AGE", help="Only jobs posted within this time."),
        ]
        for option in reversed(options if states else options[1:]):
            wrapper = option(wrapper)
        return wrapper

    return add


yes_option = click.option("--yes", is_flag=True, help="Act on all jobs that meet the conditions, without a question.")


def check_choice(*ways: object, options: str) -> None:
    """Check that a command was told by one of its ways which jobs it is for.

    :param options: the ways in words.
    """
    if sum(map(bool, ways)) != 1:
        raise click.UsageError(f"give {options}")


def act_on_found(
    settings: BoardOptions,
    board: JobBoard,
    verb: OperatorVerb,
    act: str,
    found: Iterable[Job],
    *,
    yes: bool,
    reason: str | None = None,
    running: bool = False,
    count: int | None = None,
) -> int:
    """Ask, act on the jobs that were found, and report. Return the exit status.

    :param act: the act in words, as in ``3 jobs released``.
    :param yes: do not ask. Otherwise exactly those jobs are acted on that the question was about.
    :param count: the number of the jobs, if it is known.
    """
    jobs = found
    if not yes:
        jobs = list(found)
        count = len(jobs)
        if count and not _ask(jobs, act):
            return FAILED
    with bars() as progress:
        tracked = progress.track(jobs, count, description=_DOING[verb])
        acted = board.act(verb, tracked, reason=reason, running=running)
    for error in acted.skipped:
        warn(f"jobboard: {error}")
    return settings.report(act, acted.done, len(acted.skipped))


def _ask(jobs: list[Job], act: str) -> bool:
    """Ask whether to act on these jobs. Return the answer.

    :raises click.UsageError: nobody can be asked.
    """
    what = f"{plural(len(jobs), 'job')} would be {act}"
    if not sys.stdin.isatty():
        raise click.UsageError(f"{what}: give --yes where nobody can be asked")
    warn(f"{what}:")
    for job in itertools.islice(jobs, SHOWN):
        warn(f"  {job}")
    if len(jobs) > SHOWN:
        warn(f"  and {len(jobs) - SHOWN} more")
    return click.confirm("Go on?", err=True)

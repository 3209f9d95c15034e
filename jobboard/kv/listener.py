"""Events of other processes: comparisons of two listings of the board, while somebody listens."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence

from jobboard import logs, runtime
from jobboard.engine import Change, Found, Hears, Stale
from jobboard.engine.committer import record_at
from jobboard.exceptions import JobBoardError
from jobboard.kv.layout import Entry
from jobboard.notifier import POSTED, REMOVAL, TRASHED
from jobboard.states import COMPLETE, LIVE, Record, State
from jobboard.threads import started

LOG = logs.Log(__name__)

REPORTED = frozenset({POSTED, TRASHED, REMOVAL})
"""The events that two listings show."""

REST = 1.0
"""The minimum seconds between two listings."""

SHARE = 10
"""The ratio of the listener's rest to the time of a listing, at least. The shorter of the last two listings counts, as
a single long one may have waited for a connection."""

READ = 100
"""The maximum number of jobs that one request reads."""


class Listener:
    """A thread that reports jobs which come to the board or leave it by acts of other processes.

    A job that comes and goes between two listings is not reported.

    :param listing: reads the names in ``live``.
    :param read: reads jobs.
    :raises RuntimeError: the system refuses another thread.
    """

    def __init__(
        self, listing: Callable[[], Iterator[Entry]], read: Callable[[Sequence[str]], Found], hears: Hears
    ) -> None:
        self._listing, self._read, self._hears = listing, read, hears
        self._over = runtime.Event()
        self._lock = runtime.Lock()
        self._listings = 0
        # Own acts, by uuid and whether the job comes: the number of listings that had begun by the end of the act.
        # None: the act has not ended.
        self._own: dict[tuple[str, bool], int | None] = {}
        self._pause, self._took = REST, 0.0
        self._seen: dict[str, Entry] | None = None
        self._try()
        started("jobboard-listener", self._run)

    def close(self) -> None:
        self._over.set()

    @contextlib.contextmanager
    def own(self, changes: Sequence[Change]) -> Iterator[None]:
        """Report none of these changes, which the block commits for this board."""
        acts = [_act(change) for change in changes]
        with self._lock:
            self._own.update(dict.fromkeys(acts))
        try:
            yield
        except Stale:
            with self._lock:
                for act in acts:
                    self._own.pop(act, None)
            raise
        finally:
            with self._lock:
                self._own.update({act: self._listings for act in acts if act in self._own})

    def _run(self) -> None:
        while not self._over.wait(self._pause):
            self._try()

    def _try(self) -> None:
        try:
            self._compare()
        except JobBoardError as error:
            LOG.warning("can't listen to other processes now: %s", error)
        except Exception:
            LOG.exception("could not listen to other processes")

    def _compare(self) -> None:
        began = runtime.boottime()
        with self._lock:
            self._listings += 1
        before, seen = self._seen, {entry.uuid: entry for entry in self._listing()}
        took = runtime.boottime() - began
        self._pause, self._took = max(REST, SHARE * min(took, self._took)), took
        if before is not None:
            come = [entry for entry in seen.values() if entry.uuid not in before]
            gone = [entry for entry in before.values() if entry.uuid not in seen]
            self._report([entry for entry in come if (entry.uuid, True) not in self._own], POSTED)
            self._report([entry for entry in gone if (entry.uuid, False) not in self._own], REMOVAL)
        self._seen = seen
        with self._lock:
            # This listing shows all acts that had ended before it began.
            self._own = {act: over for act, over in self._own.items() if over is None or over >= self._listings}

    def _report(self, entries: Sequence[Entry], event: str) -> None:
        for start in range(0, len(entries), READ):
            some = entries[start : start + READ]
            found = self._read([entry.uuid for entry in some])
            for entry, stored in zip(some, found.jobs, strict=True):
                record = _absent_record(entry, found.now) if stored is None else record_at(stored, found.now)
                is_trashed = event == REMOVAL and record.state == State.TRASHED
                if not self._over.is_set():
                    # A listener that wants REMOVAL hears of a trashed job, too.
                    self._hears.happened(TRASHED if is_trashed else event, record)


def _act(change: Change) -> tuple[str, bool]:
    before, after, _ = change
    if after is None:
        assert before is not None
        return before.record.uuid, False
    return after.uuid, not isinstance(after, Record) or after.state in LIVE


def _absent_record(entry: Entry, now: int) -> Record:
    """Return a record of a job that has left the board, with the values of its entry."""
    return Record(
        uuid=entry.uuid,
        name=entry.name,
        priority=entry.rank,
        sequence=entry.sequence,
        key=None,
        version=entry.version,
        posting=b"",
        state=COMPLETE,
        attempts=0,
        max_attempts=None,
        token=0,
        who=None,
        keeper=None,
        lock_until=None,
        created_on=now,
        modified_on=now,
        group=entry.group,
    )

"""The layout of a board: the paths of its records, and the names of its indexes.

::

    layout                  record: the version of this layout, the lowest of a reader, and the library's
    gate                    record: the side record of that kind; emptied, and never deleted
    job/<uuid>              record: a job
    side/<kind>/<key>       record: a side record of another kind

    ready   <rank>.<sequence>.<uuid>.<version>.<name>.<group>       jobs that are stored as unclaimed, in serving order
    live    the same                                                every job on the board, in serving order
    timed   <until>.<sequence>.<S, D, C or U>.<uuid>                due times, those of jobs that expire (D), ends of
                                                                    leases, and expiries of unclaimed jobs
    kept    <session>.<sequence>.<uuid>                             claims that a session keeps
    holders <session>                                               sessions that may have names in kept
    alive   <session>                                               sessions that live; the driver's own
    trash   <10**18 - trashed>.<10**16 - sequence>.<uuid>           the trash, newest first
    done    <10**18 - ended>.<10**16 - sequence>.<uuid>             outcomes, newest first
    over    <until>.<name in done>                                  outcomes by when they are dropped

Numbers have leading zeros, so that names sort as numbers do: 3 digits in a rank, 16 in a sequence, 18 in a time, which
is in µs. Everything else is quoted: it holds ASCII letters and digits, ``_ - ~ : %`` and spaces, and no dot.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple
from urllib.parse import quote, unquote

from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED, Record

LAYOUT, GATE_PATH = "layout", "gate"
READY, LIVE, TIMED, KEPT, HOLDERS, TRASH, DONE, OVER = (
    *("ready", "live", "timed", "kept", "holders", "trash", "done", "over"),
)

JOB = "job/"
"""The beginning of the path of each job."""

_SEQUENCES, _TIMES = 10**16, 10**18

_PLAIN = re.compile("[A-Za-z0-9_~: -]*").fullmatch


@functools.lru_cache(4096)
def quoted(text: str) -> str:
    """Return a text as a part of a path or of a name."""
    return text if _PLAIN(text) else quote(text, safe=" :").replace(".", "%2E")


def job_path(uuid: str) -> str:
    return f"{JOB}{quoted(uuid)}"


def uuid_at(path: str) -> str:
    """Return the uuid of the job at a path."""
    return unquote(path.removeprefix(JOB))


def side_path(kind: str, key: str) -> str:
    return GATE_PATH if kind == "gate" else f"side/{kind}/{quoted(key)}"


class Entry(NamedTuple):
    """A name in ``ready`` or ``live``, which holds the fields of a job that a look needs before the record."""

    rank: int
    sequence: int
    uuid: str
    version: int
    name: str
    group: str | None

    @classmethod
    def of(cls, record: Record) -> Entry:
        return cls(record.priority, record.sequence, record.uuid, record.version, record.name, record.group)

    @classmethod
    def parse(cls, name: str) -> Entry:
        """Return the entry of a name.

        :raises ValueError: no job has such a name.
        """
        rank, sequence, uuid, version, job, group = name.split(".")
        if "%" in name:
            uuid, job, group = map(unquote, (uuid, job, group))
        return cls(int(rank), int(sequence), uuid, int(version), job, group or None)

    def __str__(self) -> str:
        return entry_name(*self)


def entry_name(rank: int, sequence: int, uuid: str, version: int, name: str, group: str | None) -> str:
    """Return the name of a job in ``ready`` and ``live``."""
    return f"{rank:03d}.{sequence:016d}.{quoted(uuid)}.{version}.{quoted(name)}.{quoted(group or '')}"


def behind(job: tuple[int, int] | None) -> str:
    """Return a text that sorts behind the names of this rank and sequence in ``ready`` and ``live``, and before all
    later names."""
    return "" if job is None else f"{job[0]:03d}.{job[1]:016d}/"


def timed_name(until: int, sequence: int, kind: str, uuid: str) -> str:
    return f"{max(0, until):018d}.{sequence:016d}.{kind[0]}.{quoted(uuid)}"


def kept_name(session: str, sequence: int, uuid: str) -> str:
    return f"{session}.{sequence:016d}.{quoted(uuid)}"


def newest_name(when: int, sequence: int, uuid: str) -> str:
    return f"{_TIMES - max(0, when):018d}.{_SEQUENCES - sequence:016d}.{quoted(uuid)}"


def newest_of(record: Record) -> str:
    """Return the name of a job in ``trash``, or of its outcome in ``done``."""
    return newest_name(record.modified_on, record.sequence, record.uuid)


def parse_newest(name: str) -> tuple[int, int]:
    """Return the time and the sequence in a name of ``trash`` or ``done``."""
    when, sequence, _ = name.split(".")
    return _TIMES - int(when), _SEQUENCES - int(sequence)


def over_name(until: int, done: str) -> str:
    return f"{max(0, until):018d}.{done}"


def time_of(name: str) -> int:
    """Return the time at the beginning of a name in ``timed`` or ``over``.

    :raises ValueError: no job has such a name.
    """
    time, _, _, _ = name.split(".")
    return int(time)


def uuid_of(name: str) -> str:
    """Return the uuid at the end of a name in ``timed``, ``kept``, ``trash``, ``done`` or ``over``."""
    return unquote(name.rpartition(".")[2])


def kept_by_session(record: Record) -> bool:
    return record.state == CLAIMED and record.lock_until is None


def job_names(record: Record, session: str | None) -> tuple[str, ...]:
    """Return the names under which a job is found: ``index/name``.

    :param session: the session that keeps the claim; None: no session does.
    """
    if record.state == TRASHED:
        return (f"{TRASH}/{newest_of(record)}",)
    entry = entry_name(record.priority, record.sequence, record.uuid, record.version, record.name, record.group)
    live = f"{LIVE}/{entry}"
    names = (live, f"{READY}/{entry}") if record.state == UNCLAIMED else (live,)
    if record.lock_until is not None:
        kind = "D" if record.state == SCHEDULED and record.expires is not None else record.state
        return *names, f"{TIMED}/{timed_name(record.lock_until, record.sequence, kind, record.uuid)}"
    if session is not None:
        return live, f"{KEPT}/{kept_name(session, record.sequence, record.uuid)}"
    return names


def outcome_names(record: Record, until: int | None) -> tuple[str, ...]:
    """Return the names under which an outcome is found: ``index/name``.

    :param until: the time at which the outcome is dropped; None: never.
    """
    name = newest_of(record)
    done = f"{DONE}/{name}"
    return (done,) if until is None else (done, f"{OVER}/{over_name(until, name)}")

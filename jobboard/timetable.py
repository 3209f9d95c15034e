"""Timetables: the due times of a cron expression in its time zone, or of a span, as instants in µs.

**Daylight saving** follows Debian's cron. A time in a skipped hour is due at the end of that hour. A time in a repeated
hour is due in the first. An expression whose minute or hour begins with ``*`` follows the clock on the wall. The
library cronsim decides this, and the syntax of expressions.
"""

from __future__ import annotations

import datetime
import functools
import itertools
import zoneinfo
from collections.abc import Iterator
from typing import Literal, NamedTuple, get_args

from cronsim import CronSim, CronSimError

from jobboard.codec import check_text
from jobboard.conf import meant
from jobboard.units import SECOND

Missed = Literal["one", "all", "none"]

MOST = 1000
"""The most missed times for which jobs are posted."""

LATE = 60 * SECOND
"""The µs after which a due time is missed, with ``missed='none'``."""

SHORTEST = 100_000
"""The shortest span between two due times, in µs."""

_FIELDS = "five fields: minute, hour, day of month, month, day of week"
_NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Timetable(NamedTuple):
    """The due times of a schedule: either ``cron`` or ``every``, in µs.

    tz: the time zone of the cron expression. missed: the rule for due times at which nobody posted.
    """

    cron: str | None
    every: int | None
    tz: str = "UTC"
    missed: Missed = "one"

    def has_right_types(self) -> bool:
        """Return whether the fields, which may come from a damaged record, have the types that are declared."""
        right = isinstance(self.cron, str | None) and type(self.every) in (int, type(None))
        return right and isinstance(self.tz, str) and isinstance(self.missed, str)

    def check(self) -> None:
        """:raises ValueError: the timetable is not valid; the message names the fault."""
        if self.missed not in get_args(Missed):
            raise ValueError(f"missed={self.missed!r}: must be one of {', '.join(get_args(Missed))}")
        _check(self)

    def first(self, now: int, last: int | None) -> int:
        """Return the first due time of a schedule that is set at ``now``.

        :param last: the latest due time for which the schedule of this id has posted a job. It does not come again.
        """
        return now + self.every if self.every is not None else self.after(max(now, last or 0))

    def after(self, instant: int, due: int = 0) -> int:
        """Return the next due time after an instant. ``due`` is an earlier due time."""
        if self.every is not None:
            return due + ((instant - due) // self.every + 1) * self.every if instant >= due else due
        assert self.cron is not None
        for time in _times(self.cron, self.tz, max(instant, due)):
            return time
        raise ValueError(f"cron={self.cron!r} names no time within the next 50 years")

    def due_times(self, due: int, now: int) -> list[int]:
        """Return the due times to post for, from ``due`` up to ``now``, in their order."""
        if due > now:
            return []
        times = self._last(due, now, MOST if self.missed == "all" else 1)
        return [time for time in times if self.missed != "none" or now - time <= LATE]

    def _last(self, due: int, now: int, most: int) -> list[int]:
        """Return the last ``most`` due times from ``due`` up to ``now``."""
        if self.every is not None:
            count = (now - due) // self.every + 1
            return [due + index * self.every for index in range(max(0, count - most), count)]
        assert self.cron is not None
        back = _times(self.cron, self.tz, now + 1, back=True)
        times = list(itertools.islice(itertools.takewhile(lambda time: time >= due, back), most))
        if len(times) < most and due not in times[-1:]:
            times.append(due)
        return times[::-1]


@functools.lru_cache(1024)
def _check(timetable: Timetable) -> None:
    """Check a timetable. The cache spares each look at all stored schedules a parse of their expressions."""
    cron, every, tz, _ = timetable
    if cron is not None:
        check_text("cron", cron)
    check_text("tz", tz)
    if (cron is None) == (every is None):
        raise ValueError("a schedule has either a cron expression or every=")
    if every is not None and every < SHORTEST:
        raise ValueError(f"every={every / 1e6:g}: must be {SHORTEST / 1e6} seconds or more")
    if cron is not None:
        timetable.after(0)


def _times(cron: str, tz: str, instant: int, back: bool = False) -> Iterator[int]:
    """Yield the times of an expression after an instant; with ``back`` those before it, the last one first."""
    try:
        fields = _NICKNAMES.get(cron.lower(), cron)
        if len(fields.split()) != 5:
            raise CronSimError(f"must have the {_FIELDS}; use every= for other spans")
        start = datetime.datetime.fromtimestamp(instant // SECOND + back, zone(tz))
        times = CronSim(fields, start, reverse=back)
    except CronSimError as error:
        raise ValueError(f"cron={cron!r}: {str(error)[:1].lower()}{str(error)[1:]}") from None
    for time in times:
        # In a repeated hour, the library goes back to the first one.
        found = round(time.timestamp()) * SECOND
        if (found < instant) if back else (found > instant):
            instant = found
            yield found


@functools.lru_cache(64)
def zone(tz: str) -> datetime.tzinfo:
    """Return a time zone.

    :raises ValueError: there is no such time zone.
    """
    if tz == "UTC":
        return datetime.UTC
    try:
        return zoneinfo.ZoneInfo(tz)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        known = zoneinfo.available_timezones()
        if not known:
            text = f"tz={tz!r}: this machine has no data of time zones; install the package tzdata"
            raise ValueError(text) from None
        hint = meant(tz, known, "one is 'Europe/Berlin'")
        raise ValueError(f"tz={tz!r} is not the name of a time zone; {hint}") from None

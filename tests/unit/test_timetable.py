"""Due times: cron expressions through both changes of daylight saving, spans, and missed times."""

import datetime
import zoneinfo
from collections.abc import Iterator
from itertools import islice

import pytest

from jobboard.timetable import LATE, MOST, Timetable

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

CHANGES = {
    "Europe/Berlin": ("2026-03-29", "2026-10-25"),
    "Pacific/Auckland": ("2026-09-27", "2026-04-05"),
    "America/Santiago": ("2026-09-06", "2026-04-04"),
}
"""The days on which, or at whose end, clocks are put forward and back."""


def at(local: str, tz: str = "UTC") -> int:
    time = datetime.datetime.fromisoformat(local)
    return int((time if time.tzinfo else time.replace(tzinfo=zoneinfo.ZoneInfo(tz))).timestamp()) * SECOND


def local(instant: int, tz: str) -> str:
    return datetime.datetime.fromtimestamp(instant / SECOND, zoneinfo.ZoneInfo(tz)).isoformat(timespec="minutes")


def after(cron: str, tz: str, since: int) -> Iterator[int]:
    """Yield the due times, each computed from the one before alone."""
    due = since
    while True:
        due = Timetable(cron, None, tz).after(due, due)
        yield due


def through(cron: str, tz: str, day: str) -> list[str]:
    """Return the due times of a day, and of the days before and after."""
    since = at(day, tz) - DAY - HOUR
    return [local(due, tz) for due in after_until(cron, tz, since, since + 3 * DAY)]


def after_until(cron: str, tz: str, since: int, until: int) -> list[int]:
    found = []
    for due in after(cron, tz, since):
        if due > until:
            return found
        found.append(due)
    raise AssertionError("unreachable")


class TestDaylightSaving:
    """As in Debian's cron."""

    @pytest.mark.rule(
        "A due time that daylight saving skips is due right after the gap, and a repeated one is due once."
    )
    def test_a_skipped_time_is_due_at_the_end_of_the_skipped_hour(self) -> None:
        assert through("30 2 * * *", "Europe/Berlin", "2026-03-29") == [
            "2026-03-28T02:30+01:00",
            "2026-03-29T03:00+02:00",
            "2026-03-30T02:30+02:00",
        ]
        assert through("15 0 * * *", "Africa/Cairo", "2026-04-24") == [
            "2026-04-23T00:15+02:00",
            "2026-04-24T01:00+03:00",
            "2026-04-25T00:15+03:00",
        ]

    def test_several_skipped_times_are_due_once(self) -> None:
        times = through("0,30 2 * * *", "America/New_York", "2026-03-08")
        assert [time for time in times if "-08T" in time] == ["2026-03-08T03:00-04:00"]

    @pytest.mark.rule(
        "A due time that daylight saving skips is due right after the gap, and a repeated one is due once."
    )
    def test_a_repeated_time_is_due_in_the_first_hour_alone(self) -> None:
        assert through("30 2 * * *", "Europe/Berlin", "2026-10-25") == [
            "2026-10-24T02:30+02:00",
            "2026-10-25T02:30+02:00",
            "2026-10-26T02:30+01:00",
        ]
        again = at("2026-10-25T02:10+01:00")
        assert local(Timetable("30 2 * * *", None, "Europe/Berlin").after(again), "Europe/Berlin")[:10] == "2026-10-26"

    @pytest.mark.parametrize("tz", CHANGES)
    def test_a_daily_time_is_due_once_on_every_day(self, tz: str) -> None:
        for day in CHANGES[tz]:
            for hour in (0, 1, 2, 3, 23):
                days = [time[:10] for time in through(f"30 {hour} * * *", tz, day)]
                assert len(set(days)) == len(days) >= 2, days
                assert day in days, days

    @pytest.mark.parametrize("tz", CHANGES)
    def test_an_expression_that_begins_with_a_star_follows_the_wall_clock(self, tz: str) -> None:
        for cron, minutes, hours in (
            ("*/20 1,2 * * *", range(0, 60, 20), [1, 2]),
            ("* 0-3 * * *", range(60), range(4)),
            ("5 */2 * * *", [5], range(0, 24, 2)),
        ):
            for day in CHANGES[tz]:
                since = at(day) - 12 * HOUR
                wall = {
                    instant: datetime.datetime.fromtimestamp(instant / SECOND, zoneinfo.ZoneInfo(tz))
                    for instant in range(since + MINUTE, since + 2 * DAY, MINUTE)
                }
                expected = [instant for instant, time in wall.items() if time.minute in minutes and time.hour in hours]
                assert after_until(cron, tz, since, since + 2 * DAY - MINUTE) == expected, cron


class TestCron:
    def test_the_next_due_time_follows_the_last(self) -> None:
        times = list(islice(after("0 3 * * MON-FRI", "UTC", at("2026-11-20T03:00")), 2))
        assert times == [at("2026-11-23T03:00"), at("2026-11-24T03:00")]
        assert Timetable("@daily", None).after(at("2026-11-20T12:00")) == at("2026-11-21")
        assert Timetable("0 3 * * *", None).after(at("2026-11-20T03:00") - 1) == at("2026-11-20T03:00")

    def test_due_times_only_rise(self) -> None:
        """A clock that was put back makes no time due again."""
        due = at("2026-11-20T03:00")
        assert Timetable("0 3 * * *", None).after(due - 5 * HOUR, due) == due + DAY
        assert Timetable("0 3 * * *", None).first(due - 5 * HOUR, due) == due + DAY
        assert Timetable(None, HOUR).after(due - 5 * HOUR, due) == due

    def test_missed_times_are_one_all_or_none(self) -> None:
        tz, due = "Europe/Berlin", at("2026-03-27T02:30", "Europe/Berlin")
        now = at("2026-04-03T02:29:59", tz)
        one, every, none = (Timetable("30 2 * * *", None, tz, missed) for missed in ("one", "all", "none"))
        assert [local(time, tz) for time in one.due_times(due, now)] == ["2026-04-02T02:30+02:00"]
        times = [local(time, tz)[5:16] for time in every.due_times(due, now)]
        assert times == [f"0{month}-{day:02d}T{'03:00' if day == 29 else '02:30'}" for month, day in _days()]
        assert none.due_times(due, now) == []
        assert none.due_times(due, due + LATE) == one.due_times(due, due + LATE) == [due]
        assert one.due_times(due, due - 1) == []

    def test_a_stored_due_time_counts_beside_the_expression(self) -> None:
        due = at("2026-11-20T03:30")
        timetable = Timetable("0 3 * * *", None, missed="all")
        assert timetable.due_times(due, due) == [due]
        assert timetable.due_times(due, due + DAY) == [due, at("2026-11-21T03:00")]

    def test_at_most_a_thousand_missed_times_are_made_up_for(self) -> None:
        now = at("2026-11-20T03:30")
        for cron, step in (("* * * * *", MINUTE), ("0 * * * *", HOUR)):
            times = Timetable(cron, None, missed="all").due_times(now - 20_000 * HOUR, now)
            first = now - now % step - (MOST - 1) * step
            assert times == [first + index * step for index in range(MOST)]
        times = Timetable(None, SECOND, missed="all").due_times(0, 5000 * SECOND)
        assert times == [second * SECOND for second in range(4001, 5001)]


def _days() -> list[tuple[int, int]]:
    return [(3, day) for day in range(27, 32)] + [(4, day) for day in range(1, 3)]


class TestSpans:
    def test_spans_do_not_drift(self) -> None:
        timetable = Timetable(None, 10 * SECOND)
        first = timetable.first(123, None)
        assert first == 10 * SECOND + 123
        assert timetable.after(first, first) == 20 * SECOND + 123
        assert timetable.after(first + 35 * SECOND, first) == 50 * SECOND + 123
        assert timetable.due_times(first, first + 35 * SECOND) == [40 * SECOND + 123]

    def test_without_missed_times_a_due_time_counts_for_a_minute(self) -> None:
        timetable = Timetable(None, HOUR, missed="none")
        assert timetable.due_times(0, LATE) == [0]
        assert timetable.due_times(0, LATE + 1) == []
        assert timetable.due_times(0, HOUR + LATE) == [HOUR]


class TestZones:
    def test_an_unknown_zone_is_rejected_with_near_names(self) -> None:
        for given, near in (("europe/berln", "'Europe/Berlin'"), ("America/New York", "'America/New_York'")):
            with pytest.raises(ValueError, match=near):
                Timetable("* * * * *", None, given).check()
        for given in ("../passwd", "/etc/passwd", "Moon/Base"):
            with pytest.raises(ValueError, match="is not the name of a time zone"):
                Timetable("* * * * *", None, given).check()

    def test_an_error_without_zone_data_names_the_package(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(zoneinfo, "ZoneInfo", _missing)
        monkeypatch.setattr(zoneinfo, "available_timezones", set)
        with pytest.raises(ValueError, match="tzdata"):
            Timetable("* * * * *", None, "Antarctica/Troll").check()
        Timetable("* * * * *", None, "UTC").check()


def _missing(key: str) -> None:
    raise zoneinfo.ZoneInfoNotFoundError(key)

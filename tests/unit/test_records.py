"""Records of jobs as bytes, damaged ones, and those of other versions."""

from uuid import uuid4

import msgpack
import pytest

from jobboard.engine import Listed, Side, StoredSchedule, Unreadable
from jobboard.engine.records import damaged, pack, unpack
from jobboard.engine.schedules import schedule_of
from jobboard.primitives import Draft
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED, Failure, Record
from jobboard.timetable import Timetable

RECORD = Record(
    uuid="u",
    name="ü",
    priority=100,
    sequence=7,
    key="k",
    version=1,
    posting=b"\xff",
    state=CLAIMED,
    attempts=2,
    max_attempts=None,
    token=1_790_000_000_000_000,
    who="anna",
    keeper=None,
    lock_until=9,
    created_on=1,
    modified_on=3,
    errors=(Failure(2, None, 1, "no"), Failure(3, "bert", 2, "nor")),
    retries=1,
    group="g",
    key_until=5,
    expires=6,
    note=b"note",
)
PLAIN = Record("u", "a", 0, 1, None, 1, "{}", UNCLAIMED, 0, 3, 0, None, None, None, 1, 1)


def test_a_record_is_read_as_it_was_written() -> None:
    for record in (RECORD, PLAIN, PLAIN._replace(state=SCHEDULED, lock_until=4)):
        for beside in (None, "session"):
            read = unpack("u", pack(record, beside))
            assert read == (record, beside, ())
            assert type(read[0].state) is type(record.state)
            assert all(type(failure) is Failure for failure in read[0].errors)


def test_a_damaged_record_is_trashed_with_the_reason() -> None:
    cut, busy = pack(RECORD)[:-1], pack(RECORD).replace(b"CLAIMED", b"CLAIMER")
    for value in (b"", b"\xc1", b"\x93\x01\x02\x03", b"\x80", b"\x01", cut, pack(RECORD) + b"\x01", busy):
        with pytest.raises(ValueError, match=r"can't be decoded: .+") as error:
            unpack("u", value)
        record = damaged("u", value, error.value, 5)
        assert (record.uuid, record.state, record.modified_on) == ("u", TRASHED, 5)
        assert record.error == str(error.value)
        assert unpack("u", pack(record)) == (record, None, ()), "the trashed record is written as any other"


@pytest.mark.rule("Two releases share a board: no job is lost or consumed twice, and new fields outlive old writers.")
def test_fields_of_newer_and_older_writers_are_no_damage() -> None:
    longer = msgpack.packb((*msgpack.unpackb(pack(RECORD)), "mark", 7))
    record, _, unknown = unpack("u", longer)
    assert (record, unknown) == (RECORD, ("mark", 7))
    assert pack(record, None, unknown) == longer
    assert unpack("u", msgpack.packb(msgpack.unpackb(pack(PLAIN))[:-2]))[0] == PLAIN
    # A failure is known by its first fields.
    fields = msgpack.unpackb(pack(RECORD))
    fields[16] = [[*failure, "mark"] for failure in fields[16]]
    assert unpack("u", msgpack.packb(fields))[0] == RECORD


@pytest.mark.rule("A schedule with fields of a newer version is left to that version, and a plain one to all.")
def test_a_schedule_with_an_unknown_field_is_left_to_the_newer_version() -> None:
    draft = Draft(str(uuid4()), "a", 0, None, 1, b"", None, None, None)
    plain = StoredSchedule("s", Timetable(None, 60_000_000), draft, 5)
    for entry in (plain, plain._replace(skipped=3), plain._replace(draft=draft._replace(group="g"), last=4)):
        assert schedule_of(Side("schedule", "s", entry.packed(), None, 1)) == entry
    version, timetable, stored, *more = msgpack.unpackb(plain.packed())
    assert (len(stored), more) == (9, [5]), "what is off is not stored, so that older versions read the rest"
    longer = [*stored, *[None] * (len(Draft._fields) - len(stored)), "mark"]
    full = [*more, None, None, None, False, "mark"]
    for value in (
        [version, timetable, longer, *more],
        [version, [*timetable, 1], stored, *more],
        [version, timetable, stored, *full],
    ):
        found = schedule_of(Side("schedule", "s", msgpack.packb(value), None, 1))
        assert isinstance(found, Unreadable)
        assert found.newer


@pytest.mark.rule("Two releases share a board: no job is lost or consumed twice, and new fields outlive old writers.")
def test_a_longer_list_of_claims_still_counts() -> None:
    side = Side("scope", "mail", msgpack.packb([[["u", 3]], [7], "mark"]), None, 1)
    assert Listed.read(side) == Listed((("u", 3),), (7,))

"""Records of jobs as bytes, and damaged ones."""

import pytest

from jobboard.engine.records import damaged, pack, unpack
from jobboard.states import CLAIMED, SCHEDULED, TRASHED, UNCLAIMED, Failure, Record

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
            assert read == (record, beside)
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
        assert unpack("u", pack(record)) == (record, None), "the trashed record is written as any other"

"""Details that JSON cannot hold, there and back."""

from __future__ import annotations

import datetime
import json
import math
import uuid
import zoneinfo
from typing import Any

import pytest

from jobboard import codec
from jobboard.contrib.taskflow.encoding import decode_details, encode_details

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
ODD: dict[Any, Any] = {
    "naive": datetime.datetime(2026, 11, 22, 12, 30, 0, 5),  # noqa: DTZ001 - as TaskFlow's are
    "aware": datetime.datetime(2026, 11, 22, 12, 30, tzinfo=datetime.UTC),
    "offset": datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=-3))),
    "zone": datetime.datetime(2026, 7, 1, tzinfo=BERLIN),
    "second 2:30 of that night": datetime.datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1),
    "date": datetime.date(2026, 2, 28),
    "set": {1, "a", datetime.date(2026, 1, 1), (1, (2, 3))},
    "frozenset": frozenset({frozenset({1}), b"\0"}),
    "uuid": uuid.UUID(int=7),
    "bytes": b"\xff\0",
    "numbers": {1: "one", (2, 3): {None: True}},
    "large": 2**64 - 1,
    "infinite": -math.inf,
    "like a tag": [{"$set": [1]}, {"$date": "x"}, {"$other": 1}, {"$dict": [["a", 1]]}],
    "no tag": {"$set": [1], "$date": 2},
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values_come_back_as_they_were(name: str) -> None:
    encoded = encode_details({"a": [ODD[name]]})
    codec.check_details(encoded, 10_000)
    back = decode_details(json.loads(json.dumps(encoded)))
    assert back == {"a": [ODD[name]]}
    assert repr(back["a"][0]).count("datetime") == repr(ODD[name]).count("datetime")
    if isinstance(ODD[name], datetime.datetime):
        assert (back["a"][0].tzinfo, back["a"][0].fold) == (ODD[name].tzinfo, ODD[name].fold)


def test_json_stays_as_it_is() -> None:
    plain = {"a": [1, -(2**63), 0.5, None, True, "é"], "b": {"$": {"c": {}}, "d": []}, "": 0}
    assert encode_details(plain) == plain
    assert decode_details(plain) == plain
    assert encode_details(None) == encode_details({}) == {}
    assert encode_details({"a": (1, (2,))}) == {"a": [1, [2]]}


def test_encoded_values_are_readable() -> None:
    assert encode_details({"on": ODD["naive"], "in": {"b", "a"}}) == {
        "on": {"$datetime": "2026-11-22T12:30:00.000005"},
        "in": {"$set": ["a", "b"]},
    }


@pytest.mark.parametrize("details", [{1: "a"}, [1, {2}], {"$set": []}])
def test_details_need_not_be_an_object(details: Any) -> None:
    encoded = encode_details(details)
    codec.check_details(encoded, 10_000)
    assert decode_details(encoded) == details


def test_nan_comes_back() -> None:
    assert math.isnan(decode_details(encode_details({"a": math.nan}))["a"])


def test_an_object_of_a_program_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        encode_details({"a": object()})


@pytest.mark.parametrize("content", [{"$uuid": "x"}, {"$dict": 1}, {"$bytes": None}, {"$set": 3}])
def test_a_tag_with_a_wrong_value_is_refused(content: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(content)).replace("$", r"\$")):
        decode_details({"a": content})

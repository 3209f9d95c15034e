"""Postings: checked details, errors that name the place of a fault, and both wires."""

import datetime
import decimal
import enum
import json
import math
import uuid

import pytest

from jobboard import codec
from jobboard.codec import Content, Undecodable
from jobboard.states import Failure, FailureKind

BIG = 10**9


class Colour(enum.StrEnum):
    RED = "red"


class Number(enum.IntEnum):
    ONE = 1


def nested(depth: int) -> dict:
    value: dict = {}
    for _ in range(depth):
        value = {"a": value}
    return value


CIRCLE: dict = {}
CIRCLE["a"] = [CIRCLE]


@pytest.mark.parametrize(
    ("details", "kind", "match"),
    [
        ([], TypeError, "details must be a dict, not list"),
        ({"a": object()}, TypeError, r"^details\['a'\]: object is not one of"),
        ({"a": {"b": [1, (2, {3})]}}, TypeError, r"^details\['a'\]\['b'\]\[1\]\[1\]: set"),
        ({"a": datetime.datetime.now(datetime.UTC)}, TypeError, r"list and dict: give its isoformat\(\), or annotate"),
        (
            {"a": uuid.uuid4()},
            TypeError,
            r"UUID is not one of .*: give its str\(\), or annotate .* the handler's post\(\)$",
        ),
        ({"a": [decimal.Decimal(1)]}, TypeError, r"^details\['a'\]\[0\]: Decimal .*: give its str\(\)"),
        ({1: "a"}, TypeError, r"^details: the key 1 is not a str but int"),
        ({"a": [{None: 1}]}, TypeError, r"^details\['a'\]\[0\]: the key None"),
        ({"a": [0.0, math.nan]}, ValueError, r"^details\['a'\]\[1\]: JSON has no nan"),
        ({"a": -math.inf}, ValueError, r"^details\['a'\]: JSON has no -inf"),
        ({"a": 2**63}, ValueError, r"^details\['a'\]: 9223372036854775808 does not fit"),
        ({"a": -(2**63) - 1}, ValueError, r"^details\['a'\]: -9223372036854775809"),
        ({"it's": ["\ud800"]}, ValueError, r"""^details\["it's"\]\[0\]: a lone surrogate"""),
        ({"a": {"\udc00": 1}}, ValueError, r"^details\['a'\]: the key '\\udc00' holds"),
        (nested(101), ValueError, "nested deeper than 100"),
        (CIRCLE, ValueError, "nested deeper than 100"),
    ],
)
def test_an_error_names_the_path_to_bad_details(details: object, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        codec.check_details(details, BIG)


@pytest.mark.rule("Details of subclasses of int, str and dict become plain values.")
def test_details_are_copied_into_plain_types() -> None:
    given = {"a": (1, [2.5, None, True]), Colour.RED: Colour.RED, "n": Number.ONE}
    checked = codec.check_details(given, BIG)
    assert checked == {"a": [1, [2.5, None, True]], "red": "red", "n": 1}
    assert {type(value) for value in checked.values()} == {list, str, int}
    assert {type(key) for key in checked} == {str}
    assert codec.check_details(None, BIG) == {}
    assert codec.check_details(nested(99), BIG) == nested(99)


def test_the_limit_is_in_bytes_of_compact_json() -> None:
    details = {"é": [1, 2], "b": "\n"}
    size = len('{"é":[1,2],"b":"\\n"}'.encode())
    assert codec.check_details(details, size) == details
    with pytest.raises(ValueError, match=f"details: {size} bytes as JSON, and max_details is {size - 1}"):
        codec.check_details(details, size - 1)


@pytest.mark.rule("The size of details is that of their JSON, whatever the encoding of the posting.")
@pytest.mark.parametrize("wire", ["msgpack", "json"])
def test_the_size_of_a_posting_is_that_of_its_json(wire: codec.Wire) -> None:
    """Whatever the encoding makes of it: a control character takes six bytes of JSON, and one of msgpack."""
    for details in ({"a": [False] * 100}, {"a": "\x01" * 200}, {"a": "\U0001f980" * 20}):
        size = len(json.dumps(details, ensure_ascii=False, separators=(",", ":")).encode())
        posting = codec.encode_checked(Content(details, delay=1), size, wire)
        assert codec.decode(posting, wire) == Content(details, delay=1)
        with pytest.raises(ValueError, match=f"^details: {size} bytes as JSON, and max_details is {size - 1}"):
            codec.encode_checked(Content(details), size - 1, wire)


@pytest.mark.parametrize("wire", ["msgpack", "json"])
def test_a_posting_is_decoded_as_it_was_encoded(wire: codec.Wire) -> None:
    details = {"é\U0001f980\x00": [1, -1.5, None, True, {"": []}], "i": [2**63 - 1, -(2**63)], "f": [1.0, 5e-324]}
    book = {"name": "n", "uuid": "u"}
    for content in (Content(details), Content(details, book), Content({}, None, {"a": "é"}, 1, 2**62)):
        posting = codec.encode(content, wire)
        assert type(posting) is (str if wire == "json" else bytes)
        assert repr(codec.decode(posting, wire)) == repr(content)


def test_a_damaged_posting_is_undecodable() -> None:
    packed = [
        *(b"", b"\xc1", b"\x80", b"\x81\xa7details\xc0", b"\x82\xa7details\x80\xa4book\x01"),
        *(b"\x81\xa7details\x80trailing", b"\x82\xa7details\x80\xa7context\x81\x01\xa1a"),
    ]
    texts = [
        *("", "{", "[]", "null", "{}", '{"details":[]}', '{"details":{},"book":"b"}', '{"details":{},"context":[]}'),
        *('{"details":{},"context":{"a":1}}', '{"details":{},"delay":true}', '{"details":{},"due":1.5}', "[" * 100_000),
    ]
    for posting in (*packed, *texts):
        with pytest.raises(Undecodable, match="can't be decoded"):
            codec.decode(posting, "json" if isinstance(posting, str) else "msgpack")


@pytest.mark.rule("A posting keeps the fields of newer writers when another wire carries it.")
def test_transcode_keeps_the_fields_of_newer_writers() -> None:
    text = '{"details":{"é":[1,0.5,null]},"due":7,"later":{"a":true}}'
    packed = codec.transcode(text, "json", "msgpack")
    assert codec.decode(packed, "msgpack") == codec.decode(text, "json")
    assert codec.transcode(packed, "msgpack", "json") == text
    assert codec.transcode(b"?", "msgpack", "msgpack") == b"?"
    for damaged in (b"?", b"\x82\xa7details\x80\xa5later\xc4\x01x"):
        with pytest.raises(Undecodable):
            codec.transcode(damaged, "msgpack", "json")


@pytest.mark.rule("A context travels with a job and holds only str.")
def test_a_context_is_copied_into_plain_str() -> None:
    given = {"traceparent": "00-1-2-01", Colour.RED: Colour.RED}
    checked = codec.check_context(given)
    assert checked == {"traceparent": "00-1-2-01", "red": "red"}
    assert {type(value) for value in checked.values()} == {str}
    assert codec.check_context({}) is codec.check_context(None) is None
    assert codec.check_context({"a": "x" * (codec.MAX_CONTEXT - 8)})


@pytest.mark.rule("A context travels with a job and holds only str.")
@pytest.mark.parametrize(
    ("context", "kind", "match"),
    [
        ("a=b", TypeError, "context must be a dict, not str"),
        ({"a": 1}, TypeError, r"context\['a'\] must be a str, not int"),
        ({"a": "\ud800"}, ValueError, "surrogate"),
        ({"a": "x" * (codec.MAX_CONTEXT - 7)}, ValueError, "context: 16385 bytes as JSON, and its limit is 16384"),
    ],
)
def test_an_invalid_context_is_rejected(context: object, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        codec.check_context(context)


def test_a_text_has_1_to_255_characters_without_controls() -> None:
    for good in ("a", "x" * 255, " ", "é", "a\u00a0b", "\U0001f980", "\u200b"):
        assert codec.check_text("a name", good) == good
    for kind, match, *bad in (
        (TypeError, "a name must be a str, not int", 1),
        (TypeError, "not bytes", b"a"),
        (TypeError, "not NoneType", None),
        (ValueError, "must not be empty", ""),
        (ValueError, "256 characters", "x" * 256),
        (ValueError, "control", "a\x00", "\x1f", "\x7f", "\x9f"),
        (ValueError, "surrogate", "\udfff"),
    ):
        for each in bad:
            with pytest.raises(kind, match=match):
                codec.check_text("a name", each)


def test_an_error_is_clipped_to_its_last_16_kib() -> None:
    for error, kept in (
        (None, None),
        ("", ""),
        ("a\x00b\x00", "a\ufffdb\ufffd"),
        ("\ud800", "?"),
        ("x" * 20_000 + "end", "x" * (16_384 - 3) + "end"),
        ("é" * 20_000, "é" * 8192),
        ("é" * 8192 + "z", "é" * 8191 + "z"),
        ("\U0001f980" * 9000 + "ab", "\U0001f980" * 4095 + "ab"),
    ):
        assert codec.clip_error(error) == kept
    with pytest.raises(TypeError, match="not ValueError"):
        codec.clip_error(ValueError("x"))  # type: ignore[arg-type]


FAILURES = (
    Failure(1_500_000, "anna", 1, "é \U0001f980 'x' \"y\" \\ \n", FailureKind.LAPSE),
    Failure(2_500_000, None, 2, ""),
)


def test_failures_are_read_from_json_as_written() -> None:
    text = codec.failures_as_json(FAILURES)
    assert codec.failures_from_json(text) == FAILURES
    assert json.loads(text)[0] == {
        "on": 1_500_000,
        "who": "anna",
        "attempt": 1,
        "text": FAILURES[0].text,
        "kind": "lapse",
    }
    assert "é" in text
    assert (codec.failures_as_json(()), codec.failures_from_json(None)) == (None, ())
    for kind, read in (('"newer"', "newer"), ("3", FailureKind.ERROR), ("[]", FailureKind.ERROR)):
        newer = f'[{{"on": 1, "who": null, "attempt": 2, "text": "x", "kind": {kind}, "more": 3}}]'
        assert codec.failures_from_json(newer) == (Failure(1, None, 2, "x", read),)
    older = '[{"on": 1, "who": null, "attempt": 2, "text": "x"}]'
    assert codec.failures_from_json(older) == (Failure(1, None, 2, "x", FailureKind.ERROR),)


@pytest.mark.rule("Failures that are none are shown as text.")
def test_damaged_failures_are_shown_as_one_failure() -> None:
    for text in ("broken", "1", "[1]", "[[]]", '[{"on": 1}]', "{}x", "[" * 100_000, "[" + "1" * 5000):
        assert codec.failures_from_json(text) == (Failure(0, None, 0, text),)

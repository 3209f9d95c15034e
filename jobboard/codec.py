"""Details and postings: their checks, and their encodings as msgpack and JSON.

An encoded posting is a map of the poster's ``details`` and the other fields of :class:`Content`. A reader ignores
unknown fields, so that fields can be added. A field that no reader may ignore needs another version. The version is
stored beside the posting, so that a board recognises a newer posting without reading it.
"""

from __future__ import annotations

import json
import math
import re
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgpack

from jobboard.ciphers import Seal, Sealed, is_sealed, number_of, opened
from jobboard.conf import shortened
from jobboard.exceptions import NoKey
from jobboard.primitives import Returned
from jobboard.states import FAILURE_BYTES, Failure, stored_failure

VERSION = 1
"""The version of written postings, and the highest readable version."""

KEYS = 100
"""The factor of a key's number in the stored version of a job. A plain job has none."""

MAX_TEXT = 255
"""The longest name, key or owner, in characters."""

MAX_CONTEXT = 16 * 1024
"""The largest context of a job, in bytes of JSON."""

MAX_NOTE = 16 * 1024
"""The largest note, in bytes of JSON."""

_MAX_DEPTH = 100
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")).encode
_LOADS = json.JSONDecoder().decode
_JSON_GROWTH = 6
"""The most bytes of JSON for one of msgpack: a control character, or False and its comma."""

_WAYS_OUT = {
    **dict.fromkeys(("date", "time"), "its isoformat()"),
    **dict.fromkeys(("UUID", "Decimal"), "its str()"),
    "timedelta": "its total_seconds()",
    "Enum": "its value",
}
"""The form in JSON of instances of classes of these names."""

Wire = Literal["msgpack", "json"]


class Content(NamedTuple):
    """The content of a posting.

    book: the name and uuid of a logbook. context: texts from the poster's process for the worker's. delay, due: as
    posted, in µs; the record forgets both with the first claim. schedule: the id of the schedule that posted the job,
    and its due time in µs. sealed: the details and the book, encrypted; both are empty beside it.
    """

    details: dict[str, Any]
    book: dict[str, str] | None = None
    context: dict[str, str] | None = None
    delay: int | None = None
    due: int | None = None
    schedule: list[Any] | None = None
    sealed: str | None = None


class Note(NamedTuple):
    """A note of a job's holder.

    number: rises with each note on the job since its post. on: the time in µs, by the clock of the holder's machine.
    sealed: the text, the percentage and the checkpoint, encrypted; they are None beside it.
    """

    number: int = 0
    on: int = 0
    text: str | None = None
    percent: float | None = None
    checkpoint: Any = None
    sealed: str | None = None


_KINDS = {"details": dict, "book": dict, "context": dict, "delay": int, "due": int, "schedule": list, "sealed": str}
_OPTIONAL = Content._fields[1:]
_NOTED = ("text", "percent", "checkpoint")
_MARK = "~"
"""The begin of an encrypted result. No result in JSON or msgpack begins so, except for the number 126."""


class Undecodable(ValueError):
    """A damaged posting or result."""


def check_text(what: str, value: Any) -> str:
    """Check a name, key or owner: a str of 1 to 255 characters, without control characters or lone surrogates."""
    if not isinstance(value, str):
        raise TypeError(f"{what} must be a str, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{what} must not be empty")
    if len(value) > MAX_TEXT:
        raise ValueError(f"{what} has {len(value)} characters; at most {MAX_TEXT} are stored")
    bad = _FORBIDDEN.search(value)
    if bad:
        raise ValueError(f"{what} {value!r} holds {bad.group()!r}; control characters and lone surrogates are refused")
    return value


def check_details(details: Any, limit: int, what: str = "details", bound: str = "max_details") -> dict[str, Any]:
    """Return a copy of ``details`` in JSON's shape (None: empty; tuples become lists).

    :param limit: the largest size, in bytes of compact UTF-8 JSON.
    :param what: the name of the details in an error.
    :param bound: the name of the limit in an error.
    :raises TypeError: a value is not of JSON's shape; the message names the path to the value.
    :raises ValueError: a value is out of range, or the details are too large.
    """
    checked = _shaped_mapping(details, what)
    _check_size(what, checked, limit, bound)
    return checked


def _shaped_mapping(value: Any, what: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(f"{what} must be a dict, not {type(value).__name__}")
    shaped: dict[str, Any] = _shaped(value, (what,))
    return shaped


def _check_size(what: str, shaped: Any, limit: int, bound: str) -> None:
    size = len(_JSON(shaped).encode())
    if size > limit:
        raise ValueError(
            f"{what}: {size} bytes as JSON, and {bound} is {limit}; store large data elsewhere and give a reference "
            "to it"
        )


def encode_checked(content: Content, limit: int, wire: Wire) -> bytes | str:
    """Check the details as :func:`check_details` does, and return a posting of them and the other, checked fields."""
    if type(content.details) is not dict or not _is_plain(content.details, _MAX_DEPTH):
        content = content._replace(details=_shaped_mapping(content.details, "details"))
    posting = encode(content, wire)
    # Most postings are small, and spare the time for another encoding.
    if len(posting) * _JSON_GROWTH > limit:
        _check_size("details", content.details, limit, "max_details")
    return posting


def version_of(seal: Seal | str | None) -> int:
    """Return the version of postings that a cipher has encrypted, or of an encrypted part; of plain ones without.

    A look for jobs passes over all versions above that of its board's cipher."""
    if seal is None:
        return VERSION
    return KEYS * (number_of(seal) if isinstance(seal, str) else seal.number) + VERSION


def is_newer(version: int) -> bool:
    """Return whether only a newer version of this library reads a posting, whatever its key."""
    return version % KEYS > VERSION


def seal_content(content: Content, limit: int, seal: Seal | None) -> Content:
    """Check the details as :func:`check_details` does, and return the content with them and the book encrypted.

    :param content: with a :class:`~jobboard.ciphers.Sealed` for details, that stays as it is.
    """
    given: Any = content.details
    if isinstance(given, Sealed):
        sealed = given.text
    else:
        assert seal is not None
        sealed = seal.close([_shaped_mapping(given, "details"), content.book])
    _check_sealed("details", sealed, limit, "max_details")
    return content._replace(details={}, book=None, sealed=sealed)


def open_content(content: Content, seal: Seal | None) -> Content:
    """Return the content with its details and book decrypted, or raise NoKey."""
    if content.sealed is None:
        return content
    match opened(content.sealed, seal):
        case [dict() as details, dict() | None as book]:
            return content._replace(details=details, book=book, sealed=None)
    # A wrong key may well decrypt to something.
    raise NoKey(f"encrypted with key {number_of(content.sealed)}, and decrypted to no details")


def _check_sealed(what: str, sealed: str, limit: int, bound: str) -> None:
    if len(sealed) > limit:
        raise ValueError(
            f"{what}: {len(sealed)} bytes encrypted, and {bound} is {limit}; store large data elsewhere and give a "
            "reference to it"
        )


def check_context(context: Any) -> dict[str, str] | None:
    """Return a checked copy of a job's ``context``, a mapping of str to str; None where it is empty."""
    if context is None:
        return None
    checked = _shaped_mapping(context, "context")
    for key, value in checked.items():
        if not isinstance(value, str):
            raise TypeError(f"context[{key!r}] must be a str, not {type(value).__name__}")
    _check_size("context", checked, MAX_CONTEXT, "its limit")
    return checked or None


def _is_plain(details: Any, depth: int) -> bool:
    """Return whether a dict or list of at most ``depth`` levels is of JSON's shape as it stands, as most details are.

    To find that out takes a third of the time of :func:`_shaped`, which converts values and names errors. The check
    saves 1.5 µs of the 8 µs of CPU time that a small job of a batch takes on Redis."""
    if type(details) is dict:
        if not all(type(key) is str and key.isascii() for key in details):
            return False
        details = details.values()
    for value in details:
        kind = type(value)
        if kind is str:
            plain = value.isascii()
        elif kind is int:
            plain = -(2**63) <= value < 2**63
        elif kind is dict or kind is list:
            plain = depth > 1 and _is_plain(value, depth - 1)
        else:
            plain = value is None or kind is bool
        if not plain:
            return False
    return True


def _shaped(value: Any, path: tuple[Any, ...]) -> Any:
    """Return a copy of a value in plain types of JSON. ``path``: its name, and the keys and indexes down to it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        if _SURROGATE.search(value):
            raise ValueError(f"{_shown(path)}: a lone surrogate can't be stored as UTF-8")
        return str.__str__(value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise ValueError(f"{_shown(path)}: {shortened(int(value))} does not fit into 64 bits; post it as a str")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{_shown(path)}: JSON has no {value}")
        return float(value)
    if len(path) > _MAX_DEPTH:
        raise ValueError(f"{_shown(path)[:100]}…: nested deeper than {_MAX_DEPTH} levels")
    if isinstance(value, Mapping):
        return {_shaped_key(key, path): _shaped(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_shaped(item, (*path, index)) for index, item in enumerate(value)]
    raise TypeError(f"{_shown(path)}: {_no_json(value, path)}")


def _no_json(value: Any, path: tuple[Any, ...]) -> str:
    """Return what is wrong with a value of another type, and the way out."""
    wrong = f"{type(value).__name__} is not one of str, int, float, bool, None, list and dict"
    way = next((_WAYS_OUT[base.__name__] for base in type(value).__mro__ if base.__name__ in _WAYS_OUT), None)
    if way is None:
        return wrong
    typed = ", or annotate the parameter of its handler, and use the handler's post()" if path[0] == "details" else ""
    return f"{wrong}: give {way}{typed}"


def _shaped_key(key: Any, path: tuple[Any, ...]) -> str:
    if not isinstance(key, str):
        raise TypeError(f"{_shown(path)}: the key {key!r} is not a str but {type(key).__name__}")
    if _SURROGATE.search(key):
        raise ValueError(f"{_shown(path)}: the key {key!r} holds a lone surrogate")
    return str.__str__(key)


def _shown(path: tuple[Any, ...]) -> str:
    return str(path[0]) + "".join(f"[{step!r}]" for step in path[1:])


def encode(content: Content, wire: Wire) -> bytes | str:
    """Return a checked content as a posting of :data:`VERSION`."""
    fields = {name: value for name, value in zip(Content._fields, content, strict=True) if value is not None}
    if "sealed" in fields:
        del fields["details"]
    return _pack(fields, wire)


def decode(posting: bytes | str, wire: Wire) -> Content:
    """Return the content of a stored posting, or raise Undecodable."""
    try:
        body = _unpack(posting, wire)
        content = Content({} if "sealed" in body else body["details"], *map(body.get, _OPTIONAL))
    except Exception as error:
        raise Undecodable(f"the posting can't be decoded: {type(error).__name__}") from error
    for name in body:
        kind = _KINDS.get(name)
        if kind is not None and type(body[name]) is not kind:
            raise Undecodable(f"the posting can't be decoded: its {name} is no {kind.__name__}")
    if content.context and not all(type(text) is str for pair in content.context.items() for text in pair):
        raise Undecodable("the posting can't be decoded: its context holds something other than str")
    if content.sealed is not None and not is_sealed(content.sealed):
        raise Undecodable("the posting can't be decoded: its encrypted part is no number and base64")
    if content.schedule is not None and [type(each) for each in content.schedule] != [str, int]:
        raise Undecodable("the posting can't be decoded: its schedule is no id and time")
    return content


def add_to(posting: bytes | str, wire: Wire, **more: Any) -> bytes | str:
    """Return a stored posting with more fields, or raise Undecodable. Fields of newer writers stay."""
    decode(posting, wire)
    return _pack({**_unpack(posting, wire), **more}, wire)


def encode_result(result: Any, limit: int, wire: Wire, seal: Seal | None = None) -> bytes | str:
    """Return a result of JSON's shape in its encoded form. Raise as :func:`check_details` does."""
    shaped = _shaped(result, ("result",))
    if seal is not None:
        sealed = seal.close(shaped)
        _check_sealed("result", sealed, limit, "max_details")
        return _MARK + sealed if wire == "json" else (_MARK + sealed).encode()
    _check_size("result", shaped, limit, "max_details")
    return _pack(shaped, wire)


def returned(result: Any, limit: int, wire: Wire, seal: Seal | None = None) -> Returned:
    """Return the encoded result of a handler, or the reason of its refusal. It is too late to raise an error."""
    try:
        return Returned(encode_result(result, limit, wire, seal))
    except Exception as error:  # noqa: BLE001 - code of a user's object may raise anything
        # str(error) might raise, too.
        return Returned(refused=clip_error("".join(traceback.format_exception_only(error)).rstrip()))


def decode_result(result: bytes | str, wire: Wire, seal: Seal | None = None) -> Any:
    """Return a stored result, or raise Undecodable or NoKey."""
    if (sealed := _sealed_result(result)) is not None:
        return opened(sealed, seal)
    try:
        return _unpack(result, wire)
    except Exception as error:
        raise Undecodable(f"the result can't be decoded: {type(error).__name__}") from error


def _sealed_result(result: bytes | str) -> str | None:
    """Return the encrypted part that a stored result is, if it is one."""
    text = result if isinstance(result, str) else result.decode("latin-1") if result[:1] == _MARK.encode() else ""
    return text[1:] if text[:1] == _MARK and is_sealed(text[1:]) else None


def encode_note(note: Note, wire: Wire, seal: Seal | None = None) -> bytes | str:
    """Return a note in its stored form. Raise as :func:`check_details` does."""
    fields = {name: value for name, value in zip(Note._fields, note, strict=True) if value is not None}
    shaped = _shaped_mapping(fields, "note")
    if seal is not None:
        shaped = {"number": note.number, "on": note.on, "sealed": seal.close([shaped.get(name) for name in _NOTED])}
    _check_size("note", shaped, MAX_NOTE, "its limit")
    return _pack(shaped, wire)


def decode_note(note: bytes | str | None) -> Note:
    """Return a stored note of any wire; an empty one if there is none. A damaged note keeps nobody from the job, so it
    counts as none."""
    if note is None:
        return Note()
    try:
        body = _unpack(note, _wire_of(note))
        found = Note._make(map(body.get, Note._fields, Note()))
        fits = type(found.number) is type(found.on) is int and isinstance(found.text, str | None)
        fits = fits and (found.sealed is None or is_sealed(found.sealed))
        return found if fits and isinstance(found.percent, int | float | None) else Note()
    except Exception:  # noqa: BLE001 - decoders raise what they like
        return Note()


def open_note(note: Note, seal: Seal | None) -> Note:
    """Return a note with its parts decrypted, or raise NoKey."""
    if note.sealed is None:
        return note
    parts = opened(note.sealed, seal)
    if type(parts) is not list or len(parts) != len(_NOTED):
        raise NoKey(f"encrypted with key {number_of(note.sealed)}, and decrypted to no note")
    return Note(note.number, note.on, *parts)


def transcode_note(note: bytes | str | None, wire: Wire) -> bytes | str | None:
    """Return a stored note in the encoding of a wire. A damaged note is left out."""
    if note is None or _wire_of(note) == wire:
        return note
    found = decode_note(note)
    return encode_note(found, wire) if found.number else None


def _wire_of(note: bytes | str) -> Wire:
    return "json" if isinstance(note, str) else "msgpack"


def transcode(posting: bytes | str, wire: Wire, other: Wire) -> bytes | str:
    """Return a stored posting in the encoding of another wire, or raise Undecodable. Fields of newer writers stay."""
    if wire == other:
        return posting
    decode(posting, wire)
    try:
        return _pack(_unpack(posting, wire), other)
    except Exception as error:
        raise Undecodable(f"the posting holds what {other} can't: {type(error).__name__}") from error


def transcode_result(result: bytes | str, wire: Wire, other: Wire) -> bytes | str:
    """Return a stored result in the encoding of another wire, or raise Undecodable."""
    if wire == other:
        return result
    if (sealed := _sealed_result(result)) is not None:
        return _MARK + sealed if other == "json" else (_MARK + sealed).encode()
    return _pack(decode_result(result, wire), other)


def _pack(body: Any, wire: Wire) -> bytes | str:
    return _JSON(body) if wire == "json" else bytes(msgpack.packb(body))


def _unpack(posting: bytes | str, wire: Wire) -> Any:
    return _LOADS(posting) if wire == "json" else msgpack.unpackb(posting)  # type: ignore[arg-type]


def failures_as_json(failures: Sequence[Failure]) -> str | None:
    """Return a job's failures as a JSON list of objects, for a store that people query; None without failures."""
    return _JSON([failure._asdict() for failure in failures]) if failures else None


def failures_from_json(text: str | None) -> tuple[Failure, ...]:
    """Return the failures of :func:`failures_as_json`. Damaged ones become one failure, to hide nothing."""
    try:
        found = [] if text is None else _LOADS(text)
        return tuple(
            stored_failure(int(each["on"]), each["who"], each["attempt"], str(each["text"]), each.get("kind"))
            for each in found
        )
    except (ValueError, TypeError, LookupError, RecursionError):
        return (Failure(0, None, 0, str(text)),)


def clip_error(error: str | None) -> str | None:
    """Return the last 16 KiB of an error, without the NULs and lone surrogates that no database takes."""
    if error is None:
        return None
    if not isinstance(error, str):
        raise TypeError(f"an error or reason must be a str, not {type(error).__name__}")
    raw = error.replace("\x00", "\ufffd").encode("utf-8", "replace")
    return raw[-FAILURE_BYTES:].decode("utf-8", "ignore")

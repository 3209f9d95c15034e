"""Arguments of verbs, checked and turned into arguments of the engine."""

from __future__ import annotations

import datetime
import os
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast, get_args

from jobboard import codec, runtime
from jobboard.ciphers import Seal, Sealed
from jobboard.conf import meant, shortened
from jobboard.job import Job, OnKey, Posting
from jobboard.primitives import Draft, Limit, Per
from jobboard.priorities import JobPriority, rank_of
from jobboard.states import instant, moment

_LONGEST = 3_155_760_000
"""A hundred years in seconds: from now on, they end before the last instant that every backend stores."""

_LAST = 2**53
"""The end of the instants that every backend stores exactly, in µs since 1970: in 2255, as doubles count no further."""


def worker_name() -> str:
    """Return a name for a worker of this process: its host, its pid and a random suffix.

    Containers may have one host name, and in each the worker may be process 1.
    """
    return f"{socket.gethostname()}-{os.getpid()}-{runtime.secrets.token_hex(4)}"


def micros(what: str, value: float | datetime.timedelta | None, *, positive: bool = False) -> int | None:
    """Return a span of seconds, or a timedelta, in µs; None stays None. ``positive`` refuses 0, too."""
    if value is None:
        return None
    span = value.total_seconds() if isinstance(value, datetime.timedelta) else value
    if isinstance(span, bool) or not isinstance(span, (int, float)):
        raise TypeError(f"{what} must be a number of seconds or a timedelta, not {type(value).__name__}")
    # NaN fails both comparisons.
    if not ((span > 0 if positive else span >= 0) and span <= _LONGEST):
        least = "more than 0" if positive else "0 or more"
        raise ValueError(f"{what}={shortened(value)}: must be {least} seconds and at most {_LONGEST}")
    return max(1, round(span * 1e6)) if span else 0


def seconds(what: str, value: float | datetime.timedelta | None, *, positive: bool = False) -> float | None:
    """Return the same span in seconds."""
    span = micros(what, value, positive=positive)
    return None if span is None else span / 1e6


def job(value: Any) -> Job:
    """Check that a verb's job is a :class:`~jobboard.job.Job`, and no uuid."""
    if not isinstance(value, Job):
        way = ": board.get(uuid) gives the job that has this uuid" if isinstance(value, str) else ""
        raise TypeError(f"a job must be a Job, not {type(value).__name__}{way}")
    return value


def integer(what: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} must be an int, not {type(value).__name__}")
    return value


def limit(value: Any, what: str = "limit", most: int = sys.maxsize) -> int:
    if integer(what, value) < 1:
        raise ValueError(f"{what}={shortened(value)}: must be 1 or more")
    if value > most:
        raise ValueError(f"{what}={shortened(value)}: must be {most} at most")
    return int(value)


def timeout(value: float | None) -> float | None:
    """Check the seconds of a wait; None waits for ever."""
    if value is not None and not (isinstance(value, (int, float)) and value >= 0):
        raise ValueError(f"timeout={shortened(value)}: must be 0 or more seconds, or None to wait for ever")
    return value


def new_uuids(count: int) -> list[str]:
    """Return ``count`` uuids. Their first three characters count sixteenths of a second, and the others are random.

    Jobs that are posted together lie together in an index, on few pages. Random uuids would write a page for each job.
    """
    since, drawn = f"{int(runtime.wall_time() * 16) & 0xFFF:03x}", runtime.urandom(16 * count).hex()
    # As runtime.uuid4() does, by one call of the system for all: that takes a fifth of its time.
    digits = (drawn[n : n + 32] for n in range(0, len(drawn), 32))
    return [f"{since}{d[:5]}-{d[5:9]}-4{d[9:12]}-{'89ab'[int(d[12], 16) % 4]}{d[13:16]}-{d[16:28]}" for d in digits]


MOST_CLAIMS = 10_000
"""The highest limit: its starts are stored as one value."""


def bound(name: str, per_what: Per, concurrency: int | None, rate: Any) -> Limit:
    """Return a checked limit of claims."""
    codec.check_text("a job's name", name)
    per(per_what)
    if concurrency is None and rate is None:
        raise ValueError(f"no limit of {name!r} is given: give concurrency= or rate=, or call remove_limit()")
    if concurrency is not None:
        limit(concurrency, "concurrency", MOST_CLAIMS)
    if rate is None:
        return Limit(name, per_what, concurrency)
    if not isinstance(rate, (tuple, list)) or len(rate) != 2:
        raise TypeError(f"rate={shortened(rate)}: must be how many claims and within how many seconds, as in (100, 60)")
    span = seconds("the seconds of rate", rate[1], positive=True)
    assert span is not None
    return Limit(name, per_what, concurrency, (limit(rate[0], "the claims of rate", MOST_CLAIMS), span))


def per(value: Any) -> None:
    """Check the scope of a limit."""
    if value not in get_args(Per):
        raise ValueError(f"per={value!r}: must be 'name' or 'group'")


def names(value: Iterable[str] | None) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, (str, bytes)):
        raise TypeError(f"names must be a list of str, not a {type(value).__name__}: write [{value!r}]")
    checked = tuple(dict.fromkeys(codec.check_text("a job's name", name) for name in value))
    if not checked:
        raise ValueError("names is empty: leave it out to take any job")
    return checked


def extras(
    backend: str, verb: str, extra: Mapping[str, Any] | None, known: frozenset[str], **named: Any
) -> dict[str, Any]:
    """Return the arguments that only some backends have; None counts as not given.

    :param extra: arguments of a backend of a third party.
    :param known: the arguments that this backend adds to the verb.
    :param named: ``where`` or ``connection``, which each board's verbs declare.
    :raises TypeError: the backend lacks an argument.
    """
    if not (extra is None or isinstance(extra, Mapping)):
        raise TypeError(f"extra must be a mapping of arguments, not {type(extra).__name__}")
    given = {name: value for name, value in ({**extra, **named} if extra else named).items() if value is not None}
    for name in given:
        if name not in known:
            hint = meant(str(name), known, "")
            raise TypeError(f"{verb}() of a {backend} board has no argument {name!r}{hint and f'; {hint}'}")
    return given


def postings(values: Iterable[Posting | Mapping[str, Any]]) -> list[Posting]:
    """Return the postings of a batch. An error has the number of the bad posting."""
    made: list[Posting] = []
    for value in values:
        try:
            made.append(posting(value))
        except TypeError as error:
            raise _with_number(len(made), error) from error
    return made


def _with_number(number: int, error: TypeError | ValueError) -> TypeError | ValueError:
    kind = TypeError if isinstance(error, TypeError) else ValueError
    return kind(f"posting {number}, counted from 0: {error}")


def posting(value: Posting | Mapping[str, Any]) -> Posting:
    if isinstance(value, Posting):
        return value
    if type(value) is dict or isinstance(value, Mapping):
        for name in value:
            if name not in Posting._fields:
                hint = meant(str(name), Posting._fields, f"it has {', '.join(Posting._fields)}")
                raise TypeError(f"a posting has no argument {name!r}; {hint}")
        if "name" not in value:
            raise TypeError("a posting must have a name")
        return Posting(**value)
    raise TypeError(f"a posting must be a Posting or a mapping of post()'s arguments, not {type(value).__name__}")


def drafts(
    given: Sequence[Posting], max_details: int, wire: codec.Wire, seal: Seal | None = None, *, numbered: bool = False
) -> list[Draft]:
    """Return checked postings in their stored form. ``numbered``: an error has the number of the bad posting."""
    made: list[Draft] = []
    try:
        for each, new in zip(given, new_uuids(len(given)), strict=True):
            made.append(_draft(each, new, max_details, wire, seal))
    except (TypeError, ValueError) as error:
        if not numbered:
            raise
        raise _with_number(len(made), error) from error
    return made


def _draft(given: Posting, uuid: str, max_details: int, wire: codec.Wire, seal: Seal | None) -> Draft:
    # Each post makes a draft, and a field of a tuple costs as much as a call.
    name, book, details, priority, key, delay, due, max_attempts, context, group, key_for, on_key, expires = given
    codec.check_text("a job's name", name)
    known, span, time = _book(book), micros("delay", delay) or None, None if due is None else _due(due, delay)
    content = codec.Content(cast(dict[str, Any], details), known, codec.check_context(context), span, time)
    if seal is None and not isinstance(details, Sealed):
        version, posting = codec.VERSION, codec.encode_checked(content, max_details, wire)
    else:
        content = codec.seal_content(content, max_details, seal)
        version, posting = codec.version_of(content.sealed), codec.encode(content, wire)
    if key is not None:
        codec.check_text("a job's key", key)
    if group is not None:
        codec.check_text("a job's group", group)
    if max_attempts is not None:
        limit(max_attempts, "max_attempts", 2**31 - 1)
    rank = rank_of(JobPriority.convert(priority))
    window, replace = (None, False) if key_for is None and on_key == "keep" else _window(given)
    left, end = (None, None) if expires is None else _expiry(expires, span, time)
    return Draft(
        uuid, name, rank, key, version, posting, max_attempts, span, time, None, group, window, replace, left, end
    )


def _expiry(
    given: float | datetime.timedelta | datetime.datetime, delay: int | None, due: int | None
) -> tuple[int | None, int | None]:
    """Return the µs until a job expires, or the instant. The engine compares a span with an instant."""
    if isinstance(given, datetime.datetime):
        span, time, least = None, _instant("expires", given), due
    else:
        span, time, least = micros("expires", given, positive=True), None, delay
    if least is not None and cast(int, span or time) <= least:
        raise ValueError(f"expires={shortened(given)}: must be after the job is due")
    return span, time


def _window(given: Posting) -> tuple[int | None, bool]:
    """Return the µs for which the key stays taken, and whether a job that has the key gets this posting."""
    key_for = micros("key_for", given.key_for, positive=True)
    if given.on_key not in get_args(OnKey):
        raise ValueError(f"on_key={given.on_key!r}: must be 'keep' or 'replace'")
    if given.key is None:
        name = "on_key" if key_for is None else "key_for"
        raise ValueError(f"{name}={getattr(given, name)!r} needs a key: give key=, too")
    return key_for, given.on_key == "replace"


def note(
    before: codec.Note,
    text: str | None,
    percent: float | None,
    checkpoint: Any,
    wire: codec.Wire,
    seal: Seal | None = None,
) -> bytes | str:
    """Return the note that follows ``before``, encoded. An argument of None leaves its part as it was.

    :raises NoKey: the earlier note can't be decrypted.
    """
    if text is None and percent is None and checkpoint is None:
        raise ValueError("an empty note: give a text, percent= or checkpoint=")
    if text is not None and not isinstance(text, str):
        raise TypeError(f"text={text!r}: must be a str, not {type(text).__name__}")
    if percent is not None:
        if isinstance(percent, bool) or not isinstance(percent, int | float):
            raise TypeError(f"percent={percent!r}: must be a number, not {type(percent).__name__}")
        if not 0 <= percent <= 100:
            raise ValueError(f"percent={percent!r}: must be from 0 to 100")
    given = (text, percent, checkpoint)
    kept = codec.open_note(before, seal)
    olds = (kept.text, kept.percent, kept.checkpoint)
    parts = [old if new is None else new for old, new in zip(olds, given, strict=True)]
    return codec.encode_note(codec.Note(before.number + 1, int(runtime.wall_time() * 1e6), *parts), wire, seal)


def aware(what: str, value: datetime.datetime) -> int:
    """Return a time of the caller's in its stored form."""
    if not isinstance(value, datetime.datetime):
        raise TypeError(f"{what} must be a datetime, not {type(value).__name__}")
    if value.tzinfo is None:
        raise ValueError(f"{what}={value}: must be aware of its time zone, as datetime.now(timezone.utc) is")
    return instant(value)


def _due(due: datetime.datetime, delay: object) -> int:
    if delay is not None:
        raise ValueError("give delay or due, not both")
    return _instant("due", due)


def _instant(what: str, value: datetime.datetime) -> int:
    """Return a time that is to be stored."""
    time = aware(what, value)
    if time >= _LAST:
        raise ValueError(f"{what}={value}: must lie before {moment(_LAST)}, the last time that every backend can store")
    return time


def _book(book: Any) -> dict[str, str] | None:
    if book is None:
        return None
    if isinstance(book, Mapping):
        raise TypeError("a book is no mapping; the second argument is the book: give the details as details=")
    name, uuid = getattr(book, "name", None), getattr(book, "uuid", None)
    if not isinstance(name, str) or not isinstance(uuid, str):
        raise TypeError(f"a book has a name and a uuid, both str; this is a {type(book).__name__}")
    return {"name": name, "uuid": uuid}

"""Arguments of verbs: a bad one raises an error that names it, and nothing is changed."""

from __future__ import annotations

import datetime
import itertools
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.job import Act, Entity, Job, Posting
from jobboard.states import CLAIMED, COMPLETE, TRASHED, UNCLAIMED
from jobboard.testing.conformance.entities import Guest
from jobboard.testing.conformance.posts import Book
from jobboard.testing.conformance.support import MakeBoard, record_of, trash_one

# No backend can differ in these.
pytestmark = pytest.mark.backends("memory", "sqlite")

NAN, INFINITE = float("nan"), float("inf")
HUGE = (10**400, 1e308)
"""Numbers beyond every measure. Their errors stay short."""
LAST = datetime.datetime.max.replace(tzinfo=datetime.UTC)
AWARE = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


class Desk(NamedTuple):
    """A board with an unclaimed job, and one that anna has claimed."""

    board: JobBoard
    free: Job
    held: Job


Call = Callable[[Desk, Any], object]
Bad = tuple[Any, type[Exception], str]
"""A bad value, its error, and the words of the error."""

WHO: list[Bad] = [
    *((who, TypeError, "who must be a str") for who in (1, None, b"anna")),
    *((who, ValueError, "who") for who in ("", "an\nna", "\ud800", "x" * 256)),
]
WITH_WHO: list[Call] = [
    lambda desk, who: desk.board.claim(desk.free, who),
    lambda desk, who: desk.board.claim_next(who),
    lambda desk, who: desk.board.claim_many(who, 1),
    lambda desk, who: desk.board.extend(desk.held, who),
    lambda desk, who: desk.board.abandon(desk.held, who),
    lambda desk, who: desk.board.consume(desk.held, who),
    lambda desk, who: desk.board.trash(desk.held, who),
    lambda desk, who: desk.board.consume_many([desk.held], who),
    lambda desk, who: desk.board.finish_many([Act(desk.held, "consume")], who),
    lambda desk, who: desk.board.working(who, timeout=0).__enter__(),
]

EXPIRY: list[Bad] = [
    *((expiry, ValueError, "expiry") for expiry in (0, -1, NAN, INFINITE, *HUGE)),
    *((expiry, TypeError, "expiry") for expiry in ("1", True)),
]
WITH_EXPIRY: list[Call] = [
    lambda desk, expiry: desk.board.claim(desk.free, "anna", expiry),
    lambda desk, expiry: desk.board.claim_next("anna", expiry=expiry),
    lambda desk, expiry: desk.board.claim_many("anna", 1, expiry=expiry),
    lambda desk, expiry: desk.board.extend(desk.held, "anna", expiry),
    lambda desk, expiry: desk.held.claim.extend(expiry),  # type: ignore[union-attr]
]

NAMES: list[Bad] = [
    ("resize", TypeError, r"\['resize'\]"),
    (b"resize", TypeError, "bytes"),
    ([1], TypeError, "int"),
    ([], ValueError, "empty"),
    ([""], ValueError, "empty"),
    (5, TypeError, "iterable"),
]
WITH_NAMES: list[Call] = [
    lambda desk, names: desk.board.claim_next("anna", names=names),
    lambda desk, names: desk.board.claim_many("anna", 1, names=names),
    lambda desk, names: desk.board.iterjobs(names=names),
]

TIMEOUT: list[Bad] = [(timeout, ValueError, "timeout") for timeout in (-1, NAN, "1")]
WITH_TIMEOUT: list[Call] = [
    lambda desk, timeout: desk.board.claim_next("anna", timeout=timeout),
    lambda desk, timeout: desk.board.claim_many("anna", 1, timeout=timeout),
    lambda desk, timeout: desk.board.wait(timeout),
]

COUNT: list[Bad] = [
    *((limit, ValueError, "limit") for limit in (0, -1, HUGE[0])),
    *((limit, TypeError, "limit") for limit in (1.0, True)),
]

DELAY: list[Bad] = [
    *((delay, ValueError, "delay") for delay in (-1, NAN, *HUGE)),
    *((delay, TypeError, "delay") for delay in ("1", True)),
]
WITH_DELAY: list[Call] = [
    lambda desk, delay: desk.board.abandon(desk.held, "anna", delay=delay),
    lambda desk, delay: desk.held.claim.abandon(delay=delay),  # type: ignore[union-attr]
    lambda desk, delay: desk.board.finish_many([Act(desk.held, "abandon", delay=delay)], "anna"),
]

REASON: list[Bad] = [(reason, TypeError, "str") for reason in (ValueError("x"), b"x")]
WITH_REASON: list[Call] = [
    lambda desk, reason: desk.board.abandon(desk.held, "anna", error=reason),
    lambda desk, reason: desk.board.trash(desk.held, "anna", reason=reason),
]

EXTRA: list[Bad] = [
    ({"flavour": 1}, TypeError, r"\(\) of a \w+ board has no argument 'flavour'"),
    ("flavour", TypeError, "be a mapping"),
]
WITH_EXTRA: list[Call] = [
    lambda desk, extra: desk.board.post("resize", extra=extra),
    lambda desk, extra: desk.board.post_many([Posting("resize")], extra=extra),
    lambda desk, extra: desk.board.claim_next("anna", extra=extra),
    lambda desk, extra: desk.board.claim_many("anna", 1, extra=extra),
    lambda desk, extra: desk.board.working("anna", extra=extra).__enter__(),
    lambda desk, extra: desk.board.consume(desk.held, "anna", extra=extra),
    lambda desk, extra: desk.board.consume_many([desk.held], "anna", extra=extra),
    lambda desk, extra: desk.board.abandon(desk.held, "anna", extra=extra),
    lambda desk, extra: desk.board.trash(desk.held, "anna", extra=extra),
]

VERB: list[Bad] = [(verb, ValueError, verb) for verb in ("claim", "release", "extend", "nonsense")]

JOB: list[Bad] = [("0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e", TypeError, r"not str: board\.get\(uuid\)")]
WITH_JOB: list[Call] = [
    lambda desk, job: desk.board.claim(job, "anna"),
    lambda desk, job: desk.board.extend(job, "anna"),
    lambda desk, job: desk.board.abandon(job, "anna"),
    lambda desk, job: desk.board.consume(job, "anna"),
    lambda desk, job: desk.board.trash(job, "anna"),
    lambda desk, job: desk.board.consume_many([job], "anna"),
    lambda desk, job: desk.board.finish_many([Act(job, "consume")], "anna"),
    lambda desk, job: desk.board.release(job),
    lambda desk, job: desk.board.cancel(job),
    lambda desk, job: desk.board.restore(job),
    lambda desk, job: desk.board.purge(job),
    lambda desk, job: desk.board.find_owner(job),
    lambda desk, job: desk.board.iterjobs(after=job),
]

POSTING: list[Bad] = [
    ({"name": 1}, TypeError, "name must be a str, not int"),
    ({"name": ""}, ValueError, "name must not be empty"),
    ({"name": "a\nb"}, ValueError, "control"),
    ({"key": 1}, TypeError, "key"),
    ({"key": ""}, ValueError, "key"),
    ({"priority": "URGENT"}, ValueError, "VERY_HIGH"),
    ({"priority": 101}, ValueError, "101 is not a priority: give an integer from -100 to 100"),
    *(({"priority": priority}, ValueError, "is not a priority") for priority in (-101, HUGE[0])),
    ({"priority": "50"}, ValueError, "'50' is not a priority"),
    ({"priority": True}, TypeError, "True is not a priority"),
    ({"priority": 50.0}, TypeError, "50.0 is not a priority"),
    ({"group": 1}, TypeError, "group must be a str"),
    ({"group": ""}, ValueError, "group must not be empty"),
    *(({"delay": delay}, ValueError, "delay") for delay in (-1, NAN, INFINITE, *HUGE, datetime.timedelta(seconds=-1))),
    *(({"delay": delay}, TypeError, "delay") for delay in ("1", True)),
    ({"delay": 3_155_760_001}, ValueError, "at most 3155760000"),
    ({"due": datetime.datetime(2030, 1, 1)}, ValueError, "aware"),  # noqa: DTZ001
    ({"due": "2030-01-01"}, TypeError, "due"),
    ({"due": LAST, "delay": 1}, ValueError, "both"),
    ({"due": LAST}, ValueError, "before 2255"),
    ({"expires": 0}, ValueError, "expires=0: must be more than 0"),
    ({"expires": "1h"}, TypeError, "expires must be a number of seconds"),
    ({"expires": datetime.datetime(2030, 1, 1)}, ValueError, "aware"),  # noqa: DTZ001
    ({"expires": LAST}, ValueError, "expires=.* before 2255"),
    ({"expires": 5, "delay": 10}, ValueError, "expires=5: must be after the job is due"),
    ({"expires": 10, "delay": 10}, ValueError, "expires=10: must be after the job is due"),
    ({"expires": AWARE, "due": AWARE}, ValueError, "expires=.* must be after the job is due"),
    *(({"max_attempts": most}, ValueError, "max_attempts") for most in (0, -1, 2**31, HUGE[0])),
    *(({"max_attempts": most}, TypeError, "max_attempts") for most in (True, 1.0)),
    ({"details": ["a"]}, TypeError, "details must be a dict"),
    ({"details": {"a": "x" * 64 * 1024}}, ValueError, "max_details"),
    ({"details": {"n": HUGE[0]}}, ValueError, r"details\['n'\]"),
    ({"book": object()}, TypeError, "book"),
    ({"book": {"width": 300}}, TypeError, "details="),
    ({"book": Book(uuid=7)}, TypeError, "book"),
    ({"context": {"a": 1}}, TypeError, "context"),
    ({"flavour": 1}, TypeError, "flavour"),
    ({"key_for": 10}, ValueError, "key_for=10 needs a key"),
    ({"on_key": "replace"}, ValueError, "on_key='replace' needs a key"),
    ({"key": "k", "on_key": "keeps"}, ValueError, "on_key='keeps': must be 'keep' or 'replace'"),
    ({"key": "k", "key_for": 0}, ValueError, "key_for=0: must be more than 0"),
    *(({"key": "k", "key_for": seconds}, ValueError, "key_for") for seconds in HUGE),
    ({"key": "k", "key_for": "1h"}, TypeError, "key_for must be a number of seconds"),
]
WITH_POSTING: list[Call] = [
    lambda desk, bad: desk.board.post(**{"name": "resize", **bad}),
    lambda desk, bad: desk.board.post_many([{"name": "fine"}, {"name": "resize", **bad}]),
]

IN_BATCH: list[Bad] = [
    ("resize", TypeError, "must be a Posting or a mapping"),
    (None, TypeError, "must be a Posting or a mapping"),
    ({}, TypeError, "must have a name"),
    ({"nome": "resize"}, TypeError, "no argument 'nome'; did you mean 'name'?"),
    ({"name": "resize", "priorty": 7}, TypeError, "no argument 'priorty'; did you mean 'priority'?"),
    ({"name": "resize", "zzz": 7}, TypeError, "no argument 'zzz'; it has name, book, details,"),
    ({"name": "resize", 7: 7}, TypeError, "no argument 7; it has"),
    ({"name": ""}, ValueError, "a job's name must not be empty"),
    (Posting("resize", priority="URGENT"), ValueError, ".*URGENT"),
    (Posting("resize", details={"at": object()}), TypeError, ".*object"),
]

ENTITY: list[Bad] = [
    (Entity("", "one"), ValueError, "an entity's kind"),
    (Entity("conductor", ""), ValueError, "an entity's name"),
    (Guest(1), TypeError, "an entity's name"),
    (Guest("one", [1]), TypeError, "metadata"),
    (Guest("one", {"a": object()}), TypeError, "metadata"),
]

LIMIT: list[Bad] = [
    ({}, ValueError, "give concurrency= or rate="),
    ({"concurrency": 0}, ValueError, "concurrency=0: must be 1 or more"),
    ({"concurrency": 10_001}, ValueError, "concurrency=10001: must be 10000 at most"),
    ({"concurrency": HUGE[0]}, ValueError, "concurrency"),
    ({"concurrency": "4"}, TypeError, "concurrency must be an int, not str"),
    ({"concurrency": 1, "per": "customer"}, ValueError, "per='customer': must be 'name' or 'group'"),
    ({"rate": 5}, TypeError, r"rate=5: must be how many claims"),
    *(({"rate": (5, seconds)}, ValueError, "the seconds of rate") for seconds in (0, *HUGE)),
    ({"rate": (0, 5)}, ValueError, "the claims of rate=0: must be 1 or more"),
    ({"rate": (HUGE[0], 5)}, ValueError, "the claims of rate"),
]

SCHEDULE: list[Bad] = [
    ({"cron": "61 * * * *"}, ValueError, "61"),
    ({"cron": "0 0 30 2 *"}, ValueError, "day-of-month"),
    ({"cron": "* * * *"}, ValueError, "five fields"),
    ({"cron": 5}, TypeError, "cron"),
    ({"cron": f"{'*,' * 124}* * * * *"}, ValueError, "cron has 257 characters; at most 255"),
    ({"cron": "* * * * *", "tz": "Europe/" * 40}, ValueError, "tz has 280 characters; at most 255"),
    ({}, ValueError, "every"),
    ({"cron": "* * * * *", "every": 5}, ValueError, "every"),
    *(({"every": seconds}, ValueError, "every") for seconds in (0, *HUGE)),
    ({"every": 0.01}, ValueError, "0.1"),
    ({"every": "5"}, TypeError, "every"),
    ({"cron": "* * * * *", "tz": "Europe/Berln"}, ValueError, "'Europe/Berlin'"),
    ({"cron": "* * * * *", "tz": None}, TypeError, "tz"),
    ({"every": 60, "tz": "Moon/Base"}, ValueError, "'Moon/Base' is not the name of a time zone"),
    ({"every": 60, "missed": "some"}, ValueError, "missed"),
    ({"every": 60, "missed": ["one"]}, ValueError, "missed=\\['one'\\]"),
    ({"every": 60, "details": {"a": object()}}, TypeError, "details"),
    ({"every": 60, "name": None}, TypeError, "name"),
    ({"every": 60, "name": "a\n"}, ValueError, "name"),
    ({"every": 60, "id": ""}, ValueError, "id"),
    ({"every": 60, "priority": 101}, ValueError, "101"),
    ({"every": 60, "max_attempts": 0}, ValueError, "max_attempts"),
    ({"every": 60, "expires": -1}, ValueError, "expires"),
    ({"every": 60, "expires": 0}, ValueError, "expires=0: must be more than 0"),
    ({"every": 60, "expires": LAST}, TypeError, "counts from each due time"),
    ({"every": 60, "context": {"a": 1}}, TypeError, "context"),
]

STATES: list[Bad] = [(states, ValueError, "trash|not a valid") for states in ([COMPLETE], [TRASHED], ["none"], [None])]

TABLE: dict[str, tuple[list[Call], list[Bad]]] = {
    "who": (WITH_WHO, WHO),
    "expiry": (WITH_EXPIRY, EXPIRY),
    "names": (WITH_NAMES, NAMES),
    "timeout": (WITH_TIMEOUT, TIMEOUT),
    "limit of claims": ([lambda desk, limit: desk.board.claim_many("anna", limit)], COUNT),
    "delay": (WITH_DELAY, DELAY),
    "reason": (WITH_REASON, REASON),
    "extra": (WITH_EXTRA, EXTRA),
    "unknown": ([lambda desk, more: desk.board.claim_next("anna", **more)], [({"flavour": 1}, TypeError, "flavour")]),
    "verb of an act": ([lambda desk, verb: desk.board.finish_many([Act(desk.held, verb)], "anna")], VERB),
    "job for an act": (
        [lambda desk, _: desk.board.finish_many([desk.held], "anna")],  # type: ignore[list-item]
        [(None, TypeError, r"Act\(job, 'consume'\), and not a Job")],
    ),
    "uuid for a job": (WITH_JOB, JOB),
    "posting": (WITH_POSTING, POSTING),
    "posting of a batch": (
        [lambda desk, bad: desk.board.post_many([Posting("fine"), {"name": "fine"}, bad, Posting("")])],
        [(bad, kind, rf"^posting 2, counted from 0: .*{why}") for bad, kind, why in IN_BATCH],
    ),
    "entity": ([lambda desk, entity: desk.board.register_entity(entity)], ENTITY),
    "limit": ([lambda desk, limit: desk.board.set_limit("mail", **limit)], LIMIT),
    "schedule": ([lambda desk, bad: desk.board.schedule(**{"id": "nightly", "name": "report", **bad})], SCHEDULE),
    "states": ([lambda desk, states: desk.board.iterjobs(states=states)], STATES),
    "result": (
        [lambda desk, result: desk.board.consume(desk.held, "anna", result=result)],
        [(1, ValueError, "keep_done")],
    ),
    "result of a trash": (
        [lambda desk, result: desk.board.finish_many([Act(desk.held, "trash", result=result)], "anna")],
        [(1, ValueError, "goes with consume")],
    ),
}


@pytest.mark.rule("Verbs that take acts refuse jobs, and say so.")
@pytest.mark.rule(
    "Details in place of the book, and an option in place of an argument, get an error that names the right call."
)
@pytest.mark.rule("A cron expression has at most 255 characters.")
@pytest.mark.rule("A number without measure is refused by its name, value and bound.")
@pytest.mark.parametrize("what", TABLE)
def test_bad_arguments_are_rejected(board: JobBoard, what: str) -> None:
    desk = Desk(board, board.post("free"), board.post("held"))
    board.claim(desk.held, "anna")
    before = record_of(board, desk.held)
    for call, (bad, kind, match) in itertools.product(*TABLE[what]):
        with pytest.raises(kind, match=match) as error:
            call(desk, bad)
        assert len(str(error.value)) < 300
    assert record_of(board, desk.held) == before
    assert (desk.free.state, desk.held.state, board.job_count) == (UNCLAIMED, CLAIMED, 2)
    assert [*board.trashed(), *board.schedules(), *board.limits(), *board.entities()] == []


def test_argument_of_another_backend_is_rejected(board: JobBoard) -> None:
    if not board.characteristics.transactional:
        with pytest.raises(TypeError, match=f"post.. of a {board.scheme} board has no argument 'connection'"):
            board.post("resize", connection=object())  # type: ignore[arg-type]
    assert board.job_count == 0


@pytest.mark.parametrize("age", [-1, NAN, *HUGE, "1", True])
def test_bad_age_is_rejected(board: JobBoard, age: Any) -> None:
    trash_one(board)
    with pytest.raises((TypeError, ValueError), match="older_than"):
        board.purge_trash(age)
    assert board.stats().trashed == 1


@pytest.mark.rule("A result that cannot be stored is refused before the server is asked.")
def test_result_that_cannot_be_stored_is_rejected(keeper: JobBoard) -> None:
    job = keeper.post("resize")
    keeper.claim(job, "anna")
    bad: list[Bad] = [
        ({"a": [{1, 2}]}, TypeError, r"result\['a'\]\[0\]"),
        (2**64, ValueError, "64 bits"),
        ("x" * 70_000, ValueError, "max_details"),
        ("\ud800", ValueError, "surrogate"),
        (object(), TypeError, "result: object"),
    ]
    for result, kind, path in bad:
        with pytest.raises(kind, match=path):
            keeper.consume(job, "anna", result=result)
        with pytest.raises(kind, match=path):
            keeper.finish_many([Act(job, "consume", result=result)], "anna")
    assert keeper.find_owner(job) == "anna"


def test_metadata_of_an_entity_are_bounded(make_board: MakeBoard) -> None:
    """Whatever the details of jobs may have."""
    board = make_board(max_details=2)
    full = Entity("conductor", "one", {"a": "漢" * 21842 + "aa"})
    board.register_entity(full)
    with pytest.raises(ValueError, match="65537 bytes as JSON, and their limit is 65536"):
        board.register_entity(Entity("conductor", "two", {"a": "漢" * 21843}))
    assert board.entities() == [full]


def test_empty_batch_posts_nothing(board: JobBoard) -> None:
    assert board.post_many([]) == []
    assert board.job_count == 0


@pytest.mark.parametrize("name", ["", 1, None, "a\nb", "x" * 256, b"board"])
def test_bad_board_name_is_rejected(board_conf: dict[str, Any], name: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="name"):
        jobboard.fetch(name, board_conf)


def test_board_cannot_be_pickled(board: JobBoard) -> None:
    with pytest.raises(TypeError, match="fetch"):
        pickle.dumps(board)

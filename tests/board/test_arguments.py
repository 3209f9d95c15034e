"""Arguments of verbs: a bad one raises an error that names it, and nothing is changed."""

from __future__ import annotations

import datetime
import itertools
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard.board import JobBoard
from jobboard.job import Act, Entity, Posting
from jobboard.states import CLAIMED, COMPLETE, TRASHED, UNCLAIMED
from jobboard.testing.conformance.entities import Guest
from jobboard.testing.conformance.posts import Book
from jobboard.testing.conformance.support import (
    MakeBoard,
    record_of,
    take,
    trash_one,
)

# No backend can differ in these.
pytestmark = pytest.mark.backends("memory", "sqlite")


BAD_WHO: list[tuple[Any, type[Exception]]] = [
    (1, TypeError),
    (None, TypeError),
    (b"anna", TypeError),
    ("", ValueError),
    ("an\nna", ValueError),
    ("\ud800", ValueError),
    ("x" * 256, ValueError),
]

BAD_EXPIRY: list[tuple[Any, type[Exception]]] = [
    (0, ValueError),
    (-1, ValueError),
    (float("nan"), ValueError),
    (float("inf"), ValueError),
    ("1", TypeError),
    (True, TypeError),
]

BAD_POSTINGS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"name": 1}, TypeError, "name must be a str, not int"),
    ({"name": ""}, ValueError, "name must not be empty"),
    ({"name": "a\nb"}, ValueError, "control"),
    ({"key": 1}, TypeError, "key"),
    ({"key": ""}, ValueError, "key"),
    ({"priority": "URGENT"}, ValueError, "VERY_HIGH"),
    ({"priority": 101}, ValueError, "101 is not a priority: give an integer from -100 to 100"),
    ({"priority": -101}, ValueError, "-101 is not a priority"),
    ({"priority": "50"}, ValueError, "'50' is not a priority"),
    ({"priority": True}, TypeError, "True is not a priority"),
    ({"priority": 50.0}, TypeError, "50.0 is not a priority"),
    ({"group": 1}, TypeError, "group must be a str"),
    ({"group": ""}, ValueError, "group must not be empty"),
    ({"delay": -1}, ValueError, "delay"),
    ({"delay": float("nan")}, ValueError, "delay"),
    ({"delay": float("inf")}, ValueError, "delay"),
    ({"delay": 1e300}, ValueError, "delay"),
    ({"delay": "1"}, TypeError, "delay"),
    ({"delay": True}, TypeError, "delay"),
    ({"delay": datetime.timedelta(seconds=-1)}, ValueError, "delay"),
    ({"due": datetime.datetime(2030, 1, 1)}, ValueError, "aware"),  # noqa: DTZ001
    ({"due": "2030-01-01"}, TypeError, "due"),
    ({"due": datetime.datetime.max.replace(tzinfo=datetime.UTC), "delay": 1}, ValueError, "both"),
    ({"due": datetime.datetime.max.replace(tzinfo=datetime.UTC)}, ValueError, "before 2255"),
    ({"delay": 3_155_760_001}, ValueError, "at most 3155760000"),
    ({"max_attempts": 0}, ValueError, "max_attempts"),
    ({"max_attempts": -1}, ValueError, "max_attempts"),
    ({"max_attempts": 2**31}, ValueError, "max_attempts"),
    ({"max_attempts": True}, TypeError, "max_attempts"),
    ({"max_attempts": 1.0}, TypeError, "max_attempts"),
    ({"details": ["a"]}, TypeError, "details must be a dict"),
    ({"details": {"a": {"b": [0, {1, 2}]}}}, TypeError, r"details\['a'\]\['b'\]\[1\].*set"),
    ({"details": {"a": 2**63}}, ValueError, r"details\['a'\].*64 bits"),
    ({"details": {"a": "\udfff"}}, ValueError, r"details\['a'\].*surrogate"),
    ({"details": {"a": "x" * 64 * 1024}}, ValueError, "max_details"),
    ({"book": object()}, TypeError, "book"),
    ({"book": Book(uuid=7)}, TypeError, "book"),
    ({"context": {"a": 1}}, TypeError, "context"),
    ({"flavour": 1}, TypeError, "flavour"),
]


class TestClaimArguments:
    def test_bad_who_is_rejected(self, board: JobBoard) -> None:
        free, job = board.post("free"), board.post("resize")
        board.claim(job, "anna")
        before = record_of(board, job)
        acts: list[Callable[[Any], object]] = [
            lambda who: board.claim(free, who),
            board.claim_next,
            lambda who: board.claim_many(who, 1),
            lambda who: board.extend(job, who),
            lambda who: board.abandon(job, who),
            lambda who: board.consume(job, who),
            lambda who: board.trash(job, who),
            lambda who: board.consume_many([job], who),
            lambda who: board.finish_many([Act(job, "consume")], who),
            lambda who: board.working(who, timeout=0).__enter__(),
        ]
        for act, (who, kind) in itertools.product(acts, BAD_WHO):
            with pytest.raises(kind):
                act(who)
        assert record_of(board, job) == before
        assert free.state == UNCLAIMED

    def test_bad_expiry_is_rejected(self, board: JobBoard) -> None:
        free, job = board.post("free"), board.post("resize")
        claim = board.claim(job, "anna")
        before = record_of(board, job)
        acts: list[Callable[[Any], object]] = [
            lambda expiry: board.claim(free, "anna", expiry),
            lambda expiry: board.claim_next("anna", expiry=expiry),
            lambda expiry: board.claim_many("anna", 1, expiry=expiry),
            lambda expiry: board.extend(job, "anna", expiry),
            claim.extend,
        ]
        for act, (expiry, kind) in itertools.product(acts, BAD_EXPIRY):
            with pytest.raises(kind, match="expiry"):
                act(expiry)
        assert record_of(board, job) == before
        assert free.state == UNCLAIMED

    def test_bad_names_and_timeouts_are_rejected(self, board: JobBoard) -> None:
        job = board.post("resize")
        bad: list[tuple[dict[str, Any], type[Exception], str]] = [
            ({"names": "resize"}, TypeError, r"\['resize'\]"),
            ({"names": b"resize"}, TypeError, "bytes"),
            ({"names": [1]}, TypeError, "int"),
            ({"names": []}, ValueError, "empty"),
            ({"names": [""]}, ValueError, "empty"),
            ({"names": 5}, TypeError, "iterable"),
            ({"timeout": -1}, ValueError, "timeout"),
            ({"timeout": float("nan")}, ValueError, "timeout"),
            ({"timeout": "1"}, ValueError, "timeout"),
            ({"flavour": 1}, TypeError, "flavour"),
        ]
        for arguments, kind, match in bad:
            with pytest.raises(kind, match=match):
                board.claim_next("anna", **arguments)
            with pytest.raises(kind, match=match):
                board.claim_many("anna", 1, **arguments)
            if "names" in arguments:
                with pytest.raises(kind, match=match):
                    board.iterjobs(**arguments)
        assert job.state == UNCLAIMED

    def test_bad_limit_is_rejected(self, board: JobBoard) -> None:
        bad: list[tuple[Any, type[Exception]]] = [
            (0, ValueError),
            (-1, ValueError),
            (1.0, TypeError),
            (True, TypeError),
        ]
        for limit, kind in bad:
            with pytest.raises(kind, match="limit"):
                board.claim_many("anna", limit)

    def test_argument_of_another_backend_is_rejected(self, board: JobBoard) -> None:
        job, free = board.post("resize"), board.post("resize")
        board.claim(job, "anna")
        acts: list[Callable[..., object]] = [
            lambda **given: board.post("resize", **given),
            lambda **given: board.post_many([Posting("resize")], **given),
            lambda **given: board.claim_next("anna", **given),
            lambda **given: board.claim_many("anna", 1, **given),
            lambda **given: board.working("anna", **given).__enter__(),
            lambda **given: board.consume(job, "anna", **given),
            lambda **given: board.consume_many([job], "anna", **given),
            lambda **given: board.abandon(job, "anna", **given),
            lambda **given: board.trash(job, "anna", **given),
        ]
        for act in acts:
            with pytest.raises(TypeError, match=rf"\(\) of a {board.scheme} board has no argument 'flavour'"):
                act(extra={"flavour": 1})
            with pytest.raises(TypeError, match="extra must be a mapping"):
                act(extra="flavour")
        if not board.characteristics.transactional:
            with pytest.raises(TypeError, match=f"post.. of a {board.scheme} board has no argument 'connection'"):
                board.post("resize", connection=object())  # type: ignore[arg-type]
        assert (job.state, free.state, board.job_count) == (CLAIMED, UNCLAIMED, 2)

    @pytest.mark.parametrize("delay", [-1, float("nan"), "1", True])
    def test_bad_delay_is_rejected(self, board: JobBoard, delay: Any) -> None:
        job = board.post("resize")
        claim = board.claim(job, "anna")
        acts: list[Callable[[], object]] = [
            lambda: board.abandon(job, "anna", delay=delay),
            lambda: claim.abandon(delay=delay),
            lambda: board.finish_many([Act(job, "abandon", delay=delay)], "anna"),
        ]
        for act in acts:
            with pytest.raises((TypeError, ValueError), match="delay"):
                act()
        assert job.state == CLAIMED

    def test_error_that_is_no_str_is_rejected(self, board: JobBoard) -> None:
        job = board.post("resize")
        board.claim(job, "anna")
        with pytest.raises(TypeError, match="str"):
            board.abandon(job, "anna", error=ValueError("x"))  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="str"):
            board.trash(job, "anna", reason=b"x")  # type: ignore[arg-type]
        assert job.state == CLAIMED


class TestActArguments:
    @pytest.mark.parametrize("verb", ["claim", "release", "extend", "nonsense"])
    def test_act_with_a_verb_that_ends_no_claim_is_rejected(self, board: JobBoard, verb: str) -> None:
        job = board.post("resize")
        board.claim(job, "anna")
        with pytest.raises(ValueError, match=verb):
            board.finish_many([Act(job, verb)], "anna")
        assert job.state == CLAIMED

    def test_job_in_place_of_an_act_is_rejected(self, board: JobBoard) -> None:
        board.post("resize")
        job = take(board)
        with pytest.raises(TypeError, match=r"Act\(job, 'consume'\), and not a Job"):
            board.finish_many([job], "anna")  # type: ignore[list-item]
        assert board.find_owner(job) == "anna"


class TestBoardArguments:
    @pytest.mark.parametrize("name", ["", 1, None, "a\nb", "x" * 256, b"board"])
    def test_bad_board_name_is_rejected(self, board_conf: dict[str, Any], name: Any) -> None:
        with pytest.raises((TypeError, ValueError), match="name"):
            jobboard.fetch(name, board_conf)

    @pytest.mark.parametrize(
        ("options", "match"),
        [
            ({"claim_tll": 3}, "claim_tll.*did you mean 'claim_ttl'"),
            ({"claim_ttl": "soon"}, "claim_ttl"),
            ({"claim_ttl": 0}, "claim_ttl"),
            ({"retry_for": -1}, "retry_for"),
            ({"max_details": 0}, "max_details"),
            ({"auto_setup": "perhaps"}, "auto_setup"),
        ],
    )
    def test_bad_option_is_rejected(self, board_conf: dict[str, Any], options: dict[str, Any], match: str) -> None:
        with pytest.raises(ValueError, match=match):
            jobboard.fetch("board", {**board_conf, **options})

    def test_board_cannot_be_pickled(self, board: JobBoard) -> None:
        with pytest.raises(TypeError, match="fetch"):
            pickle.dumps(board)


class TestPostArguments:
    def test_bad_posting_is_rejected(self, board: JobBoard) -> None:
        for bad, kind, match in BAD_POSTINGS:
            arguments = {"name": "resize", **bad}
            with pytest.raises(kind, match=match):
                board.post(**arguments)
            with pytest.raises(kind, match=match):
                board.post_many([{"name": "fine"}, arguments])
            assert board.job_count == 0, bad
        assert list(board.trashed()) == []

    def test_tuples_become_lists(self, board: JobBoard) -> None:
        job = board.post("resize", details={"a": (1, (2,))})
        assert job.details == board.get(job.uuid).details == {"a": [1, [2]]}

    def test_details_are_copied_by_a_post(self, board: JobBoard) -> None:
        details = {"a": [1]}
        job = board.post("resize", details=details)
        details["a"].append(2)
        assert job.details == {"a": [1]}


class TestPostManyArguments:
    def test_error_of_a_batch_has_the_number_of_the_bad_posting(self, board: JobBoard) -> None:
        cases: list[tuple[Any, type[Exception], str]] = [
            ("resize", TypeError, "must be a Posting or a mapping"),
            (None, TypeError, "must be a Posting or a mapping"),
            ({}, TypeError, "must have a name"),
            ({"nome": "resize"}, TypeError, "no argument 'nome'; did you mean 'name'?"),
            ({"name": "resize", "priorty": 7}, TypeError, "no argument 'priorty'; did you mean 'priority'?"),
            ({"name": "resize", "zzz": 7}, TypeError, "no argument 'zzz'; it has name, book, details,"),
            ({"name": "resize", 7: 7}, TypeError, "no argument 7; it has"),
            ({"name": ""}, ValueError, "a job's name must not be empty"),
            (Posting("resize", priority="URGENT"), ValueError, "URGENT"),
            (Posting("resize", details={"at": object()}), TypeError, "object"),
        ]
        for bad, kind, why in cases:
            with pytest.raises(kind) as failure:
                board.post_many([Posting("fine"), {"name": "fine"}, bad, Posting("")])
            assert str(failure.value).startswith("posting 2, counted from 0: ")
            assert why in str(failure.value)
        assert board.job_count == 0

    def test_empty_batch_posts_nothing(self, board: JobBoard) -> None:
        assert board.post_many([]) == []
        assert board.job_count == 0


class TestEntityArguments:
    @pytest.mark.parametrize(
        "entity",
        [
            Entity("", "one"),
            Entity("conductor", ""),
            Guest(1),
            Guest("one", [1]),
            Guest("one", {"a": object()}),
        ],
    )
    def test_bad_entity_is_rejected(self, board: JobBoard, entity: Any) -> None:
        with pytest.raises((TypeError, ValueError)):
            board.register_entity(entity)
        assert board.entities() == []

    def test_metadata_of_an_entity_are_bounded(self, make_board: MakeBoard) -> None:
        """Whatever the details of jobs may have."""
        board = make_board(max_details=2)
        full = Entity("conductor", "one", {"a": "漢" * 21842 + "aa"})
        board.register_entity(full)
        with pytest.raises(ValueError, match="65537 bytes as JSON, and their limit is 65536"):
            board.register_entity(Entity("conductor", "two", {"a": "漢" * 21843}))
        assert board.entities() == [full]


class TestLimitArguments:
    @pytest.mark.parametrize(
        ("arguments", "error", "told"),
        [
            ({}, ValueError, "give concurrency= or rate="),
            ({"concurrency": 0}, ValueError, "concurrency=0: must be 1 or more"),
            ({"concurrency": 10_001}, ValueError, "concurrency=10001: must be 10000 at most"),
            ({"concurrency": "4"}, TypeError, "concurrency must be an int, not str"),
            ({"concurrency": 1, "per": "customer"}, ValueError, "per='customer': must be 'name' or 'group'"),
            ({"rate": 5}, TypeError, r"rate=5: must be how many claims"),
            ({"rate": (5, 0)}, ValueError, "the seconds of rate=0"),
            ({"rate": (0, 5)}, ValueError, "the claims of rate=0: must be 1 or more"),
        ],
    )
    def test_bad_limit_of_claims_is_rejected(
        self, board: JobBoard, arguments: dict[str, object], error: type[Exception], told: str
    ) -> None:
        with pytest.raises(error, match=told):
            board.set_limit("mail", **arguments)  # type: ignore[arg-type]
        assert board.limits() == []


class TestScheduleArguments:
    @pytest.mark.parametrize(
        ("bad", "named"),
        [
            ({"cron": "61 * * * *"}, "61"),
            ({"cron": "0 0 30 2 *"}, "day-of-month"),
            ({"cron": "* * * *"}, "five fields"),
            ({"cron": 5}, "cron"),
            ({"cron": f"{'*,' * 124}* * * * *"}, "cron has 257 characters; at most 255"),
            ({"cron": "* * * * *", "tz": "Europe/" * 40}, "tz has 280 characters; at most 255"),
            ({}, "every"),
            ({"cron": "* * * * *", "every": 5}, "every"),
            ({"every": 0}, "every"),
            ({"every": 0.01}, "0.1"),
            ({"every": "5"}, "every"),
            ({"cron": "* * * * *", "tz": "Europe/Berln"}, "'Europe/Berlin'"),
            ({"cron": "* * * * *", "tz": None}, "tz"),
            ({"every": 60, "tz": "Moon/Base"}, "'Moon/Base' is not the name of a time zone"),
            ({"every": 60, "missed": "some"}, "missed"),
            ({"every": 60, "missed": ["one"]}, "missed=\\['one'\\]"),
            ({"every": 60, "details": {"a": object()}}, "details"),
            ({"every": 60, "name": None}, "name"),
            ({"every": 60, "name": "a\n"}, "name"),
            ({"every": 60, "id": ""}, "id"),
            ({"every": 60, "priority": 101}, "101"),
            ({"every": 60, "max_attempts": 0}, "max_attempts"),
            ({"every": 60, "context": {"a": 1}}, "context"),
        ],
    )
    def test_bad_schedule_is_rejected(self, board: JobBoard, bad: dict[str, Any], named: str) -> None:
        with pytest.raises((TypeError, ValueError), match=named):
            board.schedule(**{"id": "nightly", "name": "report", **bad})
        assert board.schedules() == []


class TestKeyArguments:
    @pytest.mark.parametrize(
        ("wrong", "error", "told"),
        [
            ({"key_for": 10}, ValueError, "key_for=10 needs a key"),
            ({"on_key": "replace"}, ValueError, "on_key='replace' needs a key"),
            ({"key": "k", "on_key": "keeps"}, ValueError, "on_key='keeps': must be 'keep' or 'replace'"),
            ({"key": "k", "key_for": 0}, ValueError, "key_for=0: must be more than 0"),
            ({"key": "k", "key_for": "1h"}, TypeError, "key_for must be a number of seconds"),
        ],
    )
    def test_bad_key_options_are_rejected(
        self, board: JobBoard, wrong: dict[str, object], error: type[Exception], told: str
    ) -> None:
        with pytest.raises(error, match=told):
            board.post("resize", **wrong)  # type: ignore[arg-type]
        assert board.job_count == 0


class TestReadArguments:
    @pytest.mark.parametrize("states", [[COMPLETE], [TRASHED], ["nonsense"], [None]])
    def test_state_that_no_job_on_the_board_has_is_rejected(self, board: JobBoard, states: Any) -> None:
        with pytest.raises(ValueError, match=r"trash|not a valid"):
            board.iterjobs(states=states)

    def test_details_are_never_shown(self, board: JobBoard) -> None:
        job = board.post("resize", details={"password": "geheim"})
        for text in (str(job), repr(job), f"{board.get(job.uuid)}", repr(board.claim(job, "anna"))):
            assert "geheim" not in text
        assert "resize" in str(job)
        assert job.uuid in str(job)


class TestTimeouts:
    @pytest.mark.parametrize("timeout", [-1, float("nan"), "1"])
    def test_bad_timeout_is_rejected(self, board: JobBoard, timeout: Any) -> None:
        with pytest.raises(ValueError, match="timeout"):
            board.wait(timeout)


class TestPurgeArguments:
    @pytest.mark.parametrize("age", [-1, float("nan"), "1", True])
    def test_bad_age_is_rejected(self, board: JobBoard, age: Any) -> None:
        trash_one(board)
        with pytest.raises((TypeError, ValueError), match="older_than"):
            board.purge_trash(age)
        assert board.stats().trashed == 1


class TestResultArguments:
    def test_result_that_cannot_be_stored_is_rejected(self, keeper: JobBoard) -> None:
        job = keeper.post("resize")
        keeper.claim(job, "anna")
        bad: list[tuple[Any, type[Exception], str]] = [
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

    def test_result_is_rejected_where_none_is_kept(self, board: JobBoard) -> None:
        job = board.post("resize")
        board.claim(job, "anna")
        with pytest.raises(ValueError, match="keep_done"):
            board.consume(job, "anna", result=1)
        with pytest.raises(ValueError, match="goes with consume"):
            board.finish_many([Act(job, "trash", result=1)], "anna")
        assert board.find_owner(job) == "anna"

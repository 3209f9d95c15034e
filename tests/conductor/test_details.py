"""Details that are checked and converted by the annotations of their handler."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import subprocess
import sys
import uuid
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.cli.work import _with_options
from jobboard.conductor import Conductor
from jobboard.conductor.details import InvalidDetails
from tests.support import orders
from tests.support.conductors import LATE, MakeBoard
from tests.test_packaging import ABSENT

pytestmark = pytest.mark.backends("memory")

ID = uuid.UUID("0d8a3c3e-0000-4000-8000-000000000001")


def conductor_of(board: Any, **options: Any) -> Conductor:
    return Conductor("one", board, retry=LATE, **options)


def register(board: Any, handler: Callable[..., Any], **options: Any) -> tuple[Conductor, Any]:
    conductor = conductor_of(board)
    return conductor, conductor.handles("order", **options)(handler).post


# Both ways


@pytest.mark.rule("Details of a typed handler are checked and converted both ways.")
@pytest.mark.backends("memory", "sqlite")
def test_details_are_converted_both_ways(make_board: MakeBoard) -> None:
    board = make_board(keep_done=60)
    conductor, post = register(board, orders.every_kind)
    job = post(**orders.KINDS, untyped=[1], anything={"a": 1})
    stored = board.get(job.uuid).details
    assert json.loads(json.dumps(stored)) == stored
    assert (stored["price"], stored["colour"], stored["size"]) == ("1.50", "red", {"width": 3, "height": 1})
    # Defaults are the worker's.
    assert "width" not in stored
    conductor.run(1)
    expected = {**orders.KINDS, "width": 3, "untyped": [1], "anything": {"a": 1}}
    assert job.result(0) == orders.every_kind(**expected)


@pytest.mark.rule(
    "A dataclass, TypedDict or model receives all details, and is posted as an instance or by its fields."
)
@pytest.mark.parametrize(
    ("handler", "instance", "fields"),
    [
        (orders.whole, orders.Order(ID, [orders.Size(3)]), {"id": ID, "sizes": [{"width": 3}]}),
        (orders.job_and_whole, orders.Model(id=ID, deep=2), {"id": ID, "deep": 2}),
        (orders.keyed, {"id": ID}, {"id": ID}),
        (orders.counted, orders.Counted(), {}),
        (orders.opened, orders.Open(a=1), {"a": 1}),  # type: ignore[call-arg]
    ],
)
def test_one_parameter_receives_all_details(
    make_board: MakeBoard, handler: Callable[..., Any], instance: Any, fields: dict[str, Any]
) -> None:
    board = make_board(keep_done=60)
    # What an instance has beside the arguments of its class is not unknown.
    conductor, post = register(board, handler, unknown="trash")
    jobs = [
        post(instance),
        post(order=instance),
        post(**fields),
        board.post("order", details=post.posting(instance).details),
    ]
    conductor.run(len(jobs))
    by_hand = handler(jobs[0], instance) if handler is orders.job_and_whole else handler(instance)
    assert [job.result(0) for job in jobs] == [by_hand] * len(jobs)


@pytest.mark.parametrize("workers", ["threads", "processes", "coroutines"])
def test_workers_of_each_kind_convert(make_board: MakeBoard, workers: Any) -> None:
    """What does not fit is found where the handler runs, and fails likewise."""
    board = make_board(keep_done=60)
    good = board.post("order", details={"id": str(ID)})
    bad, gone = board.post("order", details={"id": str(ID), "sizes": [{"width": "7"}]}), board.post("strict")
    if workers == "coroutines":

        async def main() -> None:
            conductor = AsyncConductor("one", AsyncJobBoard(board), retry=LATE)
            conductor.handles("order")(orders.whole_on_a_loop)
            conductor.handles("strict", invalid="trash", unknown="trash")(orders.whole)
            await conductor.run(3)

        asyncio.run(main())
    else:
        conductor = conductor_of(board, workers=workers, max_simultaneous_jobs=1)
        conductor.handles("order")(orders.whole)
        conductor.handles("strict", invalid="trash")(orders.whole)
        conductor.run(3)
    assert good.result(0) == repr(orders.Order(ID))
    assert (bad.state, gone.state) == ("SCHEDULED", "TRASHED")
    assert board.get(bad.uuid).error.rstrip().endswith("details.sizes[0].width: Input should be a valid integer")
    assert board.get(gone.uuid).error == "details.id: Field required"


# Posts


@pytest.mark.rule("A handler's post() refuses details that its worker would refuse.")
@pytest.mark.parametrize(
    ("handler", "args", "details", "told"),
    [
        (orders.every_kind, (), {**orders.KINDS, "width": "7"}, "details.width: Input should be a valid integer"),
        (orders.every_kind, (), {**orders.KINDS, "width": True}, "details.width: Input should be a valid integer"),
        (orders.every_kind, (), {**orders.KINDS, "size": {"height": 1}}, "details.size.width: Field required"),
        (orders.every_kind, (), {**orders.KINDS, "id": orders.NoJSON()}, "'id': NoJSON has no form in JSON"),
        (orders.every_kind, (), {**orders.KINDS, "untyped": ID}, "UUID is not one of"),
        (orders.whole, (), {"id": ID, "size": 3}, "'order' has no field 'size'"),
        (orders.whole, (), {"id": "5ec2e7"}, r"details.id: the value does not fit \(uuid_parsing\)"),
        (orders.whole, (orders.Order(ID),), {"id": ID}, "give 'order', or its fields"),
        (orders.whole, (orders.Rush(ID, by=ID),), {}, "'order' has no field 'by'"),
        (orders.whole, (3,), {}, "'order' must be a Order, not int"),
        (orders.whole, (orders.Order(ID, [3]),), {}, r"details.sizes\[0\]: Input should be an object"),  # type: ignore[list-item]
        (orders.job_and_whole, (), {"id": orders.SECRET}, r"details.id: the value does not fit \(value_error\)"),
        (orders.checked, (), {"path": "5ec2e7"}, r"details.path: the value does not fit \(not_known\)"),
        (orders.job_and_whole, (), {"id": ID, "deep": -1}, "details.deep: Input should be greater than or equal to 0"),
    ],
)
def test_posts_of_what_does_not_fit_write_nothing(
    make_board: MakeBoard, handler: Callable[..., Any], args: tuple[Any, ...], details: dict[str, Any], told: str
) -> None:
    board = make_board()
    _, post = register(board, handler)
    with pytest.raises(TypeError, match=told) as refused:
        post(*args, **details)
    assert board.job_count == 0
    assert "5ec2e7" not in str(refused.value)


def test_secrets_of_pydantic_are_not_posted_as_stars(make_board: MakeBoard) -> None:
    _, post = register(make_board(), login)
    with pytest.raises(InvalidDetails, match="hides a secret by stars"):
        post(orders.Login(password="5ec2e7"))  # type: ignore[arg-type]


def login(order: orders.Login) -> None: ...


# Jobs that do not fit


@pytest.mark.rule(
    "A job whose details do not fit is tried again or trashed, with the path of each bad field, and no value."
)
@pytest.mark.parametrize("invalid", ["retry", "trash"])
def test_misfits_are_tried_again_or_trashed(
    make_board: MakeBoard, caplog: pytest.LogCaptureFixture, invalid: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    board = make_board()
    conductor, _ = register(board, orders.job_and_whole, invalid=invalid)
    bad = {"id": str(orders.SECRET), "size": {"width": "5ec2e7"}, "deep": "5ec2e7"}
    job = board.post("order", details=bad)
    conductor.run(1)
    error = board.get(job.uuid).error
    assert (job.state, job.attempts) == ("SCHEDULED" if invalid == "retry" else "TRASHED", 1)
    assert error.rstrip().splitlines()[-1].removeprefix("jobboard.conductor.details.InvalidDetails: ") == (
        "details.id: the value does not fit (value_error); details.size.width: Input should be a valid integer; "
        "details.deep: Input should be a valid integer"
    )
    assert "5ec2e7" not in error + caplog.text


def test_handler_without_types_trashes_what_lacks_a_detail(make_board: MakeBoard) -> None:
    board = make_board()
    conductor, _ = register(board, lambda *, path, width=1: None, invalid="trash")
    job = board.post("order", details={"width": 3})
    conductor.run(1)
    assert (job.state, board.get(job.uuid).error) == ("TRASHED", "details.path: Field required")


@pytest.mark.rule("Details that a handler does not take are ignored, or the job goes back at no cost or to the trash.")
@pytest.mark.parametrize(
    ("unknown", "state", "attempts"), [("ignore", "COMPLETE", 1), ("retry", "SCHEDULED", 0), ("trash", "TRASHED", 1)]
)
@pytest.mark.parametrize("handler", [orders.whole, lambda *, id: None])  # noqa: A006
def test_unknown_details(
    make_board: MakeBoard, handler: Callable[..., Any], unknown: Any, state: str, attempts: int
) -> None:
    """Also where another detail does not fit, which may be of the same newer poster."""
    board = make_board(keep_done=60)
    conductor, _ = register(board, handler, unknown=unknown, invalid="trash")
    known, other = board.post("order", details={"id": str(ID)}), board.post("order", details={"id": str(ID), "more": 1})
    conductor.run(2)
    assert (known.state, other.state) == ("COMPLETE", state)
    assert (board.get(other.uuid).attempts, other.retries) == (attempts, int(unknown == "retry"))
    if state != "COMPLETE":
        assert board.get(other.uuid).error == "details.more: the handler takes no such detail"
        worse = board.post("order", details={"id": 3, "more": 1})
        again, _ = register(board, handler, unknown=unknown, invalid="trash")
        again.run(1)
        assert worse.state == state


def test_nothing_is_unknown_to_a_handler_that_takes_any_detail(make_board: MakeBoard) -> None:
    board = make_board(keep_done=60)
    conductor = conductor_of(board)
    handlers: dict[str, Callable[..., Any]] = {
        "job": lambda job: None,
        "any": lambda **details: None,
        "open": orders.opened,
        "some": lambda job, *, path=None, **details: None,
    }
    for name, handler in handlers.items():
        conductor.handles(name, unknown="trash")(handler)
    jobs = [board.post(name, details={"more": 1}) for name in handlers]
    conductor.run(len(jobs))
    assert [job.state for job in jobs] == ["COMPLETE"] * len(jobs)


def test_options_stay_with_a_handler_of_another_conductor(make_board: MakeBoard) -> None:
    """As of ``jobboard work``, given a handler that its module has registered."""
    board = make_board()
    register(board, orders.whole, unknown="trash")
    job = board.post("order", details={"id": str(ID), "more": 1})
    other = Conductor("other", board, _with_options(orders.whole))
    other.run(1)
    assert job.state == "TRASHED"


# Registrations


def two(job: jobboard.Job, order: orders.Order, more: int) -> None: ...


def beside(order: orders.Order, *, path: str) -> None: ...


def bound(order: orders.Order, *, client: orders.NoJSON) -> str:
    return repr((order, client is not None))


def no_conversion(*, client: orders.NoJSON) -> None: ...


@pytest.mark.rule("An annotation that can't be resolved or converted is refused when the handler is registered.")
@pytest.mark.parametrize(
    ("handler", "told"),
    [
        (orders.unresolved_detail, r"the annotation of 'path', 'Path', can't be resolved: import its names outside"),
        (no_conversion, "the annotation of 'client', NoJSON, has no conversion: leave it out"),
        (orders.incomplete, "the annotation of 'order', Incomplete, has no conversion: .*'Path' is not defined"),
        (two, r"put a \* before 'more'"),
        (beside, "'order' gets all details of beside: give 'path' a default"),
    ],
)
def test_annotations_are_refused_at_the_registration(
    make_board: MakeBoard, handler: Callable[..., Any], told: str
) -> None:
    with pytest.raises(TypeError, match=told):
        register(make_board(), handler)


@pytest.mark.parametrize(("option", "value"), [("invalid", "ignore"), ("unknown", "drop")])
def test_options_are_checked(make_board: MakeBoard, option: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{option}='{value}': must be"):
        register(make_board(), orders.whole, **{option: value})


def test_bound_arguments_are_no_details(make_board: MakeBoard) -> None:
    board = make_board(keep_done=60)
    handlers = {
        "order": functools.partial(bound, client=orders.NoJSON()),
        "other": functools.partial(no_conversion, client=orders.NoJSON()),
    }
    jobs = [board.post(name, details={"id": str(ID)}) for name in handlers]
    Conductor("one", board, handlers).run(2)
    assert [job.result(0) for job in jobs] == [repr((orders.Order(ID), True)), None]


def test_a_positional_parameter_of_an_unknown_type_receives_the_job(make_board: MakeBoard) -> None:
    board = make_board(keep_done=60)
    conductor, post = register(board, orders.unresolved)
    job = post()
    conductor.run(1)
    assert job.result(0) == "order"


PLAIN = """
import datetime
from collections.abc import Mapping
from typing import Any, Literal
def plain(*, a: str, b: list[dict[str, Any]] | None = None, c: Literal['x'] = 'x', d: Mapping[str, int] = {}): print(a)
board = jobboard.fetch('board', 'memory')
board.connect()
conductor = jobboard.Conductor('one', board)
conductor.handles('plain')(plain)
board.post('plain', details={'a': 7})
conductor.run(1)
def typed(*, at: datetime.datetime): ...
try:
    conductor.handles('typed')(typed)
except jobboard.MissingDriver as error:
    print(error)
"""


@pytest.mark.rule(
    "Without pydantic only an annotation that needs a conversion is refused, and the error names the extra."
)
def test_without_the_extra_types_of_json_pass_unchecked() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ABSENT + PLAIN, "pydantic"], capture_output=True, text=True, check=False
    )
    first, second = done.stdout.splitlines()
    assert first == "7"
    assert second == (
        "typed: the annotation of 'at', datetime, needs a conversion, and that needs pydantic: pip install '.[typed]' "
        "in a clone of jobboard, or leave the annotation out"
    )

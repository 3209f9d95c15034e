"""Jobs that are posted by calling their handler, and handlers that are called with details."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any

import pytest

import jobboard
from jobboard import Conductor
from jobboard.aio import AsyncConductor, AsyncJobBoard
from jobboard.conductor.details import Takes

pytestmark = pytest.mark.backends("memory")
MakeBoard = Callable[..., Any]


@pytest.mark.rule(
    "A handler's post() takes the arguments of the handler, and refuses wrong ones before anything is written."
)
def test_what_is_keyword_only_gets_the_details(make_board: MakeBoard) -> None:
    board = make_board()
    conductor = Conductor("one", board)
    seen: list[object] = []

    @conductor.handles("resize")
    def resize(*, path: str, width: int = 100) -> None:
        seen.append((path, width))

    @conductor.handles("crop")
    def crop(job: jobboard.Job, *, path: str) -> None:
        seen.append((job.name, path))

    @conductor.handles("turn")
    def turn(job: jobboard.Job) -> None:
        seen.append(job.details)

    @conductor.handles("any")
    def anything(**details: object) -> None:
        seen.append(details)

    job = resize.post(path="a")
    assert (job.name, job.details) == ("resize", {"path": "a"})
    resize.post(path="b", width=3)
    crop.post(path="c")
    turn.post()
    anything.post(self=1, job=2)
    # What a handler does not name is nothing to it.
    board.post("crop", details={"path": "d", "more": 1})
    conductor.run(max_dispatches=6)
    assert sorted(map(str, seen)) == sorted(
        map(str, [("a", 100), ("b", 3), ("crop", "c"), {}, {"self": 1, "job": 2}, ("crop", "d")])
    )
    assert conductor.tally.consumed == 6


WRONG: list[tuple[Callable[[Any], object], str]] = [
    (lambda post: post(), "missing a required (keyword-only )?argument: 'path'"),
    (lambda post: post(pth="a"), "no detail 'pth'"),
    (lambda post: post("a"), "by their names"),
    (lambda post: post(path=object()), "path"),
    (lambda post: post.options(wehre=1)(path="a"), "wehre"),
    (lambda post: post.posting(pth="a"), "no detail 'pth'"),
]


@pytest.mark.rule(
    "A handler's post() takes the arguments of the handler, and refuses wrong ones before anything is written."
)
@pytest.mark.parametrize(("wrong", "told"), WRONG)
@pytest.mark.parametrize("takes_the_job", [False, True])
def test_wrong_arguments_are_refused_before_anything_is_written(
    make_board: MakeBoard, wrong: Callable[[Any], object], told: str, takes_the_job: bool
) -> None:
    board = make_board()
    conductor = Conductor("one", board)

    @conductor.handles("resize")
    def resize(*, path: str) -> None: ...

    @conductor.handles("crop")
    def crop(job: jobboard.Job, *, path: str) -> None: ...

    with pytest.raises(TypeError, match=told):
        wrong(crop.post if takes_the_job else resize.post)
    assert board.job_count == 0


def test_options_of_the_post(make_board: MakeBoard) -> None:
    board = make_board()
    conductor = Conductor("one", board)

    @conductor.handles("resize")
    def resize(*, path: str) -> None: ...

    urgent = resize.post.options(priority=50).options(key="a")
    job = urgent(path="a")
    assert (job.priority, job.key) == (50, "a")
    assert urgent(path="b") == job
    first, second = board.post_many([resize.post.posting(path=path) for path in "cd"])
    assert (first.details, second.name) == ({"path": "c"}, "resize")


def test_a_handler_of_several_names_is_not_posted(make_board: MakeBoard) -> None:
    @Conductor("one", make_board()).handles("crop", "turn")
    def cut(*, path: str) -> None: ...

    with pytest.raises(TypeError, match="crop, turn"):
        cut.post(path="a")


class Resizer:
    def __call__(self, job: jobboard.Job) -> None: ...

    def post(self) -> str:
        return "its own"


def test_handlers_stay_what_they_were(make_board: MakeBoard) -> None:
    def resize(*, path: str) -> str:
        return path

    conductor, resizer = Conductor("one", make_board()), Resizer()
    assert conductor.handles("resize")(resize) is resize  # type: ignore[comparison-overlap]
    conductor.handles("crop")(resizer)
    assert (resize(path="a"), resizer.post()) == ("a", "its own")


def wrapper(*args: Any, **kwargs: Any) -> None: ...


def injected(job: jobboard.Job, *, client: object = None) -> None: ...


@pytest.mark.parametrize(
    ("handler", "takes"),
    [
        (lambda job: None, Takes(True, frozenset())),
        (lambda job, more=1: None, Takes(True, frozenset())),
        (lambda: None, Takes(False, frozenset())),
        (wrapper, Takes(True, frozenset())),
        (injected, Takes(True, frozenset({"client"}))),
        (functools.partial(injected, client=1), Takes(True, frozenset({"client"}))),
        (functools.wraps(injected)(lambda *args, **kwargs: None), Takes(True, frozenset({"client"}))),
        (Resizer(), Takes(True, frozenset())),
        (Resizer().__call__, Takes(True, frozenset())),
        (print, Takes(True, frozenset({"sep", "end", "file", "flush"}))),
        (dict, Takes(True, frozenset())),
    ],
)
def test_how_handlers_are_told_apart(handler: Callable[..., object], takes: Takes) -> None:
    assert Takes.of(handler) == takes


def test_two_by_position_are_refused(make_board: MakeBoard) -> None:
    with pytest.raises(TypeError, match=r"put a \* before 'width'"):
        Conductor("one", make_board(), {"resize": lambda path, width: None})


def test_a_detail_that_is_missing_is_a_failure(make_board: MakeBoard) -> None:
    board = make_board()
    job = board.post("resize", max_attempts=1)
    conductor = Conductor("one", board)

    @conductor.handles("resize")
    def resize(*, path: str) -> None: ...

    conductor.run(max_dispatches=1)
    assert job.state == "TRASHED"
    assert "path" in job.error


def test_the_same_on_a_loop(make_board: MakeBoard) -> None:
    sync = make_board()
    seen: list[object] = []

    async def main() -> None:
        conductor = AsyncConductor("one", AsyncJobBoard(sync))

        @conductor.handles("resize")
        async def resize(*, path: str) -> None:
            seen.append(path)

        @conductor.handles("crop")
        def crop(*, path: str) -> None:
            seen.append(path)

        with pytest.raises(TypeError, match="pth"):
            await resize.post(pth="a")  # type: ignore[call-arg]
        job = await resize.post(path="a")
        assert job.details == {"path": "a"}
        await crop.post.options(priority=-50)(path="b")
        await conductor.run(max_dispatches=2)

    asyncio.run(main())
    assert sorted(seen) == ["a", "b"]  # type: ignore[type-var]

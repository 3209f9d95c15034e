"""The conductor of a task loop."""

import contextvars
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.taskloop import LoopConductor, LoopTally, worker
from jobboard.testing import eventually
from tests.taskloop.conftest import BUSY

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")
ONE = pytest.mark.backends("sqlite")


@pytest.fixture
def start() -> Iterator[Callable[[LoopConductor], threading.Thread]]:
    running: list[tuple[LoopConductor, threading.Thread]] = []

    def begin(conductor: LoopConductor) -> threading.Thread:
        thread = threading.Thread(target=conductor.run)
        thread.start()
        running.append((conductor, thread))
        return thread

    yield begin
    for conductor, thread in running:
        conductor.stop()
        thread.join()


def test_an_id_whose_call_returns_is_done_and_one_whose_call_raises_rests(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(*range(20))

    def handler(id_: int) -> None:
        if id_ == 7:
            raise RuntimeError("no seven")

    conductor = LoopConductor("anna", loop, handler, limit=8, retry_after=500)
    conductor.run(max_batches=3)
    assert conductor.tally == LoopTally(done=19, failed=1)
    checked = loop.check(range(20))
    assert {id_ for id_, (updated, _) in checked.items() if updated is None} == {7}
    assert {id_ for id_, (_, locked) in checked.items() if locked is not None} == {7}
    assert checked[7][1] == pytest.approx(500, abs=BUSY)
    # After its rest the id goes first.
    loop.age(501)
    assert loop.get(1) == [7]


@pytest.mark.rule("A job sees no context variable that another job has set.")
@ONE
def test_the_work_on_an_id_sees_no_variables_of_the_one_before(make_loop: Callable[..., Any]) -> None:
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")
    seen: list[Any] = []

    def handler(id_: int) -> None:
        seen.append(variable.get(None))
        variable.set(id_)

    context = contextvars.copy_context()
    context.run(variable.set, "ours")
    context.run(LoopConductor("anna", make_loop(*range(5)), handler, max_simultaneous=1).run, max_batches=1)
    assert seen == ["ours"] * 5
    assert context[variable] == "ours"


def test_ids_are_kept_locked_while_they_are_worked_on(
    make_loop: Callable[..., Any], start: Callable[[LoopConductor], object]
) -> None:
    loop = make_loop(1)
    go_on = threading.Event()
    conductor = LoopConductor("anna", loop, lambda id_: go_on.wait(20), lock_for=3)
    start(conductor)
    assert eventually(lambda: loop.rows()[1][1] is not None)
    until = loop.rows()[1][1]
    assert eventually(lambda: loop.rows()[1][1] > until)
    go_on.set()
    assert eventually(lambda: loop.rows()[1][0] is not None)
    assert eventually(lambda: conductor.tally == LoopTally(done=1))


@pytest.mark.rule("Ids are done one by one.")
def test_an_id_is_done_while_others_are_worked_on(
    make_loop: Callable[..., Any], start: Callable[[LoopConductor], object]
) -> None:
    """Otherwise a crash would repeat the whole batch."""
    loop = make_loop(*range(10))
    go_on = threading.Event()

    def handler(id_: int) -> None:
        if id_ == 3:
            raise RuntimeError("no three")
        assert id_ != 5 or go_on.wait(20)

    conductor = LoopConductor("anna", loop, handler, max_simultaneous=2, retry_after=500)
    start(conductor)
    assert eventually(lambda: conductor.tally == LoopTally(done=8, failed=1))
    rows = loop.rows()
    assert {id_ for id_, (updated, _) in rows.items() if updated is None} == {3, 5}
    assert {id_ for id_, (_, until) in rows.items() if until is not None} == {3, 5}
    go_on.set()
    assert eventually(lambda: conductor.tally == LoopTally(done=9, failed=1))


@ONE
def test_ids_that_end_at_about_the_same_time_are_written_at_once(
    make_loop: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = make_loop(*range(50))
    did, told = loop.did, list[int]()

    def noted(held: Any, **options: Any) -> int:
        told.append(len(held))
        return int(did(held, **options))

    monkeypatch.setattr(loop, "did", noted)
    monkeypatch.setattr(worker, "TOLD_WITHIN", 20)
    LoopConductor("anna", loop, lambda id_: None).run(max_batches=1)
    assert told == [50]


def test_an_id_that_another_took_is_lost(
    make_loop: Callable[..., Any], start: Callable[[LoopConductor], object]
) -> None:
    loop = make_loop(1, 2)
    go_on = threading.Event()
    conductor = LoopConductor("anna", loop, lambda id_: go_on.wait(20))
    start(conductor)
    assert eventually(lambda: None not in {until for _, until in loop.rows().values()})
    loop.bump(2)
    assert loop.get(1) == [2]
    taken = loop.rows()[2]
    go_on.set()
    assert eventually(lambda: conductor.tally == LoopTally(done=1, lost=1))
    assert loop.rows()[2] == taken


@ONE
def test_a_signal_lets_the_calls_at_work_end_and_returns_the_rest(make_loop: Callable[..., Any]) -> None:
    stopped = threading.Event()

    class Conductor(LoopConductor):
        def stop(self) -> None:
            super().stop()
            stopped.set()

    loop = make_loop(*range(10))
    begun: list[int] = []

    def handler(id_: int) -> None:
        begun.append(id_)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped.wait(20)

    conductor = Conductor("anna", loop, handler, max_simultaneous=1)
    conductor.run()
    assert len(begun) == 1
    assert conductor.tally == LoopTally(done=1, returned=9)
    assert {until for _, until in loop.rows().values()} == {None}
    assert {id_ for id_, (updated, _) in loop.rows().items() if updated is not None} == set(begun)


@ONE
def test_a_conductor_waits_for_ids(make_loop: Callable[..., Any], start: Callable[[LoopConductor], object]) -> None:
    loop = make_loop()
    conductor = LoopConductor("anna", loop, lambda id_: None)
    start(conductor)
    loop.add(1)
    assert eventually(lambda: loop.rows()[1][0] is not None)


@ONE
def test_a_conductor_outlasts_an_outage(make_loop: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A result is written again until the database has stored it."""
    loop = make_loop(1)
    conductor = LoopConductor("anna", loop, lambda id_: None)
    did, outages = loop.did, iter([ConnectionFailure("away"), ConnectionFailure("unknown", outcome="unknown")])

    def flaky(*args: Any, **kwargs: Any) -> int:
        for outage in outages:
            raise outage
        return int(did(*args, **kwargs))

    monkeypatch.setattr(loop, "did", flaky)
    conductor.run(max_batches=1)
    assert conductor.tally == LoopTally(done=1)
    assert loop.rows()[1][0] is not None


@ONE
def test_a_missing_table_ends_the_conductor(make_loop: Callable[..., Any]) -> None:
    with pytest.raises(JobFailure, match="no_such_loop"):
        LoopConductor("anna", make_loop(table="no_such_loop"), lambda id_: None).run()


@pytest.mark.rule("A loop conductor that fails begins no more ids.")
@ONE
def test_a_conductor_that_fails_begins_no_more_ids(
    make_loop: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = make_loop(*range(20))
    ending = threading.Event()
    begun: list[int] = []
    places = itertools.count()

    class Pool(ThreadPoolExecutor):
        def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
            super().shutdown(False, cancel_futures=cancel_futures)
            ending.set()
            super().shutdown(wait)

    def handler(id_: int) -> None:
        begun.append(id_)
        if next(places) > 0:
            assert ending.wait(20)

    def refuse(*args: Any, **kwargs: Any) -> int:
        raise JobFailure("the table has gone")

    monkeypatch.setattr(worker, "ThreadPoolExecutor", Pool)
    monkeypatch.setattr(loop, "did", refuse)
    with pytest.raises(JobFailure, match="has gone"):
        LoopConductor("anna", loop, handler, max_simultaneous=2).run()
    assert len(begun) <= 3


@ONE
def test_a_wrong_argument_is_named(make_loop: Callable[..., Any]) -> None:
    loop = make_loop()
    nan = float("nan")
    for name, wrong in (
        *(("lock_for", wrong) for wrong in (2, 2.5, nan)),
        *(("limit", 0), ("max_simultaneous", 0), ("min_loop_time", nan), ("retry_after", 0)),
    ):
        with pytest.raises(ValueError, match=f"{name}.*{wrong}"):
            LoopConductor("anna", loop, print, **{name: wrong})  # type: ignore[arg-type]
    for name in ("lock_for", "min_loop_time", "retry_after"):
        with pytest.raises(TypeError, match=f"{name} must be a number, not 'x'"):
            LoopConductor("anna", loop, print, **{name: "x"})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="callable"):
        LoopConductor("anna", loop, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the class int"):
        LoopConductor("anna", loop, int)


@pytest.mark.rule("A handler that returns a coroutine or generator has done nothing, and its job is not consumed.")
@pytest.mark.rule("A loop's handler that would do nothing is refused.")
@ONE
def test_a_handler_that_returns_a_generator_fails(make_loop: Callable[..., Any]) -> None:
    loop = make_loop(1)
    conductor = LoopConductor("anna", loop, lambda id_: (n for n in range(id_)))
    conductor.run(max_batches=1)
    assert conductor.tally == LoopTally(failed=1)
    assert loop.rows()[1][0] is None

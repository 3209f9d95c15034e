"""The run of a conductor: its claims, its end, its board, its entity, its schedules, and the arguments it rejects."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jobboard
from jobboard.backends.memory import ManualClock, forget
from jobboard.conductor import Conductor
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD
from jobboard.testing.requests import POSTER_LOOKS, TAKES, requests
from tests.conftest import Runner
from tests.support.conductors import WAIT, Hanging, MakeBoard, Outage, errors_of

FAST = pytest.mark.backends("memory", "sqlite")
MEMORY = pytest.mark.backends("memory")


# Claims


def test_each_job_goes_to_the_handler_of_its_name(make_board: MakeBoard) -> None:
    board = make_board()
    seen: list[tuple[str, str, int]] = []
    conductor = Conductor("one", board, {"resize": lambda job: seen.append(("resize", job.name, job.details["n"]))})

    @conductor.handles("crop", "turn")
    def cut(job: jobboard.Job) -> None:
        seen.append(("cut", job.name, job.details["n"]))

    for number, name in enumerate(["resize", "crop", "other", "turn"]):
        board.post(name, details={"n": number})
    conductor.run(3)
    assert sorted(seen) == [("cut", "crop", 1), ("cut", "turn", 3), ("resize", "resize", 0)]
    assert [(job.name, job.seen_state) for job in board.iterjobs()] == [("other", "UNCLAIMED")]


def test_one_handler_takes_jobs_of_any_name_and_max_dispatches_is_exact(make_board: MakeBoard) -> None:
    board = make_board()
    board.post_many([{"name": f"job{n}"} for n in range(23)])
    seen: list[str] = []
    conductor = Conductor("one", board, lambda job: seen.append(job.name), max_simultaneous_jobs=8)
    conductor.run(max_dispatches=20)
    assert sorted(seen) == sorted(f"job{n}" for n in range(20))
    stats = board.stats()
    assert (stats.claimed, stats.unclaimed) == (0, 3)
    assert conductor.tally.consumed == conductor.tally.dispatched == 20
    assert conductor.wait(0)


@MEMORY
def test_no_more_jobs_are_claimed_than_run(make_board: MakeBoard, start: Runner, hanging: Hanging) -> None:
    board = make_board()
    board.post_many([{"name": "a"}] * 9)
    conductor = start(Conductor("one", board, hanging, max_simultaneous_jobs=4))
    hanging.await_begin(4)
    assert board.stats().claimed == 4
    assert not hanging.begun.acquire(blocking=False)
    hanging.gate.set()
    eventually(lambda: conductor.tally.consumed == 9)


@pytest.mark.rule("A conductor that waits sees handlers that were added meanwhile.")
@FAST
def test_waiting_conductor_sleeps_in_one_claim_until_a_handler_is_added(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many jobs other names get."""
    board = make_board(claim_ttl=HELD)
    asked: list[list[str]] = []
    claim_many = board.claim_many

    def record(*args: Any, **kwargs: Any) -> Any:
        asked.append(sorted(kwargs["names"]))
        return claim_many(*args, **kwargs)

    monkeypatch.setattr(board, "claim_many", record)
    conductor = start(Conductor("one", board, {"a": lambda job: None}))
    eventually(lambda: asked)
    for _ in range(5):
        board.post("other")
    assert len(asked) == 1
    conductor.handles("b")(lambda job: None)
    board.post("b")
    eventually(lambda: conductor.tally.consumed == 1)
    assert asked[:2] == [["a"], ["a", "b"]]
    eventually(lambda: board.entities("conductor")[0].metadata["names"] == ["a", "b"])
    conductor.stop()
    assert conductor.wait(WAIT)
    assert len(asked) <= 3


# The end


@pytest.mark.rule("A wait asks again whether it is called off after it has read its mark.")
@pytest.mark.rule("A drain ends within its limit, and lets handlers end that end in time.")
def test_stop_ends_a_waiting_claim_and_lets_begun_work_end(
    make_board: MakeBoard, start: Runner, hanging: Hanging
) -> None:
    board = make_board()
    conductor = start(Conductor("one", board, hanging, max_simultaneous_jobs=2, drain_timeout=2 * WAIT))
    assert not conductor.wait(0)
    board.post("a")
    hanging.await_begin()
    assert conductor.dispatching
    conductor.stop()
    assert not conductor.wait(0.05)
    hanging.gate.set()
    assert conductor.wait(WAIT)
    assert not conductor.dispatching
    assert conductor.tally.consumed == 1
    assert board.job_count == 0
    # It stays stopped.
    board.post("a")
    conductor.run()
    assert board.stats().unclaimed == 1


@pytest.mark.rule("A wait asks again whether it is called off after it has read its mark.")
def test_wait_that_is_called_off_during_its_look_does_not_go_on(make_board: MakeBoard) -> None:
    board = make_board()
    off = threading.Event()

    def call_off() -> None:
        off.set()
        board.wake()

    requests(board).before(TAKES, call_off)
    answers: list[Any] = []
    waiter = threading.Thread(
        target=lambda: answers.append(board.claim_next("me", timeout=None, unless=off.is_set)), daemon=True
    )
    waiter.start()
    waiter.join(WAIT)
    assert answers == [None]


# The board


@MEMORY
def test_board_that_was_closed_ends_the_run(make_board: MakeBoard, caplog: pytest.LogCaptureFixture) -> None:
    board = make_board()
    board.post("a")
    conductor = Conductor("one", board, lambda job: board.close())
    with pytest.raises(ConnectionFailure, match="was closed while the conductor 'one' worked"):
        conductor.run()
    assert not conductor.dispatching
    assert conductor.tally.lost == 1
    # The end of the board has removed the conductor's entity.
    assert "among the entities" not in caplog.text


@pytest.mark.rule("The last conductor on a board that conductors connected closes it.")
@MEMORY
def test_last_conductor_closes_a_board_that_conductors_have_connected(
    make_board: MakeBoard, start: Runner, hanging: Hanging
) -> None:
    board = make_board()
    job = board.post("b")
    board.close()
    first = start(Conductor("first", board, {"a": hanging}))
    eventually(lambda: board.connected)
    last = start(Conductor("last", board, {"b": hanging}))
    hanging.await_begin()
    first.stop()
    assert first.wait(WAIT)
    assert board.connected
    hanging.gate.set()
    last.stop()
    assert last.wait(WAIT)
    assert last.tally.consumed == 1
    assert not board.connected
    board.connect()
    assert job.state == "COMPLETE"
    # The caller closes what the caller has connected.
    board.post("a")
    Conductor("one", board, print).run(1)
    assert board.connected


@MEMORY
def test_refusal_of_the_first_claim_ends_the_run(
    make_board: MakeBoard, start: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal after that may be lifted again."""
    monkeypatch.setattr("jobboard.retry.OUTAGE_BASE", 0.01)
    board, refusals = make_board(), Counter[str]()

    def refuse() -> None:
        if refusals["on"]:
            refusals["met"] += 1
            raise JobFailure("it lacks the right to")

    requests(board).before(TAKES, refuse)
    refusals["on"] = 1
    [error] = errors_of(Conductor("one", board, lambda job: None).run)
    assert "lacks the right" in str(error)
    refusals["on"] = 0
    board.post("a")
    conductor = start(Conductor("one", board, lambda job: None))
    eventually(lambda: conductor.tally.consumed == 1)
    refusals.update({"on": 1, "met": -1})
    board.wake()
    board.post("a")
    eventually(lambda: refusals["met"] > 1)
    refusals["on"] = 0
    eventually(lambda: conductor.tally.consumed == 2)


UNWRITABLE = """
import os, sys
import jobboard

def run(uri):
    board = jobboard.fetch("board", {"board": uri, "retry_for": 0})
    jobboard.Conductor("one", board, lambda job: None).run(1)

for uri in sys.argv[1:]:
    with jobboard.backend("board", uri) as board:
        board.post("a")
# Another user may not be allowed to import what is missing then.
run(sys.argv[1])
os.chmod(sys.argv[2].removeprefix("sqlite:///"), 0o444)
if os.geteuid() == 0:
    os.setuid(65534)
try:
    run(sys.argv[2])
except jobboard.ConnectionFailure as error:
    print(error.refused, error)
"""


@pytest.mark.backends("sqlite")
def test_file_that_may_not_be_written_ends_the_run_with_the_way_out(backend: str) -> None:
    # Other users may not enter pytest's folders. Where they may write the folder, the board can be connected.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        uris = [f"sqlite:///{folder}/{name}.db" for name in ("other", "board")]
        said = subprocess.check_output([sys.executable, "-c", UNWRITABLE, *uris], text=True, timeout=60)
    assert said.startswith(f"True sqlite at {folder}/board.db takes no writes")
    assert "right to write the file and its folder, or open the board with read_only" in said


# The entity


@MEMORY
def test_conductor_is_an_entity_while_it_runs(make_board: MakeBoard, start: Runner, hanging: Hanging) -> None:
    board = make_board()
    board.post("a")
    conductor = start(Conductor("one", board, {"b": hanging, "a": hanging}, max_simultaneous_jobs=1))
    hanging.await_begin()
    [one] = board.entities("conductor")
    assert (one.name, one.metadata["pid"]) == ("one", os.getpid())
    assert (one.metadata["names"], one.metadata["slots"]) == (["a", "b"], 1)
    assert one.metadata["host"]
    assert one.metadata["started"].endswith("+00:00")
    # It is shown again on a board that was connected again.
    board.close()
    board.connect()
    assert board.entities() == []
    hanging.gate.set()
    eventually(lambda: [each.name for each in board.entities()] == ["one"])
    conductor.stop()
    assert conductor.wait(WAIT)
    assert board.entities() == []


@MEMORY
def test_conductors_without_a_name_have_different_ones(make_board: MakeBoard, start: Runner, hanging: Hanging) -> None:
    board = make_board()
    board.post_many([Posting("a"), Posting("a")])
    conductors = [start(Conductor(None, board, hanging, max_simultaneous_jobs=1)) for _ in range(2)]
    eventually(lambda: {job.owner for job in board.iterjobs()} == {each.name for each in conductors})
    assert len({each.name for each in conductors}) == 2
    assert all(f"{socket.gethostname()}-{os.getpid()}-" in each.name for each in conductors)
    assert {each.name for each in board.entities("conductor")} == {each.name for each in conductors}
    hanging.gate.set()


@pytest.mark.rule("A conductor that cannot be shown works.")
@MEMORY
def test_conductor_that_cannot_be_shown_works(
    make_board: MakeBoard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(entity: object) -> None:
        raise ValueError("too much")

    board = make_board()
    monkeypatch.setattr(board, "register_entity", refuse)
    board.post_many([{"name": "a"}] * 3)
    conductor = Conductor("one", board, lambda job: None, max_simultaneous_jobs=1)
    conductor.run(3)
    assert conductor.tally.consumed == 3
    assert caplog.text.count("too much") == 1


# Schedules

SCHEDULES = "schedules"


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    yield ManualClock()
    forget(SCHEDULES)


@pytest.fixture
def make(clock: ManualClock) -> Iterator[Callable[..., Any]]:
    """``make(**options)``: a handle on one board in memory whose clock is the test's."""
    with contextlib.ExitStack() as stack:

        def make_one(**options: Any) -> Any:
            board = jobboard.fetch(SCHEDULES, {"board": "memory", "clock": clock, **options})
            board.connect()
            stack.callback(board.close)
            return board

        yield make_one


@MEMORY
def test_conductor_posts_schedules_of_all_names(make: Callable[..., Any], clock: ManualClock, start: Runner) -> None:
    board, seen = make(), []
    board.schedule("nightly", "0 3 * * *", "report", tz="Europe/Berlin")
    board.schedule("ping", name="ping", every=60)
    clock.advance(86400)
    board.post("by hand")
    Conductor("none", board, {"by hand": print}, schedules=False).run(1)
    assert board.job_count == 0
    start(Conductor("one", board, {"report": lambda job: seen.append(job.schedule)}))
    eventually(lambda: len(seen) == 1 and board.job_count == 1)
    [ping] = board.iterjobs()
    assert ping.name == "ping"
    assert [schedule for schedule, _ in seen] == ["nightly"]


@MEMORY
def test_idle_scheduler_sleeps_until_a_schedule_changes(
    make: Callable[..., Any], clock: ManualClock, start: Runner
) -> None:
    board, other = make(), make()
    looks = Counter[str]()
    requests(board).before(POSTER_LOOKS, lambda: looks.update(["all"]))
    conductor = start(Conductor("one", board, {"report": lambda job: None}))
    eventually(lambda: looks["all"])
    for _ in range(10):
        board.post("another")
    seen = looks["all"]
    other.schedule("nightly", name="report", every=60)
    eventually(lambda: looks["all"] > seen)
    clock.advance(60)
    eventually(lambda: conductor.tally.consumed == 1)
    conductor.stop()
    assert conductor.wait(WAIT)
    # Each of the ten posts would have made another one.
    assert looks["all"] < 10


@pytest.mark.rule("A poster lives through an outage and through a server's clock that jumps.")
@MEMORY
@pytest.mark.usefixtures("soon")
def test_scheduler_tries_again_after_an_outage(
    make: Callable[..., Any],
    clock: ManualClock,
    start: Runner,
    caplog: pytest.LogCaptureFixture,
) -> None:
    board, seen = make(retry_for=0), []
    outage = Outage(board, POSTER_LOOKS)
    board.schedule("nightly", name="report", every=60)
    outage.on = True
    start(Conductor("one", board, {"report": seen.append}))
    eventually(lambda: outage.failed[POSTER_LOOKS] > 2)
    clock.advance(60)
    outage.on = False
    eventually(lambda: len(seen) == 1)
    assert "could not post due jobs" in caplog.text


@pytest.mark.rule("A schedule that is refused is tried again before its next due time.")
@MEMORY
def test_refused_schedule_is_tried_again_before_its_next_due_time(
    make: Callable[..., Any], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would wake a poster that sleeps until the next due time."""
    board = make()
    board.schedule("nightly", name="report", every=60)
    clock.advance(61)

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise JobFailure("full")

    with monkeypatch.context() as patch:
        patch.setattr(board.engine.store, "commit", refuse)
        assert board.post_due() == 10
    assert board.post_due() == 59
    assert board.job_count == 1


@pytest.mark.rule("A poster lives through an outage and through a server's clock that jumps.")
@MEMORY
def test_server_clock_that_jumps_makes_nothing_due_twice(
    make: Callable[..., Any], clock: ManualClock, start: Runner
) -> None:
    board, seen = make(), []
    first = board.schedule("nightly", name="report", every=3600).next_due
    start(Conductor("one", board, {"report": lambda job: seen.append(job.schedule[1])}))
    clock.advance(3600)
    eventually(lambda: seen == [first])
    clock.advance(-3600)
    clock.advance(3600)
    clock.advance(3599)
    by_hand = board.post("another")
    assert board.post_due() == pytest.approx(1)
    assert seen == [first]
    clock.advance(2 * 3600)
    eventually(lambda: len(seen) == 2)
    assert (seen[1] - first).total_seconds() == 2 * 3600
    eventually(lambda: list(board.iterjobs()) == [by_hand])


# Wrong arguments


def one(board: Any, handlers: Any = print, **options: Any) -> Conductor:
    return Conductor("one", board, handlers, **options)


def handling(board: Any, *names: Any, **options: Any) -> Any:
    return one(board, {"a": print}).handles(*names, **options)(print)


REJECTED: list[tuple[type[Exception], str, Callable[[Any], object]]] = [
    (ValueError, "empty", lambda board: Conductor("", board, print)),
    (TypeError, "callable", lambda board: one(board, {"a": 7})),
    (TypeError, "of a memory board has no argument 'flavour'", lambda board: one(board, extra={"flavour": 5})),
    (ValueError, "^job_timeout=0: ", lambda board: one(board, job_timeout=0)),
    (ValueError, "^job_timeout=0: ", lambda board: one(board, None, job_timeout=0)),
    (ValueError, "^job_timeout=1000+…: ", lambda board: one(board, job_timeout=10**400)),
    (ValueError, "drain_timeout", lambda board: one(board, drain_timeout=-1)),
    (ValueError, "threads, processes", lambda board: one(board, workers="fibres")),
    (TypeError, "RetryPolicy", lambda board: one(board, retry=3)),
    (TypeError, "on_error must be callable", lambda board: one(board, on_error=7)),
    (TypeError, "on_success must be callable", lambda board: one(board, on_success=7)),
    (ValueError, "^max_jobs_per_process=9: .* run in threads: add", lambda board: one(board, max_jobs_per_process=9)),
    (ValueError, "^max_jobs_per_process=0: must be 1", lambda board: one(board, max_jobs_per_process=0)),
    (ValueError, "1 or more", lambda board: one(board, max_simultaneous_jobs=0)),
    (ValueError, "1 or more", lambda board: one(board, max_simultaneous_jobs=-1)),
    (ValueError, "1 or more", lambda board: one(board).run(0)),
    (ValueError, "1 or more", lambda board: one(board).run(-1)),
    (ValueError, r"'one' has no handlers: .* handles\(\)", lambda board: one(board, None).run()),
    (ValueError, "'a' have a handler already: leave", lambda board: handling(board, "a")),
    (ValueError, "'a' can't have .* any name: give it a mapping", lambda board: one(board).handles("a")(print)),
    (TypeError, r"names of the jobs .* as in handles\('resize'\)", handling),
    (TypeError, r"names of the jobs .* as in handles\('resize'\)", lambda board: handling(board, print)),
    (ValueError, "^timeout=-1: ", lambda board: handling(board, "b", timeout=-1)),
    (ValueError, "^max_simultaneous=0: must be 1 or more", lambda board: handling(board, "b", max_simultaneous=0)),
    (TypeError, "max_simultaneous must be an int", lambda board: handling(board, "b", max_simultaneous="2")),
    (TypeError, "a wrapper of handlers must be callable", lambda board: one(board).wraps(7)),  # type: ignore[type-var]
    (ValueError, "job_claimed", lambda board: one(board).notifier.register("CLAIMED", print)),
]


@pytest.mark.rule("A name that was forgotten among handlers is refused.")
@MEMORY
@pytest.mark.parametrize(("kind", "match", "act"), REJECTED)
def test_wrong_arguments_are_rejected(
    make_board: MakeBoard, kind: type[Exception], match: str, act: Callable[[Any], object]
) -> None:
    with pytest.raises(kind, match=match):
        act(make_board())


@MEMORY
def test_conductor_that_may_not_or_does_already_run_is_rejected(make_board: MakeBoard, start: Runner) -> None:
    with pytest.raises(ValueError, match="looking only: leave out read_only"):
        one(make_board(read_only=True)).run()
    conductor = start(one(make_board()))
    eventually(lambda: conductor.dispatching)
    with pytest.raises(RuntimeError, match="'one' is running already: make another"):
        conductor.run()

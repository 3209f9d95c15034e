"""What keeps jobs from being worked on: ``obstacles()``, and ``doctor``, ``list`` and ``show``, which print it."""

import datetime
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import jobboard
from jobboard.cli.common import DONE, FAILED
from jobboard.conductor import Conductor
from jobboard.obstacles import Obstacle, obstacles
from jobboard.testing import eventually
from jobboard.testing.conformance.schedules import put_back
from tests.support.ciphers import BOTH, OLD
from tests.support.commands import Commands

pytestmark = [pytest.mark.backends("memory", "sqlite", "postgresql", "redis"), pytest.mark.any_driver]

IDLE = {"host": "web1", "pid": 71, "names": ["mail"], "slots": 8, "running": 0, "hung": 0}
WAIT = 30


@pytest.fixture
def worker(board: Any) -> jobboard.Entity:
    """A conductor of jobs named 'mail', with free slots."""
    entity = jobboard.Entity("conductor", "web1-71", dict(IDLE))
    board.register_entity(entity)
    return entity


@pytest.fixture
def screens(board: Any, run: Commands, backend: str) -> Any:
    """Check what the commands print about one obstacle."""

    def check(found: Obstacle, *jobs: jobboard.Job, listed: bool = True) -> None:
        if backend != "memory":
            # A server of the tests may be fast, and lose what it has acknowledged.
            weak = len(list(board.examine()))
            odd = weak + found.is_odd
            out = run("doctor", status=FAILED if odd else DONE).out
            assert f"{found.place}: {re.split(' for | in ', found.reason)[0]}" in out
            assert f"\n    {found.advice}\n" in out or not found.advice
            assert out.endswith(f"\n{odd} found.\n" if odd else "\nNothing is odd: the board does as it was told.\n")
            told = run("doctor", "--json", status=FAILED if odd else DONE).lines
            assert [each["kind"] for each in told if "kind" in each] == [found.kind]
        assert (found.place in run("list").out) is listed
        for job in jobs:
            assert f"\nwaits: {found.place}: " in run("show", job.uuid).out
            assert [each["kind"] for each in run("show", job.uuid, "--json").json["waits_for"]] == [found.kind]

    return check


def test_a_board_that_works_has_no_obstacle(board: Any, worker: Any, run: Commands, backend: str) -> None:
    board.post("mail")
    later = board.post("mail")
    assert obstacles(board) == []
    assert "\nwaits: nothing holds it up; waiting jobs that are served before it: 1\n" in run("show", later.uuid).out
    if backend == "sqlite":
        assert run("doctor").out == "Nothing is odd.\n"


@pytest.mark.rule("doctor, list and show name what keeps jobs from being worked on, by one function.")
def test_a_pause(board: Any, worker: Any, screens: Any) -> None:
    job = board.post("mail")
    board.pause(["mail", "zip"])
    [found] = obstacles(board)
    assert (found.kind, found.place, found.is_odd) == ("paused", "jobs named 'mail', 'zip'", False)
    # The first line of a list has the pauses.
    screens(found, listed=False)
    [found] = obstacles(board, job)
    assert found.place == "jobs named 'mail'"
    board.pause()
    [found] = obstacles(board)
    assert found.place == "all jobs"
    screens(found, job, listed=False)


@pytest.mark.rule("doctor, list and show name what keeps jobs from being worked on, by one function.")
def test_a_full_limit_and_its_holders(board: Any, worker: Any, screens: Any) -> None:
    board.set_limit("mail", concurrency=1, per="group")
    held, waiting, other = (board.post("mail", group=group) for group in ("a", "a", "b"))
    board.claim(held, "web1-71")
    [found] = obstacles(board)
    assert (found.kind, found.place, found.is_odd) == ("limit", "limit of 'mail', group 'a'", False)
    assert found.reason.startswith(f"1 at once, full: 1 waits; held: {held.uuid[:8]} by 'web1-71' for ")
    screens(found, waiting)
    assert [each.kind for each in obstacles(board, other)] == ["turn"]
    board.consume(held, "web1-71")
    assert obstacles(board) == []


def test_a_used_up_rate_and_when_it_opens(board: Any, worker: Any, screens: Any) -> None:
    board.set_limit("mail", rate=(1, 3600))
    board.claim(board.post("mail"), "anna")
    job = board.post("mail")
    [found] = obstacles(board)
    assert (found.kind, found.place, found.is_odd) == ("rate", "limit of 'mail'", False)
    assert re.fullmatch("1 in 60m00s, used up: 1 waits; the next may begin in (60m00|59m[45]\\d)s", found.reason)
    screens(found, job)


def test_a_name_that_no_conductor_handles(board: Any, worker: Any, screens: Any) -> None:
    job = board.post("mial")
    [found] = obstacles(board)
    assert (found.kind, found.place, found.is_odd) == ("unhandled", "jobs named 'mial'", True)
    screens(found, job)


def test_a_conductor_without_a_free_slot(board: Any, worker: Any, screens: Any) -> None:
    held, waiting = board.post("mail"), board.post("mail")
    board.claim(held, "web1-71")
    worker.metadata.update(slots=1, running=1)
    board.register_entity(worker)
    [found] = obstacles(board)
    assert (found.kind, found.place, found.is_odd) == ("busy", "jobs named 'mail'", False)
    assert f"all 1 slots of the conductors that handle it are taken; oldest claims: {held.uuid[:8]}" in found.reason
    screens(found, waiting)
    board.register_entity(jobboard.Entity("conductor", "idle", {"names": None, "slots": 1, "running": 0}))
    assert obstacles(board) == []


@pytest.fixture
def hung(board: Any) -> Iterator[tuple[Conductor, jobboard.Job]]:
    """A conductor one of whose two slots hangs, and the job that hangs there."""
    go, began = threading.Event(), threading.Event()
    conductor = Conductor("web1-71", board, max_simultaneous_jobs=2, job_timeout=0.05)

    @conductor.handles("film")
    def film(job: jobboard.Job) -> None:
        began.set()
        go.wait(WAIT)

    job = board.post("film", max_attempts=1)
    thread = threading.Thread(target=conductor.run)
    thread.start()
    try:
        assert began.wait(WAIT)
        eventually(lambda: job.state == "TRASHED", WAIT)
        yield conductor, job
    finally:
        go.set()
        conductor.stop()
        thread.join(WAIT)


@pytest.mark.rule("doctor, list and show name what keeps jobs from being worked on, by one function.")
def test_slots_that_hang_and_the_jobs_that_hang_there(board: Any, hung: Any, screens: Any) -> None:
    conductor, job = hung
    board.post("film", delay=600)
    # As the next heartbeat does.
    board.register_entity(conductor._runs)
    [found] = obstacles(board)
    assert (found.kind, found.is_odd) == ("hung", True)
    assert found.place.startswith("conductor 'web1-71' (host ")
    assert found.reason.startswith("1 of 2 slots hang; handlers that go on after their timeout: 'film' ")
    assert f"'film' {job.uuid[:8]} for " in found.reason
    screens(found)


@pytest.mark.rule("Two conductors of one name both show.")
def test_two_conductors_of_one_name(board: Any, worker: Any, make_board: Any, screens: Any) -> None:
    board.post("mail", delay=600)
    other = make_board()
    twin = jobboard.Entity("conductor", "web1-71", IDLE | {"host": "web2", "pid": 72})
    other.register_entity(twin)
    assert sorted(each.metadata["pid"] for each in board.entities()) == [71, 72]
    [found] = obstacles(board)
    assert (found.kind, found.place, found.is_odd) == ("namesakes", "conductor 'web1-71'", True)
    assert found.reason == "2 conductors have this name: host web1, pid 71; host web2, pid 72"
    screens(found)
    other.deregister_entity(twin)
    assert obstacles(board) == []
    assert [each.metadata["pid"] for each in board.entities()] == [71]


def test_a_key_that_no_conductor_has(board: Any, run: Commands, worker: Any, make_board: Any, screens: Any) -> None:
    make_board(cipher=BOTH).post("mail")
    assert obstacles(board) == [], "this conductor does not say what it reads"
    board.register_entity(
        jobboard.Entity("conductor", "web1-71", IDLE | {"readable": _readable(make_board(cipher=OLD))})
    )
    [found] = obstacles(board)
    assert (found.kind, found.place, found.is_odd) == ("keyless", "jobs named 'mail'", True)
    assert "key 2" in found.reason
    screens(found, *board.iterjobs())
    assert "readable" not in run("entities").out
    worker.metadata.update(readable=_readable(make_board(cipher=BOTH)))
    board.register_entity(worker)
    assert obstacles(board) == []


def _readable(board: Any) -> int:
    """Return what a conductor of this board says that it reads."""
    board.post("look")
    seen: list[jobboard.Entity] = []
    Conductor("reader", board, {"look": lambda job: seen.extend(board.entities("conductor"))}).run(max_dispatches=1)
    [readable] = [each.metadata["readable"] for each in seen if each.name == "reader"]
    assert isinstance(readable, int)
    return readable


def test_conductors_of_other_programs_may_say_anything(board: Any, run: Commands) -> None:
    board.post("mail")
    odd = {"names": 5, "hung": 3, "hanging": [7, {"uuid": 1}, {}], "clock": "noon", "claim_ttl": None, "slots": "many"}
    for number, metadata in enumerate((odd, odd | {"hanging": {"a": 1}, "running": []}, {})):
        board.register_entity(jobboard.Entity("conductor", f"theirs {number}", metadata))
    assert [each.kind for each in obstacles(board)] == ["hung", "hung"]
    assert "3 of many slots hang" in " ".join(run("list").out.split())


def test_workers_that_are_no_conductors_show_by_their_claims(board: Any) -> None:
    board.post_many([{"name": "mail"}] * 2)
    assert [each.kind for each in obstacles(board)] == ["unhandled"]
    board.claim_next("anna")
    assert obstacles(board) == []


@pytest.mark.rule("doctor, list and show name what keeps jobs from being worked on, by one function.")
@pytest.mark.backends("memory", "sqlite", "postgresql", "redis", "etcd")
@pytest.mark.parametrize(("skew", "told"), [(3 * 365 * 86400, "ahead"), (-7200, "behind"), (-20, None)])
def test_a_clock_that_is_wrong(board: Any, worker: Any, skew: float, told: str | None) -> None:
    worker.metadata.update(clock=time.time() + skew, claim_ttl=30)
    board.register_entity(worker)
    found = obstacles(board)
    assert [(each.kind, each.is_odd) for each in found] == [("clock", True)] * (told is not None)
    assert told is None or found[0].reason.endswith(told)


@pytest.mark.rule("doctor, list and show name what keeps jobs from being worked on, by one function.")
def test_a_schedule_whose_key_is_taken_and_since_when(board: Any, worker: Any, screens: Any) -> None:
    holder = board.post("mail", key="k")
    board.schedule("nightly", name="mail", every=60, key="k")
    assert obstacles(board) == []
    first = put_back(board, "nightly", 50)
    board.post_due()
    put_back(board, "nightly", 5)
    board.post_due()
    [schedule] = board.schedules()
    assert schedule.skipped_since == first, "the first of several in a row"
    [found] = obstacles(board)
    assert (found.kind, found.place, found.is_odd) == ("skipped", "schedule 'nightly'", True)
    since = first.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    held = f"its key 'k' is held by job {holder.uuid[:8]}, UNCLAIMED for "
    assert found.reason.startswith(f"it has posted nothing since {since}: {held}")
    screens(found)
    board.claim(holder, "anna")
    assert "CLAIMED by 'anna'" in obstacles(board)[0].reason
    board.consume(holder, "anna")
    assert obstacles(board) == [], "the next due time gets its job"
    put_back(board, "nightly", 1)
    board.post_due()
    [schedule] = board.schedules()
    assert schedule.skipped_since is None


def test_a_job_that_is_not_due_is_claimed_or_has_ended(board: Any, worker: Any, run: Commands) -> None:
    later = board.post("mail", delay=600)
    assert "\nwaits: it is due in 9m59s\n" in run("show", later.uuid).out or "10m00s" in run("show", later.uuid).out
    job = board.post("mail")
    board.claim(job, "web1-71")
    assert "\nheld: claimed by 'web1-71' for " in run("show", job.uuid).out
    assert "alive: host web1, pid 71" in run("show", job.uuid).out
    board.abandon(job, "web1-71", error="no room", delay=600)
    assert "\nwaits: it failed, and is tried again in " in run("show", job.uuid).out
    board.cancel(job)
    assert run("show", job.uuid, "--json").json["waits_for"] == []


@pytest.mark.backends("sqlite")
def test_a_wrong_board_name(board: Any, make_board: Any, run: Commands) -> None:
    make_board("pictures").post("mail")
    ran = run("doctor")
    assert "'pictures' (see --name)" in ran.err
    assert ran.out == f"Nothing is odd, and board {board.name!r} is empty.\n"

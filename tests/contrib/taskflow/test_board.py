"""What TaskFlow's users meet on the bridge, beside what TaskFlow's own tests say, and where it does better."""

from __future__ import annotations

import contextlib
import datetime
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from taskflow import exceptions, states
from taskflow.jobs import backends
from taskflow.jobs.base import POSTED, REMOVAL, Job, JobPriority
from taskflow.types.entity import Entity
from taskflow.utils import redis_utils

from jobboard.exceptions import ClaimLost
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG, let_lapse
from tests.contrib.taskflow.boards import BACKENDS, close_client, make_client

pytestmark = pytest.mark.backends(*(name for name in ("sqlite", "redis") if name in BACKENDS))

EACH_BACKEND = pytest.mark.backends(*BACKENDS)

MakeTheirs = Callable[..., Any]


@pytest.fixture
def board(make_theirs: MakeTheirs) -> Any:
    return make_theirs()


@pytest.fixture
def other(board: Any, make_theirs: MakeTheirs) -> Any:
    """The same board, of another name and through a connection of its own."""
    return make_theirs("other")


def only(jobs: Any) -> Any:
    [job] = jobs
    return job


def test_the_name_is_a_label(board: Any, other: Any) -> None:
    job = board.post("resize")
    assert list(other.iterjobs()) == [job]
    assert (board.name, other.name) == ("board", "other")


@EACH_BACKEND
def test_another_place_is_another_board(board: Any, make_theirs: MakeTheirs, theirs_conf: dict[str, Any]) -> None:
    apart = make_theirs(**{"namespace" if "namespace" in theirs_conf else "path": "apart"})
    board.post("resize")
    assert apart.job_count == 0


@pytest.mark.backends("redis", "zookeeper")
def test_taskflows_own_board_may_lie_at_the_same_place(board: Any, theirs_conf: dict[str, Any]) -> None:
    place = theirs_conf["namespace"]
    client = make_client(theirs_conf["url"])
    conf = {"board": theirs_conf["url"].partition(":")[0], "namespace": place, "path": f"/{place}"}
    board.post("ours")
    with contextlib.ExitStack() as stack:
        stack.callback(close_client, client)
        theirs = stack.enter_context(backends.backend("theirs", conf, client=client))
        theirs.post("theirs")
        assert [job.name for job in theirs.iterjobs(ensure_fresh=True)] == ["theirs"]
        assert [job.name for job in board.iterjobs()] == ["ours"]
        assert board.job_count == 1


@EACH_BACKEND
def test_the_highest_priority_and_the_oldest_post_come_first(board: Any, other: Any) -> None:
    order = [JobPriority.LOW, "very_high", JobPriority.NORMAL, "VERY_LOW", JobPriority.HIGH]
    posted = [board.post("resize", priority=priority) for _ in range(2) for priority in order]
    found = list(other.iterjobs())
    assert [job.priority for job in found] == [rank for rank in JobPriority for _ in range(2)]
    assert found == sorted(posted)
    assert found[0].sequence < found[1].sequence


def test_priorities_between_the_names_show_the_nearest_below(board: Any) -> None:
    shown = {100: "VERY_HIGH", 99: "HIGH", 0: "NORMAL", -1: "LOW", -51: "VERY_LOW", -100: "VERY_LOW"}
    for number in shown:
        board.jobboard.post(str(number), priority=number)
    assert {int(job.name): job.priority.value for job in board.iterjobs()} == shown
    with pytest.raises(ValueError, match="not a valid priority"):
        board.post("resize", priority="99")


def test_details_come_back_as_they_were(board: Any, other: Any) -> None:
    details = {
        "when": datetime.datetime(2026, 11, 22, 12, tzinfo=datetime.UTC),
        "seen": {1, 2},
        "id": uuid.UUID(int=7),
        "blob": b"\xff",
        3: {"deep": [{4: None}]},
    }
    assert board.post("resize", details=details).details == details
    assert only(other.iterjobs()).details == details
    with pytest.raises(TypeError, match="object"):
        board.post("resize", details={"x": object()})
    assert board.job_count == 1


def test_a_job_tells_no_details(board: Any) -> None:
    job = board.post("pay", details={"card": "4111"})
    assert isinstance(job, Job)
    assert str(job) == f"TaskFlowJob: pay (priority=JobPriority.NORMAL, uuid={job.uuid})"
    assert "4111" not in repr(job)


def since(job: Any) -> datetime.timedelta:
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - job.created_on


def test_times_are_naive_and_in_utc(board: Any) -> None:
    job = board.post("resize")
    assert abs(since(job)) < datetime.timedelta(seconds=60)
    assert job.last_modified == job.created_on
    # Some tell no more than thousandths of a second.
    eventually(lambda: since(job) > datetime.timedelta(milliseconds=2))
    board.claim(job, "me")
    assert job.last_modified > job.created_on


@pytest.mark.rule("A trashed job is complete for the bridge, and wait() returns True.")
def test_a_trashed_job_is_complete(board: Any, other: Any) -> None:
    job, seen = board.post("resize"), only(other.iterjobs())
    board.claim(job, "me")
    board.trash(job, "me")
    assert seen.state == states.COMPLETE
    assert seen.wait(LONG)
    assert [each.uuid for each in board.jobboard.trashed()] == [job.uuid]
    board.jobboard.restore(job.jobboard_job)
    assert list(other.iterjobs(only_unclaimed=True)) == [job]


def test_a_scheduled_job_is_not_listed(board: Any) -> None:
    board.jobboard.post("later", delay=LONG)
    assert list(board.iterjobs()) == []
    assert board.job_count == 1


@pytest.mark.rule("An iterator of the bridge can be told later what it shows.")
def test_an_iterator_takes_a_new_filter(board: Any) -> None:
    board.claim(board.post("resize"), "me")
    job = board.post("crop")
    jobs = board.iterjobs(ensure_fresh=True)
    assert (jobs.board, jobs.only_unclaimed, jobs.ensure_fresh) == (board, False, True)
    jobs.only_unclaimed = True
    assert list(jobs) == [job]


def test_a_claimed_job_cannot_be_claimed(board: Any, other: Any) -> None:
    job = board.post("resize")
    board.claim(job, "me")
    for jobboard in (board, other):
        with pytest.raises(exceptions.UnclaimableJob):
            jobboard.claim(only(jobboard.iterjobs()), "me")
    with pytest.raises(exceptions.JobFailure):
        other.consume(only(other.iterjobs()), "you")
    other.consume(only(other.iterjobs()), "me")
    with pytest.raises((exceptions.JobFailure, exceptions.NotFound)):
        board.consume(job, "me")
    for who, error in ((3, TypeError), ("", ValueError)):
        with pytest.raises(error):
            board.claim(job, who)


def test_a_claim_brings_replaced_details(board: Any, other: Any) -> None:
    board.jobboard.post("resize", details={"width": 1}, key="k")
    job = only(other.iterjobs())
    assert job.details == {"width": 1}
    assert board.jobboard.post("resize", details={"width": 2}, key="k", on_key="replace").replaced
    other.claim(job, "me")
    assert job.details == {"width": 2}


@pytest.mark.rule("A job that was released here can be claimed here.")
def test_a_released_job_can_be_claimed_here(board: Any) -> None:
    job = board.post("resize")
    board.claim(job, "me")
    board.jobboard.release(board.jobboard.get(job.uuid))
    board.claim(job, "you")
    assert board.find_owner(job) == "you"


@pytest.mark.rule("A board claims at once what another handle has abandoned.")
@pytest.mark.parametrize("expiry", [None, LONG])
def test_a_job_that_another_handle_abandoned_can_be_claimed_at_once(
    board: Any, other: Any, expiry: float | None
) -> None:
    job = board.post("resize")
    board.claim(job, "me", expiry=expiry)
    with pytest.raises(exceptions.UnclaimableJob):
        board.claim(only(board.iterjobs()), "me")
    other.abandon(only(other.iterjobs()), "me")
    board.claim(only(board.iterjobs()), "me", expiry=LONG)
    other.abandon(only(other.iterjobs()), "me")
    board.claim(job, "you", expiry=LONG)
    assert other.find_owner(job) == "you"


@pytest.mark.rule("A stale handle of the bridge ends nothing.")
def test_a_stale_handle_ends_nothing_and_extends_nothing(board: Any, other: Any) -> None:
    stale = board.post("resize")
    let_lapse(board.jobboard, stale.jobboard_job, "me")
    fresh = only(other.iterjobs())
    other.claim(fresh, "me", expiry=LONG)
    with pytest.raises(exceptions.JobFailure) as caught:
        board.consume(stale, "me")
    assert isinstance(caught.value.cause, ClaimLost)
    assert not stale.extend_expiry(1)
    assert fresh.expires_in() > LONG / 2
    other.consume(fresh, "me")


@EACH_BACKEND
def test_expiries_are_told_as_taskflow_tells_them(board: Any, other: Any) -> None:
    job = board.post("resize")
    seen = only(other.iterjobs())
    assert job.expires_in() == redis_utils.KEY_NOT_FOUND
    assert not job.extend_expiry(LONG)
    board.claim(job, "me")
    assert seen.expires_in() == redis_utils.DOES_NOT_EXPIRE
    # What its own board keeps stays kept, whoever looks after it.
    assert seen.extend_expiry(1)
    assert seen.expires_in() == redis_utils.DOES_NOT_EXPIRE
    assert job.extend_expiry(LONG)
    # A server's time that is not known exactly lengthens a lease.
    assert LONG / 2 < seen.expires_in() < LONG + 1
    assert seen.extend_expiry(3 * LONG)
    assert 2 * LONG < job.expires_in() < 3 * LONG + 1
    board.consume(job, "me")
    assert seen.expires_in() == redis_utils.KEY_NOT_FOUND


def test_a_claim_may_be_given_an_expiry_by_the_configuration(make_theirs: MakeTheirs) -> None:
    board = make_theirs(ttl=str(LONG))
    one, two = board.post("resize"), board.post("resize")
    board.claim(one, "me")
    board.claim(two, "me", expiry=3 * LONG)
    assert LONG / 2 < one.expires_in() <= LONG
    assert two.expires_in() > 2 * LONG


@EACH_BACKEND
def test_a_closed_board_gives_back_what_it_kept(board: Any, other: Any) -> None:
    board.claim(board.post("kept"), "me")
    board.claim(board.post("fixed"), "me", expiry=LONG)
    board.close()
    assert [job.name for job in other.iterjobs(only_unclaimed=True)] == ["kept"]
    assert not board.connected
    for act in (board.iterjobs().__next__, lambda: board.job_count, lambda: board.post("late"), board.wait):
        with pytest.raises(exceptions.JobFailure):
            act()


@EACH_BACKEND
def test_listeners_hear_posts_and_removals(board: Any, other: Any) -> None:
    heard: list[tuple[Any, ...]] = []

    def callback(event: str, *args: Any, details: dict[str, Any]) -> None:
        heard.append((event, *args, details["job"]))

    board.notifier.register(POSTED, callback, args=[1])
    board.notifier.register(REMOVAL, callback)
    job = board.post("resize")
    eventually(lambda: heard == [(POSTED, 1, job)])
    assert heard[0][2].board is board
    theirs = other.post("crop")
    if board.jobboard.characteristics.remote_events:
        eventually(lambda: heard[1:] == [(POSTED, 1, theirs)])
    board.claim(job, "me")
    board.trash(job, "me")
    eventually(lambda: heard[-1] == (REMOVAL, job))
    board.notifier.deregister(POSTED, callback)
    assert board.jobboard.notifier.listened_to
    board.notifier.deregister_event(REMOVAL)
    assert not board.jobboard.notifier.listened_to
    board.notifier.register("*", callback)
    board.notifier.reset()
    assert not board.jobboard.notifier.listened_to


def test_entities_may_be_of_any_kind(board: Any, other: Any) -> None:
    board.register_entity(Entity("conductor", "one", {"pid": 3}))
    board.register_entity(Entity("poster", "two", {}))
    found = {(entity.kind, entity.name): entity.metadata for entity in other.jobboard.entities()}
    assert found == {("conductor", "one"): {"pid": 3}, ("poster", "two"): {}}


class Cipher:
    """It turns each byte around."""

    number = 1

    def encrypt(self, data: bytes) -> bytes:
        return bytes(255 - byte for byte in data)

    def decrypt(self, number: int, data: bytes) -> bytes:
        return self.encrypt(data)


@pytest.mark.backends("redis")
@pytest.mark.rule("A bridge without the key passes over encrypted jobs, and one with the option cipher works on them.")
def test_encrypted_jobs(make_theirs: MakeTheirs) -> None:
    board, plain = make_theirs(cipher=Cipher()), make_theirs()
    job = board.post("resize", details={"width": 1})
    assert list(plain.iterjobs(only_unclaimed=True)) == []
    seen = only(plain.iterjobs())
    assert (seen, seen.book) == (job, None)
    with pytest.raises(exceptions.JobFailure, match="encrypted"):
        seen.details  # noqa: B018
    with pytest.raises(exceptions.UnclaimableJob, match="encrypted"):
        plain.claim(seen, "me")
    found = only(board.iterjobs(only_unclaimed=True))
    board.claim(found, "me")
    assert found.details == {"width": 1}
    board.consume(found, "me")

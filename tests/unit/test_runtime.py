"""The one place of clocks, threads, random numbers and uuids."""

import uuid
from typing import Any

import pytest

import jobboard
from jobboard import runtime


@pytest.mark.rule(
    "All clocks, threads, random numbers and uuids come from jobboard.runtime, and freezegun freezes none of them."
)
def test_a_board_takes_all_clocks_and_uuids_from_the_runtime() -> None:
    """A board that would ask another clock would see the machine's years pass."""
    clock = [4e9]
    slept: list[float] = []
    handles: list[uuid.UUID] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock[0] += seconds

    def make_uuid() -> uuid.UUID:
        handles.append(uuid.UUID(int=len(handles), version=4))
        return handles[-1]

    names: dict[str, Any] = {
        **dict.fromkeys(("boottime", "monotonic", "wall_time"), lambda: clock[0]),
        "sleep": sleep,
        "urandom": bytes,
        "uuid4": make_uuid,
    }
    with runtime.replaced(names), jobboard.backend("replaced", "memory") as board:
        job = board.post("a")
        assert job.created_on.timestamp() == 4e9
        claim = board.claim(job, "anna", expiry=60)
        assert claim.deadline == 4e9 + 60
        clock[0] += 61
        assert claim.lost
        assert board.get(job.uuid).state == "UNCLAIMED"
        assert not job.wait(3)
        assert sum(slept) == pytest.approx(3)
        assert job.uuid.endswith("-0000-4000-8000-000000000000")
        assert handles
    assert runtime.boottime() < 4e9


@pytest.mark.rule(
    "All clocks, threads, random numbers and uuids come from jobboard.runtime, and freezegun freezes none of them."
)
def test_threads_locks_and_waits_come_from_the_runtime() -> None:
    made: list[str] = []

    def counted(name: str) -> Any:
        real = getattr(runtime, name)
        return lambda *args, **kwargs: made.append(name) or real(*args, **kwargs)

    kinds = ("Condition", "Event", "Local", "Lock", "RLock", "Thread")
    with runtime.replaced({name: counted(name) for name in kinds}), jobboard.backend("counted", "memory") as board:
        board.post("a")
        board.claim_next("anna").claim.consume()
    assert set(made) == set(kinds)


def test_replacing_a_name_that_the_runtime_lacks_is_refused() -> None:
    with pytest.raises(KeyError, match="perf_counter"), runtime.replaced({"perf_counter": None}):
        pass


def test_a_local_begins_anew_in_each_thread() -> None:
    local, seen = runtime.Local(count=0), []
    local.count += 5
    thread = runtime.Thread(target=lambda: seen.append(local.count))
    thread.start()
    thread.join()
    assert (local.count, seen) == (5, [0])

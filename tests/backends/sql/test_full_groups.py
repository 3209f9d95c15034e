"""Takes past jobs that may not be claimed: by a walk from group to group, or from name to name."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import sqlalchemy as sa

from jobboard.board import JobBoard
from jobboard.job import Job, Posting
from jobboard.testing.conformance.support import take, uuids

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

NAMES = ("mail", "print", "resize")
MOST = {"mail": 1, "print": 2}
"""How many claims live in each group of a name."""


def fitting(jobs: list[Job], held: list[Job], names: tuple[str, ...] | None, limit: int) -> list[Job]:
    """The first jobs of these names that can be claimed together."""
    claims = Counter((job.name, job.group) for job in held)
    chosen: list[Job] = []
    for job in sorted(jobs):
        lane = (job.name, job.group)
        full = job.group is not None and claims[lane] >= MOST.get(job.name, len(jobs))
        if not full and (names is None or job.name in names) and len(chosen) < limit:
            claims[lane] += 1
            chosen.append(job)
    return chosen


@pytest.mark.rule("What is taken beside full groups is the first job that has room, whatever has opened since.")
@pytest.mark.parametrize("seed", range(2))
def test_the_first_job_that_has_room_is_taken(board: JobBoard, seed: int) -> None:
    dice = random.Random(seed)
    for name, most in MOST.items():
        board.set_limit(name, per="group", concurrency=most)
    crowd = [Posting("mail", group="full", priority="HIGH")] * 60
    others = [
        Posting(
            dice.choice(NAMES), group=dice.choice([None, *"abcdef"]), priority=dice.choice(["LOW", "NORMAL", "HIGH"])
        )
        for _ in range(60)
    ]
    jobs, held = board.post_many([*crowd, *others]), list[Job]()
    for _ in range(25):
        names = dice.choice([None, NAMES[:1], NAMES[:2], NAMES[1:]])
        limit = dice.choice([1, 1, 3, 20])
        taken = board.claim_many("anna", limit, names=names)
        assert uuids(taken) == uuids(fitting(jobs, held, names, limit))
        jobs = [job for job in jobs if job not in taken]
        held += taken
        ended = dice.sample(held, dice.randrange(len(held) // 2 + 1))
        board.consume_many(ended, "anna")
        held = [job for job in held if job not in ended]


@pytest.mark.rule("A walk past full groups reads none of their jobs.")
def test_the_walk_reads_no_jobs_of_the_full_group(board: JobBoard) -> None:
    """It is asked once, and its cost is in the groups: of the jobs of a group it reads those that it may take."""
    board.set_limit("mail", per="group", concurrency=1)
    board.post_many([Posting("mail", group="full")] * 400)
    behind = board.post_many([Posting("mail", group=group) for group in ("a", None, "b")])
    assert take(board).group == "full"
    store, run = board.engine.store, []
    rows = store._rows

    def spied(link: object, statement: object, **params: object) -> list[object]:
        found = rows(link, statement, **params)
        run.append((getattr(statement, "name", statement), len(found)))
        return found

    store._rows = spied
    assert take(board) == behind[0]
    walks = [number for name, number in run if name == "groups"]
    assert walks in ([4], [4, 4]), "one before the locks, and one behind"
    assert all(number <= 40 for _, number in run)


@pytest.mark.rule("A job that is posted late to a full group is found.")
@pytest.mark.backends("postgresql", "mariadb")
def test_a_late_post_to_a_full_group_is_found(board: JobBoard, engine: sa.Engine) -> None:
    """Its id is lower than those that looks have met in its group, and beside it."""
    board.set_limit("mail", per="group", concurrency=1)
    with engine.connect() as connection:
        late = board.post("mail", group="full", connection=connection)
        board.post_many([Posting("mail", group="full")] * 40)
        beside = board.post_many([Posting("mail", group="a"), Posting("mail", group="b")])
        held = take(board)
        assert held.group == "full"
        assert take(board) == beside[0]
        connection.commit()
    assert take(board) == beside[1]
    assert board.claim_next("anna") is None
    board.consume(held, "anna")
    assert take(board) == late


def test_a_take_beside_a_paused_name_finds_every_other_name(board: JobBoard) -> None:
    """However many names there are, with groups and without."""
    board.pause(["paused"])
    board.post_many([Posting("paused")] * 3)
    names = sorted(f"n{number}é" for number in range(1200))
    board.post_many([Posting(name, group="g" if number % 2 else None) for number, name in enumerate(names)])
    taken: list[str] = []
    while jobs := board.claim_many("anna", 100):
        taken += [job.name for job in jobs]
    assert taken == names

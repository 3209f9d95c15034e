"""The SQL that each verb sends stands in ``tests/golden/sql``, one file for each verb and database.

    JOBBOARD_GOLDEN=write pytest tests/backends/sql/test_golden.py

writes the files anew. They are read like code: a change in one is a change of what the database does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from difflib import unified_diff
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from jobboard import Act
from jobboard.board import JobBoard
from jobboard.primitives import Finish
from jobboard.states import Holder, Verb
from jobboard.testing.conformance.support import let_lapse, trash_one
from tests.backends.sql.recorder import Recorder, readable

GOLDEN = Path(__file__).parents[2] / "golden" / "sql"

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


def claimed(board: JobBoard, name: str = "a", **posting: Any) -> Any:
    board.post(name, **posting)
    return board.claim_next("anna", names=[name])


def many(board: JobBoard) -> list[Any]:
    board.post_many([{"name": "a"}] * 3)
    return board.claim_many("anna", 3)


def apart(board: JobBoard) -> list[Any]:
    """With two tokens, also where both claims are of one millisecond."""
    first, second = claimed(board), claimed(board)
    board.abandon(second, "anna")
    return [first, board.claim_next("anna")]


def three(board: JobBoard) -> Any:
    board.post_many([{"name": name} for name in "aba"])
    return None


def in_groups(board: JobBoard) -> Any:
    """Once there was a claim in the first one's group, as there mostly was."""
    board.post("a", group="one")
    board.consume(board.claim_next("anna"), "anna")
    board.post_many([{"name": "a", "group": group} for group in ("one", "one", "two")])
    return None


def with_a_full_one(board: JobBoard) -> Any:
    in_groups(board)
    return board.claim_next("anna")


def ending(jobs: Sequence[Any], *results: str | None) -> list[Finish]:
    acts = [Finish(job.uuid, Holder("anna", job.claim.token), Verb.CONSUME) for job in jobs]
    return [act._replace(keep=60_000_000, result=result) for act, result in zip(acts, results, strict=True)]


def keep(board: JobBoard, jobs: Sequence[Any], *results: str | None) -> Any:
    return board._session.mutate(board.engine.finish, ending(jobs, *results))


# What comes before a verb, and the verb itself, which is given what that answers.
Sent = tuple[Callable[[JobBoard], Any], Callable[[JobBoard, Any], Any]]
VERBS: dict[str, Sent] = {
    "post": (lambda b: None, lambda b, _: b.post("a", details={"n": 1})),
    "post_delayed": (lambda b: None, lambda b, _: b.post("a", delay=60)),
    "post_key": (lambda b: None, lambda b, _: b.post("a", key="k")),
    "post_key_taken": (lambda b: b.post("a", key="k"), lambda b, _: b.post("a", key="k")),
    "post_many": (lambda b: None, lambda b, _: b.post_many([{"name": "a"}] * 3)),
    "claim": (lambda b: b.post("a"), lambda b, job: b.claim(job, "anna")),
    "claim_next": (three, lambda b, _: b.claim_next("anna")),
    "claim_next_name": (three, lambda b, _: b.claim_next("anna", names=["b"])),
    "claim_next_names": (three, lambda b, _: b.claim_next("anna", names=["b", "c"])),
    "claim_next_where": (three, lambda b, _: b.claim_next("anna", where=b.table.c.priority < 150)),
    "claim_next_nothing": (lambda b: None, lambda b, _: b.claim_next("anna")),
    "claim_next_overdue": (lambda b: let_lapse(b, b.post("a")), lambda b, _: b.claim_next("anna")),
    "claim_many": (three, lambda b, _: b.claim_many("anna", 100)),
    "extend": (claimed, lambda b, job: b.extend(job, "anna", 60)),
    "renew": (claimed, lambda b, job: b.engine.renew(b._session.handle, [(job.uuid, job.claim.token)], 5_000_000)),
    "consume": (claimed, lambda b, job: b.consume(job, "anna")),
    "consume_many": (many, lambda b, jobs: b.consume_many(jobs, "anna")),
    "consume_many_apart": (apart, lambda b, jobs: b.consume_many(jobs, "anna")),
    "consume_kept": (claimed, lambda b, job: keep(b, [job], "1")),
    "consume_many_kept": (many, lambda b, jobs: keep(b, jobs, None, None, None)),
    "consume_many_results": (many, lambda b, jobs: keep(b, jobs, "1", "2", None)),
    "outcomes": (lambda b: None, lambda b, _: b.engine.outcomes(["x"])),
    "outcomes_page": (lambda b: None, lambda b, _: b.engine.done_page(None, 10)),
    "finish_many": (
        lambda b: [claimed(b), claimed(b)],
        lambda b, jobs: b.finish_many([Act(jobs[0], "consume"), Act(jobs[1], "abandon", error="x")], "anna"),
    ),
    "abandon": (claimed, lambda b, job: b.abandon(job, "anna", delay=5, error="x")),
    "trash": (claimed, lambda b, job: b.trash(job, "anna", reason="x")),
    "release": (claimed, lambda b, job: b.release(job)),
    "cancel": (lambda b: b.post("a"), lambda b, job: b.cancel(job)),
    "restore": (trash_one, lambda b, job: b.restore(job)),
    "restore_key": (lambda b: trash_one(b, key="k"), lambda b, job: b.restore(job)),
    "purge": (trash_one, lambda b, job: b.purge(job)),
    "purge_trash": (trash_one, lambda b, _: b.purge_trash(0)),
    "trashed": (trash_one, lambda b, _: list(b.trashed())),
    "get": (lambda b: b.post("a"), lambda b, job: b.get(job.uuid)),
    "find_owner": (claimed, lambda b, job: b.find_owner(job)),
    "iterjobs": (three, lambda b, _: list(b.iterjobs())),
    "iterjobs_only_unclaimed": (three, lambda b, _: list(b.iterjobs(only_unclaimed=True))),
    "iterjobs_names": (three, lambda b, _: list(b.iterjobs(names=["a", "b"]))),
    "job_count": (three, lambda b, _: b.job_count),
    "stats": (three, lambda b, _: b.stats()),
    "wait": (three, lambda b, _: b.wait(0)),
    "tidy": (three, lambda b, _: b.engine.tidy()),
    "enlist": (lambda b: b._session.handle, lambda b, handle: b.engine.enlist(handle, "conductor", "c", "{}", 60)),
    "delist": (lambda b: b._session.handle, lambda b, handle: b.engine.delist(handle)),
    "entities": (lambda b: None, lambda b, _: list(b.entities())),
    "siblings": (three, lambda b, _: b.siblings()),
    "examine": (three, lambda b, _: list(b.examine())),
    "set_limit": (three, lambda b, _: b.set_limit("a", concurrency=1, per="group")),
    "claim_next_limited": (in_groups, lambda b, _: b.claim_next("anna")),
    "claim_next_limited_first": (lambda b: b.post("a", group="new"), lambda b, _: b.claim_next("anna")),
    "claim_next_limited_names": (in_groups, lambda b, _: b.claim_next("anna", names=["a", "b"])),
    "claim_next_full": (with_a_full_one, lambda b, _: b.claim_next("anna")),
    "consume_limited": (with_a_full_one, lambda b, job: b.consume(job, "anna")),
    "remove_limit": (three, lambda b, _: b.remove_limit("a")),
}

# In a transaction of the caller's: what the caller sends is not the board's.
JOINED: dict[str, Callable[[JobBoard, Any, sa.Connection], Any]] = {
    "post_connection": lambda b, job, connection: b.post("a", connection=connection),
    "consume_connection": lambda b, job, connection: b.consume(job, "anna", connection=connection),
    "consume_connection_kept": lambda b, job, connection: b.engine.finish(
        ending([job], "1"), None, connection=connection
    ),
}


@pytest.fixture
def sent(
    make_board: Callable[..., Any], engine: sa.Engine, board_conf: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[[], dict[str, str]]:
    """What each verb has sent, as it stands in a file; whatever a take has met before."""
    monkeypatch.setattr("jobboard.backends.sql.postgresql.limited.CROWDED", 0.0)

    def sent() -> dict[str, str]:
        texts: dict[str, list[str]] = {}
        with Recorder() as record:
            board = make_board()
            # What a handle does once is not what a verb sends.
            board.consume(claimed(board), "anna")
            clear = sa.delete(board.table)
            for name, (prepare, verb) in VERBS.items():
                given = prepare(board)
                with record() as texts[name]:
                    verb(board, given)
                with engine.begin() as connection:
                    connection.execute(clear)
            for name, joined in JOINED.items():
                job = claimed(board)
                with engine.connect() as connection:
                    joined(board, claimed(board), connection)
                    with record() as texts[name]:
                        joined(board, job, connection)
                    connection.rollback()
        table = board_conf.get("table", "jobboard")
        return {name: "".join(f"{readable(text, table)};\n" for text in each) for name, each in texts.items()}

    return sent


def test_what_each_verb_sends(backend: str, sent: Callable[[], dict[str, str]]) -> None:
    texts = {f"{name}.sql": text or "-- nothing\n" for name, text in sent().items()}
    folder = GOLDEN / backend
    if os.environ.get("JOBBOARD_GOLDEN") == "write":
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for name, text in texts.items():
            (folder / name).write_text(text)
    kept = {file.name: file.read_text() for file in folder.iterdir()}
    changed = "\n".join(
        line
        for name in sorted(kept.keys() | texts.keys())
        for line in unified_diff(
            kept.get(name, "").split("\n"), texts.get(name, "").split("\n"), name, "sent", lineterm=""
        )
    )
    assert not changed, f"if this is meant, write the files anew with JOBBOARD_GOLDEN=write\n{changed}"

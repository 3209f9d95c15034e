"""Damaged side records of scopes, keys and entities: they count as absent, and stop nothing."""

from typing import Any

import pytest

import jobboard
from jobboard.job import Posting
from jobboard.testing import eventually
from jobboard.testing.conformance.damage import damage
from jobboard.testing.conformance.support import engine_of

pytestmark = pytest.mark.backends("memory", "etcd", "sqlite", "zookeeper")

keys = pytest.mark.backends("memory")


@pytest.fixture
def board(board_of_commands: Any) -> Any:
    return board_of_commands


@pytest.mark.rule("Side records of scopes that no claim enters are dropped, damaged ones too.")
def test_a_damaged_scope_is_dropped_once_it_is_idle(board: Any, make_board: Any) -> None:
    # What a rate counts is stored on every board, and the claims of a limit on some.
    board.set_limit("mail", concurrency=1, per="group", rate=(9, 60))
    board.post("mail", group="g")
    board.claim_next("anna")
    damage(board, "scope", "mail\ng")
    board.remove_limit("mail")
    other = make_board()
    for _ in range(2):
        eventually(lambda: not engine_of(other).tidy(), 10)
    assert board.engine.store.sides("scope", None, 500)[0].sides == []


@pytest.mark.rule("A damaged key belongs to nobody, and blocks no post.")
@pytest.mark.rule("A key that belongs to no job is given to the next post.")
@keys
@pytest.mark.parametrize("key_for", [None, 600])
def test_a_damaged_key_is_free(board: Any, other: Any, key_for: float | None, caplog: pytest.LogCaptureFixture) -> None:
    first = board.post("resize", key="k", key_for=key_for)
    damage(board, "key", "k")
    posted = other.post_many([Posting("mail"), Posting("resize", key="k")])
    assert all(job.created for job in posted)
    assert "the holder of the key 'k' can't be read" in caplog.text
    claimed = board.claim_many("anna", 3)
    assert claimed == [first, *posted]
    board.consume_many(claimed, "anna")
    assert other.post("resize", key="k", key_for=key_for).created


@pytest.mark.rule("A damaged entity hides no other entity, and can be deregistered.")
@keys
def test_a_damaged_entity_hides_no_other(board: Any, other: Any) -> None:
    board.register_entity(jobboard.Entity("conductor", "damaged", {}))
    other.register_entity(jobboard.Entity("conductor", "sound", {}))
    [damaged] = [side for side in board.engine.store.sides("entity", None, 500)[0].sides if "damaged" in side.key]
    damage(board, "entity", damaged.key)
    assert [entity.name for entity in board.entities()] == ["sound"]
    other.close()
    assert board.entities() == []

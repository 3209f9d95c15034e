"""Side records that somebody has damaged: what they are about goes on."""

from typing import Any

import pytest

import jobboard
from jobboard.job import Posting
from jobboard.testing.conformance.examining import damage

pytestmark = pytest.mark.backends("memory")


@pytest.mark.parametrize("key_for", [None, 600])
def test_a_damaged_key_is_nobodys(
    board: Any, other: Any, key_for: float | None, caplog: pytest.LogCaptureFixture
) -> None:
    first = board.post("resize", key="k", key_for=key_for)
    damage(board, "key", "k")
    posted = other.post_many([Posting("mail"), Posting("resize", key="k")])
    assert all(job.created for job in posted)
    assert "who has the key 'k' can't be read" in caplog.text
    claimed = board.claim_many("anna", 3)
    assert claimed == [first, *posted]
    board.consume_many(claimed, "anna")
    assert other.post("resize", key="k", key_for=key_for).created


def test_a_damaged_entity_keeps_nobody_from_leaving(board: Any, other: Any) -> None:
    board.register_entity(jobboard.Entity("conductor", "damaged", {}))
    other.register_entity(jobboard.Entity("conductor", "sound", {}))
    [damaged] = [side for side in board.engine.store.sides("entity", None, 500)[0].sides if "damaged" in side.key]
    damage(board, "entity", damaged.key)
    assert [entity.name for entity in board.entities()] == ["sound"]
    other.close()
    assert board.entities() == []

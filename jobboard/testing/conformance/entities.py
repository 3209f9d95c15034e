"""Entities: who shows on the board while alive."""

from __future__ import annotations

import time
from typing import Any

import pytest

from jobboard.board import JobBoard
from jobboard.job import Entity
from jobboard.testing import eventually
from jobboard.testing.conformance.support import HELD, HOLDS, LIMIT, MakeBoard


class Guest:
    """Not one of the library's own, as TaskFlow's conductor is not."""

    kind = "worker"

    def __init__(self, name: Any, metadata: Any = None) -> None:
        self.name, self.metadata = name, metadata


class TestEntities:
    def test_registered_ones_are_seen(self, board: JobBoard, other: JobBoard) -> None:
        assert board.entities() == []
        board.register_entity(Entity("conductor", "one", {"hostname": "ä", "pid": 7, "nested": {"a": [1, None]}}))
        other.register_entity(Guest("two"))
        board.register_entity(Entity("conductor", "three"))
        for each in (board, other):
            assert sorted(each.entities("conductor"), key=lambda entity: entity.name) == [
                Entity("conductor", "one", {"hostname": "ä", "pid": 7, "nested": {"a": [1, None]}}),
                Entity("conductor", "three", {}),
            ]
            assert each.entities("worker") == [Entity("worker", "two", {})]
            assert len(each.entities()) == 3
            assert each.entities("nobody") == []

    def test_again_replaces(self, board: JobBoard) -> None:
        board.register_entity(Entity("conductor", "one", {"a": 1}))
        board.register_entity(Entity("conductor", "one", {"b": 2}))
        assert board.entities() == [Entity("conductor", "one", {"b": 2})]

    def test_gone_with_their_board(self, board: JobBoard, other: JobBoard) -> None:
        board.register_entity(Entity("conductor", "one"))
        other.register_entity(Entity("conductor", "two"))
        board.close()
        assert other.entities() == [Entity("conductor", "two")]
        board.connect()
        assert len(board.entities()) == 1

    def test_there_beyond_claim_ttl_until_deregistered(self, make_board: MakeBoard) -> None:
        board, other = make_board(claim_ttl=HELD), make_board()
        one, two = Entity("conductor", "one"), Entity("conductor", "two", {"a": 1})
        board.register_entity(one)
        board.register_entity(two)
        board.deregister_entity(one)
        board.deregister_entity(one)
        other.deregister_entity(two)
        assert other.entities() == [two]
        until = time.monotonic() + HOLDS * board.characteristics.claim_ttl
        while time.monotonic() < until:
            assert other.entities() == [two]
            time.sleep(0.02)

    def test_what_one_tells_is_read_anew_with_each_heartbeat(self, make_board: MakeBoard) -> None:
        """And what can't be told of one keeps no other from being shown."""
        board, other = make_board(claim_ttl=HELD), make_board()
        broken, counting = Guest("broken", {}), Guest("counting", {"done": 1})
        board.register_entity(broken)
        board.register_entity(counting)
        broken.metadata = {"a": object()}
        counting.metadata = {"done": 2}
        eventually(lambda: Entity("worker", "counting", {"done": 2}) in other.entities(), LIMIT)

    def test_how_much_one_may_tell(self, make_board: MakeBoard) -> None:
        """Whatever the details of jobs may have."""
        board = make_board(max_details=2)
        full = Entity("conductor", "one", {"a": "漢" * 21842 + "aa"})
        board.register_entity(full)
        with pytest.raises(ValueError, match="65537 bytes as JSON and their limit is 65536"):
            board.register_entity(Entity("conductor", "two", {"a": "漢" * 21843}))
        assert board.entities() == [full]

    def test_many(self, board: JobBoard) -> None:
        for number in range(30):
            board.register_entity(Entity("conductor", f"number {number}"))
        eventually(lambda: len(board.entities()) == 30, LIMIT)

    @pytest.mark.parametrize(
        "entity",
        [
            Entity("", "one"),
            Entity("conductor", ""),
            Guest(1),
            Guest("one", [1]),
            Guest("one", {"a": object()}),
        ],
    )
    def test_bad_ones(self, board: JobBoard, entity: Any) -> None:
        with pytest.raises((TypeError, ValueError)):
            board.register_entity(entity)
        assert board.entities() == []

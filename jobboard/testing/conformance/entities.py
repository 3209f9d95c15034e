"""Entities: who shows on the board while alive."""

from __future__ import annotations

from typing import Any

from jobboard.board import JobBoard
from jobboard.job import Entity
from jobboard.testing import eventually, holds
from jobboard.testing.conformance.support import HELD, LIMIT, MakeBoard


class Guest:
    """An entity of another library, as TaskFlow's conductor is one."""

    kind = "worker"

    def __init__(self, name: Any, metadata: Any = None) -> None:
        self.name, self.metadata = name, metadata


class TestEntities:
    def test_registered_entities_are_shown(self, board: JobBoard, other: JobBoard) -> None:
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

    def test_second_registration_replaces_the_first(self, board: JobBoard) -> None:
        board.register_entity(Entity("conductor", "one", {"a": 1}))
        board.register_entity(Entity("conductor", "one", {"b": 2}))
        assert board.entities() == [Entity("conductor", "one", {"b": 2})]

    @holds("Two conductors of one name both show.")
    def test_boards_may_each_have_an_entity_of_one_name(self, board: JobBoard, other: JobBoard) -> None:
        """Nobody sees otherwise that two conductors run under one name."""
        mine, yours = Entity("conductor", "one", {"pid": 1}), Entity("conductor", "one", {"pid": 2})
        board.register_entity(mine)
        other.register_entity(yours)
        assert board.entities() == other.entities() == [mine, yours]
        board.deregister_entity(mine)
        assert board.entities() == other.entities() == [yours]

    def test_closed_board_shows_no_entities(self, board: JobBoard, other: JobBoard) -> None:
        board.register_entity(Entity("conductor", "one"))
        other.register_entity(Entity("conductor", "two"))
        board.close()
        assert other.entities() == [Entity("conductor", "two")]
        board.connect()
        assert len(board.entities()) == 1

    def test_board_deregisters_its_own_entities(self, board: JobBoard, other: JobBoard) -> None:
        one, two = Entity("conductor", "one"), Entity("conductor", "two", {"a": 1})
        board.register_entity(one)
        board.register_entity(two)
        board.deregister_entity(one)
        board.deregister_entity(one)
        other.deregister_entity(two)
        assert other.entities() == [two]

    @holds("Conductors count what they do with their heartbeats, on every backend.")
    def test_metadata_are_read_with_each_heartbeat(self, make_board: MakeBoard) -> None:
        """And what can't be told of one keeps no other from being shown."""
        board, other = make_board(claim_ttl=HELD), make_board()
        broken, counting = Guest("broken", {}), Guest("counting", {"done": 1})
        board.register_entity(broken)
        board.register_entity(counting)
        broken.metadata = {"a": object()}
        counting.metadata = {"done": 2}
        eventually(lambda: Entity("worker", "counting", {"done": 2}) in other.entities(), LIMIT)

    def test_many_entities_are_shown(self, board: JobBoard) -> None:
        for number in range(30):
            board.register_entity(Entity("conductor", f"number {number}"))
        eventually(lambda: len(board.entities()) == 30, LIMIT)

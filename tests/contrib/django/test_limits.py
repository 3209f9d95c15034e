"""Limits on a database of Django's own, beside its transactions."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from tests.contrib.django import tasks
from tests.contrib.django.test_transactions import _RollBackError, fail_in_transaction, order, project

__all__ = ["project"]

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")


def test_what_is_rolled_back_counts_for_nothing(project: Any) -> None:
    """Neither for how many are claimed at once, nor for how many a minute."""
    board = project.board
    with transaction.atomic(using="project"):
        order(1)
        first, second = (tasks.add.enqueue(number) for number in range(2))
    [name] = {job.name for job in board.iterjobs(ensure_fresh=True)}
    board.set_limit(name, concurrency=1, rate=(3, 3600))
    with pytest.raises(_RollBackError):
        fail_in_transaction(2)
    held = board.claim_next("anna")
    assert held.uuid == first.id
    with transaction.atomic(using="project"):
        third = tasks.add.enqueue(3)
    assert board.claim_next("bert") is None
    for expected in (second, third):
        board.consume(held, "anna")
        held = board.claim_next("anna")
        assert held.uuid == expected.id
    board.consume(held, "anna")
    tasks.add.enqueue(4)
    assert board.claim_next("bert") is None
    assert board.job_count == 1

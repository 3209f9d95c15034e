"""Tests of the shop, in memory."""

import dataclasses
import datetime
import decimal
import uuid

import pytest
import shop

import jobboard
from jobboard import Conductor, JobBoard
from jobboard.backends.memory import forget
from jobboard.testing import assert_posted, drain

ORDER = shop.Order(uuid.UUID(int=7), "anna@example.com", decimal.Decimal("9.50"), datetime.date(2030, 5, 1))
NUMBER = str(ORDER.number)


@pytest.fixture
def conductor(memory_board: JobBoard) -> Conductor:
    """Return the handlers of the shop on a board of the test."""
    return Conductor("test", memory_board, shop.conductor.handlers)


def test_an_order_is_charged_and_shipped(memory_board: JobBoard, conductor: Conductor) -> None:
    [job] = memory_board.post_many([shop.charge.post.options(group="customer 17").posting(ORDER)])
    drain(conductor)
    assert job.result(timeout=0) == {"receipt": f"{job.uuid}: 9.50"}
    [shipping] = assert_posted(memory_board, "ship", group="customer 17", count=1)
    assert shipping.details == {"number": NUMBER, "email": ORDER.email, "on": "2030-05-01"}
    assert shipping.result(timeout=0)["text"] == f"{NUMBER} is shipped on 01 May"


def test_an_order_of_nothing_goes_to_the_trash(memory_board: JobBoard, conductor: Conductor) -> None:
    free = dataclasses.replace(ORDER, total=decimal.Decimal(0))
    [job] = memory_board.post_many([shop.charge.post.posting(free)])
    drain(conductor)
    assert (job.state, memory_board.get(job.uuid).error) == ("TRASHED", "there is nothing to charge")
    assert_posted(memory_board, "ship", count=0)


def test_an_order_without_an_email_is_not_posted() -> None:
    with pytest.raises(TypeError, match=r"details\.email"):
        shop.charge.post.posting(number=ORDER.number, total=ORDER.total, ship_on=ORDER.ship_on)


def test_a_newer_order_waits_for_a_newer_worker(memory_board: JobBoard, conductor: Conductor) -> None:
    details = {**shop.charge.post.posting(ORDER).details, "voucher": "SPRING"}
    job = memory_board.post("charge", details=details)
    drain(conductor)
    waiting = memory_board.get(job.uuid)
    assert (waiting.state, waiting.attempts) == ("SCHEDULED", 0)
    assert "details.voucher" in waiting.error


def test_the_board_of_the_shop_is_encrypted() -> None:
    with shop.board as board:
        job = shop.charge.post(ORDER)
        assert board.get(job.uuid).details["email"] == ORDER.email
        with jobboard.backend(board.name, "memory") as keyless:
            assert keyless.get(job.uuid).is_encrypted
            assert keyless.claim_next("nobody") is None
    forget(board.name)  # the next test begins with an empty board

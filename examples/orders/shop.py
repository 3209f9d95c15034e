"""The board of the shop and its handlers: posters and workers import this module."""

import dataclasses
import datetime
import decimal
import os
import uuid

import ciphers

import jobboard
from jobboard import ClaimedJob, Conductor, Reject, RetryPolicy, Then

board = jobboard.fetch(
    "orders", os.environ.get("JOBBOARD_URL", "sqlite:///orders.db?keep_done=3600"), cipher=ciphers.KEYS
)
conductor = Conductor(None, board, max_simultaneous_jobs=4, drain_timeout=25, retry=RetryPolicy(max_attempts=5))


@dataclasses.dataclass
class Order:
    """The details of a job, as a worker gets them: converted and checked."""

    number: uuid.UUID
    email: str
    total: decimal.Decimal
    ship_on: datetime.date


# A worker of an older version leaves an order with a new field to a newer worker.
@conductor.handles("charge", unknown="retry")
def charge(job: ClaimedJob, order: Order) -> Then:
    if order.total <= 0:
        # The reason stays readable on the board, so it has no detail.
        raise Reject("there is nothing to charge")
    # An attempt that runs again gives the payment service the same idempotency key, and charges once.
    receipt = f"{job.uuid}: {order.total}"
    shipping = ship.post.options(group=job.group).posting(number=order.number, email=order.email, on=order.ship_on)
    return Then({"receipt": receipt}, [shipping])


@conductor.handles("ship", unknown="retry")
def ship(*, number: uuid.UUID, email: str, on: datetime.date) -> dict[str, str]:
    return {"told": email, "text": f"{number} is shipped on {on:%d %B}"}

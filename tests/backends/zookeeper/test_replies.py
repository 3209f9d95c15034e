"""The answer to one request, as kazoo's connection tells it."""

import threading

import pytest
from kazoo.exceptions import ConnectionClosedError, ConnectionLoss
from kazoo.handlers.threading import KazooTimeoutError

from jobboard.backends.zookeeper.replies import Reply


def test_whoever_asks_waits_for_the_answer() -> None:
    reply = Reply()
    teller = threading.Timer(0.05, reply.set, ["answer"])
    teller.start()
    assert reply.get(timeout=10) == "answer"
    teller.join()


def test_an_error_is_raised() -> None:
    reply = Reply()
    reply.set_exception(ConnectionLoss())
    with pytest.raises(ConnectionLoss):
        reply.get(timeout=1)


def test_an_answer_that_comes_too_late_is_not_waited_for() -> None:
    reply = Reply()
    with pytest.raises(KazooTimeoutError):
        reply.get(timeout=0.01)
    reply.set("late")


def test_kazoo_may_tell_twice_that_the_connection_was_closed() -> None:
    reply = Reply()
    reply.set_exception(ConnectionClosedError())
    reply.set_exception(ConnectionLoss())
    with pytest.raises(ConnectionLoss):
        reply.get(timeout=1)

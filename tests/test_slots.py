"""The slots in which a session's calls keep their answers."""

import pytest

from jobboard.exceptions import ConnectionFailure
from jobboard.primitives import Nonce
from jobboard.session import Session


def session() -> Session:
    return Session("board", 10, 0, lambda session: None, lambda claim: None, slot_calls=2)


def calls(made: Session, count: int) -> list[tuple[int, int]]:
    nonces: list[Nonce] = [made.mutate(lambda nonce: nonce)[0] for _ in range(count)]
    return [(nonce.slot, nonce.call) for nonce in nonces]


def test_a_slot_that_has_served_its_calls_is_replaced() -> None:
    assert calls(session(), 5) == [(1, 1), (1, 2), (2, 1), (2, 2), (3, 1)]


@pytest.mark.parametrize("outcome", ["none", "unknown"])
def test_a_slot_whose_last_call_failed_goes_on(outcome: str) -> None:
    """The try may still be on its way: what refuses it is the next call of its slot."""
    made = session()
    assert calls(made, 1) == [(1, 1)]

    def fails(nonce: Nonce) -> None:
        assert nonce.call == 2
        raise ConnectionFailure("gone", None, outcome)

    with pytest.raises(ConnectionFailure):
        made.mutate(fails)
    assert calls(made, 2) == [(1, 3), (2, 1)]

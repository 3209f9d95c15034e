"""What a newcomer gets wrong at first: the error says how it is done."""

from collections.abc import Callable
from typing import Any

import pytest

import jobboard

UUID = "0d8a3c3e-9c53-4c5d-bc5a-ab1b0b1a9d5e"


@pytest.fixture
def board(request: pytest.FixtureRequest) -> Any:
    with jobboard.backend(request.node.name, "memory") as board:
        yield board


def test_details_in_the_place_of_the_book(board: Any) -> None:
    for post in (
        lambda: board.post("resize", {"width": 300}),
        lambda: board.post_many([jobboard.Posting("resize", {"width": 300})]),
    ):
        with pytest.raises(TypeError, match="details="):
            post()
    assert board.job_count == 0


@pytest.mark.parametrize(
    "verb",
    [
        lambda board: board.claim(UUID, "me"),
        lambda board: board.extend(UUID, "me"),
        lambda board: board.abandon(UUID, "me"),
        lambda board: board.consume(UUID, "me"),
        lambda board: board.trash(UUID, "me"),
        lambda board: board.consume_many([UUID], "me"),
        lambda board: board.finish_many([jobboard.Act(UUID, "consume")], "me"),  # type: ignore[arg-type]
        lambda board: board.release(UUID),
        lambda board: board.cancel(UUID),
        lambda board: board.restore(UUID),
        lambda board: board.purge(UUID),
        lambda board: board.find_owner(UUID),
        lambda board: board.iterjobs(after=UUID),
    ],
)
def test_a_uuid_in_the_place_of_a_job(board: Any, verb: Callable[[Any], Any]) -> None:
    with pytest.raises(TypeError, match=r"not str: board\.get\(uuid\)"):
        verb(board)


@pytest.mark.parametrize("fetch", [jobboard.fetch, lambda *args, **given: jobboard.backend(*args, **given).__enter__()])
def test_an_option_in_the_place_of_an_argument(fetch: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match=r"no argument 'claim_ttl': .*URI, as in .*claim_ttl=.*dict, as in"):
        fetch("board", "memory", claim_ttl=3)
    with pytest.raises(TypeError) as failure:
        fetch("board", "postgresql://h/db", password="sesame")
    assert "sesame" not in str(failure.value)


@pytest.mark.parametrize(
    ("uri", "meant"), [("mariadbs://h/db", "mariadb"), ("sqlite3:///x.db", "sqlite"), ("maria", "mariadb")]
)
def test_another_word_for_a_backend(uri: str, meant: str) -> None:
    with pytest.raises(jobboard.NotFound, match=f"did you mean '{meant}'"):
        jobboard.fetch("board", uri)


@pytest.mark.parametrize("uri", ["sqlite://rel.db", "sqlite://dir/rel.db", "sql://rel.db"])
def test_two_slashes_before_a_file(uri: str) -> None:
    with pytest.raises(ValueError, match=f"{uri.replace('://', ':///')}.*four"):
        jobboard.fetch("board", uri)

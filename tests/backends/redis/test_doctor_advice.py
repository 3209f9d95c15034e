"""What doctor advises for damaged jobs is typed as it stands, and nothing is odd any more."""

import re
import shlex
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from jobboard.cli import main

pytestmark = pytest.mark.backends("redis")


@pytest.fixture
def board(board_of_commands: Any) -> Any:
    return board_of_commands


@pytest.fixture
def client(server_uris: dict[str, str]) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(server_uris["redis"]) as client:
        yield client


def follow(advice: str, client: redis.Redis) -> None:
    if "redis-cli" in advice:
        port = client.connection_pool.connection_kwargs["port"]
        command = "redis-cli" + advice.partition("redis-cli")[2]
        subprocess.run(["sh", "-c", command.replace("redis-cli", f"redis-cli -p {port}", 1)], check=True)
    else:
        for command in re.findall("'jobboard ([^']+)'", advice):
            main(shlex.split(command))


def cure(board: Any, client: redis.Redis, usual: list[Any]) -> None:
    """Twice: what lay where the job was before stays behind it."""
    for _ in range(2):
        for odd in list(board.examine()):
            if odd not in usual:
                follow(odd.advice, client)
    assert [odd for odd in board.examine() if odd not in usual] == []


@pytest.mark.parametrize("junk", [b"1", b"", b"\xc1", b"\x93\x01\x02\x03"])
@pytest.mark.parametrize("state", ["UNCLAIMED", "TRASHED", "CLAIMED", "SCHEDULED"])
def test_a_record_of_junk_whose_job_had_a_key(board: Any, client: redis.Redis, state: str, junk: bytes) -> None:
    usual = list(board.examine())
    job = board.post("bad", key="K", delay=600 if state == "SCHEDULED" else None)
    if state == "TRASHED":
        board.cancel(job)
    if state == "CLAIMED":
        board.claim(job, "anna")
    good = board.post("good")
    client.hset(board.engine._live.keys.of("jobs"), job.uuid, junk)
    found = [odd for odd in board.examine() if odd not in usual]
    assert {odd.place.split()[0] for odd in found} == ({"jobs"} if state == "TRASHED" else {"jobs", "sides"})
    cure(board, client, usual)
    assert board.post("next", key="K").created
    assert board.claim_next("anna", names=["good"]) == good


@pytest.mark.parametrize("name", [b"notauuid", b"it's $HOME", b"\xff", b"11111111-1111-4111-8111-111111111111"])
@pytest.mark.parametrize("details", [True, False])
def test_a_job_that_no_board_has_posted(board: Any, client: redis.Redis, name: bytes, details: bool) -> None:
    usual, keys = list(board.examine()), board.engine._live.keys
    posting = client.hget(keys.of("postings"), board.post("good").uuid)
    client.hset(keys.of("jobs"), name, b"\xc1")
    if details:
        client.hset(keys.of("postings"), name, posting)
    cure(board, client, usual)


@pytest.mark.parametrize("entry", [b"key\0lost", b"scope\0'mail'", b'answer\0"\\', b"entity\0\xff"])
def test_side_records(board: Any, client: redis.Redis, entry: bytes) -> None:
    usual = list(board.examine())
    client.hset(board.engine._live.keys.of("sides"), entry, b"\xc1junk")
    [odd] = [each for each in board.examine() if each not in usual]
    follow(odd.advice, client)
    assert list(board.examine()) == usual

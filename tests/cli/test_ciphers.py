"""Encrypted jobs on the command line."""

import json
from typing import Any

import pytest

import jobboard
from tests.support.ciphers import BOTH
from tests.support.commands import Commands

pytestmark = pytest.mark.backends("sqlite")

SECRET = "the-secret-of-mrs-robinson"
CIPHER = ("--cipher", "tests.support.ciphers:BOTH")


@pytest.fixture
def secret(board: Any, board_conf: dict[str, Any]) -> Any:
    """The same board, with a cipher."""
    with jobboard.backend(board.name, {**board_conf, "keep_done": 600}, cipher=BOTH) as made:
        yield made


@pytest.mark.rule("Commands say that a job is encrypted, and show its content only by --cipher.")
def test_commands_say_encrypted(secret: Any, run: Commands) -> None:
    job, done = secret.post("mail", details={"secret": SECRET}), secret.post("done", details={"secret": SECRET})
    secret.claim(job, "anna").note(SECRET, checkpoint=[SECRET], flush=True)
    secret.claim(done, "anna").consume(result=[SECRET])
    for line in (["list"], ["top", "--once"], ["show", job.uuid], ["done", "show", done.uuid], ["doctor"]):
        for as_json in ([], ["--json"]):
            shown = run(*line, *as_json)
            assert SECRET not in shown.out + shown.err
            # Into a pipe, top prints counts alone.
            assert "encrypted" in shown.out or line == ["doctor"] or (line[0] == "top" and not as_json)
    shown = json.loads(run("show", job.uuid, "--json").out)
    assert (shown["details"], shown["checkpoint"], shown["encrypted"]) == ("encrypted", "encrypted", True)
    assert 'details: "encrypted"' in run("show", job.uuid).out
    shown = json.loads(run("show", job.uuid, "--json", *CIPHER).out)
    assert (shown["details"], shown["checkpoint"]) == ({"secret": SECRET}, [SECRET])
    shown = json.loads(run("done", "show", done.uuid, "--json", *CIPHER).out)
    assert (shown["details"], shown["result"]) == ({"secret": SECRET}, [SECRET])


def test_a_table_has_no_column_of_details(secret: Any, board: Any, run: Commands) -> None:
    board.post("plain", details={"path": "a.jpg"})
    secret.post("mail", details={"secret": SECRET})
    _, _, titles, plain, mail = run("list").out.splitlines()
    assert "details" not in titles
    start = titles.index("encrypted")
    assert [line[start:].split()[:1] for line in (plain, mail)] == [[], ["yes"]]


def test_work_takes_a_cipher(secret: Any, run: Commands) -> None:
    job = secret.post("mail", details={"secret": SECRET})
    run("work", "tests.support.ciphers:report", "--max-jobs", "1", "--jobs", "1", *CIPHER)
    [follow_up] = secret.iterjobs()
    assert (follow_up.name, follow_up.details, follow_up != job) == ("next", {"secret": SECRET}, True)


def test_a_bad_cipher_is_a_wrong_call(secret: Any, run: Commands) -> None:
    job = secret.post("mail")
    for spec, text in (("os:nothing", "has no 'nothing'"), ("os:sep", "option cipher: must be an object with number")):
        shown = run("show", job.uuid, "--cipher", spec, status=2)
        assert text in shown.err

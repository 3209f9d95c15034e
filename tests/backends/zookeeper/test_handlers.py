"""Handlers of kazoo's for green threads."""

import subprocess
import sys
import uuid

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.gevent import SequentialGeventHandler

import jobboard

pytestmark = pytest.mark.backends("zookeeper")

PATCH = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "eventlet": "import eventlet; eventlet.monkey_patch()",
}

WORK = """
import sys, threading, jobboard
from jobboard.testing import eventually
from tests.backends.zookeeper.conftest import connection_of, driver_of
with jobboard.backend("board", sys.argv[1]) as board:
    print(type(connection_of(board).open().handler).__name__)
    job = board.post("resize")
    assert board.claim_next("anna") == job
    taken = []
    waiter = threading.Thread(target=lambda: taken.append(board.claim_next("bert", timeout=60)))
    waiter.start()
    eventually(lambda: driver_of(board).armed)
    other = board.post("resize")
    waiter.join()
    assert taken == [other]
    # Beats come in between.
    sent = connection_of(board).sent
    eventually(lambda: connection_of(board).sent > sent)
    board.consume(other, "bert")
    board.consume(job, "anna")
    assert board.job_count == 0
"""

REFUSED = """
import sys, jobboard
for handler in sys.argv[1:]:
    try:
        jobboard.fetch("board", {"board": "zookeeper", "handler": handler})
    except ValueError as error:
        print(error)
"""


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.rule("A board in a green program works, or refuses to start.")
@pytest.mark.parametrize("kind", PATCH)
def test_a_board_works_in_a_green_program(server_uris: dict[str, str], kind: str) -> None:
    uri = f"{server_uris['zookeeper']}?handler={kind}&claim_ttl=12&namespace=green{uuid.uuid4().hex}"
    assert run(PATCH[kind] + WORK, uri) == f"Sequential{kind.title()}Handler\n"


@pytest.mark.rule("A board in a green program works, or refuses to start.")
def test_green_handlers_are_refused_in_a_program_with_threads() -> None:
    told = run(REFUSED, *PATCH).splitlines()
    assert [f"handler='{kind}': {kind} needs" in line for kind, line in zip(PATCH, told, strict=True)] == [True, True]
    with pytest.raises(ValueError, match=r"client: .*gevent needs gevent.monkey.patch_all"):
        jobboard.fetch("board", "zookeeper", client=KazooClient(handler=SequentialGeventHandler()))

"""Boards in programs of green threads."""

import subprocess
import sys
import uuid

import pytest

pytestmark = pytest.mark.backends("zookeeper")

PATCH = {
    "gevent": "from gevent import monkey; monkey.patch_all()",
    "eventlet": "import eventlet; eventlet.monkey_patch()",
}

WORK = """
import sys, threading, jobboard
from jobboard.testing import eventually
from tests.backends.zookeeper.inside import connection_of, driver_of
with jobboard.backend("board", sys.argv[1]) as board:
    print(type(connection_of(board).open().handler).__name__)
    job = board.post("resize")
    assert board.claim_next("anna") == job
    taken = []
    waiter = threading.Thread(target=lambda: taken.append(board.claim_next("bert", timeout=20)))
    waiter.start()
    eventually(lambda: driver_of(board)._armed)
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
try:
    jobboard.fetch("board", {"board": sys.argv[1], "handler": sys.argv[2]})
except ValueError as error:
    print(error)
"""


def run(program: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", "-c", program, *arguments]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", PATCH)
def test_green_threads(server_uris: dict[str, str], kind: str) -> None:
    uri = f"{server_uris['zookeeper']}?handler={kind}&claim_ttl=1&namespace=green{uuid.uuid4().hex}"
    assert run(PATCH[kind] + WORK, uri) == f"Sequential{kind.title()}Handler\n"


@pytest.mark.parametrize("kind", PATCH)
def test_green_threads_need_a_program_that_is_green_throughout(kind: str) -> None:
    assert f"handler='{kind}': {kind} needs" in run(REFUSED, "zookeeper", kind)


def test_a_client_of_the_callers_needs_that_too() -> None:
    from kazoo.client import KazooClient
    from kazoo.handlers.gevent import SequentialGeventHandler

    import jobboard

    with pytest.raises(ValueError, match=r"client: .*gevent needs gevent.monkey.patch_all"):
        jobboard.fetch("board", "zookeeper", client=KazooClient(handler=SequentialGeventHandler()))

"""Znodes that somebody has deleted by hand, replies that nobody can make out, and changes that are always refused: each
call comes to its end, and says what is wrong where it can't be mended."""

import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from jobboard.backends.zookeeper.clock import ClockBounds
from jobboard.backends.zookeeper.connection import Connection
from jobboard.engine import calls
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.states import CLAIMED, TRASHED, UNCLAIMED
from jobboard.testing import eventually
from jobboard.testing.conformance.support import LONG, take
from jobboard.testing.conformance.wire import QUIET
from tests.backends.zookeeper.inside import connection_of, driver_of, path_of, root_of

pytestmark = pytest.mark.backends("zookeeper")

LIMIT = 10


def sent(board: Any) -> int:
    count: int = connection_of(board).sent
    return count


class TestWhatABoardHas:
    @pytest.mark.parametrize("name", ["job", "side", "ready", "live", "timed", "trash", "kept", "holders"])
    def test_a_folder_is_made_anew(self, make_board: Any, caller: KazooClient, name: str) -> None:
        board = make_board(claim_ttl=QUIET)
        board.consume(take(board) if board.post("first") else None, "anna")
        path = f"{root_of(board)}/{name}"
        caller.delete(path, recursive=True) if caller.exists(path) else None
        self.use(board)

    @pytest.mark.parametrize("name", ["bell", "clock", "next", "alive"])
    def test_connect_makes_what_every_board_has(self, make_board: Any, caller: KazooClient, name: str) -> None:
        board = make_board(claim_ttl=QUIET)
        first = board.post("first")
        caller.delete(f"{root_of(board)}/{name}", recursive=True)
        # What the handle remembers would do for a while.
        driver = driver_of(board)
        driver._clock, driver._counter, driver._session = ClockBounds(), None, None
        with pytest.raises(JobFailure, match=rf"has lost {name}.*; connect\(\) again"):
            board.claim(board.post("second"), "anna")
        board.close()
        board.connect()
        assert take(board) == first
        board.consume(first, "anna")
        while second := board.claim_next("anna"):
            board.consume(second, "anna")
        self.use(board)

    def use(self, board: Any) -> None:
        before = sent(board)
        job = board.post("resize", key="k", max_attempts=3)
        assert list(board.iterjobs()) == [job]
        taken = take(board, expiry=LONG)
        board.abandon(taken, "anna", delay=0.001)
        eventually(lambda: job.state == UNCLAIMED)
        board.trash(take(board), "anna")
        assert list(board.trashed()) == [job]
        board.restore(job)
        assert board.stats().unclaimed == 1
        assert board.entities() == []
        board.consume(take(board), "anna")
        other = board.post("other")
        board.cancel(other)
        board.purge(other)
        assert other.state == TRASHED
        assert sent(board) - before < 400

    def test_a_whole_board(self, make_board: Any, caller: KazooClient) -> None:
        board = make_board(retry_for=0)
        job = board.post("resize")
        caller.delete(root_of(board), recursive=True)
        for call in (
            lambda: board.post("resize"),
            lambda: board.claim_next("anna"),
            lambda: board.claim(job, "anna"),
            lambda: list(board.iterjobs()),
            board.stats,
        ):
            with pytest.raises(JobFailure, match="was deleted"):
                call()
        board.close()
        board.connect()
        assert board.post("resize").state == UNCLAIMED


class TestAlwaysRefused:
    """Something writes the job's znode between each look and the change that rests on it."""

    @pytest.fixture
    def board(self, make_board: Any, caller: KazooClient, monkeypatch: pytest.MonkeyPatch) -> Any:
        board = make_board(retry_for=0, claim_ttl=QUIET)
        self.job = board.post("resize")
        self.meddle = False
        path, mine, commit = path_of(board, self.job), connection_of(board), Connection.commit

        def meddling(connection: Any, ops: Any) -> Any:
            if self.meddle and connection is mine and any(op.path == path for op in ops):
                caller.set(path, caller.get(path)[0])
            return commit(connection, ops)

        monkeypatch.setattr(Connection, "commit", meddling)
        monkeypatch.setattr(calls, "TRIES", LIMIT)
        return board

    def refused(self, board: Any, call: Callable[[], Any]) -> None:
        self.meddle = True
        before = sent(board)
        with pytest.raises(ConnectionFailure, match=f"given up after {LIMIT} tries") as caught:
            call()
        assert caught.value.outcome == "none"
        assert sent(board) - before < 12 * LIMIT
        self.meddle = False

    def test_claim(self, board: Any) -> None:
        self.refused(board, lambda: board.claim(self.job, "anna"))
        assert self.job.state == UNCLAIMED

    @pytest.mark.parametrize("verb", ["consume", "abandon", "trash", "extend"])
    def test_acts_of_a_claim(self, board: Any, verb: str) -> None:
        taken = take(board)
        self.refused(board, lambda: getattr(board, verb)(taken, "anna"))
        board.consume(taken, "anna")

    @pytest.mark.parametrize("verb", ["cancel", "release"])
    def test_acts_of_an_operator(self, board: Any, verb: str) -> None:
        if verb == "release":
            take(board)
        self.refused(board, lambda: getattr(board, verb)(self.job))
        assert self.job.state == (UNCLAIMED if verb == "cancel" else CLAIMED)

    def test_give_back(self, board: Any) -> None:
        token = take(board).claim.token
        self.refused(board, lambda: board.engine.raw._keeper._give_back(self.job.uuid, token))

    def test_claim_next(self, board: Any) -> None:
        """It neither passes the job over nor says that there is none."""
        self.refused(board, lambda: board.claim_next("anna"))
        assert take(board) == self.job


class Scrambler:
    """Stands before a server; when told so, one reply comes under another number than it was asked under, as they do
    from servers that have lost their leader."""

    def __init__(self, port: int) -> None:
        self.wrong = threading.Event()
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._port))
            self._sockets += [client, server]
            threading.Thread(target=self._carry, args=(client, server), daemon=True).start()
            threading.Thread(target=self._answer, args=(server, client), daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
        except OSError:
            pass
        finally:
            target.close()

    def _answer(self, source: socket.socket, target: socket.socket) -> None:
        file = source.makefile("rb")
        handshake = True
        try:
            while length := file.read(4):
                reply = bytearray(file.read(int.from_bytes(length, "big")))
                number = int.from_bytes(reply[:4], "big", signed=True)
                if not handshake and number > 0 and self.wrong.is_set():
                    self.wrong.clear()
                    reply[:4] = (number + 1).to_bytes(4, "big")
                handshake = False
                target.sendall(length + reply)
        except OSError:
            pass
        finally:
            target.close()


@pytest.fixture
def scrambler(address: str) -> Iterator[Scrambler]:
    scrambler = Scrambler(int(address.rpartition(":")[2]))
    yield scrambler
    scrambler.close()


class TestRepliesOutOfTurn:
    def test_are_a_broken_connection(self, scrambler: Scrambler, make_board: Any) -> None:
        board = make_board(board=f"zookeeper://127.0.0.1:{scrambler.port}", claim_ttl=60)
        job = board.post("resize")
        for call in (lambda: board.job_count, lambda: take(board), lambda: board.post("other")):
            scrambler.wrong.set()
            assert call()
            assert not scrambler.wrong.is_set()
        assert board.job_count == 2
        assert board.find_owner(job) == "anna"

    def test_tell_that_nobody_knows(self, scrambler: Scrambler, make_board: Any) -> None:
        board = make_board(board=f"zookeeper://127.0.0.1:{scrambler.port}", retry_for=0)
        board.post("first")
        scrambler.wrong.set()
        with pytest.raises(ConnectionFailure) as caught:
            board.post("resize")
        assert caught.value.outcome == "unknown"
        assert isinstance(caught.value.cause, RuntimeError)


def test_nothing_is_claimed_past_a_gate_that_is_none(make_board: Any, caller: KazooClient) -> None:
    board, other = make_board(), make_board()
    board.pause()
    job = board.post("resize")
    path = driver_of(board).place("gate")
    mark = caller.get(path)[0][:16]
    caller.set(path, mark + b"\xc1")
    for each in (board, other):
        for verb in (each.paused, lambda each=each: each.claim_next("anna")):
            with pytest.raises(JobFailure, match="gate/rules is damaged"):
                verb()
    assert [oddity.place for oddity in board.engine.raw.examine()] == [path]
    caller.delete(path, recursive=True)
    assert other.claim_next("anna") == job

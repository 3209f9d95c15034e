"""Health: ``/livez`` and ``/readyz`` of a conductor, for the probes of a supervisor such as Kubernetes::

    with health.serving(conductor, 8080, "0.0.0.0"):
        conductor.run()

The command is ``jobboard work --health-port 8080``.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from http.server import BaseHTTPRequestHandler
from socketserver import ThreadingTCPServer
from typing import TYPE_CHECKING

from jobboard import logs, runtime
from jobboard.conductor.conductor import Conductor
from jobboard.threads import started

if TYPE_CHECKING:
    from jobboard.board import JobBoard

LOG = logs.Log(__name__)

PATIENCE = 0.8
"""Seconds that a probe waits for the backend: less than Kubernetes waits for the probe, which is 1 s by default."""

SILENCE = 5.0
"""Seconds after which a client that sends nothing is left."""

NOBODY = "00000000-0000-0000-0000-000000000000"
"""The uuid of no job."""


@contextlib.contextmanager
def serving(conductor: Conductor, port: int, host: str = "127.0.0.1") -> Iterator[str]:
    """Serve the health of a conductor within the block, by the standard library alone. Of an
    :class:`~jobboard.aio.AsyncConductor` it is ``conductor.sync``.

    ========  ===================================================================================
    path      200
    ========  ===================================================================================
    /livez    while :attr:`Conductor.alive <jobboard.conductor.Conductor.alive>`; of an
              AsyncConductor, its event loop must turn as well
    /readyz   while :attr:`Conductor.ready <jobboard.conductor.Conductor.ready>`, and the backend
              answers a look for one job within 0.8 s
    ========  ===================================================================================

    Otherwise they return 503, with the reason as text.

    :param port: 0 for any free port.
    :return: the address.
    :raises OSError: the port is taken.
    """
    look = _BackendProbe(conductor.board)

    class Probe(BaseHTTPRequestHandler):
        timeout = SILENCE

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/livez":
                self._answer("" if conductor.alive else "the thread of run() hangs or has ended")
            elif path == "/readyz":
                ready = conductor.ready
                self._answer("" if ready and look.succeeds() else "the backend is away" if ready else "takes no jobs")
            else:
                self.send_error(404, "there are /livez and /readyz")

        def _answer(self, reason: str) -> None:
            text = f"{reason or 'ok'}\n".encode()
            self.send_response(503 if reason else 200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: object) -> None:
            """Log no probes."""

    # Not an HTTPServer, which looks up the name of the host.
    class ProbeServer(ThreadingTCPServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        allow_reuse_address = daemon_threads = True

        def handle_error(self, *args: object) -> None:
            LOG.debug("a probe of %s failed", conductor.name)

    try:
        server = ProbeServer((host, port), Probe)
    except OSError as error:
        raise OSError(f"can't listen on {host}:{port}: {error.strerror}") from error
    try:
        thread = started(f"{conductor.name}-health", server.serve_forever)
        try:
            shown = f"[{host}]" if ":" in host else host
            yield f"http://{shown}:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
    finally:
        server.server_close()


class _BackendProbe:
    """Looks at a board, each on a thread of its own, and one at a time: probes that come meanwhile share it."""

    def __init__(self, board: JobBoard) -> None:
        self._board = board
        self._lock = runtime.Lock()
        self._last: Future[bool] | None = None

    def succeeds(self) -> bool:
        """Return whether the backend has answered in time."""
        with self._lock:
            if self._last is None or self._last.done():
                self._last = Future()
                started(f"{self._board.name}-probe", self._look, self._last)
            look = self._last
        try:
            return look.result(PATIENCE)
        except TimeoutError:
            return False

    def _look(self, look: Future[bool]) -> None:
        try:
            # One try, without the repetitions of a call.
            self._board.engine.raw.read([NOBODY])
            look.set_result(True)
        except Exception as error:  # noqa: BLE001 - the board may be closed at any step
            LOG.debug("a probe of %s failed: %s", self._board, error)
            look.set_result(False)

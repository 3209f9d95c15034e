"""Ports: free TCP ports of this machine that no other test process takes."""

import contextlib
import random
import socket

HOST = "127.0.0.1"
_PORTS = range(15000, 30000)


def reserve_port() -> tuple[socket.socket, int]:
    """Return a free port, and the socket whose life keeps other test processes off this port.

    :raises RuntimeError: no port is free.
    """
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        reservation = socket.socket(socket.AF_UNIX)
        # An abstract name: taken machine-wide, given back by the system when its holder dies.
        with contextlib.suppress(OSError), socket.socket() as probe:
            reservation.bind(f"\0jobboard-port-{port}")
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
            return reservation, port
        reservation.close()
    raise RuntimeError("no free port")

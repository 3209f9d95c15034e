"""A ZooKeeper ensemble for tests."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from tests.support.server import HOST, ServerError, reserve_port
from tests.support.servers import ZooKeeper


class Member(ZooKeeper):
    """A server of an ensemble. ``peers``: the ports of all members, for followers and for elections."""

    def __init__(self, number: int, peers: Sequence[tuple[int, int]], *, durable: bool = False) -> None:
        super().__init__(durable=durable)
        self._number = number
        self._peers = peers

    def _prepare(self) -> None:
        super()._prepare()
        (self.folder / "data").mkdir()
        (self.folder / "data" / "myid").write_text(f"{self._number}\n")
        lines = ["initLimit=50\n", "syncLimit=25\n"]
        lines += [f"server.{n}={HOST}:{follow}:{elect}\n" for n, (follow, elect) in enumerate(self._peers, 1)]
        with (self.folder / "zoo.cfg").open("a") as file:
            file.writelines(lines)

    @property
    def leads(self) -> bool:
        with contextlib.suppress(OSError):
            return b"Mode: leader" in self._ask(b"srvr")
        return False


class ZooKeeperEnsemble:
    """Servers that elect a leader; a context manager. ``uri`` names them all."""

    def __init__(self, size: int = 3, *, durable: bool = False) -> None:
        self._reserved: list[socket.socket] = []
        ports = []
        for _ in range(2 * size):
            reservation, port = reserve_port()
            self._reserved.append(reservation)
            ports.append(port)
        peers = list(zip(ports[::2], ports[1::2], strict=True))
        self.members = [Member(number, peers, durable=durable) for number in range(1, size + 1)]

    @property
    def uri(self) -> str:
        return "zookeeper://" + ",".join(f"{HOST}:{member.port}" for member in self.members)

    @property
    def leader(self) -> Member:
        for member in self.members:
            if member.leads:
                return member
        raise ServerError("the ensemble has no leader")

    def __enter__(self) -> Self:
        try:
            # A member serves only with a quorum, so all members start at the same time.
            with ThreadPoolExecutor(len(self.members)) as pool:
                list(pool.map(lambda member: member.start(), self.members))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        for member in self.members:
            member.stop()
        for reservation in self._reserved:
            reservation.close()

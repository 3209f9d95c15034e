"""A ZooKeeper ensemble for tests."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from tests.support.server import HOST, Cluster, reserve_port
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


class ZooKeeperEnsemble(Cluster):
    def __init__(self, size: int = 3, *, durable: bool = False) -> None:
        self._reserved, ports = zip(*(reserve_port() for _ in range(2 * size)), strict=True)
        peers = list(zip(ports[::2], ports[1::2], strict=True))
        self.members = [Member(number, peers, durable=durable) for number in range(1, size + 1)]

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        for reservation in self._reserved:
            reservation.close()

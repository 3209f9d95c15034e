"""Backups of a server's data."""

import subprocess
from pathlib import Path

from tests.support.servers import Server


class Backup:
    """The files of a server as they are now. The server is killed and started for it."""

    def __init__(self, server: Server, place: Path) -> None:
        self._server = server
        self._place = place
        place.mkdir()
        server.kill()
        self._copy(server.folder, place)
        server.start()

    def restore(self) -> None:
        """Kill the server, and start it with the files of the backup."""
        self._server.kill()
        for each in self._server.folder.iterdir():
            if each.name != "log":
                subprocess.run(["rm", "-rf", each], check=True)
        self._copy(self._place, self._server.folder)
        self._server.start()

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        # With owners, which PostgreSQL insists on.
        names = [each for each in source.iterdir() if each.name != "log" and not each.is_socket()]
        subprocess.run(["cp", "-a", *names, target], check=True)

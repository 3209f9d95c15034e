"""Boards of TaskFlow's own on real servers, to move jobs from."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from taskflow import exceptions
from taskflow.jobs import backends

from jobboard.contrib.taskflow.source import TaskFlowOrigin, fetch_source
from jobboard.testing import eventually

_serial = itertools.count(1)


class Origin:
    """A board of TaskFlow's that shares jobs with no other. ``posts`` is TaskFlow's own handle on it."""

    def __init__(self, kind: str, server: str) -> None:
        self.kind = kind
        place = urlsplit(server)
        self.path = f"origin{os.getpid()}x{next(_serial)}"
        known_as = f"namespace={self.path}" if kind == "redis" else ""
        path = "" if kind == "redis" else f"/{self.path}/jobs"
        self.uri = f"taskflow+{kind}://{place.hostname}:{place.port}{path}?{known_as}"
        self._conf = {
            "redis": {"host": place.hostname, "port": place.port, "namespace": self.path},
            "zookeeper": {"hosts": f"{place.hostname}:{place.port}", "path": f"/{self.path}/jobs"},
            "etcd": {"host": place.hostname, "port": place.port, "path": f"{self.path}/jobs"},
        }[kind]
        self._stack = contextlib.ExitStack()
        self.posts = self.board()

    def board(self) -> Any:
        board = backends.fetch("any", {"board": self.kind, **self._conf})
        board.connect()
        self._stack.callback(board.close)
        return board

    def source(self, options: str = "") -> TaskFlowOrigin:
        board = fetch_source(self.uri + options)
        board.connect()
        self._stack.callback(board.close)
        return board

    def jobs(self) -> list[Any]:
        """Return the jobs that TaskFlow sees there now."""
        return list(self.posts.iterjobs(ensure_fresh=True))

    def claim(self, job: Any, who: str = "conductor") -> None:
        self._act("claim", job, who)

    def consume(self, job: Any, who: str = "conductor") -> None:
        self._act("consume", job, who)

    def abandon(self, job: Any, who: str = "conductor") -> None:
        self._act("abandon", job, who)

    def trash(self, job: Any) -> None:
        self.claim(job)
        self._act("trash", job, "conductor")

    def _act(self, verb: str, job: Any, who: str) -> None:
        """Call a verb until TaskFlow's handle knows the job: on ZooKeeper it forgets new jobs for a moment."""

        def tried() -> bool:
            try:
                getattr(self.posts, verb)(job, who)
            except exceptions.NotFound as error:
                if "unknown job" not in str(error) or self.read(self.place_of(job)) is None:
                    raise
                return False
            return True

        eventually(tried)

    def place_of(self, job: Any) -> str:
        """Return the field, znode or key of a job's posting."""
        return {"redis": lambda: job.uuid, "zookeeper": lambda: job.path, "etcd": lambda: f"{job.key}.data"}[
            self.kind
        ]()

    def write(self, place: str, raw: bytes) -> None:
        """Replace a posting, while no board of TaskFlow's is open: on etcd it would hear of it, and delete it."""
        client = self._client()
        if self.kind == "redis":
            client.hset(self.posts.listings_key, place, raw)
        elif self.kind == "zookeeper":
            client.set(place, raw)
        else:
            client.put(place, raw)

    def read(self, place: str) -> bytes | None:
        client = self._client()
        if self.kind == "redis":
            found: bytes | None = client.hget(self.posts.listings_key, place)
            return found
        if self.kind == "zookeeper":
            return client.get(place)[0] if client.exists(place) else None
        return next(iter(client.get(place)), None)

    def _client(self) -> Any:
        store: Any = self.source()._store
        return store._client

    def close(self) -> None:
        self._stack.close()


@contextlib.contextmanager
def origin_of(kind: str, server: str) -> Iterator[Origin]:
    made = Origin(kind, server)
    try:
        yield made
    finally:
        made.close()

"""What is asked of the server: reads of single znodes, and the operations of a multi."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kazoo.client import KazooClient

LIMIT = 900_000
"""The bytes that one request may have: the server's limit is 1 MiB, and something must be left for headers."""

AROUND = 50_000
"""How much of that an outcome may need beside details and result, with what its commit changes else."""

Request = Callable[[KazooClient], Any]
"""Sends one request, and answers kazoo's promise of its result."""


class Read(NamedTuple):
    """What is asked of one znode; with a ``watch``, which is called once it has changed."""

    what: str
    path: str
    watch: Any = None

    def send(self, client: KazooClient) -> Any:
        if self.what == "children":
            return client.get_children_async(self.path, self.watch, include_data=True)
        return (client.exists_async if self.what == "stat" else client.get_async)(self.path, self.watch)


class Op(NamedTuple):
    """One operation of a multi: a method of kazoo's TransactionRequest, and its arguments."""

    do: str
    path: str
    arguments: tuple[Any, ...]

    @property
    def size(self) -> int:
        data = self.arguments[0] if self.do in ("create", "set_data") else b""
        return 2 * len(self.path) + 60 + len(data)


def get(path: str, watch: Any = None) -> Read:
    """Answers (data, stat)."""
    return Read("data", path, watch)


def exists(path: str, watch: Any = None) -> Read:
    """Answers the stat."""
    return Read("stat", path, watch)


def children(path: str, watch: Any = None) -> Read:
    """Answers (names, stat)."""
    return Read("children", path, watch)


def create(path: str, data: bytes = b"", ephemeral: bool = False, sequence: bool = False) -> Op:
    return Op("create", path, (data, None, ephemeral, sequence))


def delete(path: str, version: int = -1) -> Op:
    return Op("delete", path, (version,))


def put(path: str, data: bytes, version: int = -1) -> Op:
    return Op("set_data", path, (data, version))


def check(path: str, version: int = -1) -> Op:
    return Op("check", path, (version,))


class Refused(Exception):
    """A multi was not carried out, because of its operation number ``index``."""

    def __init__(self, index: int, error: Exception) -> None:
        super().__init__(index, error)
        self.index = index
        self.error = error

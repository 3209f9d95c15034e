"""What other libraries have in common here."""

from __future__ import annotations

import asyncio
import importlib.metadata
from collections.abc import Coroutine
from typing import Any, ClassVar

from contender import Contender


class Peer(Contender):
    distribution: ClassVar[str]
    """What pip calls it; nothing to install where that is empty."""
    keeps: ClassVar[str]
    """What becomes of a job whose worker is killed."""


class Asynchronous(Peer):
    """A peer whose verbs are coroutines, which all run in one event loop."""

    def __init__(self, uri: str) -> None:
        self.runner = asyncio.Runner()
        self.run(self.open(uri))

    def run(self, what: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(what)

    async def open(self, uri: str) -> None:
        raise NotImplementedError

    async def shut(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.run(self.shut())
        self.runner.close()


def version(peer: type[Peer]) -> str | None:
    """None: it is not installed."""
    if not peer.distribution:
        return ""
    try:
        return importlib.metadata.version(peer.distribution)
    except importlib.metadata.PackageNotFoundError:
        return None

"""Entities: who works on a board, a side record each, which a heartbeat renews."""

from __future__ import annotations

import json
import logging
from typing import NamedTuple

from jobboard.engine.store import Side

LOG = logging.getLogger(__name__)

KIND = "entity"


class StoredEntity(NamedTuple):
    """An entity as it is stored. handle: of the board that has registered it. metadata: JSON text."""

    handle: str
    kind: str
    name: str
    metadata: str

    @classmethod
    def of(cls, side: Side) -> StoredEntity | None:
        """Return None where the entry is damaged, which must not hide the others."""
        try:
            return cls(*json.loads(side.value or b""))
        except (ValueError, TypeError):
            LOG.warning("an entity can't be read: %r", side.value)
            return None

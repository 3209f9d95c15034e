"""Entities: the conductors and others that work on a board, each in a side record that a heartbeat renews."""

from __future__ import annotations

import json
import logging
from typing import NamedTuple

from jobboard.engine.store import Side

LOG = logging.getLogger(__name__)

KIND = "entity"


class StoredEntity(NamedTuple):
    """An entity as it is stored. handle: the handle of the board that registered the entity. metadata: JSON text."""

    handle: str
    kind: str
    name: str
    metadata: str

    @classmethod
    def of(cls, side: Side) -> StoredEntity | None:
        """Return the entity of a side record; None for a damaged record, which must not hide the others."""
        try:
            return cls(*json.loads(side.value or b""))
        except (ValueError, TypeError):
            LOG.warning("an entity can't be read: %r", side.value)
            return None

"""What the side record of an entity tells."""

from __future__ import annotations

import json
import logging

from jobboard.engine.store import Side

LOG = logging.getLogger(__name__)


def entity_of(side: Side) -> tuple[str, str, str, str] | None:
    """Handle, kind, name and metadata; None where the entry is damaged, which must not hide the others."""
    try:
        handle, kind, name, metadata = json.loads(side.value or b"")
    except (ValueError, TypeError):
        LOG.warning("an entity can't be read: %r", side.value)
        return None
    return handle, kind, name, metadata

"""What the service and its workers have to agree on: the board, and where the images lie."""

import os
from pathlib import Path

import jobboard

BOARD = jobboard.fetch("thumbnails", os.environ.get("JOBBOARD_URL", "sqlite:///thumbnails.db"))
IMAGES = Path(os.environ.get("IMAGES", "images")).absolute()
THUMBNAILS = IMAGES / "thumbnails"
THUMBNAILS.mkdir(parents=True, exist_ok=True)


def store(path: Path, data: bytes) -> None:
    """Nobody ever sees half a file, however often and by whomever it is written."""
    part = path.with_suffix(f".{os.urandom(8).hex()}.part")
    part.write_bytes(data)
    part.replace(path)

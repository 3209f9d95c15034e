"""The files of the demo: which there are, how a job names one, and what their digests are."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

_BLOCK = 1024 * 1024


class Stamp(NamedTuple):
    """What changes when a file does."""

    inode: int
    size: int
    modified: int


class Found(NamedTuple):
    """What there is below a folder: the files (as paths below it) and how much was passed over, by reason."""

    files: dict[str, Stamp]
    skipped: dict[str, int]


def find(root: Path, but: Path) -> Found:
    """Every regular file below ``root``, except what is in the folder ``but``. Links are not followed."""
    files: dict[str, Stamp] = {}
    skipped = {"links": 0, "special files": 0, "unreadable": 0}
    for path, entry in _walk(root, but):
        if entry is None:
            skipped["unreadable"] += 1
        elif stat.S_ISLNK(entry.st_mode):
            skipped["links"] += 1
        elif not stat.S_ISREG(entry.st_mode):
            skipped["special files"] += 1
        elif not os.access(path, os.R_OK):
            skipped["unreadable"] += 1
        else:
            files[os.path.relpath(path, root)] = _stamp(entry)
    return Found(files, {reason: count for reason, count in skipped.items() if count})


def _walk(root: Path, but: Path) -> Iterator[tuple[str, os.stat_result | None]]:
    """All that is not a folder, and (without a stat) the folders that can't be read."""
    folders = [str(root)]
    while folders:
        folder = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError:
            yield folder, None
            continue
        for entry in entries:
            try:
                if not entry.is_dir(follow_symlinks=False):
                    yield entry.path, entry.stat(follow_symlinks=False)
                elif Path(entry.path) != but:
                    folders.append(entry.path)
            except OSError:
                yield entry.path, None


def stamp(path: str) -> Stamp | None:
    """None where there is no such file any more."""
    try:
        return _stamp(os.lstat(path))
    except OSError:
        return None


def _stamp(entry: os.stat_result) -> Stamp:
    return Stamp(entry.st_ino, entry.st_size, entry.st_mtime_ns)


def pack(path: str) -> dict[str, Any]:
    """Details that name a file. Not every file's name is text, and details are."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return {"path_hex": os.fsencode(path).hex()}
    return {"path": path}


def unpack(details: Mapping[str, Any]) -> str:
    if "path_hex" in details:
        return os.fsdecode(bytes.fromhex(details["path_hex"]))
    return str(details["path"])


def digest(path: str) -> str:
    """The SHA-256 of a file, in hex."""
    made = hashlib.sha256()
    with Path(path).open("rb") as file:
        while block := file.read(_BLOCK):
            made.update(block)
    return made.hexdigest()

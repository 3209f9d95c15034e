"""What every board has, and the folders of what is to be stored: made with the board, and anew where they have gone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import NoAuthError, NoNodeError

from jobboard.backends.zookeeper.connection import translated
from jobboard.backends.zookeeper.requests import Refused, create, exists
from jobboard.exceptions import JobFailure

if TYPE_CHECKING:
    from jobboard.backends.zookeeper.store import ZooKeeperStore

LOG = logging.getLogger(__name__)


def create_board(store: ZooKeeperStore, layout: bytes) -> None:
    connection, denied = store.connection, None
    for path in store.paths.parents():
        try:
            [made] = connection.make([create(path)])
        except JobFailure as failure:
            # Who may not write above the chroot may well do so below it.
            if not isinstance(failure.cause, NoAuthError):
                raise
            denied = failure
        else:
            _check_folder(path, made, denied)
    ops = [create(path) for path in store.paths.fixed()]
    last = create(store.paths.layout, layout)
    try:
        connection.commit([*ops, last])
    except Refused:
        # Others are at it, or have not come to its end.
        for op, made in zip([*ops, last], [*connection.make(ops), *connection.make([last])], strict=True):
            _check_folder(op.path, made, denied)


def _check_folder(path: str, made: Any, denied: JobFailure | None) -> None:
    """:param denied: that somewhere above, something could not be made.
    :raises JobFailure: there is nothing in which ``path`` could lie.
    """
    if isinstance(made, NoNodeError):
        raise denied or translated(made, path)


def mend(store: ZooKeeperStore, wanted: Sequence[str]) -> None:
    """Make anew what every board has, and the folders in which these are to lie.

    :raises JobFailure: the whole board was deleted.
    """
    root = store.paths.root
    [layout] = store.connection.read([exists(store.paths.layout)])
    if layout is None:
        raise JobFailure(f"the board at {root} was deleted; connect() again makes a new one")
    if store.read_only:
        raise JobFailure(f"something is missing from the board at {root}, and this one is for looking only")
    folders: dict[str, None] = {}
    made_with_them = set(wanted)
    for path in wanted:
        parts = path[len(root) + 1 :].split("/")[:-1]
        for number in range(1, len(parts) + 1):
            folder = "/".join([root, *parts[:number]])
            if folder not in made_with_them:
                folders[folder] = None
    some = [path for path in store.paths.fixed() if "/jobs/" not in path or path in folders]
    order = [*some, *sorted(folders.keys() - set(some), key=lambda path: path.count("/"))]
    stats = store.connection.read([exists(path) for path in order])
    missing = [path for path, stat in zip(order, stats, strict=True) if stat is None]
    for path, made in zip(missing, store.connection.make([create(path) for path in missing]), strict=True):
        if isinstance(made, str) and path in some:
            LOG.warning("%s was missing, and is made anew", path)

"""Finds the board that a configuration names, through the entry points of ``jobboard.backends``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from typing import Any, TypedDict, Unpack

from stevedore import ExtensionManager, exception
from stevedore.driver import DriverManager

from jobboard import conf as configuration
from jobboard.board import JobBoard
from jobboard.ciphers import Cipher
from jobboard.exceptions import MissingDriver, NotFound

NAMESPACE = "jobboard.backends"


class BoardArguments(TypedDict, total=False):
    """The arguments of a board that its configuration cannot hold; see :class:`~jobboard.board.JobBoard`."""

    client: Any
    persistence: Any
    cipher: Cipher


def fetch(
    name: str, conf: str | Mapping[str, Any], namespace: str = NAMESPACE, **kwargs: Unpack[BoardArguments]
) -> JobBoard:
    """Return the board called ``name`` on the backend that ``conf`` names; connect it before use.

    :param conf: the plain name of a backend (``'sqlite'``), a URI (``'postgresql://app@db/prod?claim_ttl=30'``), or a
        dict with either as ``board`` and further options.
    :param kwargs: ``client=``, ``persistence=`` and ``cipher=``, see :class:`~jobboard.board.JobBoard`.
    :raises NotFound: there is no such backend.
    :raises TypeError: an argument is unknown; an option of the board's stands in ``conf``.
    :raises ValueError: an option is unknown or does not fit.
    :raises MissingDriver: the backend's package is not installed; names the extra that brings it.
    """
    scheme = configuration.target(conf).scheme
    try:
        manager: DriverManager[Any] = DriverManager(
            namespace, scheme, on_load_failure_callback=_raise_missing_driver, on_missing_entrypoints_callback=None
        )
    except exception.NoMatches:
        known = sorted(ExtensionManager(namespace).names())
        hint = configuration.meant(scheme, known, "")
        hint = f"{hint and f'{hint} '}installed are: {', '.join(known) or 'none'}"
        raise NotFound(f"there is no backend {scheme!r}; {hint}") from None
    for argument in kwargs:
        if argument not in BoardArguments.__annotations__:
            raise TypeError(
                f"fetch() has no argument {argument!r}: options of a board stand in its URI, as in "
                f"'sqlite:///jobs.db?{argument}=…', or in a dict, as in {{'board': 'sqlite', {argument!r}: …}}"
            )
    store: Any = manager.driver
    return JobBoard(name, conf, store=store, **kwargs)


def _raise_missing_driver(manager: Any, entry_point: EntryPoint, error: BaseException) -> None:
    if isinstance(error, ModuleNotFoundError):
        extra = ",".join(entry_point.extras) or entry_point.name
        message = f"the {entry_point.name} board needs {error.name}: pip install '.[{extra}]' in a clone of jobboard"
        raise MissingDriver(message, error) from error
    raise error


@contextlib.contextmanager
def backend(
    name: str, conf: str | Mapping[str, Any], namespace: str = NAMESPACE, **kwargs: Unpack[BoardArguments]
) -> Iterator[JobBoard]:
    """Return a block, ``with jobboard.backend(…) as board:``, that connects the board and closes it at the end."""
    with fetch(name, conf, namespace, **kwargs) as board:
        yield board

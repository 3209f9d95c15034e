"""Objects of a user's modules that a command line names."""

from __future__ import annotations

import importlib
import logging
import sys
import traceback
from collections.abc import Mapping
from operator import attrgetter
from pathlib import Path
from typing import Any

import click


def load(spec: str) -> Mapping[str, Any] | Any:
    """Return the object that MODULE:NAME names."""
    module_name, colon, name = spec.partition(":")
    if not (module_name and colon and name):
        raise click.UsageError(f"{spec!r} is not of the form MODULE:NAME")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a module of the user's may raise anything
        last = traceback.extract_tb(error.__traceback__)[-1]
        # The import of a module that is absent, or no Python, ends in the machinery.
        place = "" if last.filename.startswith("<") else f" ({last.filename}, line {last.lineno})"
        raise click.UsageError(f"can't import {module_name!r}: {type(error).__name__}: {error}{place}") from None
    # dictConfig() and fileConfig() of the module disable the loggers that exist, unless told otherwise.
    for logger_name in logging.root.manager.loggerDict:
        if logger_name == "jobboard" or logger_name.startswith("jobboard."):
            logging.getLogger(logger_name).disabled = False
    try:
        return attrgetter(name)(module)
    except AttributeError:
        raise click.UsageError(f"the module {module_name!r} has no {name!r}") from None

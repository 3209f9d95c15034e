"""Errors of this library, as TaskFlow's exceptions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from taskflow import exceptions as theirs

from jobboard.exceptions import JobBoardError, MissingDriver, NotFound, UnclaimableJob


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Raise TaskFlow's exception of the same name, with ours as its cause, or else TaskFlow's ``JobFailure``."""
    try:
        yield
    except (NotFound, MissingDriver) as error:
        raise theirs.NotFound(error.message, error) from error
    except UnclaimableJob as error:
        raise theirs.UnclaimableJob(error.message, error) from error
    except JobBoardError as error:
        raise theirs.JobFailure(error.message, error) from error

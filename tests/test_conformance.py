"""The suite that every backend has to pass, on each selected backend; the fixtures are in conftest.py."""

from jobboard.testing.conformance import *  # noqa: F403 - this is how the suite is used

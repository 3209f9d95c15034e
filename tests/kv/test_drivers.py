"""The suite that every driver has to pass, on the driver of each selected backend that has one."""

import pytest

from jobboard.testing.drivers import *  # noqa: F403 - this is how the suite is used

from .conftest import DRIVERS

pytestmark = [pytest.mark.backends(*DRIVERS), pytest.mark.any_driver]

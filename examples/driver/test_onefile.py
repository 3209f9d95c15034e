"""The suites that every driver and every board have to pass. Run them by ``pip install -e . && pytest``."""

import contextlib
import functools

import pytest
from onefile import OneFileDriver

import jobboard
from jobboard.testing.conformance import *
from jobboard.testing.drivers import *


@pytest.fixture
def board_conf(tmp_path):
    """A configuration that shares jobs with no other test; it travels to other processes as JSON."""
    return {"board": f"onefile:///{tmp_path}/boards.db"}


@pytest.fixture
def build(board_conf):
    """``build(name='board', **options)``: a driver that is not open yet."""
    return functools.partial(build_driver, OneFileDriver, board_conf)


@pytest.fixture
def make_board(board_conf):
    """A connected board; another handle on the same one for the same name."""
    with contextlib.ExitStack() as stack:

        def make(name="board", **options):
            board = jobboard.fetch(name, {**board_conf, **options})
            stack.callback(board.close)
            board.connect()
            return board

        yield make

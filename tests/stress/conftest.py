"""What has many processes runs one after another, in one of pytest's workers: together they would starve each other."""

import pytest


def pytest_itemcollected(item: pytest.Item) -> None:
    item.add_marker(pytest.mark.xdist_group("processes"))

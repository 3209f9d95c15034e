"""The driver of ``examples/driver``, installed as a package, passes the suites of drivers and boards."""

import os
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from stevedore import ExtensionManager

from jobboard.backends import NAMESPACE
from jobboard.testing import conformance
from tests.full import FULL

EXAMPLE = Path(__file__).parents[2] / "examples" / "driver"

sys.path.append(str(EXAMPLE))
try:
    from test_onefile import *  # noqa: F403 - as its author runs them
finally:
    sys.path.remove(str(EXAMPLE))

DEPENDENT = {"TestClocks", "TestFork", "TestLife", "TestOrder", "TestRaces", "TestWakeUp"}
"""The parts of the conformance suite that depend most on a driver. ``--full`` runs all parts."""

for name in () if FULL else set(conformance.__all__) - DEPENDENT:
    if name.startswith("Test"):
        del globals()[name]

pytestmark = [pytest.mark.backends("sqlite"), pytest.mark.any_driver]


@pytest.fixture(scope="module", autouse=True)
def _installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have the entry point found here and in processes of tests."""
    site = tmp_path_factory.mktemp("site")
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    info = site / "onefile-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    points = project["entry-points"][NAMESPACE]
    lines = [f"[{NAMESPACE}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(EXAMPLE))
        patch.syspath_prepend(str(site))
        inherited = os.environ.get("PYTHONPATH", "")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(EXAMPLE), inherited]))
        patch.delitem(ExtensionManager.ENTRY_POINT_CACHE, NAMESPACE, raising=False)
        yield
    ExtensionManager.ENTRY_POINT_CACHE.pop(NAMESPACE, None)

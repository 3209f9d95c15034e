"""Two releases of the library on one board: side by side, through ``setup``, and until the old one is refused."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobboard.testing import eventually
from tests.full import FULL
from tests.versions.releases import PACKAGE, later_release

MEMBER = Path(__file__).with_name("member.py")
SECONDS = 60.0 if FULL else 2.0

pytestmark = [
    pytest.mark.backends("sqlite", "postgresql", "mariadb", "redis", "zookeeper", "etcd"),
    pytest.mark.xdist_group("processes"),
]


class Process:
    """A process of a release. Each method of ``Member`` is a command."""

    def __init__(self, release: str, path: Path, conf: dict[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(MEMBER), release, "board", json.dumps(conf)],
            env={**os.environ, "PYTHONPATH": str(path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, verb: str, **named: Any) -> Any:
        self._process.stdin.write(json.dumps([verb, named]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, "the process has ended"
        return json.loads(line)

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return later_release(tmp_path_factory.mktemp("release"))


@pytest.fixture
def releases(release: Path, board_conf: dict[str, Any]) -> Iterator[tuple[Process, Process]]:
    conf = {**board_conf, "claim_ttl": 10}
    old, new = Process("old", PACKAGE.parent, conf), Process("new", release, conf)
    yield old, new
    old.end()
    new.end()


@pytest.mark.rule("Two releases share a board: no job is lost or consumed twice, and new fields outlive old writers.")
@pytest.mark.rule("Set-up raises the oldest reader, and older versions are refused from then on.")
def test_two_releases_share_a_board(releases: tuple[Process, Process], backend: str) -> None:
    old, new = releases
    old("connect")
    old("prepare")
    old("start")

    # The layout is upgraded while the old release works.
    refused = "the older layout 1; `jobboard setup` up"
    assert refused in new("connect")
    if backend in ("sqlite", "postgresql", "mariadb"):
        assert new("setup", killed=True) == 9
        assert refused in new("connect")
    assert new("setup") == ["upgrade layout 1 to 2"]
    assert new("setup") == []
    assert old("setup") == []

    new("prepare")
    new("start")
    end = time.monotonic() + SECONDS
    eventually(lambda: time.monotonic() > end and old("is_mixed") and new("is_mixed"), SECONDS + 60)
    left = old("stop")
    done = new("stop")
    assert old("outcomes") == left["kept"] + done["kept"]

    # A release without the old one's ways ends the joint time.
    assert new("setup", contract=True) == ["refuse versions of this library that are older than layout 2"]
    assert new("setup", contract=True) == []
    assert "has layout 2 of a newer version of this library; 2.0 wrote it" in old("connect")
    done = new("drain")

    assert left["faults"] == done["faults"] == []
    consumed = Counter(identity for identity, _ in left["consumed"] + done["consumed"])
    assert consumed == Counter(left["posted"] + done["posted"])
    ticks = Counter(left["ticks"] + done["ticks"])
    assert set(ticks.values()) == {1}
    assert {tick.split()[0] for tick in ticks} == {"old", "new"}
    assert new("outcomes") == left["kept"] + done["kept"]

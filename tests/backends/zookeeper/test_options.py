"""Options: hosts, paths, and what kazoo is told."""

from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler

import jobboard
from jobboard.backends.zookeeper.driver import ZooKeeperDriver
from jobboard.backends.zookeeper.options import OPTIONS, make_client
from jobboard.conf import COMMON, parse
from jobboard.exceptions import ConnectionFailure

pytestmark = pytest.mark.backends("zookeeper")

SECRET = "geheim"


def settings_of(conf: Any) -> Any:
    return parse(conf, {**COMMON, **OPTIONS}, ZooKeeperDriver.uri_parts)


@pytest.mark.rule("Option values that would be dropped are refused.")
def test_an_absent_file_is_named() -> None:
    board = jobboard.fetch("board", {"board": "zookeeper", "use_ssl": True, "ca": "/nowhere/ca.pem"})
    with pytest.raises(ConnectionFailure, match=r"option ca: .*/nowhere/ca\.pem"):
        board.connect()


def test_options_reach_kazoo(tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("ca", "certfile", "keyfile")}
    for file in files.values():
        Path(file).touch()
    handler = SequentialThreadingHandler()
    given = {
        "handler": handler,
        "randomize_hosts": "false",
        "read_only": True,
        "use_ssl": True,
        **files,
        "keyfile_password": SECRET,
        "verify_certs": False,
        "check_hostname": True,
    }
    client = make_client(settings_of({"board": "zookeeper", **given}), None)
    assert client.handler is handler
    assert (client.randomize_hosts, client.read_only) == (False, True)
    for name in ("use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname"):
        assert getattr(client, name) == given[name]


def test_chroot_and_namespace_are_the_path_of_a_board(
    caller: KazooClient, address: str, request: pytest.FixtureRequest
) -> None:
    root = f"chroot-{id(request)}"
    with jobboard.backend("a/b", {"board": f"zookeeper://{address}/{root}/deep", "namespace": "x/y"}) as board:
        job = board.post("resize")
        assert caller.exists(f"/{root}/deep/x/y/a%2Fb/alive") is not None
        assert board.claim_next("anna") == job
    chrooted = KazooClient(hosts=f"{address}/{root}/deep")
    chrooted.start()
    try:
        with jobboard.backend("a/b", {"board": "zookeeper", "namespace": "x/y"}, client=chrooted) as same:
            assert same.get(job.uuid) == job
    finally:
        chrooted.stop()
        chrooted.close()

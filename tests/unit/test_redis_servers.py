"""Redis in the shapes that its board is tested on: with options, with TLS, under Sentinel, as a cluster."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from jobboard.testing import eventually, ports
from tests.support.redis_servers import Address
from tests.support.servers import MissingServer, Redis, RedisCluster, RedisSentinel, Server, ServerError
from tests.support.watchdog import is_stopped, processes_in

pytestmark = pytest.mark.backends("redis")

Connect = Callable[..., "redis.Redis[Any]"]


@pytest.fixture
def connect() -> Iterator[Connect]:
    """``connect(address, **options)``: a client of redis-py, closed when the test ends."""
    with contextlib.ExitStack() as stack:

        def make(address: Address | str, **options: Any) -> "redis.Redis[Any]":
            # Once more at once: a connection may be of the time before a restart.
            options |= {"decode_responses": True, "retry": Retry(NoBackoff(), 1)}
            if isinstance(address, str):
                client = redis.Redis.from_url(address, **options)
            else:
                client = redis.Redis(*address, **options)
            return stack.enter_context(client)

        yield make


def build(path: Path, script: str) -> Path:
    """A program that runs a script before it becomes redis-server."""
    path.write_text(f'#!/bin/sh\n{script}\nexec {shutil.which("redis-server")} "$@"\n')
    path.chmod(0o755)
    return path


def test_a_server_takes_options(connect: Connect) -> None:
    with Redis(config={"maxmemory": "50mb", "requirepass": "secret", "hz": 50}) as server:
        with pytest.raises(redis.AuthenticationError):
            connect(server.uri).ping()
        client = connect(server.uri, password="secret")
        server.kill()
        server.start()
        assert client.config_get("maxmemory", "hz", "appendonly") == {
            "maxmemory": str(50 * 1024 * 1024),
            "hz": "50",
            "appendonly": "yes",
        }


def test_a_unix_socket_serves_the_same_data(connect: Connect) -> None:
    with Redis() as server:
        connect(f"unix://{server.unix_socket}").set("kept", "treasure")
        assert connect(server.uri).get("kept") == "treasure"


def test_a_socket_too_deep_for_the_system_does_not_keep_a_server_from_starting(
    connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with Redis() as server:
        assert connect(server.uri).ping()


def test_tls_is_served_to_who_trusts_the_authority(connect: Connect) -> None:
    with Redis(tls=True) as server:
        assert server.uri == f"rediss://127.0.0.1:{server.port}/0"
        trusting = connect(server.uri, ssl_ca_certs=str(server.ca_file))
        trusting.set("kept", "treasure")
        with pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            connect(server.uri).ping()
        with pytest.raises(redis.ConnectionError):
            connect(server.address).ping()

        server.kill()
        server.start()
        assert trusting.get("kept") == "treasure"
        server.restart()
        assert trusting.get("kept") == "treasure"


def test_a_client_can_show_the_server_s_certificate(connect: Connect) -> None:
    with Redis(tls=True, config={"tls-auth-clients": "yes"}) as server:
        trusting = {"ssl_ca_certs": str(server.ca_file)}
        own = {"ssl_certfile": str(server.cert_file), "ssl_keyfile": str(server.key_file)}
        assert connect(server.uri, **trusting, **own).ping()
        with pytest.raises(redis.ConnectionError):
            connect(server.uri, **trusting).ping()


@pytest.mark.parametrize("topology", [Redis, RedisSentinel])
def test_another_build_runs_instead(topology: Callable[..., Server], tmp_path: Path) -> None:
    program = build(tmp_path / "other-server", f'echo "$1" >> {tmp_path}/started')
    with topology(program=program) as server:
        started = (tmp_path / "started").read_text().split()
        assert len(started) == len(processes_in(server.folder))
        assert all(Path(each).is_relative_to(server.folder) for each in started)


@pytest.mark.parametrize("topology", [Redis, RedisSentinel, RedisCluster])
def test_a_missing_build_is_named(topology: Callable[..., Server]) -> None:
    with pytest.raises(MissingServer, match="needs no-such-server"):
        topology(program="no-such-server").start()


@pytest.mark.parametrize(("topology", "count"), [(RedisSentinel, 2), (RedisCluster, 3)])
def test_several_servers_are_ended_and_started_as_one(
    topology: Callable[..., RedisSentinel | RedisCluster],
    count: int,
    connect: Connect,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    servers = topology()
    try:
        servers.start()
        folder, uri, nodes = servers.folder, servers.uri, servers.nodes
        assert len(nodes) == len(set(nodes)) == count
        with pytest.raises(ServerError, match="running already"):
            servers.start()
        for number, node in enumerate(nodes):
            servers.node(node).call("CONFIG", "SET", "maxclients", 100 + number)
            servers.node(node).call("CONFIG", "REWRITE")

        servers.pause()
        assert all(map(is_stopped, processes_in(folder)))
        servers.resume()
        assert not any(map(is_stopped, processes_in(folder)))

        servers.kill()
        assert processes_in(folder) == []
        servers.start()
        assert (servers.uri, servers.nodes) == (uri, nodes)
        found = [connect(node).config_get("maxclients")["maxclients"] for node in nodes]
        assert found == [str(100 + number) for number in range(len(nodes))]
        assert connect(uri).ping()
    finally:
        servers.stop()
    assert processes_in(folder) == []
    assert not folder.exists()
    monkeypatch.setattr(ports, "_PORTS", [port for _, port in nodes])
    for reservation, _ in [ports.reserve_port() for _ in nodes]:
        reservation.close()
    servers.stop()


@pytest.mark.parametrize("topology", [RedisSentinel, RedisCluster])
def test_one_that_does_not_start_takes_all_with_it(
    topology: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = build(tmp_path / "other-server", 'case "$1" in */node2/*) echo no room here >&2; exit 3;; esac')
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(home))
    with pytest.raises(ServerError, match=r"(?s)ended \(3\) while starting.*no room here"):
        topology(program=program).start()
    assert list(home.iterdir()) == []
    assert processes_in(home) == []


STARTER = """
import time
from tests.support.servers import RedisSentinel
print(RedisSentinel().start().folder, flush=True)
time.sleep(600)
"""


def test_several_servers_go_with_the_process_that_started_them() -> None:
    starter = subprocess.Popen([sys.executable, "-c", STARTER], stdout=subprocess.PIPE, text=True)
    try:
        assert starter.stdout is not None
        folder = Path(starter.stdout.readline().strip())
        assert folder.is_absolute()
        assert len(processes_in(folder)) == 5
        os.kill(starter.pid, signal.SIGKILL)
        eventually(lambda: not folder.exists())
        assert processes_in(folder) == []
    finally:
        starter.kill()
        starter.communicate()


def test_sentinel_tells_the_way_to_the_primary_and_its_replica(connect: Connect) -> None:
    with RedisSentinel() as servers:
        assert servers.uri == f"redis://127.0.0.1:{servers.sentinels[0][1]}/0"
        clients = Sentinel(servers.sentinels)
        primary = clients.discover_master(servers.service)
        (replica,) = clients.discover_slaves(servers.service)
        assert primary == servers.primary
        assert {primary, replica} == set(servers.nodes)
        assert len(connect(servers.uri).sentinel_sentinels(servers.service)) == 2
        with pytest.raises(redis.ReadOnlyError):
            connect(replica).set("kept", "treasure")
        client = connect(primary)
        client.set("kept", "treasure")
        assert client.wait(1, 10_000) == 1
        assert connect(replica).get("kept") == "treasure"


def test_a_failover_keeps_what_the_replica_has(connect: Connect) -> None:
    with RedisSentinel() as servers:
        before = servers.primary
        client = connect(before)
        client.set("kept", "treasure")
        assert client.wait(1, 10_000) == 1
        after = servers.failover()
        assert after == servers.primary != before
        assert connect(after).get("kept") == "treasure"
        connect(after).set("later", "more")

        # Who is the primary is kept, too.
        servers.restart()
        assert servers.primary == after
        assert [connect(node).get("later") for node in servers.nodes] == ["more", "more"]


def test_a_failover_loses_what_the_replica_has_not_heard_of(connect: Connect) -> None:
    with RedisSentinel() as servers:
        before = servers.primary
        client = connect(before)
        client.set("kept", "treasure")
        servers.pause_replica()
        client.set("lost", "acknowledged")
        assert client.wait(1, 1) == 0
        servers.kill_primary()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        servers.resume_replica()
        after = servers.wait_for_primary()
        assert after != before
        assert connect(after).mget("kept", "lost") == ["treasure", None]
        connect(after).set("later", "more")

        servers.restart_node()
        former = connect(before)
        assert former.role()[0] == "slave"
        assert former.mget("kept", "lost", "later") == ["treasure", None, "more"]


def test_a_resumed_replica_catches_up_with_a_primary_that_lives(connect: Connect) -> None:
    with RedisSentinel() as servers:
        primary = servers.primary
        (replica,) = set(servers.nodes) - {primary}
        servers.pause_replica()
        connect(primary).set("kept", "treasure")
        servers.resume_replica()
        assert eventually(lambda: connect(replica).get("kept")) == "treasure"
        assert servers.primary == primary


def test_a_failover_needs_not_every_sentinel(connect: Connect) -> None:
    with RedisSentinel(replicas=2) as servers:
        before = servers.primary
        assert connect(before).info("replication")["connected_slaves"] == 2
        servers.node(servers.sentinels[0]).kill()
        assert servers.primary == before
        assert servers.failover() != before


def test_a_cluster_takes_writes_on_all_nodes_and_outlives_one(connect: Connect) -> None:
    with RedisCluster(replicas=1) as servers:
        assert servers.uri == f"redis://127.0.0.1:{servers.nodes[0][1]}/0"
        assert [connect(node).role()[0] for node in servers.nodes] == ["master"] * 3 + ["slave"] * 3
        for node in servers.nodes:
            facts = connect(node).execute_command("CLUSTER INFO")
            assert facts["cluster_state"] == "ok"
            assert (facts["cluster_slots_ok"], facts["cluster_known_nodes"]) == ("16384", "6")
        with redis.RedisCluster.from_url(servers.uri, decode_responses=True) as client:
            for number in range(30):
                client.set(f"{{tag{number}}}", number)
                assert client.get(f"{{tag{number}}}") == str(number)
        held = [connect(node).dbsize() for node in servers.nodes[:3]]
        assert sum(held) == 30
        assert min(held) > 0

        first = connect(servers.nodes[0])
        replica = connect(servers.nodes[3])
        assert tuple(replica.role()[1:3]) == servers.nodes[0]
        servers.node(servers.nodes[0]).kill()
        with pytest.raises(redis.ConnectionError):
            first.ping()
        eventually(lambda: replica.role()[0] == "master")
        assert replica.dbsize() == held[0]

"""Boards behind Sentinel and on a cluster: they follow their server when it moves.

Here also run the parts of the conformance suite that depend on the place of the server, or with JOBBOARD_TEST_FULL all.
"""

import contextlib
import os
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from redis.cluster import ClusterNode, RedisCluster
from redis.sentinel import Sentinel

import jobboard
from jobboard.board import JobBoard
from jobboard.exceptions import JobFailure
from jobboard.job import Job
from jobboard.testing import conformance, eventually
from jobboard.testing.conformance import *  # noqa: F403 - this is how the suite is used
from jobboard.testing.conformance.support import Background, EventLog, Waiter, take, uuids
from tests.support import servers

pytestmark = pytest.mark.backends("redis")

DEPENDENT = {"TestEvents", "TestLife", "TestSiblings", "TestWakeUp"}

if not os.environ.get("JOBBOARD_TEST_FULL"):
    for name in set(conformance.__all__) - DEPENDENT:
        if name.startswith("Test"):
            del globals()[name]

PATIENCE = 30
"""Seconds that a board takes at most to find its server again."""

# Each topology is started once, for all tests on one worker.
BEHIND_SENTINEL, ON_A_CLUSTER = (
    pytest.param(kind, marks=pytest.mark.xdist_group(kind.kind), id=kind.kind)
    for kind in (servers.RedisSentinel, servers.RedisCluster)
)

Open = Callable[..., JobBoard]


@pytest.fixture(scope="module", params=[BEHIND_SENTINEL, ON_A_CLUSTER])
def topology(request: pytest.FixtureRequest) -> Iterator[Any]:
    """Servers of which each has a replica that can take over."""
    with request.param() as running:
        yield running


@pytest.fixture
def where(topology: Any) -> dict[str, Any]:
    """The options that lead to the servers."""
    if topology.kind == servers.RedisCluster.kind:
        return {"board": topology.uri, "cluster": True}
    (host, port), *others = topology.sentinels
    return {"board": f"redis://{host}:{port}", "sentinel": topology.service, "sentinel_fallbacks": others}


@pytest.fixture
def board_conf(where: dict[str, Any]) -> dict[str, Any]:
    return {**where, "namespace": uuid.uuid4().hex}


@pytest.fixture
def make_board(board_conf: dict[str, Any]) -> Iterator[Callable[..., Any]]:
    with contextlib.ExitStack() as stack:

        def make(name: str = "board", client: Any = None, **options: Any) -> Any:
            conf = {**board_conf, **options}
            if client is not None:
                conf = {"board": "redis", "namespace": conf["namespace"], **options}
            board = jobboard.fetch(name, conf, client=client)
            stack.callback(board.close)
            board.connect()
            return board

        yield make


@pytest.fixture
def make_client(topology: Any) -> Iterator[Callable[..., Any]]:
    """``make_client(**options)``: a client of redis-py."""
    with contextlib.ExitStack() as stack:

        def make(**options: Any) -> Any:
            if topology.kind == servers.RedisCluster.kind:
                client: Any = RedisCluster(*topology.nodes[0], **options)
            else:
                client = Sentinel(topology.sentinels, socket_timeout=2).master_for(topology.service, **options)
            stack.callback(client.close)
            return client

        yield make


@pytest.mark.parametrize(("protocol", "decode"), [(2, True), (3, False)])
def test_a_client(
    make_board: Open, make_client: Callable[..., Any], live: Callable[..., None], protocol: int, decode: bool
) -> None:
    client = make_client(decode_responses=decode, protocol=protocol)
    board = make_board(client=client)
    live(board, make_board())
    live(make_board(), board)
    board.close()
    assert client.set("mine", "1")
    assert client.get("mine") == ("1" if decode else b"1")


@pytest.fixture
def grant(topology: Any) -> Iterator[Callable[..., None]]:
    """``grant(*rules)`` to the user ``worker``, everywhere."""

    def grant(*rules: str) -> None:
        for node in topology.nodes:
            topology.node(node).call("ACL", "SETUSER", "worker", *rules)

    yield grant
    for node in topology.nodes:
        topology.node(node).call("ACL", "DELUSER", "worker")


def test_the_rights_that_the_error_names_suffice(
    where: dict[str, Any], grant: Callable[..., None], make_board: Open, live: Callable[..., None]
) -> None:
    own = {"username": "worker", "password": "w"}
    grant("reset", "on", ">w", *(["+cluster|slots"] if "cluster" in where else []))
    with pytest.raises(JobFailure, match="A board needs") as caught:
        make_board(**own)
    grant("reset", "on", ">w", *str(caught.value).partition("A board needs ")[2].split())
    live(*(make_board(**own) for _ in range(2)))


def test_close_leaves_no_connection(
    topology: Any, grant: Callable[..., None], make_board: Open, live: Callable[..., None]
) -> None:
    grant("reset", "on", ">w", "~*", "&*", "+@all")
    sentinels = getattr(topology, "sentinels", [])
    own: dict[str, Any] = {"username": "worker", "password": "w"}
    if sentinels:
        own["sentinel_kwargs"] = {"client_name": "worker"}

    def connected(nodes: Iterable[tuple[str, int]]) -> int:
        clients = [line for node in nodes for line in topology.node(node).call("CLIENT", "LIST").splitlines()]
        return sum("name=worker " in line or "user=worker " in line for line in clients)

    board = make_board(**own)
    live(board, board)
    assert connected(topology.nodes) > 0
    assert not sentinels or connected(sentinels) > 0
    board.close()
    assert eventually(lambda: connected([*topology.nodes, *sentinels]) == 0)


class Busy:
    """A board with a kept claim, a waiter and a listener, which all go on when the server moves."""

    def __init__(self, board: JobBoard, other: JobBoard) -> None:
        self.board = board
        self.other = other
        self.kept = other.post("keep")
        self.claim = take(other, names=["keep"]).claim
        self.events = EventLog(board)
        self.told: list[Job] = []
        self.waiter = Waiter(board, lambda: take(board, "bert", names=["wake"], timeout=PATIENCE))

    def goes_on(self) -> None:
        job = self.board.post("here", key="k")
        assert self.board.post("here", key="k") == job
        woken = self.other.post("wake")
        assert self.waiter.wait(PATIENCE) == woken
        self.claim.extend()
        assert sorted(uuids(self.board.iterjobs())) == sorted([self.kept.uuid, job.uuid, woken.uuid])
        assert eventually(self.heard, PATIENCE)

    def heard(self) -> bool:
        """Post a job, and return whether the event of one was heard. Events of an outage are lost."""
        self.told.append(self.other.post("told"))
        return any(map(self.events.of, self.told))


@pytest.fixture(params=["own", "client"])
def busy(make_board: Open, make_client: Callable[..., Any], request: pytest.FixtureRequest) -> Busy:
    client = make_client() if request.param == "client" else None
    return Busy(make_board(client=client, retry_for=PATIENCE), make_board(retry_for=PATIENCE))


@pytest.mark.parametrize("topology", [BEHIND_SENTINEL], indirect=True)
def test_a_board_follows_a_failover(topology: servers.RedisSentinel, busy: Busy) -> None:
    wait_for_replica(topology.node(topology.primary))
    topology.kill_primary()
    try:
        busy.goes_on()
    finally:
        topology.restart_node()


@pytest.mark.parametrize("topology", [BEHIND_SENTINEL], indirect=True)
def test_a_board_follows_a_failover_of_a_living_primary(topology: servers.RedisSentinel, busy: Busy) -> None:
    wait_for_replica(topology.node(topology.primary))
    topology.failover()
    busy.goes_on()


def wait_for_replica(primary: servers.Redis) -> None:
    """Wait for a replica that has all that was acknowledged."""

    def has_all() -> bool:
        _, offset, replicas = primary.call("ROLE")
        return any(int(known) >= offset for _, _, known in replicas)

    eventually(has_all)


def slot_of(cluster: RedisCluster, board: JobBoard) -> tuple[int, ClusterNode]:
    slot = cluster.keyslot(board.engine.store.keys.tag)
    return slot, cluster.nodes_manager.get_node_from_slot(slot)


def move_slot(cluster: RedisCluster, board: JobBoard, halfway: Callable[[], None]) -> None:
    """Hand a board's slot over to another node. Call ``halfway`` when each node has half of its keys."""
    slot, source = slot_of(cluster, board)
    target = next(node for node in cluster.get_primaries() if node != source)
    old, new = (cluster.get_redis_connection(node) for node in (source, target))
    new.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", old.execute_command("CLUSTER MYID"))
    old.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", new.execute_command("CLUSTER MYID"))
    keys = old.execute_command("CLUSTER GETKEYSINSLOT", slot, 100_000)
    half = len(keys) // 2
    assert half
    old.migrate(target.host, target.port, keys[:half], 0, 5000)
    halfway()
    old.migrate(target.host, target.port, keys[half:], 0, 5000)
    for node in cluster.get_primaries():
        owner = new.execute_command("CLUSTER MYID")
        cluster.get_redis_connection(node).execute_command("CLUSTER SETSLOT", slot, "NODE", owner)


@pytest.mark.rule("A listener on a cluster follows the slot of its board.")
@pytest.mark.parametrize("topology", [ON_A_CLUSTER], indirect=True)
def test_a_board_follows_its_slot(
    busy: Busy, make_client: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    posts = []

    def halfway() -> None:
        posts.append(Background(lambda: busy.board.post("between")))
        eventually(lambda: "trying again" in caplog.text)

    before = slot_of(make_client(), busy.board)
    move_slot(make_client(), busy.board, halfway)
    job = posts[0].wait(PATIENCE)
    assert take(busy.other, names=["between"]) == job
    busy.other.consume(job, "anna")
    busy.goes_on()
    assert slot_of(make_client(), busy.board) != before


@pytest.mark.rule("A listener on a cluster follows the slot of its board.")
@pytest.mark.parametrize("topology", [ON_A_CLUSTER], indirect=True)
def test_a_listener_follows_its_slot(make_board: Open, make_client: Callable[..., Any]) -> None:
    events, other = EventLog(make_board()), make_board(retry_for=PATIENCE)
    other.post("before")
    move_slot(make_client(), other, lambda: None)
    events.seen.clear()
    assert eventually(lambda: other.post("told") and events.seen, PATIENCE)


@pytest.mark.parametrize("topology", [ON_A_CLUSTER], indirect=True)
def test_a_board_follows_the_replica_of_a_killed_node(
    topology: servers.RedisCluster, busy: Busy, make_client: Callable[..., Any]
) -> None:
    cluster = make_client()
    _, node = slot_of(cluster, busy.board)
    primary = topology.node((node.host, node.port))
    wait_for_replica(primary)
    primary.kill()
    try:
        busy.goes_on()
    finally:
        primary.start()
    assert slot_of(make_client(), busy.board)[1] != node


@pytest.mark.parametrize("topology", [ON_A_CLUSTER], indirect=True)
def test_siblings_do_without_a_killed_node(
    topology: servers.RedisCluster, make_board: Open, make_client: Callable[..., Any]
) -> None:
    wait_for_cluster(topology)
    board = make_board(retry_for=0)
    others = [make_board(f"other {number}") for number in range(8)]
    cluster = make_client()
    _, home = slot_of(cluster, board)
    away = next(node for node in cluster.get_primaries() if node != home)
    left = {other.name for other in others if slot_of(cluster, other)[1] != away}
    assert left
    primary = topology.node((away.host, away.port))
    wait_for_replica(primary)
    primary.kill()
    try:
        assert set(board.siblings()) == left
    finally:
        primary.start()
        wait_for_cluster(topology)


def wait_for_cluster(topology: servers.RedisCluster) -> None:
    """Wait until each node finds that all slots are served."""
    nodes = [topology.node(address) for address in topology.nodes]
    eventually(lambda: all("cluster_state:ok" in node.call("CLUSTER", "INFO") for node in nodes), PATIENCE)

"""What a board can be told: hosts, paths, who it is, who may do what, and a client of the caller's."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.security import make_digest_acl

import jobboard
from jobboard.backends.zookeeper.options import make_client
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.job import Entity
from tests.backends.zookeeper.inside import connection_of, driver_of
from tests.support.server import HOST, reserve_port
from tests.support.servers import ZooKeeper

pytestmark = pytest.mark.backends("zookeeper")


def hosts_of(conf: Any) -> Any:
    conf = jobboard.fetch("board", conf)._conf
    return make_client(conf).hosts, conf["chroot"]


@pytest.mark.parametrize(
    ("conf", "hosts", "chroot"),
    [
        ("zookeeper", [("127.0.0.1", 2181)], ""),
        ("zk://one", [("one", 2181)], ""),
        ("zookeeper://one:7", [("one", 7)], ""),
        ("zookeeper://one:7,two/a/b", [("one", 7), ("two", 2181)], "/a/b"),
        ({"board": "zookeeper", "hosts": "one:7,two:8"}, [("one", 7), ("two", 8)], ""),
        ({"board": "zookeeper", "hosts": ["one:7", "two"], "chroot": "/x/"}, [("one", 7), ("two", 2181)], "/x"),
        ({"board": "zookeeper", "hosts": {"one": 7, "two": 8}}, [("one", 7), ("two", 8)], ""),
        ("zookeeper://[::1]:7", [("::1", 7)], ""),
        ("zookeeper://[::1]", [("::1", 2181)], ""),
        ("zookeeper://[::1]:7,[::2]", [("::1", 7), ("::2", 2181)], ""),
        ({"board": "zookeeper", "hosts": {"::1": 7}}, [("::1", 7)], ""),
        ("zookeeper://one,two?port=7", [("one", 7), ("two", 7)], ""),
        ({"board": "zookeeper", "hosts": ["one", "two:8"], "port": 7}, [("one", 7), ("two", 8)], ""),
    ],
)
def test_hosts(conf: Any, hosts: Any, chroot: str) -> None:
    assert hosts_of(conf) == (hosts, chroot)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("hosts", 7),
        ("hosts", "one:port"),
        ("hosts", "one/chroot"),
        ("namespace", "a/../b"),
        ("handler", "twisted"),
        ("hosts", ["one", 7]),
        ("handler", 5),
        ("connection_retry", 3),
        ("connection_retry", {"max_trys": 1}),
        ("command_retry", {"max_tries": "x"}),
        ("default_acl", []),
        ("auth_data", ["digest"]),
        ("sasl_options", "DIGEST-MD5"),
        ("default_acl", ["everybody"]),
        ("use_ssl", "perhaps"),
    ],
)
def test_what_does_not_fit_is_named(option: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=option):
        jobboard.fetch("board", {"board": "zookeeper", option: value})


@pytest.mark.parametrize(
    ("conf", "told"),
    [
        ({"ca": "/ca"}, "ca: set use_ssl"),
        ({"certfile": "/cert", "use_ssl": False}, "certfile: set use_ssl"),
        ({"verify_certs": False}, "verify_certs: set use_ssl"),
        ({"check_hostname": True}, "check_hostname: set use_ssl"),
        ({"use_ssl": True, "keyfile": "/key"}, "keyfile: set certfile"),
        ({"use_ssl": True, "certfile": "/cert", "keyfile_password": "geheim"}, "keyfile_password: set keyfile"),
        ({"password": "geheim"}, "password: set user"),
        ({"board": "zookeeper://:geheim@one"}, "password: set user"),
        ({"board": "zk+kazoo://one"}, "no driver"),
    ],
)
def test_what_would_be_dropped_without_a_word_is_refused(conf: Any, told: str) -> None:
    with pytest.raises(ValueError, match=told) as failure:
        jobboard.fetch("board", {"board": "zookeeper", **conf})
    assert "geheim" not in str(failure.value)


def test_a_file_that_is_not_there_is_named() -> None:
    board = jobboard.fetch("board", {"board": "zookeeper", "use_ssl": True, "ca": "/nowhere/ca.pem"})
    with pytest.raises(ConnectionFailure, match=r"option ca: .*/nowhere/ca\.pem"):
        board.connect()


def test_what_kazoo_is_told(tmp_path: Path) -> None:
    files = {name: str(tmp_path / name) for name in ("ca", "certfile", "keyfile")}
    for file in files.values():
        Path(file).touch()
    handler = SequentialThreadingHandler()
    given = {
        "claim_ttl": 7,
        "handler": handler,
        "connection_retry": {"max_tries": 3},
        "command_retry": {"max_tries": 5},
        "randomize_hosts": "false",
        "read_only": True,
        "use_ssl": True,
        **files,
        "keyfile_password": "geheim",
        "verify_certs": False,
        "check_hostname": True,
    }
    client = make_client(jobboard.fetch("board", {"board": "zookeeper", **given})._conf)
    assert client._session_timeout == 7000
    assert client.handler is handler
    assert (client._conn_retry.max_tries, client._retry.max_tries) == (3, 5)
    assert (client.randomize_hosts, client.read_only) == (False, True)
    for name in ("use_ssl", "ca", "certfile", "keyfile", "keyfile_password", "verify_certs", "check_hostname"):
        assert getattr(client, name) == given[name]


def test_where_it_is_shows() -> None:
    conf = {"board": "zookeeper", "hosts": {"one": 7, "two": 8}, "chroot": "x", "user": "anna", "password": "geheim"}
    assert " at zookeeper://anna@one:7,two:8/x," in repr(jobboard.fetch("board", conf))


def test_chroot_and_namespace(caller: KazooClient, address: str, request: pytest.FixtureRequest) -> None:
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


def test_without_auto_setup(address: str, request: pytest.FixtureRequest) -> None:
    conf = {"board": f"zookeeper://{address}", "namespace": f"none{id(request)}"}
    board = jobboard.fetch("board", {**conf, "auto_setup": False})
    with pytest.raises(JobFailure, match="jobboard setup"):
        board.connect()
    board.setup()
    board.setup()
    board.connect()
    board.close()


def test_a_layout_of_a_newer_version_is_refused(make_board: Any) -> None:
    board = make_board()
    path = driver_of(board).place("layout")
    client = connection_of(board).open()
    client.set(path, client.get(path)[0][:16] + b"3 2")
    with pytest.raises(JobFailure, match="newer"):
        make_board()


def test_reading_only(make_board: Any) -> None:
    board = make_board()
    job = board.post("resize")
    board.post("later", delay=600)
    looking = make_board(read_only=True)
    with pytest.raises(JobFailure, match="read_only"):
        looking.setup()
    assert [each.name for each in looking.iterjobs()] == ["resize", "later"]
    assert looking.stats().unclaimed == 1
    assert looking.get(job.uuid) == job
    assert [each.name for each in looking.wait(0)] == ["resize"]
    for act in (
        lambda: looking.post("no"),
        lambda: looking.claim_next("anna"),
        lambda: looking.claim(looking.get(job.uuid), "anna"),
        lambda: looking.cancel(looking.get(job.uuid)),
        lambda: looking.register_entity(Entity("conductor", "one")),
    ):
        with pytest.raises(JobFailure, match="read_only"):
            act()


def test_digest_authentication_and_acls(address: str, request: pytest.FixtureRequest) -> None:
    conf = {
        "board": f"zookeeper://anna:geheim@{address}",
        "namespace": f"acl{id(request)}",
        "default_acl": [make_digest_acl("anna", "geheim", all=True)],
    }
    with jobboard.backend("board", conf) as board:
        job = board.post("resize", key="k")
        assert board.claim_next("anna") == job
        for other in ({**conf, "board": f"zookeeper://{address}"}, {**conf, "board": f"zookeeper://bert:x@{address}"}):
            with pytest.raises(JobFailure, match="ACLs") as failure:
                jobboard.fetch("board", other).connect()
            assert "geheim" not in str(failure.value)
        pair = {**conf, "board": f"zookeeper://{address}", "auth_data": [("digest", "anna:geheim")]}
        with jobboard.backend("board", pair) as same:
            assert same.get(job.uuid) == job


def test_no_secret_is_shown(address: str, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest) -> None:
    conf = {
        "board": f"zookeeper://anna:geheim@{address}",
        "auth_data": [("digest", "bert:geheim")],
        "namespace": f"secret{id(request)}",
    }
    with caplog.at_level(1), jobboard.backend("board", conf) as board:
        board.post("resize")
        assert "geheim" not in repr(board)
        assert "geheim" not in repr(board._conf)
    assert "Sending request" in caplog.text
    assert "geheim" not in caplog.text
    key = {"use_ssl": True, "certfile": "cert", "keyfile": "key", "keyfile_password": "geheim"}
    assert "geheim" not in repr(jobboard.fetch("board", {"board": "zookeeper", **key})._conf)
    for option in ("auth_data", "sasl_options", "default_acl"):
        with pytest.raises((TypeError, ValueError)) as failure:
            jobboard.fetch("board", {"board": "zookeeper", option: "geheim"})
        assert "geheim" not in str(failure.value)


class TestCallersClient:
    def test_two_boards_on_one_client(self, caller: KazooClient, request: pytest.FixtureRequest) -> None:
        conf = {"board": "zookeeper", "namespace": f"two{id(request)}"}
        one, two = (jobboard.fetch("board", conf, client=caller) for _ in range(2))
        one.connect()
        two.connect()
        job = one.post("resize")
        assert two.claim_next("anna") == job
        one.close()
        two.consume(two.get(job.uuid), "anna")
        two.close()

    def test_what_is_no_client(self, caller: KazooClient) -> None:
        with pytest.raises(TypeError, match="KazooClient"):
            jobboard.fetch("board", "zookeeper", client=object())
        with pytest.raises(ValueError, match="hosts"):
            jobboard.fetch("board", "zookeeper://elsewhere", client=caller)
        own: dict[str, Any] = {"claim_ttl": 60, "handler": SequentialThreadingHandler(), "command_retry": {"delay": 9}}
        for option, value in own.items():
            with pytest.raises(ValueError, match=option):
                jobboard.fetch("board", {"board": "zookeeper", option: value}, client=caller)

    def test_its_session_timeout_is_learnt(self, address: str) -> None:
        client = KazooClient(hosts=address, timeout=0.3)
        client.start()
        try:
            with jobboard.backend("board", "zookeeper", client=client) as board:
                assert board.characteristics.claim_ttl == pytest.approx(1.0)
        finally:
            client.stop()
            client.close()


NETTY = ":".join(f"/usr/share/java/netty-{part}.jar" for part in ("codec", "resolver", "transport-native-unix-common"))


class Secured(ZooKeeper):
    """A server that speaks TLS on a second port."""

    def _prepare(self) -> None:
        super()._prepare()
        self.reserved, self.tls_port = reserve_port()
        self._certificates()
        settings = {
            "secureClientPort": self.tls_port,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": self.folder / "server.p12",
            "ssl.keyStore.password": "geheim",
            "ssl.trustStore.location": self.folder / "ca.pem",
            "ssl.clientAuth": "need",
        }
        with (self.folder / "zoo.cfg").open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())

    def _command(self) -> list[Any]:
        # Debian's package names some of Netty's parts alone.
        return [f"{each}:{NETTY}" if "zookeeper.jar" in str(each) else each for each in super()._command()]

    def _certificates(self) -> None:
        def openssl(*arguments: str) -> None:
            subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

        new = ("-newkey", "rsa:2048", "-nodes", "-days", "2")
        openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=authority")
        for name in ("server", "client"):
            openssl("req", *new[:3], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
            (self.folder / "ext").write_text(f"subjectAltName=IP:{HOST}\n")
            signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "ext")
            openssl("x509", "-req", "-in", f"{name}.csr", *signing, "-out", f"{name}.pem")
        pair = ("-inkey", "server.key", "-in", "server.pem", "-passout", "pass:geheim")
        openssl("pkcs12", "-export", *pair, "-out", "server.p12")
        openssl("rsa", "-in", "client.key", "-aes256", "-passout", "pass:geheim", "-out", "locked.key")


def test_tls(tmp_path: Path) -> None:
    with Secured() as server:
        tls = {
            "board": f"zookeeper://{HOST}:{server.tls_port}",
            "use_ssl": True,
            "ca": str(server.folder / "ca.pem"),
            "certfile": str(server.folder / "client.pem"),
            "keyfile": str(server.folder / "locked.key"),
            "keyfile_password": "geheim",
            "timeout": 20,
        }
        with jobboard.backend("board", tls) as board:
            job = board.post("resize")
            assert board.claim_next("anna") == job
            board.consume(job, "anna")
        nobody = dict.fromkeys(("certfile", "keyfile", "keyfile_password"))
        for wrong in ({**nobody, "ca": None, "use_ssl": False}, {"ca": None}, nobody):
            board = jobboard.fetch("board", {**tls, "timeout": 1, **wrong})
            with pytest.raises(ConnectionFailure):
                board.connect()


class WithUsers(ZooKeeper):
    """A server that knows users by SASL."""

    def _prepare(self) -> None:
        super()._prepare()
        (self.folder / "jaas.conf").write_text(
            'Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_anna="geheim"; };\n'
        )
        with (self.folder / "zoo.cfg").open("a") as file:
            file.write("authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n")

    def _command(self) -> list[Any]:
        java, *rest = super()._command()
        return [java, f"-Djava.security.auth.login.config={self.folder / 'jaas.conf'}", *rest]


def test_sasl() -> None:
    with WithUsers() as server:
        acl = [{"scheme": "sasl", "credential": "anna", "all": True}]
        sasl = {"mechanism": "DIGEST-MD5", "username": "anna", "password": "geheim"}
        conf = {"board": server.uri, "sasl_options": sasl, "default_acl": acl, "timeout": 20}
        with jobboard.backend("board", conf) as board:
            job = board.post("resize")
            assert board.claim_next("anna") == job
            with pytest.raises(JobFailure, match="ACLs"):
                jobboard.fetch("board", server.uri).connect()
            wrong = jobboard.fetch("board", {**conf, "sasl_options": {**sasl, "password": "falsch"}, "timeout": 2})
            with pytest.raises(ConnectionFailure) as failure:
                wrong.connect()
            assert "falsch" not in str(failure.value)

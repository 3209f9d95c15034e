"""Access to ZooKeeper by digest, SASL and TLS, and secrets that no log shows."""

from typing import Any

import pytest
from kazoo.security import make_digest_acl

import jobboard
from jobboard.exceptions import ConnectionFailure, JobFailure
from jobboard.states import CLAIMED
from jobboard.testing import eventually
from tests.support.server import HOST, TLSDaemon
from tests.support.servers import ZooKeeper

pytestmark = pytest.mark.backends("zookeeper")

SECRET = "geheim"


def test_digest_authentication_opens_a_board_whose_acls_name_the_user(
    address: str, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    conf = {
        "board": f"zookeeper://anna:{SECRET}@{address}",
        "namespace": f"acl{id(request)}",
        "default_acl": [make_digest_acl("anna", SECRET, all=True)],
    }
    with caplog.at_level(1), jobboard.backend("board", conf) as board:
        job = board.post("resize", key="k")
        assert board.claim_next("anna") == job
        for other in (f"zookeeper://{address}", f"zookeeper://bert:x@{address}"):
            with pytest.raises(JobFailure, match="ACLs") as failure:
                jobboard.fetch("board", {**conf, "board": other}).connect()
            assert SECRET not in str(failure.value)
        pair = {**conf, "board": f"zookeeper://{address}", "auth_data": [("digest", f"anna:{SECRET}")]}
        with jobboard.backend("board", pair) as same:
            assert same.get(job.uuid) == job
            assert SECRET not in repr(same)
        assert SECRET not in repr(board) + repr(board.engine.store.seat.conf)
    assert "Sending request" in caplog.text
    assert SECRET not in caplog.text


class WithUsers(ZooKeeper):
    """A server that knows a user by SASL."""

    def let_in(self, password: str) -> None:
        """Have anna log in by this password, from the next start on."""
        (self.folder / "jaas.conf").write_text(
            f'Server {{ org.apache.zookeeper.server.auth.DigestLoginModule required user_anna="{password}"; }};\n'
        )

    def _prepare(self) -> None:
        super()._prepare()
        self.let_in(SECRET)
        with (self.folder / "zoo.cfg").open("a") as file:
            file.write("authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n")

    def _command(self) -> list[Any]:
        java, *rest = super()._command()
        return [java, f"-Djava.security.auth.login.config={self.folder / 'jaas.conf'}", *rest]


def test_sasl_opens_a_board_and_a_refusal_is_named_at_connect_and_later() -> None:
    with WithUsers() as server:
        acl = [{"scheme": "sasl", "credential": "anna", "all": True}]
        sasl = {"mechanism": "DIGEST-MD5", "username": "anna", "password": SECRET}
        conf = {"board": server.uri, "sasl_options": sasl, "default_acl": acl, "timeout": 20, "retry_for": 1}
        with jobboard.backend("board", conf) as board:
            job = board.post("resize")
            with pytest.raises(JobFailure, match="ACLs"):
                jobboard.fetch("board", server.uri).connect()
            wrong = jobboard.fetch("board", {**conf, "sasl_options": {**sasl, "password": "falsch"}, "timeout": 2})
            with pytest.raises(ConnectionFailure) as failure:
                wrong.connect()
            assert "falsch" not in str(failure.value)

            def is_refused() -> bool:
                with pytest.raises(ConnectionFailure) as failure:
                    board.claim(job, "anna")
                return "refused the authentication" in str(failure.value)

            server.let_in("changed")
            server.kill()
            server.start()
            for _ in range(2):
                eventually(is_refused, 60)
            server.let_in(SECRET)
            server.kill()
            server.start()
            board.engine.retry_for = 60
            board.claim(job, "anna")
            assert job.state == CLAIMED


NETTY = ":".join(f"/usr/share/java/netty-{part}.jar" for part in ("codec", "resolver", "transport-native-unix-common"))


class Secured(ZooKeeper, TLSDaemon):
    """A server with TLS on a second port, which accepts clients with a certificate only."""

    def _prepare(self) -> None:
        super()._prepare()
        self.tls_port = self._reserve_port()
        self._certify()
        keys = self.folder / "server.pem"
        keys.write_text(self.key_file.read_text() + self.cert_file.read_text())
        self.locked_key = self.folder / "locked.key"
        locking = ("-aes256", "-passout", f"pass:{SECRET}", "-out", self.locked_key)
        self._run(self._program("openssl"), "pkey", "-in", self.key_file, *locking)
        authority = self.folder / "ca.pem"
        authority.write_text(self.ca_file.read_text())
        settings = {
            "secureClientPort": self.tls_port,
            "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
            "ssl.keyStore.location": keys,
            "ssl.trustStore.location": authority,
            "ssl.clientAuth": "need",
        }
        with (self.folder / "zoo.cfg").open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in settings.items())

    def _command(self) -> list[Any]:
        # Debian's package names some of Netty's parts alone.
        return [f"{each}:{NETTY}" if "zookeeper.jar" in str(each) else each for each in super()._command()]


def test_tls_opens_a_board_by_a_certificate_of_the_clients() -> None:
    with Secured() as server:
        tls = {
            "board": f"zookeeper://{HOST}:{server.tls_port}",
            "use_ssl": True,
            "ca": str(server.ca_file),
            "certfile": str(server.cert_file),
            "keyfile": str(server.locked_key),
            "keyfile_password": SECRET,
            "timeout": 20,
        }
        with jobboard.backend("board", tls) as board:
            job = board.post("resize")
            assert board.claim_next("anna") == job
            board.consume(job, "anna")
        nobody = dict.fromkeys(("certfile", "keyfile", "keyfile_password"))
        for wrong in ({"ca": None}, nobody):
            board = jobboard.fetch("board", {**tls, "timeout": 1, **wrong})
            with pytest.raises(ConnectionFailure):
                board.connect()

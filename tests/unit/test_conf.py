"""Configurations: names, URIs and dicts; what is wrong with them is said, and a secret never is."""

from collections.abc import Callable
from typing import Any

import pytest
import sqlalchemy as sa

import jobboard
from jobboard import conf
from jobboard.conductor import Conductor
from jobboard.conf import Option
from jobboard.exceptions import NotFound
from jobboard.outcomes import RetryPolicy
from jobboard.taskloop import TaskLoop

OPTIONS = {
    "host": Option(conf.text, "localhost"),
    "port": Option(conf.port, 1234),
    "user": Option(conf.text),
    "password": Option(conf.text, secret=True),
    "database": Option(conf.text),
    "claim_ttl": Option(conf.seconds(0.1, 100), 30.0),
    "durable": Option(conf.flag, True),
    "mode": Option(conf.choice("one", "many"), "one"),
    "token": Option(conf.text, secret=True),
}
PARTS = {"user": "user", "password": "password", "host": "host", "port": "port", "path": "database"}
SECRET = "p@ss/w%rd:?#"
QUOTED = "p%40ss%2Fw%25rd%3A%3F%23"


def parse(given: object) -> conf.Settings:
    return conf.parse(given, OPTIONS, PARTS)


def test_every_part_of_a_uri_counts() -> None:
    settings = parse(f"mine+fast://us%40er:{QUOTED}@db.example:99/prod%2F1?claim_ttl=2.5&durable=no&mode=MANY")
    assert (settings.scheme, settings.driver) == ("mine", "fast")
    assert dict(settings) == {
        "host": "db.example",
        "port": 99,
        "user": "us@er",
        "password": SECRET,
        "database": "prod/1",
        "claim_ttl": 2.5,
        "durable": False,
        "mode": "many",
        "token": None,
    }
    assert len(settings) == len(OPTIONS)


def test_a_name_takes_options_as_a_uri_does() -> None:
    assert parse("mine?claim-ttl=5&mode=many")["claim_ttl"] == 5
    assert parse({"board": "mine?claim_ttl=5", "claim_ttl": 6})["claim_ttl"] == 6


@pytest.mark.parametrize("given", ["mine", "MINE", {"board": "mine"}, "mine://", {"board": " mine "}])
def test_a_plain_name_has_the_default_options(given: object) -> None:
    settings = parse(given)
    assert settings.scheme == "mine"
    assert settings.driver is None
    assert dict(settings) == {name: option.default for name, option in OPTIONS.items()}


def test_options_beside_a_uri_go_first() -> None:
    settings = parse({"board": "mine://h:1/d?claim_ttl=2", "claim_ttl": 3, "host": "other", "mode": None})
    assert (settings["claim_ttl"], settings["host"], settings["port"], settings["mode"]) == (3.0, "other", 1, "one")


@pytest.mark.rule("An option that is None counts as not given.")
def test_an_option_that_is_none_is_not_given() -> None:
    settings = parse({"board": "mine://h:1/d?claim_ttl=2", "port": None, "claim_ttl": None})
    assert (settings["port"], settings["claim_ttl"]) == (1, 2.0)


@pytest.mark.rule("A URI that names two databases, hosts or users is refused.")
def test_a_uri_may_say_the_same_twice() -> None:
    settings = parse("mine://u:p@h:1/d?user=u&password=p&host=h&port=1&database=d")
    assert (settings["user"], settings["password"], settings["port"]) == ("u", "p", 1)


@pytest.mark.parametrize(
    ("uri", "host", "port"),
    [
        ("mine://[::1]:5432/d", "::1", 5432),
        ("mine://[fe80::1%25eth0]/d", "fe80::1%eth0", 1234),
        ("mine://h1:2181,h2:2182,[::1]:2183/d", "h1:2181,h2:2182,[::1]:2183", 1234),
        ("mine://h:/d", "h", 1234),
        ("mine://%2Frun%2Fdb.sock/d", "/run/db.sock", 1234),
    ],
)
def test_hosts_and_ports_of_a_uri_are_parsed(uri: str, host: str, port: int) -> None:
    settings = parse(uri)
    assert (settings["host"], settings["port"]) == (host, port)


@pytest.mark.parametrize(
    ("given", "kind", "match"),
    [
        ("mine://h/d?durrable=1", ValueError, "'durrable'; did you mean 'durable'"),
        ({"board": "mine", "ttl": 1}, ValueError, r"'ttl'; did you mean 'claim_ttl'\?"),
        ("mine?claim-ttl=0", ValueError, "claim_ttl='0': must be from 0.1"),
        ("mine://h/d?mode=one&mode=many", ValueError, "'mode' is given twice"),
        ("mine://me@h?user=you", ValueError, "user and the option user in its query differ: 'me' and 'you'; leave one"),
        ("mine://h?host=", ValueError, "host and the option host in its query differ: 'h' and ''; leave one"),
        ("mine://h:99999/d", ValueError, "port='99999': must be from 1 to 65535"),
        ("mine://h:-1/d", ValueError, "port"),
        ("mine://h:abc/d", ValueError, "port is a whole number"),
        ("mine://h/d?password=a&zzz=1", ValueError, "no option like one in the URI .*; see the page 'Options'"),
        ({"board": "mine", "port": True}, TypeError, "port"),
        ({"board": "mine", "host": 5}, TypeError, "host"),
        ({"board": "mine", "claim_ttl": "nan"}, ValueError, "claim_ttl"),
        ({"board": "mine", "claim_ttl": 0.05}, ValueError, "from 0.1 to 100 seconds"),
        ({"board": "mine", "claim_ttl": True}, TypeError, "claim_ttl"),
        ({"board": "mine", "durable": "perhaps"}, ValueError, "true or false"),
        ({"board": "mine", "durable": 5}, ValueError, "true or false"),
        ({"board": "mine", "mode": "few"}, ValueError, "one of one, many"),
        ("mine://[::1/d", ValueError, "brackets"),
        ({}, ValueError, "no 'board'"),
        ({"board": "mine", 5: 5}, TypeError, "option names must be str"),
        (None, TypeError, "not NoneType"),
    ],
)
def test_a_wrong_configuration_is_refused_by_its_name(given: object, kind: type[Exception], match: str) -> None:
    with pytest.raises(kind, match=match):
        parse(given)


@pytest.mark.parametrize("part", ["mine://user@", "mine://:secret@", "mine://host", "mine://:99", "mine:///path"])
def test_a_part_that_a_backend_does_not_take_is_refused(part: str) -> None:
    with pytest.raises(ValueError, match=r"takes no (user|password|host|port|path)") as failure:
        conf.parse(part, OPTIONS, {})
    assert "secret" not in str(failure.value)


@pytest.mark.rule("A board shows where it is, made from a dict or a URI.")
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("mine", "mine"),
        ({"board": "mine", "password": "x"}, "mine"),
        ("mine+fast://us%40er:x@h:1/d%2Fe?token=x", "mine://us%40er@h:1/d/e"),
        ("mine://h?port=7&token=x", "mine://h:7/"),
        ({"board": "mine", "host": "::1", "database": "/d"}, "mine://[::1]//d"),
        ({"board": "mine", "host": "h1:1,[::1]", "user": "u@"}, "mine://u%40@h1:1,[::1]/"),
        ({"board": "mine://h:1/d", "host": "other", "port": None}, "mine://other:1/d"),
    ],
)
def test_location_holds_no_secret(given: object, shown: str) -> None:
    assert parse(given).location == shown


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("max_attempts", lambda board, number: RetryPolicy(max_attempts=number)),
        ("max_retries", lambda board, number: RetryPolicy(max_retries=number)),
        ("max_simultaneous_jobs", lambda board, number: Conductor("a", board, max_simultaneous_jobs=number)),
        ("limit", lambda board, number: TaskLoop(sa.create_engine("sqlite:///loop.db"), "loop").get(number)),
    ],
)
def test_a_number_without_measure_is_no_limit(argument: str, call: Callable[[Any, int], object]) -> None:
    with jobboard.backend("limits", "memory") as board, pytest.raises(ValueError, match=f"^{argument}") as failure:
        call(board, 10**400)
    assert len(str(failure.value)) < 300


def test_an_unknown_backend_is_not_found() -> None:
    for given in ("nonsense", "nonsense://h/d", {"board": "nonsense"}):
        with pytest.raises(NotFound, match=r"'nonsense'; installed are: .*memory"):
            jobboard.fetch("board", given)
    for uri, meant in (("mariadbs://h/db", "mariadb"), ("sqlite3:///x.db", "sqlite"), ("maria", "mariadb")):
        with pytest.raises(NotFound, match=f"did you mean '{meant}'"):
            jobboard.fetch("board", uri)

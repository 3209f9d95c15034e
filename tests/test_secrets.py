"""Whatever a password is, and wherever it is put by mistake: no message, repr, log or traceback shows a part of it."""

import io
import logging
import traceback
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import jobboard
from jobboard.cli import main

pytestmark = pytest.mark.backends("memory")

WORD = "sesame"
# No server of anybody's listens on port 1.
NOBODY = "127.0.0.1:1"
SPECIAL = ["//", "://", "%2", "%41", "%zz", *"?#@/:&=%[],;+.\\'\"~€é \n\t\x00"]
passwords = st.lists(st.sampled_from([WORD, *SPECIAL]), min_size=1, max_size=6).map(
    lambda pieces: WORD + "".join(pieces) + WORD
)
schemes = st.sampled_from(
    ["postgresql", "mysql", "mariadb", "redis", "rediss", "zookeeper", "etcd", "sqlite", "memory", "psql"]
)
FORMS = (
    "{0}://u:{1}@127.0.0.1:1/0",
    "{0}://:{1}@127.0.0.1:1/0",
    "{0}://u:{1}@h?claim_tll=3",
    "{0}://u:{1}@h/0?claim_ttl=x",
    "{0}://u:{1}@h:x/0",
    "{0}://u:{1}@[::1/0",
    "{0}://127.0.0.1:1/0?password={1}",
    "{0}://127.0.0.1:1/0?password={1}&nonsense=1",
    "{0}:///u:{1}@h/app",
    "{0}:/u:{1}@h/app",
    "{0}:u:{1}@h/app",
    "{0}//u:{1}@h/app",
    "{0} ://u:{1}@h/app",
    "{0};//u:{1}@h/app",
    "u:{1}@h/app",
)
uris = st.tuples(st.sampled_from(FORMS), schemes, passwords).map(lambda drawn: drawn[0].format(*drawn[1:]))
FAST = {"retry_for": 0, "auto_setup": False}
IN_DICTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("postgresql", {"password": "{1}"}),
    ("mariadb", {"password": "{1}", "port": "x"}),
    ("postgresql", {"host": "u:{1}@h"}),
    ("mysql", {"password": "{1}", "pasword": "{1}"}),
    ("redis", {"password": "{1}", "db": "x:{1}@h"}),
    ("redis", {"sentinel": "mine", "sentinel_kwargs": {"password": "{1}"}}),
    ("redis", {"sentinel_kwargs": {"password": "{1}"}}),
    ("redis", {"sentinel": "mine", "sentinel_kwargs": {"pasword": "{1}"}}),
    ("redis", {"sentinel": "mine", "sentinel_fallbacks": "u:{1}@h"}),
    ("rediss", {"ssl_password": "{1}", "ssl_keyfile": "/no/such"}),
    ("zookeeper", {"user": "u", "password": "{1}"}),
    ("zookeeper", {"hosts": "u:{1}@h"}),
    ("zookeeper", {"hosts": ["u:{1}@h"]}),
    ("zookeeper", {"auth_data": [("digest", "u:{1}")], "claim_ttl": "x"}),
    ("zookeeper", {"auth_data": ["u:{1}"]}),
    ("zookeeper", {"sasl_options": {"password": "{1}"}}),
    ("zookeeper", {"default_acl": [{"user": "u", "password": "{1}"}]}),
    ("zookeeper", {"use_ssl": True, "certfile": "/no", "keyfile": "/no/such", "keyfile_password": "{1}"}),
    ("etcd", {"user": "u", "password": "{1}"}),
    ("etcd", {"password": "{1}"}),
    ("etcd", {"hosts": "u:{1}@h"}),
    ("etcd", {"hosts": ["u:{1}@h"]}),
    ("etcd", {"use_ssl": True, "certfile": "/no", "keyfile": "/no/such", "keyfile_password": "{1}"}),
)


def filled(value: Any, password: str) -> Any:
    if isinstance(value, str):
        return value.replace("{1}", password)
    if isinstance(value, dict):
        return {name: filled(each, password) for name, each in value.items()}
    return type(value)(filled(each, password) for each in value) if isinstance(value, (list, tuple)) else value


def all_that_shows(use: Callable[[], Any]) -> str:
    """Every text that ``use`` leaves behind for people to read."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        log.write(repr(use()))
    except jobboard.JobBoardError as error:
        log.write(f"{error!r} {error.cause!r}" + traceback.format_exc())
    except (TypeError, ValueError) as error:
        log.write(repr(error) + traceback.format_exc())
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    # The lines of this file, which a traceback quotes, have no password in them.
    return log.getvalue()


def connected(conf: Any) -> Any:
    board = jobboard.fetch("board", conf)
    shown = repr(board) + repr(board._conf)
    try:
        board.connect()
        board.close()
    except jobboard.JobBoardError as error:
        raise type(error)(f"{error} {shown}", error.cause) from error
    return shown


@pytest.mark.rule("A URI that cannot be read is refused without a part of it.")
@settings(max_examples=200, deadline=None)
@given(uris)
@example("postgresql:/owner:sesame@h/app")
@example("postgresql://u:pa?sesame@h/db")
@example("postgresql://u:pa?x=sesame@h/db")
@example("postgresql://u:1?user=sesame@h/db")
@example("redis://h/0?password=x&sesame")
@example("redis://u:sesame/0")
def test_a_uri_with_a_password_that_is_not_escaped(uri: str) -> None:
    assert WORD not in all_that_shows(lambda: jobboard.fetch("board", uri))


@pytest.mark.rule("A password shows in no repr, log or error, nor in the causes of errors.")
@pytest.mark.rule("A password that the driver's error holds is not shown.")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(IN_DICTS), passwords)
def test_a_password_in_a_dict(form: tuple[str, dict[str, Any]], password: str) -> None:
    conf = {"board": form[0], **filled(form[1], password)}
    assert WORD not in all_that_shows(lambda: jobboard.fetch("board", conf))


@pytest.mark.rule("A password shows in no repr, log or error, nor in the causes of errors.")
@settings(max_examples=20, deadline=None)
@example("mariadb", "sesame€sesame")
@given(st.sampled_from(["postgresql", "mariadb", "redis", "zookeeper", "etcd"]), passwords)
def test_a_server_that_can_not_be_reached(scheme: str, password: str) -> None:
    where = {"board": f"{scheme}://u@{NOBODY}", "password": password, **FAST}
    if scheme == "zookeeper":
        where["timeout"] = 0.1
    shown = all_that_shows(lambda: connected(where))
    assert "ConnectionFailure" in shown
    assert WORD not in shown


@pytest.mark.rule("A password shows in no repr, log or error, nor in the causes of errors.")
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    uris.filter(lambda uri: "\x00" not in uri), st.sampled_from([["--board", "{}", "stats"], ["stats", "{}"], ["{}"]])
)
@example("postgresql:/owner:sesame@h/app", ["{}"])
@example("postgresql:/owner:sesame@h/app", ["stats", "--board={}"])
@example("postgresql:/owner:sesame@h/app", ["move", "{}", "memory:/u:sesame@h"])
def test_the_command_line(capsys: pytest.CaptureFixture[str], uri: str, words: list[str]) -> None:
    words = [word.format(uri) for word in words]
    capsys.readouterr()
    shown = all_that_shows(lambda: main(words))
    out, err = capsys.readouterr()
    assert WORD not in out + err + shown


@pytest.mark.rule("A URI that cannot be read is refused without a part of it.")
@pytest.mark.parametrize("password", ["a?b", "a#b", "a@b/c", "a/b", "100%", "a%b"])
def test_how_to_escape_is_said(password: str) -> None:
    with pytest.raises(ValueError, match=r"percent-encode .*urllib\.parse\.quote"):
        jobboard.fetch("board", f"redis://u:{password}@h/0")


def test_an_at_sign_that_can_only_be_the_passwords() -> None:
    board = jobboard.fetch("board", "redis://u:p@ss@h/0")
    assert board._conf["password"] == "p@ss"

"""Settings of Django's databases, as a board's own connections take them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connections
from django.test import override_settings

from jobboard.contrib.django import databases
from jobboard.contrib.django.interface import task_backends

pytestmark = pytest.mark.backends("sqlite", "postgresql", "mariadb")

TASKS = {
    "default": {
        "BACKEND": "jobboard.contrib.django.JobboardBackend",
        "QUEUES": [],
        "OPTIONS": {"board": "django:project"},
    }
}


def check(monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[str]:
    """Return the errors with these ``OPTIONS``."""
    monkeypatch.setitem(connections["project"].settings_dict, "OPTIONS", options)
    with override_settings(TASKS=TASKS):
        # Checks of models would connect to the database.
        return [found.msg for found in task_backends["default"].check()]


TLS = {"ssl_ca": "ca.pem", "ssl_cert": "cert.pem", "ssl_key": "key.pem"}
ACCEPTED: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {
    "postgresql": [
        ({"options": "-c search_path=tenant"}, {"options": "-c search_path=tenant"}),
        ({"service": "mine", "target_session_attrs": "any"}, {"service": "mine", "target_session_attrs": "any"}),
        ({"pool": True, "isolation_level": 1, "server_side_binding": True, "sslmode": "prefer"}, {"sslmode": "prefer"}),
    ],
    "mariadb": [
        ({"ssl": {"ca": "ca.pem", "cert": "cert.pem", "key": "key.pem"}}, TLS),
        ({**TLS, "ssl_mode": "REQUIRED"}, {**TLS, "ssl_mode": "REQUIRED"}),
        ({"charset": "utf8mb4", "init_command": "SET sql_mode=''", "isolation_level": None, "ssl": {}}, {}),
    ],
    "sqlite": [({"transaction_mode": "IMMEDIATE", "timeout": 3, "init_command": "PRAGMA synchronous=1"}, {})],
}
"""``OPTIONS``, and the options of the board among them. The others do not concern a board."""


def test_options_that_the_board_has_too_count(database: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for options, taken in ACCEPTED[backend]:
        assert check(monkeypatch, **options) == []
        conf = databases.conf_of("project")
        assert taken.items() <= conf.items()
        assert not (options.keys() - taken.keys()) & conf.keys()


ELSEWHERE: dict[str, list[dict[str, Any]]] = {
    "postgresql": [{"assume_role": "owner"}, {"host": "other"}, {"require_auth": "scram-sha-256"}],
    "mariadb": [
        *({"ssl": True}, {"read_default_file": "/my.cnf"}, {"user": "other"}),
        {"ssl": {"ca": "ca.pem", "cipher": "AES256-SHA"}},
    ],
    "sqlite": [{"database": "other.sqlite3"}],
}


@pytest.mark.rule("A board's options that lead elsewhere than Django's database are refused.")
def test_options_that_lead_elsewhere_are_refused(database: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ELSEWHERE[backend]:
        [told] = check(monkeypatch, **options)
        *_, option = options
        assert f"DATABASES['project']['OPTIONS'] has '{option}" in told

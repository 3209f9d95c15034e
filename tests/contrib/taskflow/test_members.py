"""The public members, arguments and options of TaskFlow's boards: the document names each one that is missing."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from taskflow.jobs.backends.impl_etcd import EtcdJob, EtcdJobBoard
from taskflow.jobs.backends.impl_redis import RedisJob, RedisJobBoard
from taskflow.jobs.backends.impl_zookeeper import ZookeeperJob, ZookeeperJobBoard
from taskflow.utils import kazoo_utils

from jobboard import fetch
from jobboard.contrib.taskflow import options
from jobboard.contrib.taskflow.board import TaskFlowBoard
from jobboard.contrib.taskflow.job import TaskFlowJob

DOCUMENT = (Path(__file__).parents[3] / "docs" / "coming-from" / "taskflow.rst").read_text()
PAIRS = [
    *((theirs, TaskFlowBoard) for theirs in (RedisJobBoard, ZookeeperJobBoard, EtcdJobBoard)),
    *((theirs, TaskFlowJob) for theirs in (RedisJob, ZookeeperJob, EtcdJob)),
]


def documented() -> dict[str, set[str]]:
    """Return the members that each of TaskFlow's classes has and ours has not, as the document lists them."""
    table = DOCUMENT.partition(".. _taskflow-missing:")[2].partition("Instead of these")[0]
    rows = re.findall(r"\* - ``(\w+)``\n     - (.*?)(?=\n   \*|\n\n)", table, re.DOTALL)
    return {name: set(re.findall(r"``([\w()]+)``", members)) - {"retry_for"} for name, members in rows}


def missing(theirs: Any, ours: Any) -> set[str]:
    found = set()
    for name in dir(theirs):
        if name.startswith("_") or name.isupper():
            continue
        member, twin = getattr(theirs, name), getattr(ours, name, None)
        if twin is None:
            found.add(name)
        elif inspect.isfunction(member):
            arguments = inspect.signature(member).parameters.keys() - inspect.signature(twin).parameters.keys()
            found.update(f"{name}({argument})" for argument in arguments)
    return found


@pytest.mark.rule("The documents name each member of TaskFlow's boards that is missing.")
def test_the_document_names_each_missing_member() -> None:
    assert {theirs.__name__: missing(theirs, ours) for theirs, ours in PAIRS} == documented()


OPTIONS = [
    *(("redis", name) for name, _ in RedisJobBoard.CLIENT_CONF_TRANSFERS),
    *(("redis", name) for name in ("namespace", "sentinel", "sentinel_fallbacks", "sentinel_kwargs")),
    *(("etcd", name) for name, _ in EtcdJobBoard.ETCD_CONFIG_OPTIONS),
    *(("etcd", name) for name in ("path", "ttl")),
    *(("zookeeper", name) for name, _, _ in kazoo_utils.CONF_TRANSFERS),
    *(("zookeeper", name) for name in ("command_retry", "connection_retry", "hosts", "timeout", "handler")),
    *(("zookeeper", name) for name in ("path", "check_compatible")),
]


def refused(scheme: str, option: str) -> str:
    """Return the refusal of a configuration with this option; "" if it is taken."""
    try:
        where = options.locate({"board": f"jobboard-{scheme}", option: "1"}, scheme, None)
        fetch(where.name, where.conf)
    except (TypeError, ValueError) as error:
        return str(error)
    return ""


def test_each_option_of_taskflows_is_known() -> None:
    """A value of a wrong kind may be refused, but not as an unknown option."""
    for scheme, option in OPTIONS:
        assert "has no option" not in refused(scheme, option)
        assert "has no option" in refused(scheme, f"no_{option}")

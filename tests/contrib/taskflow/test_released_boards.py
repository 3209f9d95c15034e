"""TaskFlow's own tests of its boards, from the released package, on ours."""

from __future__ import annotations

import inspect

from taskflow.tests.unit.jobs import base, test_redis_job, test_zk_job

from tests.contrib.taskflow.boards import on_ours

MOCKED = "It compares what TaskFlow gives to a mock of redis-py; test_options.py has our options."
ZNODES = "It looks into TaskFlow's znodes, or damages them; ours are others."

NOT_APPLICABLE = {
    "test__make_client": MOCKED,
    "test__make_client_retry_health": MOCKED,
    "test__make_client_retry_health_string_conversion": MOCKED,
    "test__make_client_sentinel": MOCKED,
    "test__make_client_sentinel_fallbacks": MOCKED,
    "test__make_client_sentinel_retry_health": MOCKED,
    "test__make_client_sentinel_ssl": MOCKED,
    "test_posting_dates": "It puts a mock into TaskFlow's ZooKeeper board; test_board.py asks for the dates.",
    "test_posting_no_post": "It puts a mock into a KazooClient; the conformance suite loses requests for real.",
}

OF_ZOOKEEPER_ALONE = {
    "test_posting_owner_lost": ZNODES,
    "test_posting_received_raw": ZNODES,
    "test_posting_state_lock_lost": ZNODES,
    "test_register_entity": ZNODES + " Entities of any kind are taken here.",
    "test_trashing_claimed_job": ZNODES + " test_board.py looks into the trash.",
}
"""What TaskFlow's suite for ZooKeeper has beside its mixin, which is run on every board."""

globals().update(on_ours((test_redis_job.RedisJobboardTest, test_zk_job.ZookeeperBoardTestMixin), NOT_APPLICABLE))


def names_of(*suites: type) -> set[str]:
    return {name for suite in suites for name, _ in inspect.getmembers(suite) if name.startswith("test_")}


def test_nothing_else_is_left_out() -> None:
    ours = names_of(*(suite for name, suite in globals().items() if name.startswith("RedisJobboardTestOn")))
    released = names_of(base.BoardTestMixin, test_redis_job.RedisJobboardTest, test_zk_job.ZookeeperJobboardTest)
    assert ours - NOT_APPLICABLE.keys() == released - NOT_APPLICABLE.keys() - OF_ZOOKEEPER_ALONE.keys()
    assert NOT_APPLICABLE.keys() | OF_ZOOKEEPER_ALONE.keys() <= released

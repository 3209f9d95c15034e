"""Django's own tests of its tasks, from its released source, on our backend.

What says something of the Dummy or the Immediate backend alone is left out by name, with the reason. Its tests look
into the Dummy's list of results, and expect that the Immediate one has run a task when ``enqueue`` returns: the
backends below do that on a board, the second one by a conductor.

Left out as a whole are test_custom_backend.py, which is about backends that the tests make up, and the two tests of
transactions, which configure the Dummy and the Immediate backend themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from django.test import override_settings
from tasks import test_dummy_backend as dummy
from tasks import test_immediate_backend as immediate
from tasks import test_tasks as tasks

from jobboard.conductor import Conductor
from jobboard.contrib.django import JobboardBackend, boards, worker
from jobboard.contrib.django.results import result_of


class Listing(JobboardBackend):
    """As the Dummy backend shows what was enqueued."""

    @property
    def results(self) -> list[Any]:
        return [result_of(job, self.alias) for job in self.board.iterjobs(ensure_fresh=True)]

    def clear(self) -> None:
        for job in self.board.iterjobs(ensure_fresh=True):
            self.board.cancel(job)
            self.board.purge(job)


class AtOnce(JobboardBackend):
    """Has a task run before ``enqueue`` returns."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        Conductor("now", self.board, worker.handlers(self.alias), retry=self.checked.retry).run(1)
        result.refresh()
        return result


Configure = Callable[[Callable[[type], dict[str, Any]]], dict[str, Any]]
"""The setting TASKS, from what makes the part of it that leads to a board by one of the classes above."""

ITS_CLASS = "compares the backend's class with that of the Dummy or the Immediate backend"
ITS_LIST = "changes a result within the Dummy's list"
NO_BOARD = "configures Dummy or Immediate within the test; what it checks is Django's own validate_task"
IT_CAN = "the Immediate backend can't do that, and ours can"

SUITES: Mapping[type, tuple[Configure, Mapping[str, str]]] = {
    tasks.TaskTestCase: (
        lambda on_board: {
            "default": {**on_board(Listing), "QUEUES": ["default", "queue_1"]},
            "immediate": {**on_board(AtOnce), "QUEUES": []},
            "missing": {"BACKEND": "does.not.exist"},
        },
        {"test_using_correct_backend": ITS_CLASS, "test_get_backend": ITS_CLASS},
    ),
    dummy.DummyBackendTestCase: (
        lambda on_board: {"default": {**on_board(Listing), "QUEUES": []}},
        {
            "test_using_correct_backend": ITS_CLASS,
            "test_refresh_result": ITS_LIST,
            "test_refresh_result_async": ITS_LIST,
            "test_validate_on_enqueue": NO_BOARD,
            "test_validate_on_aenqueue": NO_BOARD,
        },
    ),
    immediate.ImmediateBackendTestCase: (
        lambda on_board: {"default": {**on_board(AtOnce), "QUEUES": []}},
        {
            "test_using_correct_backend": ITS_CLASS,
            "test_throws_keyboard_interrupt": "the Immediate backend runs tasks on the thread of its caller",
            "test_cannot_get_result": IT_CAN,
            "test_cannot_refresh_result": IT_CAN,
            "test_cannot_pass_run_after": IT_CAN,
            "test_validate_on_enqueue": NO_BOARD,
            "test_validate_on_aenqueue": NO_BOARD,
        },
    ),
}


def subclass(suite: type, configure: Configure, left_out: Mapping[str, str], kind: str) -> type:
    """The suite on boards of this kind."""

    @pytest.fixture(autouse=True)
    def on_a_board(self: Any, conf_of: Callable[[str], dict[str, Any]]) -> Iterator[None]:
        conf = conf_of(kind)
        with override_settings(
            TASKS=configure(lambda backend: {"BACKEND": f"{__name__}.{backend.__name__}", "OPTIONS": conf})
        ):
            yield
        boards.close()

    assert all(callable(getattr(suite, test)) for test in left_out)
    made = type(f"{suite.__name__}On{kind.title()}", (suite,), {"on_a_board": on_a_board, **dict.fromkeys(left_out)})
    made.__module__ = __name__
    return pytest.mark.backends(kind)(made)


for each, terms in SUITES.items():
    for name in ("sqlite", "redis"):
        found = subclass(each, *terms, name)
        globals()[found.__name__] = found
del found

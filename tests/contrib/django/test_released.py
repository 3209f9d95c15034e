"""Django's own tests of its tasks, from its released source, on our backend: those of ``released.py``.

Tests of the Dummy or the Immediate backend alone are left out by name, with the reason. Django's tests look into the
Dummy's list of results, and expect that the Immediate backend has run a task when ``enqueue`` returns. The backends
below do that on a board, the second one by a conductor, which runs on Redis, too.

Left out as a whole are test_custom_backend.py, whose backends are made up, and the two tests of transactions, which
configure the Dummy and the Immediate backend themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from django.test import override_settings

from jobboard.conductor import Conductor
from jobboard.contrib.django import JobboardBackend, boards, worker
from jobboard.contrib.django.results import result_of
from tests.contrib.django import released
from tests.contrib.django.tasks import BOARD

# So that the tasks of these tests are of our class.
with override_settings(TASKS=BOARD):
    from tasks import test_dummy_backend as dummy
    from tasks import test_immediate_backend as immediate
    from tasks import test_tasks as tasks


class Listing(JobboardBackend):
    """Lists the enqueued tasks, as the Dummy backend does."""

    @property
    def results(self) -> list[Any]:
        return [result_of(job, self.alias) for job in self.board.iterjobs(ensure_fresh=True)]

    def clear(self) -> None:
        for job in self.board.iterjobs(ensure_fresh=True):
            self.board.cancel(job)
            self.board.purge(job)


class AtOnce(JobboardBackend):
    """Runs a task before ``enqueue`` returns."""

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        result = super().enqueue(task, args, kwargs)
        Conductor("now", self.board, worker.handlers(self.alias), retry=self.checked.retry).run(1)
        result.refresh()
        return result


Configure = Callable[[Callable[[type], dict[str, Any]]], dict[str, Any]]
"""Returns the setting TASKS. Its argument returns the part of a backend class above, on a board."""

ITS_CLASS = "compares the backend's class with that of the Dummy or the Immediate backend"
ITS_LIST = "changes a result within the Dummy's list"
NO_BOARD = "configures Dummy or Immediate within the test; what it checks is Django's own validate_task"
IT_CAN = "the Immediate backend can't do that, and ours can"
ITS_WORDS = {} if released.OWN else {"test_validate_disallowed_async_task": "the package words this error otherwise"}

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
            **ITS_WORDS,
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
    """Return the suite on boards of a kind."""

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
    for name in ("sqlite", "redis") if each is immediate.ImmediateBackendTestCase else ("sqlite",):
        found = subclass(each, *terms, name)
        globals()[found.__name__] = found
del found

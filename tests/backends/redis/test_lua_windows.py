"""Windows and posts that replace, in Lua, do what the engine does in Python: see test_lua_states.py."""

from typing import Any

import pytest

from jobboard.states import Verb
from tests.backends.redis.test_lua_states import (
    ANNA,
    HOLDING,
    JOB,
    LAPSING,
    LONG,
    RIVAL,
    SHORT,
    SWEEP,
    UUIDS,
    Plain,
    Step,
    client,
    pairs,
)

__all__ = ["client", "pairs"]

pytestmark = pytest.mark.backends("redis")

POSTED = ("insert", (JOB, "a", 1, "w"))
POSTED_ONCE = ("insert", (JOB, "a", 1, "w", 1))
CONSUMED = [POSTED, HOLDING, ("finish", (JOB, ANNA, Verb.CONSUME))]

SITUATIONS: dict[str, list[Step]] = {
    "absent": [("insert", (RIVAL,))],
    "posted": [POSTED],
    "without_a_window": [("insert", (JOB, "a", 1, "k"))],
    "scheduled": [("insert", (JOB, "a", 1, "w", None, LONG))],
    "due": [("insert", (JOB, "a", 1, "w", None, SHORT))],
    "claimed": [POSTED, HOLDING],
    "kept": [POSTED, ("claim", JOB, "anna", None)],
    "tried_again": [POSTED, HOLDING, ("finish", (JOB, ANNA, Verb.ABANDON, None, "before", False, None, True))],
    "lapsed": [POSTED, LAPSING],
    "lapsed_and_swept": [POSTED, LAPSING, SWEEP],
    "lapsed_for_good": [POSTED_ONCE, LAPSING],
    "lapsed_for_good_and_swept": [POSTED_ONCE, LAPSING, SWEEP],
    "cancelled": [POSTED, (Verb.CANCEL, JOB, "no use")],
    "restored": [POSTED, (Verb.CANCEL, JOB, "no use"), (Verb.RESTORE, JOB, None)],
    "consumed": CONSUMED,
    "purged": [POSTED, (Verb.CANCEL, JOB, None), (Verb.PURGE, JOB, None)],
    "kept_out": [*CONSUMED, ("insert", (RIVAL, "b", 0, "w"))],
    "replaced": [POSTED, ("insert", (RIVAL, "b", 0, "w", None, LONG, 1, None, True))],
}

ACTS: list[Step] = [
    *(
        ("insert", (UUIDS[2], "c", rank, key, 3, delay, version, None, True))
        for rank, delay, version in ((1, None, 1), (0, LONG, 1), (2, SHORT, 2))
        for key in ("w", "k")
    ),
    ("insert", (UUIDS[2], "c", 0, "w", None, LONG), (UUIDS[3], "c", 2, "w", None, None, 1, None, True)),
    (
        "insert",
        (UUIDS[2], "c", 2, "w", None, LONG, 1, None, True),
        (UUIDS[3], "c", 0, "w", None, None, 1, None, True),
        (RIVAL, "b", 1, "w"),
    ),
    ("insert", (UUIDS[2], "c", 1, "w")),
    *(("finish", (JOB, ANNA, verb)) for verb in (Verb.ABANDON, Verb.CONSUME, Verb.TRASH)),
    (Verb.CANCEL, JOB, None),
    (Verb.RESTORE, JOB, None),
    (Verb.PURGE, JOB, None),
    ("take", 5, LONG, None, 1),
]


@pytest.mark.parametrize("engine", [None, Plain])
@pytest.mark.parametrize("situation", SITUATIONS)
def test_every_act_in_every_situation(pairs: Any, situation: str, engine: type[Plain] | None) -> None:
    with pairs(engine) as pair:
        for act in ACTS if engine is None else ACTS[::3]:
            pair.run(*SITUATIONS[situation])
            pair.compare()
            pair.run(act)
            pair.compare()
            pair.drain()

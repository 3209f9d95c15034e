"""How often, and how fast, a change is tried again that the server has refused."""

from __future__ import annotations

import time
from collections import Counter

from jobboard.exceptions import ConnectionFailure
from jobboard.retry import backoff

AT_ONCE = 10
"""So many tries are made without a pause: somebody else was quicker, and most likely not again."""

LIMIT = 60


class Tries:
    """Of one call. ``what`` it does, for the error.

    At the limit the call as a whole is repeated, as after a broken connection, for as long as ``retry_for`` allows."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._counts: Counter[object] = Counter()

    def again(self, why: Exception, about: object = None) -> None:
        """Before the next try; pauses where there were many.

        :param about: of what a batch consists of, that which was refused.
        :raises ConnectionFailure: there were too many.
        """
        self._counts[about] += 1
        count = self._counts[about]
        if count >= LIMIT:
            raise ConnectionFailure(
                f"could not {self._what}: ZooKeeper refused it {LIMIT} times, last with {why!r}", why
            )
        if count >= AT_ONCE:
            time.sleep(backoff(count - AT_ONCE + 1, 0.005, 0.1))

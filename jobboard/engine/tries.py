"""Tries: the limits of the loops that repeat what another process has changed meanwhile.

The loops nest, and their limits multiply: a take makes up to :data:`CALL` commits. Each needs up to CALL choices of
jobs, a choice up to CALL sweeps, a sweep up to CALL looks by changed rules, and a look up to :data:`STORE` readings.
This product, 5 * 10**9, is only a bound. A loop goes on only if somebody else has acted at that moment. Its limit ends
the call: it raises ConnectionFailure, which no outer loop repeats. A driver may have a limit of its own below, such as
30 tries on ZooKeeper.
"""

CALL = 100
"""The attempts before a contended call fails, and before each loop of the engine in the call does."""

UNPAUSED = 1
"""The number of tries without a pause. Processes that repeat in step would be beaten again."""

STORE = 50
"""The readings of a look, or the sendings of a commit, each of which met a change by others."""

LIMITED = 4
"""The tries of a fast take under limits, before the engine looks."""

LOCKS = 3
"""The requests by which one try of a take locks jobs. Between them, it replaces the jobs that other calls hold."""

REFUSED_BEFORE_LOOK = 5
"""The refusals of a take before a new look, even if jobs of the last look are left."""

REFUSED_BEFORE_LESS = 10
"""The refusals after which a claim of many jobs asks for half as many. Among others that claim single jobs, one of many
jobs always lacks some at its commit."""

STRAY = 10
"""The looks in a row that must meet the same names without their jobs, and no job, until they return none."""

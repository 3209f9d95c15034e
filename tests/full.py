"""What only ``tools/test --full`` runs."""

import os

FULL = "JOBBOARD_TEST_FULL" in os.environ

IN_FULL = ("etcd",) if FULL else ()
"""Backends that the long tests with many processes leave out otherwise."""

SOME = ("sqlite", "postgresql", "mariadb", "redis", "zookeeper", "etcd") if FULL else ("postgresql", "redis")
"""Backends that are put under load with what the conformance suite shows on each of them in a small way."""

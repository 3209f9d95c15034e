"""What only ``tools/test --full`` runs."""

import os

FULL = "JOBBOARD_TEST_FULL" in os.environ

IN_FULL = ("etcd",) if FULL else ()
"""Backends that the long tests with many processes leave out otherwise."""

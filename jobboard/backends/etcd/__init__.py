"""The board on etcd, through the JSON gateway of its members."""

from jobboard.backends.etcd.driver import EtcdDriver
from jobboard.kv.store import KVStore

__all__ = ["EtcdStore"]


class EtcdStore(KVStore):
    """A board in the keys of an etcd cluster; see :class:`~jobboard.backends.etcd.driver.EtcdDriver`."""

    driver = EtcdDriver

"""The board on etcd: a driver of ``jobboard.kv`` over the JSON gateway of the members.

``driver.py`` turns records, names and commits into keys and Txns, with ``fences.py`` (long indexes in short ranges),
``session.py`` and ``watch.py`` (bells). ``link.py`` has the connections, ``requests.py`` the messages,
``options.py`` the options. Jobs, their states and indexes are decided elsewhere: in ``jobboard.kv`` and
``jobboard.engine``.
"""

from jobboard.backends.etcd.driver import EtcdDriver
from jobboard.kv.store import KVStore

__all__ = ["EtcdStore"]


class EtcdStore(KVStore):
    """A board in the keys of an etcd cluster; see :class:`~jobboard.backends.etcd.driver.EtcdDriver`."""

    driver = EtcdDriver

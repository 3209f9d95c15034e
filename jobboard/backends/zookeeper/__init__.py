"""The board on ZooKeeper: a driver of ``jobboard.kv`` over kazoo.

``driver.py`` turns records, names and commits into znodes and multis, with ``folders.py`` (their places), ``multi.py``
(the operations of a commit) and ``clock.py`` (the server's time). ``connection.py``, ``requests.py`` and ``options.py``
deal with kazoo. Jobs, their states and indexes are decided elsewhere: in
``jobboard.kv`` and ``jobboard.engine``.
"""

from jobboard.backends.zookeeper.driver import ZooKeeperStore

__all__ = ["ZooKeeperStore"]

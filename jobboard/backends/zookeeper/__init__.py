"""The board on ZooKeeper, through kazoo."""

from jobboard.backends.zookeeper.driver import ZooKeeperStore

__all__ = ["ZooKeeperStore"]

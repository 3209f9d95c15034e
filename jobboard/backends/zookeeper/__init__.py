"""The board on ZooKeeper, through kazoo."""

from jobboard.backends.zookeeper.board import ZooKeeperJobBoard

__all__ = ["ZooKeeperJobBoard"]

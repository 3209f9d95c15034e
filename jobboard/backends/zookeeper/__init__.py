"""The board on ZooKeeper, through kazoo."""

from jobboard.backends.zookeeper.board import ZooKeeperEngine

__all__ = ["ZooKeeperEngine"]

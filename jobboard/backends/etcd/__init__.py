"""The board on etcd, through the JSON gateway of its members."""

from jobboard.backends.etcd.board import EtcdEngine

__all__ = ["EtcdEngine"]

"""Boards on a key-value server: one store and one layout, over a driver for each server.

Here lie the contract of a driver, the layout of a board, and the store over a driver. The drivers of ZooKeeper, etcd
and this process's memory lie in :mod:`jobboard.backends`. Transitions are decided by :mod:`jobboard.engine`.
"""

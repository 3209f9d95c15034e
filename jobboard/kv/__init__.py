"""Boards on a key-value server: one store and one layout, over a driver for each server.

Here lie the contract of a driver, the layout and the store. What is particular to ZooKeeper, etcd or this process's
memory lies in :mod:`jobboard.backends`.
"""

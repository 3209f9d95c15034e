"""The Redis board: a store over Lua scripts, for Redis and Valkey alone, behind Sentinel or as a cluster.

``store.py`` maps the store's contract to scripts. ``lua/`` has the scripts, and ``scripts.py`` packs their requests.
Claims, retries, limits and schedules are decided in ``jobboard.engine``, not here.
"""

from jobboard.backends.redis.store import RedisSocketStore, RedisStore

__all__ = ["RedisSocketStore", "RedisStore"]

"""The Redis board; found through its entry points."""

from jobboard.backends.redis.store import RedisSocketStore, RedisStore

__all__ = ["RedisSocketStore", "RedisStore"]

"""The Redis board; found through its entry points."""

from jobboard.backends.redis.engine import RedisEngine, RedisSocketEngine

__all__ = ["RedisEngine", "RedisSocketEngine"]

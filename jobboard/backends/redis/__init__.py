"""The Redis board; found through its entry points."""

from jobboard.backends.redis.board import RedisEngine

__all__ = ["RedisEngine"]

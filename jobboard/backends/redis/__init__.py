"""The Redis board; found through its entry points."""

from jobboard.backends.redis.board import RedisJobBoard

__all__ = ["RedisJobBoard"]

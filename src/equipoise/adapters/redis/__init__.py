"""Pools in Redis or Valkey: a server, a cluster, or one of our own."""

from equipoise.adapters.redis.connect import connect
from equipoise.adapters.redis.pools import RedisPools

__all__ = ["RedisPools", "connect"]

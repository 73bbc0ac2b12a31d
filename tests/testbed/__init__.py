"""Starts the real neighbours for tests and for people."""

from collections.abc import Callable
from typing import TypeAlias

from tests.testbed.api import Api, ApiError
from tests.testbed.build import binary
from tests.testbed.cache import Unavailable
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kwok import Kwok
from tests.testbed.machine import Machine
from tests.testbed.metrics_server import MetricsServer
from tests.testbed.node import RealNode
from tests.testbed.processes import NotInTime, Process, free_port, wait_until
from tests.testbed.prometheus import Prometheus
from tests.testbed.redis import RedisCluster, RedisServer

NewMachine: TypeAlias = Callable[..., Machine]
"""What the fixture `new_machine` is: call it with the options of `Machine`."""
StartControlPlane: TypeAlias = Callable[..., ControlPlane]
"""What the fixture `start_control_plane` is: call it with the options of `ControlPlane`."""
StartPrometheus: TypeAlias = Callable[..., Prometheus]
"""What the fixture `start_prometheus` is: call it with the options of `Prometheus`, and `backfill`."""
StartRedis: TypeAlias = Callable[..., RedisServer]
"""What the fixture `start_redis` is: call it with the options of `RedisServer`."""
StartRedisCluster: TypeAlias = Callable[..., RedisCluster]
"""What the fixture `start_redis_cluster` is: call it with the options of `RedisCluster`."""

__all__ = [
    "Api",
    "ApiError",
    "ControlPlane",
    "Kwok",
    "Machine",
    "MetricsServer",
    "NewMachine",
    "NotInTime",
    "Process",
    "Prometheus",
    "RealNode",
    "RedisCluster",
    "RedisServer",
    "StartControlPlane",
    "StartPrometheus",
    "StartRedis",
    "StartRedisCluster",
    "Unavailable",
    "binary",
    "free_port",
    "wait_until",
]

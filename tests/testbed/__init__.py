"""Starts the real neighbours for tests and for people: Kubernetes, kwok, metrics-server, Prometheus."""

from collections.abc import Callable
from typing import TypeAlias

from tests.testbed.api import Api, ApiError
from tests.testbed.build import binary
from tests.testbed.cache import Unavailable
from tests.testbed.control_plane import ControlPlane
from tests.testbed.kwok import Kwok
from tests.testbed.metrics_server import MetricsServer
from tests.testbed.processes import NotInTime, Process, free_port, wait_until
from tests.testbed.prometheus import Prometheus

StartControlPlane: TypeAlias = Callable[..., ControlPlane]
"""What the fixture `start_control_plane` is: call it with the options of `ControlPlane`."""
StartPrometheus: TypeAlias = Callable[..., Prometheus]
"""What the fixture `start_prometheus` is: call it with the options of `Prometheus`, and `backfill`."""

__all__ = [
    "Api",
    "ApiError",
    "ControlPlane",
    "Kwok",
    "MetricsServer",
    "NotInTime",
    "Process",
    "Prometheus",
    "StartControlPlane",
    "StartPrometheus",
    "Unavailable",
    "binary",
    "free_port",
    "wait_until",
]

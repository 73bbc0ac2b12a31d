"""`ports.Metrics` from metrics.k8s.io, served by metrics-server: the source without a Prometheus."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from sys import intern
from urllib.parse import quote

import msgspec
import numpy as np

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.decode import parse_time
from equipoise.adapters.kubernetes.errors import ApiError, elements, members, outline_of
from equipoise.adapters.prometheus.metrics import Number
from equipoise.core.errors import DECODE_ERRORS, WorldFailed
from equipoise.core.quantity import parse_cores, parse_seconds
from equipoise.ports import CpuUsage

ROOT = "/apis/metrics.k8s.io/v1beta1"
PAGE_PODS = 5_000
PAGES_MAX = 1_000
NAMESPACES_ONE_BY_ONE_MAX = 10
"""Up to so many namespaces are read one by one; beyond, one list of all is cheaper."""


class ResourceMetricsAbsent(WorldFailed):
    """The cluster has no metrics.k8s.io API, or the API is unavailable."""


class ResourceMetricsMalformed(WorldFailed):
    """The answer is no valid list of pod metrics."""


class _PodMeta(msgspec.Struct, gc=False):
    name: str
    namespace: str


class _Usage(msgspec.Struct, gc=False):
    cpu: str = ""


class _Container(msgspec.Struct, gc=False):
    name: str
    usage: _Usage


class _PodMetrics(msgspec.Struct, gc=False):
    metadata: _PodMeta
    timestamp: str
    window: str = ""
    containers: list[_Container] | None = None


class _Continue(msgspec.Struct, gc=False, rename={"token": "continue"}):
    token: str = ""


class _List(msgspec.Struct, gc=False):
    items: list[_PodMetrics | None] | None = None
    metadata: _Continue = msgspec.field(default_factory=_Continue)


@dataclass(frozen=True, slots=True)
class ResourceMetrics:
    """CPU usage from metrics.k8s.io. Its window is the server's own, mostly 10 to 30 seconds."""

    api: Client
    memory_max_bytes: int = 256 * 1024 * 1024

    def cpu_usage(
        self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window_seconds: float
    ) -> CpuUsage:
        """Read the CPU usage of all these pods; time and window are the server's, not the caller's."""
        del at
        asked = {ns: frozenset(pods) for ns, pods in pods_by_namespace.items() if pods}
        rows = _UsageRows()
        paths = [f"{ROOT}/namespaces/{quote(namespace, safe='')}/pods" for namespace in sorted(asked)]
        for path in paths if len(asked) <= NAMESPACES_ONE_BY_ONE_MAX else [f"{ROOT}/pods"]:
            for pod in self._list(path):
                if pod is None:
                    rows.unreadable += 1
                elif pod.metadata.name in asked.get(pod.metadata.namespace, ()):
                    rows.add(pod)
        return rows.usage(f"{self.api.address}{ROOT}", window_seconds)

    def scalar(self, query: str, at: float) -> float | None:
        """Return None: this API answers no queries."""
        return self.number(query, at).value

    def number(self, query: str, at: float) -> Number:
        """Return why there is no number."""
        del query, at
        return Number(None, "metrics.k8s.io answers no queries: expected a Prometheus")

    def ready(self) -> None:
        """Raise ResourceMetricsAbsent unless the API is served."""
        self._get(ROOT, {})

    def _list(self, path: str) -> Iterator[_PodMetrics | None]:
        """Read a list page by page; None stands for a pod that cannot be read."""
        token = ""
        for _ in range(PAGES_MAX):
            params: dict[str, str | int | bool] = {"limit": PAGE_PODS}
            if token:
                params["continue"] = token
            body = self._get(path, params)
            try:
                page = _read(body)
            except DECODE_ERRORS as error:
                raise ResourceMetricsMalformed(
                    f"{self.api.address}{path} did not answer with pod metrics"
                ) from error
            yield from page.items or ()
            token = page.metadata.token
            if not token:
                return
        raise ResourceMetricsMalformed(f"{self.api.address}{path} answered an endless list")

    def _get(self, path: str, params: Mapping[str, str | int | bool]) -> bytes:
        try:
            return self.api.get(path, params, bytes_max=self.memory_max_bytes)
        except ApiError as error:
            if error.status in {404, 503}:
                raise ResourceMetricsAbsent(
                    f"{self.api.address}{ROOT} is not served ({error.status}): "
                    "expected metrics-server or another provider of metrics.k8s.io"
                ) from error
            raise


class _UsageRows:
    """Columns while they are filled; each container once, the newest reading."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, str], tuple[float, float]] = {}
        self._window_seconds = 0.0
        self.unreadable = 0

    def add(self, pod: _PodMetrics) -> None:
        """Take the containers of one pod that can be read."""
        try:
            sampled_at = parse_time(pod.timestamp)
            window_seconds = parse_seconds(pod.window)
        except DECODE_ERRORS:
            self.unreadable += len(pod.containers or ())
            return
        self._window_seconds = max(self._window_seconds, window_seconds)
        for container in pod.containers or ():
            cores = _cores(container.usage.cpu)
            if cores is None:
                self.unreadable += 1
                continue
            key = (intern(pod.metadata.namespace), pod.metadata.name, intern(container.name))
            before = self._found.get(key)
            if before is None or sampled_at > before[1]:
                self._found[key] = (cores, sampled_at)

    def usage(self, source: str, window_seconds: float) -> CpuUsage:
        keys = list(self._found)
        columns = np.array(list(self._found.values()), dtype=np.float64).reshape(len(keys), 2)
        left_out = "pods or containers were ignored: their usage, time or window cannot be read"
        warnings = (f"{self.unreadable} {left_out}",) if self.unreadable else ()
        return CpuUsage(
            namespaces=[key[0] for key in keys],
            pods=[key[1] for key in keys],
            containers=[key[2] for key in keys],
            cores=columns[:, 0].copy(),
            sampled_at=columns[:, 1].copy(),
            window_seconds=self._window_seconds or window_seconds,
            source=source,
            warnings=warnings,
        )


def _read(body: bytes) -> _List:
    """Return a page; where it cannot be read in one go, pod by pod. One of DECODE_ERRORS: it is none."""
    try:
        return msgspec.json.decode(body, type=_List)
    except DECODE_ERRORS:
        parts = members(body)
        metadata = msgspec.json.decode(parts.get("metadata", b"{}"), type=_Continue)
        return _List([_read_pod(item) for item in elements(parts.get("items", b""))], metadata)


def _read_pod(item: bytes) -> _PodMetrics | None:
    try:
        return msgspec.json.decode(item, type=_PodMetrics)
    except DECODE_ERRORS:
        if not outline_of(item).meta.name:
            raise  # no API server sends such an object
        return None


def _cores(text: str) -> float | None:
    """Read a usage such as `123456789n`; what is unreadable or negative is no usage."""
    try:
        cores = parse_cores(text)
    except DECODE_ERRORS:
        return None
    return cores if math.isfinite(cores) and cores >= 0 else None

"""Workloads that KEDA or a VerticalPodAutoscaler manages.

KEDA pauses autoscaling by annotations of a ScaledObject. It parses their values as Go parses booleans, and
takes any other value, such as `yes`, for true; a number of paused replicas pauses by its presence. A pause
in one direction counts: its owner wants the number of replicas to stay.

Two controllers that set the same requests would conflict. A VerticalPodAutoscaler whose `updateMode` is `Off`
only recommends, so it does not count. An absent mode is VPA's default.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from http import HTTPStatus

import msgspec

from equipoise.adapters.kubernetes.cache import Warnings
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.errors import ApiError, BadAnswer, Outline, RightMissing
from equipoise.adapters.kubernetes.kinds import list_items
from equipoise.adapters.kubernetes.objects import Discovery, path_of
from equipoise.adapters.kubernetes.structs import ObjectMeta, RawScaleTargetRef
from equipoise.core.cluster import API_VERSIONS, WorkloadRef
from equipoise.ports.actions import every_workload

KEDA_GROUP, KEDA_VERSION, KEDA_KIND, KEDA_PLURAL = "keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"
PAUSED = "autoscaling.keda.sh/paused"
PAUSED_REPLICAS = "autoscaling.keda.sh/paused-replicas"
PAUSED_SCALE_IN = "autoscaling.keda.sh/paused-scale-in"
PAUSED_SCALE_OUT = "autoscaling.keda.sh/paused-scale-out"
PAUSE_ANNOTATIONS = (PAUSED, PAUSED_REPLICAS, PAUSED_SCALE_IN, PAUSED_SCALE_OUT)
"""KEDA copies them to the HPA that it creates."""
FRESH_SECONDS = 15.0
"""How long an answer is cached."""
ABSENT_SECONDS = 300.0
"""How long it is cached that a kind is not installed."""
_FALSE = frozenset({"0", "f", "F", "false", "False", "FALSE"})


class ScaleTarget(msgspec.Struct, gc=False):
    """The target of a ScaledObject."""

    name: str
    kind: str = ""
    apiVersion: str = ""


class ScaledObjectSpec(msgspec.Struct, gc=False):
    """A ScaledObject's spec."""

    scaleTargetRef: ScaleTarget


class RawScaledObject(msgspec.Struct, gc=False):
    """A ScaledObject's target and annotations."""

    metadata: ObjectMeta
    spec: ScaledObjectSpec


def pause_annotation(annotations: Mapping[str, str]) -> str | None:
    """Return the annotation that pauses the autoscaling of the object, or None."""
    for key in PAUSE_ANNOTATIONS:
        value = annotations.get(key)
        if value is not None and (key == PAUSED_REPLICAS or value not in _FALSE):
            return key
    return None


class ScaledObjects:
    """Reads ScaledObjects from the server at every call."""

    def __init__(self, client: Client, discovery: Discovery) -> None:
        self._client = client
        self._discovery = discovery

    def pauses(self, namespace: str | None, warnings: Warnings) -> dict[WorkloadRef, str] | None:
        """Return the workloads whose autoscaling is paused, and by what; None without KEDA."""
        unknown = "whether KEDA has paused an autoscaler is not known"
        found = self._listed(
            namespace, unknown, lambda one: warnings.add("a ScaledObject that cannot be read", one.place)
        )
        return None if found is None else dict(_pauses(found))

    def names(self, namespace: str) -> dict[WorkloadRef, str]:
        """Return the workloads of a namespace that KEDA scales, with the names of their ScaledObjects."""
        unreadable: list[Outline] = []
        unknown = "whether KEDA scales a workload is not known"
        found = self._listed(namespace, unknown, unreadable.append)
        if unreadable:
            raise BadAnswer(
                f"{self._client.address}: the {KEDA_KIND} {unreadable[0].place} cannot be read, so {unknown}"
            )
        return {_target(each): each.metadata.name for each in found or ()}

    def _listed(
        self, namespace: str | None, unknown: str, warn: Callable[[Outline], object]
    ) -> list[RawScaledObject] | None:
        """List ScaledObjects; None without KEDA. Raise RightMissing, which names what is unknown."""
        path = path_of(KEDA_GROUP, KEDA_VERSION, KEDA_PLURAL, namespace)
        try:
            return list_items(self._client, path, RawScaledObject, warn)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            # Rights are asked before kinds: who has none is refused also where there is nothing to see.
            if error.status == HTTPStatus.FORBIDDEN and not self._is_served():
                return None
            if error.status == HTTPStatus.FORBIDDEN:
                raise RightMissing(
                    "list", f"{KEDA_PLURAL}.{KEDA_GROUP}", namespace, unknown, error
                ) from error
            raise

    def _is_served(self) -> bool:
        try:
            return self._discovery.find(f"{KEDA_GROUP}/{KEDA_VERSION}", KEDA_KIND) is not None
        except ApiError:
            return True  # to be safe: it may be there


def _pauses(found: list[RawScaledObject]) -> list[tuple[WorkloadRef, str]]:
    return [
        (_target(each), f"{KEDA_KIND} {each.metadata.namespace}/{each.metadata.name} is paused by {by}")
        for each in found
        if (by := pause_annotation(each.metadata.annotations or {})) is not None
    ]


def _target(scaled: RawScaledObject) -> WorkloadRef:
    """Return the target, with KEDA's defaults for absent fields."""
    target = scaled.spec.scaleTargetRef
    api_version = target.apiVersion or API_VERSIONS["Deployment"]
    kind = target.kind or "Deployment"
    return WorkloadRef(api_version, kind, scaled.metadata.namespace, target.name).canonical


class RecentPauses:
    """Caches the last answer, and longer where KEDA is not installed. Threads may share it."""

    def __init__(self, client: Client, namespace: str | None) -> None:
        self._scaled_objects = ScaledObjects(client, Discovery(client))
        self._namespace = namespace
        self._monotonic = client.world.monotonic
        self._lock = threading.Lock()
        self._cached: Mapping[WorkloadRef, str] = {}
        self._believed_until = float("-inf")
        self.warnings = Warnings()

    def pauses(self, namespace: str | None) -> Mapping[WorkloadRef, str]:
        """Return the workloads whose autoscaling is paused, and by what."""
        with self._lock:
            if self._monotonic() >= self._believed_until:
                self._ask()
            cached = self._cached
        return {ref: why for ref, why in cached.items() if namespace in {None, ref.namespace}}

    def _ask(self) -> None:
        warnings = Warnings()
        found = self._scaled_objects.pauses(self._namespace, warnings)
        self._cached, self.warnings = found or {}, warnings
        self._believed_until = self._monotonic() + (ABSENT_SECONDS if found is None else FRESH_SECONDS)


VPA_GROUP, VPA_VERSION, VPA_KIND, VPA_PLURAL = (
    "autoscaling.k8s.io",
    "v1",
    "VerticalPodAutoscaler",
    "verticalpodautoscalers",
)
MODE_DEFAULT = "Auto"
ONLY_ADVISES = "Off"
UNKNOWN = "whether a VerticalPodAutoscaler sets a workload's requests is not known"


class UpdatePolicy(msgspec.Struct, gc=False):
    """The update policy: whether the VerticalPodAutoscaler changes pods."""

    updateMode: str | None = None


class VpaSpec(msgspec.Struct, gc=False):
    """A VerticalPodAutoscaler's spec."""

    targetRef: RawScaleTargetRef | None = None
    updatePolicy: UpdatePolicy | None = None


class RawVpa(msgspec.Struct, gc=False):
    """A VerticalPodAutoscaler's target and mode."""

    metadata: ObjectMeta
    spec: VpaSpec


class RecentVpas:
    """Caches the last answer, and longer where VPA is not installed. Threads may share it."""

    def __init__(self, client: Client, namespaces: Sequence[str] = ()) -> None:
        self._client = client
        self._discovery = Discovery(client)
        self._places: Sequence[str | None] = list(namespaces) or [None]
        self._lock = threading.Lock()
        self._cached: Mapping[WorkloadRef, str] = {}
        self._believed_until = float("-inf")

    def targets(self) -> Mapping[WorkloadRef, str]:
        """Return the VerticalPodAutoscaler that sets the requests of each workload."""
        with self._lock:
            now = self._client.world.monotonic()
            if now >= self._believed_until:
                lists = [self._listed(place) for place in self._places]
                self._cached = {ref: which for found in lists for ref, which in (found or {}).items()}
                is_absent = all(found is None for found in lists)
                self._believed_until = now + (ABSENT_SECONDS if is_absent else FRESH_SECONDS)
            return self._cached

    def _listed(self, namespace: str | None) -> dict[WorkloadRef, str] | None:
        """Return the workloads whose requests are set, and by which object; None where VPA is not installed.

        An object that cannot be read may set the requests of any workload in its namespace.
        """
        unreadable: list[Outline] = []
        try:
            found = list_items(
                self._client,
                path_of(VPA_GROUP, VPA_VERSION, VPA_PLURAL, namespace),
                RawVpa,
                unreadable.append,
            )
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            # Rights are asked before kinds: who has none is refused also where there is nothing to see.
            if error.status == HTTPStatus.FORBIDDEN and not self._is_served():
                return None
            if error.status == HTTPStatus.FORBIDDEN:
                raise RightMissing("list", f"{VPA_PLURAL}.{VPA_GROUP}", namespace, UNKNOWN, error) from error
            raise
        unknown = {
            every_workload(each.meta.namespace): f"{VPA_KIND} {each.place}, which cannot be read ({each.why})"
            for each in unreadable
        }
        return unknown | dict(_targets(found))

    def _is_served(self) -> bool:
        try:
            return self._discovery.find(f"{VPA_GROUP}/{VPA_VERSION}", VPA_KIND) is not None
        except ApiError:
            return True  # to be safe: it may be there


def _targets(found: Sequence[RawVpa]) -> Iterator[tuple[WorkloadRef, str]]:
    for vpa in found:
        target, policy = vpa.spec.targetRef, vpa.spec.updatePolicy
        mode = (policy.updateMode if policy else None) or MODE_DEFAULT
        if target is None or mode == ONLY_ADVISES:
            continue
        meta = vpa.metadata
        api_version = target.apiVersion or API_VERSIONS.get(target.kind, "")
        ref = WorkloadRef(api_version, target.kind, meta.namespace, target.name).canonical
        yield ref, f"{VPA_KIND} {meta.namespace}/{meta.name} ({mode})"

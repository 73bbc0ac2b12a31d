"""Objects of a cluster as balancers observe them: frozen, and small enough to hold 100,000 pods.

Every field is read by some balancer. Times are Unix seconds, CPU is cores, memory is bytes. Values that many
pods have in common (containers, labels, owners) are shared by reference.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import msgspec

API_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicationController": "v1",
}
"""The API version of each kind that needs no discovery."""
MORE_API_VERSIONS = {"CronJob": "batch/v1", "Rollout": "argoproj.io/v1alpha1"}
"""The API version of other kinds whose pods are known by their names."""
_LETTERS = "[bcdfghjklmnpqrstvwxz2456789]"
"""The alphabet of Kubernetes' random suffixes."""
_OF_DEPLOYMENT = re.compile(rf"(?P<name>.+)-{_LETTERS}{{6,10}}-{_LETTERS}{{5}}")
_OF_ANY = re.compile(rf"(?P<name>.+)-([0-9]+|{_LETTERS}{{5}})")


def deployment_of_pod(pod: str) -> str:
    """Return the Deployment whose pods are named like this; empty for other names. A guess."""
    found = _OF_DEPLOYMENT.fullmatch(pod)
    return found["name"] if found else ""


def workload_of_pod(pod: str) -> str:
    """Return the workload whose pods are named like this, else the pod's own name. A guess."""
    found = _OF_DEPLOYMENT.fullmatch(pod) or _OF_ANY.fullmatch(pod)
    return found["name"] if found else pod


class WorkloadRef(NamedTuple):
    """A controller of pods: the target of HPAs and policies."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def group(self) -> str:
        """The API group; the core group is the empty text."""
        return self.api_version.rpartition("/")[0]

    @property
    def canonical(self) -> "WorkloadRef":
        """Return the reference with the API version of lists, which may be newer for a built-in group."""
        version = API_VERSIONS.get(self.kind, "")
        return self._replace(api_version=version) if version.rpartition("/")[0] == self.group else self

    @property
    def subject(self) -> str:
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class PodRef(NamedTuple):
    """One incarnation of a pod: names are reused, UIDs are not."""

    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ObjectRef(NamedTuple):
    """A reference to any object, as in events."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {f'{self.namespace}/{self.name}'.removeprefix('/')}"


class Container(msgspec.Struct, frozen=True, gc=False):
    """One container of a pod and what it asks for; None where it asks for nothing."""

    name: str
    cpu_request_cores: float | None = None
    memory_request_bytes: float | None = None
    cpu_limit_cores: float | None = None
    memory_limit_bytes: float | None = None
    is_sidecar: bool = False
    """Whether it is a native sidecar: an init container that runs beside the others."""
    restarts_for: tuple[str, ...] = ()
    """Resources (`cpu`, `memory`) whose in-place resize restarts the container."""


class Resize(msgspec.Struct, frozen=True, gc=False):
    """A change of a pod's resources that its node has not carried out."""

    state: str
    """`InProgress`, `Deferred` (tried again by the node), `Infeasible` (never) or `Error`."""
    message: str = ""


class Owner(msgspec.Struct, frozen=True, gc=False):
    """The controller that made an object."""

    api_version: str
    kind: str
    name: str
    uid: str


FINISHED = frozenset({"Succeeded", "Failed"})
"""Phases of pods that have ended: only their objects are left."""


class Pod(msgspec.Struct, frozen=True, gc=False):
    """A pod as the balancers see it."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str
    phase: str
    is_ready: bool
    ready_since: float | None
    created_at: float
    deletion_at: float | None
    owner: Owner | None
    labels: tuple[tuple[str, str], ...]
    annotations: tuple[tuple[str, str], ...]
    containers: tuple[Container, ...]
    restarts: int
    restarted_at: float | None
    priority: int
    priority_class: str
    qos_class: str
    has_local_storage: bool
    """Whether an eviction would lose data: a hostPath or emptyDir that is not annotated as expendable."""
    is_mirror: bool
    is_disruption_target: bool
    resize: Resize | None = None
    """None where the node has carried out the spec."""
    oom_kills: tuple[tuple[str, float], ...] = ()
    """The containers whose last run ended out of memory, and the times."""

    @property
    def cpu_request_cores(self) -> float | None:
        """Return the sum of the containers' CPU requests; None when any container has none."""
        total = 0.0
        for container in self.containers:
            if container.cpu_request_cores is None:
                return None
            total += container.cpu_request_cores
        return total if self.containers else None


RULES_LENGTH_MAX = 4096
"""The length of the list of rules in a node's condition; a rule that is not listed counts as unknown."""


class RulesCondition(msgspec.Struct, frozen=True, gc=False):
    """The condition of a node by which its agent reports which rules are crossed; rules are `POLICY/RULE`.

    Its message is a list for people and for the operator: `crossed: busy/cpu; clear: busy/memory`.
    """

    TYPE: ClassVar = "EquipoiseRulesCrossed"
    status: str
    reason: str
    message: str = ""
    reported_at: float | None = None
    """When the agent last wrote it; it does so at least every few minutes."""

    @classmethod
    def of(cls, rules: Mapping[str, bool | None]) -> Self:
        """Return the condition for whether each rule is crossed, None where that is unknown."""
        if not rules:
            return cls("False", "NoRules", "no rule is for this node")
        parts, length = [], 0
        for title, state in (("crossed", True), ("unknown", None), ("clear", False)):
            names = []
            for name in sorted(name for name, is_crossed in rules.items() if is_crossed is state):
                length += len(name) + 2
                if length <= RULES_LENGTH_MAX:
                    names.append(name)
            if names:
                parts.append(f"{title}: {', '.join(names)}")
        message = "; ".join(parts)
        if any(rules.values()):
            return cls("True", "RulesCrossed", message)
        if all(is_crossed is None for is_crossed in rules.values()):
            return cls("Unknown", "UsageUnknown", message)
        return cls("False", "NoRuleCrossed", message)

    def rules(self) -> dict[str, bool]:
        """Return whether each listed rule is crossed, without those of which that is unknown."""
        if self.status not in {"True", "False"}:
            return {}
        found: dict[str, bool] = {}
        for part in self.message.split("; "):
            title, _, names = part.partition(": ")
            if names and title in {"crossed", "clear"}:
                found |= dict.fromkeys(names.split(", "), title == "crossed")
        return found


class Node(msgspec.Struct, frozen=True, gc=False):
    """A node, its size and whether it takes pods."""

    name: str
    uid: str
    resource_version: str
    is_ready: bool
    is_cordoned: bool
    cpu_cores: float
    memory_bytes: float
    pods_max: int
    labels: tuple[tuple[str, str], ...]
    rules: RulesCondition | None = None
    """None where no agent has reported."""


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One term of a label selector, such as `tier in (web, api)`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        return False


class Selector(msgspec.Struct, frozen=True, gc=False):
    """A label selector: all terms must hold. One without terms matches everything."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.matches(labels) for requirement in self.requirements)


class Workload(msgspec.Struct, frozen=True, gc=False):
    """A scalable controller of pods, as its `scale` or its own object tells it."""

    ref: WorkloadRef
    uid: str
    resource_version: str
    replicas_wanted: int
    replicas_seen: int
    replicas_ready: int
    replicas_updated: int
    generation: int
    generation_observed: int
    selector: Selector
    annotations: tuple[tuple[str, str], ...]
    owner: Owner | None = None
    labels: tuple[tuple[str, str], ...] = ()
    containers: tuple[Container, ...] = ()
    """The template's containers; a `scale` does not have them."""
    replaces_pods: bool = True
    """Whether a change of the template replaces the pods without further action."""

    @property
    def object_ref(self) -> ObjectRef:
        ref = self.ref
        return ObjectRef(ref.api_version, ref.kind, ref.namespace, ref.name, self.uid)


class HpaMetric(msgspec.Struct, frozen=True, gc=False):
    """One metric of an HPA and its target."""

    type: str
    """Resource, ContainerResource, Pods, Object or External."""
    name: str
    target_type: str
    """Utilization, AverageValue or Value."""
    target_value: float
    """Percent for Utilization, cores or bytes otherwise."""
    container: str = ""


TOLERANCE = 0.1
"""The default tolerance of an HPA: how far the ratio of usage and target may be from 1 before it scales.

It is kube-controller-manager's default; no API shows the value of its flag.
"""


class Hpa(msgspec.Struct, frozen=True, gc=False):
    """A HorizontalPodAutoscaler (`autoscaling/v2`)."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    target: WorkloadRef
    replicas_min: int
    replicas_max: int
    replicas_current: int
    replicas_desired: int
    scaled_at: float | None
    metrics: tuple[HpaMetric, ...]
    annotations: tuple[tuple[str, str], ...]
    labels: tuple[tuple[str, str], ...] = ()
    tolerance_up: float = TOLERANCE
    tolerance_down: float = TOLERANCE


def hpas_by_workload(hpas: Iterable[Hpa]) -> Mapping[WorkloadRef, Sequence[Hpa]]:
    """Return the HPAs by the target of their `scaleTargetRef`."""
    found: dict[WorkloadRef, list[Hpa]] = defaultdict(list)
    for hpa in hpas:
        found[hpa.target.canonical].append(hpa)
    return found


class HpaSpec(msgspec.Struct, frozen=True):
    """What an HPA asks for, word for word, for whoever copies it."""

    name: str
    target: WorkloadRef
    metrics: tuple[Mapping[str, Any], ...] = ()
    behavior: Mapping[str, Any] | None = None
    labels: tuple[tuple[str, str], ...] = ()
    replicas_min: int = 1
    replicas_max: int = 1
    unreadable: str = ""
    """Why the object cannot be decoded; then only the namespace of its target is known."""


class Pdb(msgspec.Struct, frozen=True, gc=False):
    """A PodDisruptionBudget and what it allows now."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    selector: Selector | None
    """None selects nothing, as an absent selector does."""
    disruptions_allowed: int
    pods_healthy: int
    pods_desired: int
    pods_expected: int
    is_current: bool
    """Whether the controller has observed the newest spec."""

"""A node described in a file: what `qos plan --from FILE` reads."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from equipoise.core.documents import explain, validated
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.core.quantity import NANO, Quantity, parse_moment, parse_seconds
from equipoise.crd.definition import DefinedKind
from equipoise.crd.fields import Amount, Moment, Name
from equipoise.qos.observation import (
    CLASSES,
    METRICS,
    PERIOD_US,
    UNLIMITED,
    Observation,
    ObservedContainer,
    ObservedPod,
    protection_of,
)
from equipoise.qos.policy import QosPolicy
from equipoise.qos.status import QOS_KINDS
from equipoise.qos.waterlines import QosMemory, QosObject, assemble, unknown_action

QUOTA_MAX = 10**12
"""Ten million cores."""
COUNT_MAX = 10**9
AGO_SECONDS_MAX = 10**8
"""A smaller number is a span that has passed, a larger one a Unix time."""


class _FilePart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _usage(value: object) -> object:
    if isinstance(value, Mapping):
        for name in value:
            if name not in METRICS:
                raise ValueError(f"expected the name of a metric such as cpu_total_usage, got {name!r}")
    return value


Usage = Annotated[dict[str, Amount | None], BeforeValidator(_usage)]


Part = TypeVar("Part", "_FileContainer", "_FilePod")


def _printable(text: str) -> str:
    if not text.isprintable() or "/" in text or not text:
        raise ValueError(f"expected a name without slashes or control characters, got {text!r}")
    return text


Printable = Annotated[str, AfterValidator(_printable)]


def _rfc3339(value: object) -> object:
    """Return a time as RFC 3339 writes it; writers of YAML 1.1 put a space where it has a T."""
    return re.sub(r"^([0-9-]{10}) (?=[0-9])", r"\1T", value) if isinstance(value, str) else value


When = Annotated[Moment, BeforeValidator(_rfc3339)]


class _FileNode(_FilePart):
    name: Printable = "node"
    cpu_cores: Amount
    memory: Amount
    usage: Usage
    labels: dict[str, str] = {}

    @field_validator("cpu_cores", "memory")
    @classmethod
    def _above_zero(cls, value: Quantity) -> Quantity:
        if value.nanos <= 0:
            raise ValueError("expected a size above 0")
        return value


class _FileAmounts(_FilePart):
    cpu: Amount | None = None
    memory: Amount | None = None


class _FileContainer(_FilePart):
    name: Printable
    cpu: Amount | None = None
    memory: Amount | None = None
    reclaimable: Amount = Quantity(0)
    quota: int = UNLIMITED
    request: _FileAmounts = _FileAmounts()
    limit: _FileAmounts = _FileAmounts()

    @property
    def key(self) -> str:
        return self.name

    @field_validator("quota", mode="before")
    @classmethod
    def _a_quota(cls, value: object) -> object:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if is_whole and (value == UNLIMITED or value in range(1, QUOTA_MAX + 1)):
            return value
        raise ValueError(
            f"expected microseconds per period of {PERIOD_US}, or -1 for unlimited, got {value!r}"
        )


def _unique(parts: list[Part]) -> list[Part]:
    seen: set[str] = set()
    for part in parts:
        if part.key in seen:
            raise ValueError(f"expected unique names, got {part.key!r} twice")
        seen.add(part.key)
    return parts


class _FilePod(_FilePart):
    name: Printable
    namespace: Printable = "default"
    qosClass: str = "BestEffort"  # noqa: N815 - the file's spelling
    priority: Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31)] = 0
    priorityClassName: str = ""  # noqa: N815
    startTime: When | None = None  # noqa: N815
    extendedCpuLimit: Amount = Quantity(0)  # noqa: N815
    labels: dict[str, str] = {}
    owner: str = ""
    """The kind of its controller, such as ReplicaSet or DaemonSet; Node is a static pod."""
    containers: Annotated[list[_FileContainer], AfterValidator(_unique)]

    @field_validator("qosClass")
    @classmethod
    def _a_class(cls, value: str) -> str:
        if value not in CLASSES:
            raise ValueError(f"expected one of {', '.join(CLASSES)}, got {value!r}")
        return value

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


Count = Annotated[int, Field(ge=0, le=COUNT_MAX)]


class _FileState(_FilePart):
    breaches: dict[str, Count] = {}
    clear: dict[str, Count] = {}
    throttled: list[str] = []
    terminating: list[str] = []
    lastTrigger: Any = None  # noqa: N815
    schedulingDisabled: bool = False  # noqa: N815


class _FileBudget(_FilePart):
    evictionsPerRound: Count | None = None  # noqa: N815


class NodeFile(_FilePart):
    """The whole file. Without `state`, counts are taken as reached, and cool-downs as over."""

    node: _FileNode
    pods: Annotated[list[_FilePod], AfterValidator(_unique)]
    policies: list[dict[str, Any]]
    fresh: Usage | None = None
    state: _FileState = _FileState()
    budget: _FileBudget = _FileBudget()
    now: When | None = None


class PlanInputs(NamedTuple):
    """The inputs of a decision, as a file describes them."""

    policy: QosPolicy
    seen: Observation
    memory: QosMemory
    warnings: tuple[str, ...] = ()
    """Entries that have no effect, which is probably a mistake."""


def read_plan_file(document: object, source: str, at: float, excess_percent: int = 0) -> PlanInputs:
    """Return the inputs of a decision from a parsed file; `at` is the time unless the file has `now`."""
    file = validated(NodeFile, document, source)
    at = file.now.timestamp() if file.now is not None else at
    objects = [_object(part, f"{source}: policies[{place}]") for place, part in enumerate(file.policies)]
    policy = assemble(objects).model_copy(
        update={"evictions_per_round": file.budget.evictionsPerRound, "excess_percent": excess_percent}
    )
    _refuse_unknown_pods(file, source)
    doubts = [(one.where, unknown_action(one, policy.actions)) for one in objects]
    return PlanInputs(
        policy=policy,
        seen=_observation(file, at),
        memory=_memory(file, policy, at, source),
        warnings=tuple(f"{where}.spec.{found}" for where, found in doubts if found is not None),
    )


class _FileMetadata(BaseModel):
    """Only the name matters here."""

    name: Name


class _FileObject(_FilePart):
    model_config = ConfigDict(frozen=True, extra="forbid")

    apiVersion: str  # noqa: N815 - the API's spelling
    kind: str
    metadata: _FileMetadata
    spec: dict[str, Any]
    status: dict[str, Any] = {}


def _object(part: dict[str, Any], where: str) -> QosObject:
    defined = _kind(part, where)
    try:
        written = _FileObject.model_validate(part)
    except DECODE_ERRORS as error:
        raise BadInput(f"{where}.{explain(error)}") from error
    try:
        spec = defined.body["spec"].model_validate(written.spec, by_alias=True, by_name=False)
    except DECODE_ERRORS as error:
        path = f".{explain(error)}".replace(".document:", ":", 1)
        raise BadInput(f"{where}.spec{path}") from error
    return QosObject(defined.name, written.metadata.name, spec, where)


def _kind(part: dict[str, Any], where: str) -> DefinedKind:
    name, version = part.get("kind"), part.get("apiVersion")
    kind = next((kind for kind in QOS_KINDS if kind.name == name), None)
    if kind is None:
        names = ", ".join(kind.name for kind in QOS_KINDS)
        raise BadInput(f"{where}.kind: expected one of {names}, got {name!r}")
    if version != kind.api_version:
        raise BadInput(f"{where}.apiVersion: expected {kind.api_version}, got {version!r}")
    return kind


def _refuse_unknown_pods(file: NodeFile, source: str) -> None:
    defined = {pod.key for pod in file.pods}
    for field, keys in (("throttled", file.state.throttled), ("terminating", file.state.terminating)):
        for place, key in enumerate(keys):
            if key not in defined:
                where = f"{source}: state.{field}[{place}]"
                raise BadInput(f"{where}: expected NAMESPACE/NAME of a pod, got {key!r}")


def _observation(file: NodeFile, at: float) -> Observation:
    node, fresh = file.node, None
    if file.fresh is not None:
        fresh = {name: None if value is None else _text(value) for name, value in file.fresh.items()}
    return Observation(
        node=node.name,
        at=at,
        cpu_nanos=node.cpu_cores.nanos,
        memory_bytes=_whole(node.memory),
        usage={name: _text(value) for name, value in node.usage.items() if value is not None},
        fresh=fresh,
        pods=tuple(_pod(pod, file.state) for pod in file.pods),
        labels=node.labels,
        is_scheduling_disabled=file.state.schedulingDisabled,
    )


def _pod(pod: _FilePod, state: _FileState) -> ObservedPod:
    is_throttled = pod.key in state.throttled
    return ObservedPod(
        namespace=pod.namespace,
        name=pod.name,
        qos_class=pod.qosClass,
        priority=pod.priority,
        started_at=None if pod.startTime is None else pod.startTime.timestamp(),
        containers=tuple(_container(part, is_throttled=is_throttled) for part in pod.containers),
        labels=pod.labels,
        ext_cpu_limit_nanos=pod.extendedCpuLimit.nanos,
        protection=protection_of(pod.owner, pod.priority, pod.priorityClassName),
        is_daemon=pod.owner == "DaemonSet",
        is_terminating=pod.key in state.terminating,
    )


def _container(part: _FileContainer, *, is_throttled: bool) -> ObservedContainer:
    return ObservedContainer(
        name=part.name,
        cpu_nanos=None if part.cpu is None else part.cpu.nanos,
        memory_bytes=None if part.memory is None else _whole(part.memory),
        reclaimable_bytes=_whole(part.reclaimable),
        quota_us=part.quota,
        cpu_request_nanos=0 if part.request.cpu is None else part.request.cpu.nanos,
        cpu_limit_nanos=0 if part.limit.cpu is None else part.limit.cpu.nanos,
        is_throttled=is_throttled,
    )


def _whole(amount: Quantity) -> int:
    return -(-amount.nanos // NANO)


def _text(amount: Quantity) -> str:
    """Return an amount as a fraction, which loses nothing."""
    return f"{amount.nanos}/{NANO}" if amount.nanos % NANO else str(amount.nanos // NANO)


def _memory(file: NodeFile, policy: QosPolicy, at: float, source: str) -> QosMemory:
    """Return counts as reached unless the file has others, which include this cycle."""
    breaches: dict[str, int] = {}
    clear: dict[str, int] = {}
    used: set[str] = set()
    for node_policy in policy.policies:
        for rule in node_policy.rules:
            key = f"{node_policy.name}/{rule.name}"
            for found, counts_given, least in (
                (breaches, file.state.breaches, rule.breaches_min),
                (clear, file.state.clear, rule.clear_min),
            ):
                name = key if key in counts_given else rule.name
                found[key] = counts_given.get(name, least) - 1
                used |= {name} & set(counts_given)
    for field, counts in (("breaches", file.state.breaches), ("clear", file.state.clear)):
        for name in counts:
            if name not in used:
                raise BadInput(f"{source}: state.{field}.{name}: expected the name of a rule")
    return QosMemory(breaches, clear, _triggers(file, policy, at, source))


def _triggers(file: NodeFile, policy: QosPolicy, at: float, source: str) -> dict[str, float]:
    given, where = file.state.lastTrigger, f"{source}: state.lastTrigger"
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        return dict.fromkeys(policy.actions, _moment(given, at, where))
    found = {}
    for name, moment in given.items():
        if name not in policy.actions:
            raise BadInput(f"{where}.{name}: expected the name of an AvoidanceAction")
        found[name] = _moment(moment, at, f"{where}.{name}")
    return found


def _moment(value: object, at: float, where: str) -> float:
    """Return a time, which may be written as the span that has passed since."""
    value = _rfc3339(value)
    try:
        if isinstance(value, str) and "T" in value:
            return parse_moment(value)
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            seconds = parse_seconds(value)
            return at - seconds if seconds < AGO_SECONDS_MAX else seconds
    except DECODE_ERRORS:
        pass
    expected = "a time such as 2026-01-31T08:00:00Z, or the time since then such as 90s"
    raise BadInput(f"{where}: expected {expected}, got {value!r}")

"""What may be set of the operator, with its defaults. Where each value came from is `layers.py`'s matter."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    create_model,
    model_validator,
)
from pydantic.alias_generators import to_camel

from equipoise.adapters.urls import HIDDEN, shown_url
from equipoise.core.quantity import parse_bytes, parse_seconds, print_seconds
from equipoise.crd.targets import Mode
from equipoise.engine.balancer import BALANCERS

PORT_MAX = 65_535
_NAME = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"


def _listed(value: object) -> object:
    """Read `a,b` as a list, for variables and flags."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _paired(value: object) -> object:
    """Read `NAME=VALUE,…`, or a list of such, as a mapping."""
    parts = _listed(value)
    if not isinstance(parts, list | tuple):
        return parts
    pairs = {}
    for part in parts:
        name, separator, text = str(part).partition("=")
        if not separator or not name:
            raise ValueError("expected NAME=VALUE")
        pairs[name] = text
    return pairs


def _not_a_claim(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError(f"expected a number, got {str(value).lower()}")
    return value


def _whole_bytes(value: Any) -> int:
    return int(parse_bytes(_not_a_claim(value)))  # type: ignore[arg-type]  # it refuses what it can't read


def _switched(value: object) -> object:
    """Read what YAML makes of a bare `on` or `off`."""
    return ("on" if value else "off") if isinstance(value, bool) else value


def _address(text: str) -> str:
    host, separator, port = text.rpartition(":")
    is_bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
    if not separator or is_bare_ipv6 or not port.isdecimal() or int(port) > PORT_MAX:
        raise ValueError(f"expected HOST:PORT or :PORT, such as :8080 or [::1]:8080, got {text!r}")
    return text


def _hidden_user(url: str | None) -> str | None:
    if url is None:
        return None
    shown = shown_url(url)
    if "@" in url and shown != HIDDEN:
        scheme, separator, rest = shown.rpartition("://")
        shown = f"{scheme}{separator}{HIDDEN}@{rest}"
    return f"{shown}?{HIDDEN}" if "?" in url and shown != HIDDEN else shown


def _hidden_values(pairs: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(pairs, HIDDEN)


Whole = Annotated[int, BeforeValidator(_not_a_claim)]
Number = Annotated[float, BeforeValidator(_not_a_claim)]
Seconds = Annotated[float, BeforeValidator(parse_seconds), PlainSerializer(print_seconds, when_used="json")]
Name = Annotated[str, Field(pattern=_NAME)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_listed)]
Bytes = Annotated[int, BeforeValidator(_whole_bytes)]
Address = Annotated[str, AfterValidator(_address)]
Crane = Annotated[Literal["auto", "on", "off"], BeforeValidator(_switched)]
Pairs = Annotated[dict[str, str], BeforeValidator(_paired)]


def _operated(first: str) -> tuple[str, ...]:
    """Return the balancers that the operator runs: these first, as they have always been printed."""
    places = first.split()
    names = [name for name, one in BALANCERS.items() if one.interval_seconds is not None]
    return tuple(sorted(names, key=lambda name: places.index(name) if name in places else len(places)))


OPERATED = _operated("rotation recommendation pools proportional")
if TYPE_CHECKING:
    OperatedBalancer = str
else:
    OperatedBalancer = Literal[OPERATED]


class Part(BaseModel):
    """One mapping of the settings: frozen, closed, in camelCase outside."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, alias_generator=to_camel, hide_input_in_errors=True
    )
    """An input may be a URL with its password, which a traceback would show."""


class Kubernetes(Part):
    """How the cluster is reached."""

    kubeconfig: str | None = None
    context: str | None = None


class Lease(Part):
    """The election: who of several replicas acts."""

    namespace: Name | None = None
    """By default the operator's own."""
    name: Name = "equipoise"
    duration_seconds: Whole = Field(15, ge=1, le=3600)
    renew_seconds: Number = Field(10.0, gt=0)
    """For how long after a renewal the holder believes in it."""
    retry_seconds: Number = Field(2.0, gt=0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.retry_seconds < self.renew_seconds < self.duration_seconds:
            numbers = f"{self.retry_seconds:g}, {self.renew_seconds:g} and {self.duration_seconds:g}"
            raise ValueError(f"expected retrySeconds < renewSeconds < durationSeconds, got {numbers}")
        return self


class Http(Part):
    """Health, readiness and metrics."""

    address: Address = ":8080"
    """Every interface, since the kubelet and Prometheus ask from outside the pod."""


class Prometheus(Part):
    """How Prometheus is reached; without a URL it is looked for in the cluster."""

    url: Annotated[str, PlainSerializer(_hidden_user)] | None = None
    namespaces: Names = ()
    """Where it is looked for; none means `monitoring` and the operator's own."""
    token_file: str | None = None
    user: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    headers: Annotated[Pairs, PlainSerializer(_hidden_values)] = {}
    matchers: Pairs = {}
    labels: Annotated[dict[Literal["namespace", "pod", "container"], str], BeforeValidator(_paired)] = {}
    """How they are called there, where not so."""
    timeout_seconds: Seconds = Field(30.0, alias="timeout", gt=0, le=3600)


class Disruption(Part):
    """What all balancers together may disturb."""

    cluster_max: Whole = Field(10, ge=0)
    """Pods of the whole cluster that may be disturbed at once; 0 stops every eviction."""


class Compat(Part):
    """Kinds of other groups: whose they are, and whether the operator acts for them."""

    crane: Crane = "auto"
    """`auto` serves Analytics where the definition is ours, `on` where it is Crane's too, `off` nowhere."""
    mode: Mode = Mode.PREVIEW
    """Kinds of other groups have no mode of their own: they act where this is Enforce."""


class Pools(Part):
    """Pods in tiers, in Redis: for the balancer `pools`."""

    mode: Mode = Mode.PREVIEW
    """In Preview, the loop reports what it would do, and nothing is written."""
    redis_url: Annotated[str, PlainSerializer(_hidden_user)] | None = None
    redis_url_file: str | None = None
    """Read again after every failure, so that a password may change."""
    accept_eviction: bool = False
    """Whether a Redis that may evict keys is accepted."""
    prefix: str = Field("voice", pattern=r"^[A-Za-z0-9_.:{}-]{1,200}$")
    namespace: Name | None = None
    selector: str | None = None
    lease_seconds: Seconds = Field(900.0, alias="lease", ge=1, le=7 * 86400)
    """The lease of a call, and the interval between the two sweeps that must find a pod without a call."""
    loss_max: Number = Field(0.3, ge=0, le=1)
    """The share of pods that may be missing or not ready at once; above it, no pod is removed."""
    missing_seconds: Seconds = Field(30.0, alias="missing", ge=0, le=86400)
    """The time for which a pod whose end was not observed must be missing before it is removed."""
    marks_busy: bool = Field(default=True, alias="markBusy")
    """Whether busy pods of a tier over its target are marked, so that their release moves them."""


class Proportional(Part):
    """How often the resources of one workload may change: for the balancer `proportional`."""

    change_seconds: Seconds = Field(60.0, alias="change", ge=0, le=86400)
    """The minimum interval between in-place changes of a workload."""
    rollout_seconds: Seconds = Field(600.0, alias="rollout", ge=0, le=86400)
    """The minimum interval between changes that restart pods."""


class Qos(Part):
    """Node quality of service, which the node agents act on: what the operator does for it."""

    statuses: bool = True
    """Whether the leader writes the status of its kinds: what is valid, and crossed on how many nodes."""


class Journal(Part):
    """The journal of decisions; without a path none is kept."""

    path: str | None = None
    age_max_seconds: Seconds = Field(7 * 86400.0, alias="ageMax", gt=0)
    bytes_max: Bytes = Field(256 << 20, ge=1 << 20)


class Logs(Part):
    """What is logged on standard error, and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
    """`auto` is console on a terminal and JSON elsewhere."""


_INTERVALS: dict[str, Any] = {
    f"{name}_seconds": (Seconds, Field(BALANCERS[name].interval_seconds, alias=name, ge=1, le=86400))
    for name in _operated("rotation proportional")
}
Intervals = create_model(
    "Intervals", __base__=Part, __doc__="The interval between two cycles of each balancer.", **_INTERVALS
)


class Settings(Part):
    """Everything that can be set of `equipoise operator`."""

    balancers: Annotated[tuple[OperatedBalancer, ...], BeforeValidator(_listed)] = tuple(
        name for name in OPERATED if BALANCERS[name].is_default
    )
    namespaces: Names = ()
    """The namespaces to watch; an empty list is all."""
    kubernetes: Kubernetes = Kubernetes()
    lease: Lease = Lease()
    http: Http = Http()
    metrics_from: Literal["auto", "prometheus", "metrics-server"] = "auto"
    prometheus: Prometheus = Prometheus()
    disruption: Disruption = Disruption()
    compat: Compat = Compat()
    pools: Pools = Pools()
    proportional: Proportional = Proportional()
    qos: Qos = Qos()
    journal: Journal = Journal()
    logs: Logs = Logs()
    intervals: Intervals = Intervals()
    stop_seconds: Number = Field(20.0, gt=0, le=3600)
    """How long a graceful stop may take; below the pod's grace period."""

    def interval_seconds(self, balancer: str) -> float:
        return float(getattr(self.intervals, f"{balancer}_seconds"))

    def document(self) -> dict[str, Any]:
        """Return the settings as they are written, without what is secret."""
        return self.model_dump(mode="json", by_alias=True)


SECRET_PATHS = frozenset({("prometheus", "url"), ("prometheus", "headers"), ("pools", "redisUrl")})
"""Whose values no message may show."""

"""The table of balancers, and the descriptor by which the rest of the program uses each of them.

A process imports only the balancers that it runs: importing numpy would cost the node agent memory and
`--help` time. So a row of the table has only what needs no balancer's code, and the dotted name of the
descriptor, which is imported on first use. A sixth balancer is a folder, a row of this table, and its
commands.
"""

import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from equipoise.core.decision import Decision, Record
from equipoise.crd.definition import DefinedKind
from equipoise.ports import CycleReport
from equipoise.ports.wiring import Loop, LoopSettings, Wiring

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """One row of the table."""

    descriptor: str
    """The dotted name of its `Balancer`."""
    summary: str
    """A short description for the dashboard."""
    interval_seconds: float | None = None
    """The operator's default interval between cycles; None where the node agent runs the balancer."""
    is_default: bool = True
    """Whether the operator runs it by default."""
    title: str = ""
    """The displayed name, where that is not the capitalized one."""


BALANCERS: Mapping[str, Registered] = {
    "rotation": Registered(
        "equipoise.rotation.balancer:BALANCER", "hot and cold pods of an autoscaled workload", 30.0
    ),
    "recommendation": Registered(
        "equipoise.recommendation.balancer:BALANCER", "advice from a week of usage", 30.0
    ),
    "proportional": Registered(
        "equipoise.proportional.balancer:BALANCER", "resources that follow the cluster's size", 10.0
    ),
    "qos": Registered("equipoise.qos.balancer:BALANCER", "pods on a node and its waterlines", title="QoS"),
    "pools": Registered("equipoise.pools.balancer:BALANCER", "pods in tiers", 60.0, is_default=False),
}
"""All balancers, in the order of the dashboard."""


class GaugeSpec(NamedTuple):
    """A gauge that is read from each decision."""

    name: str
    help: str
    labels: Labels
    read: Callable[[Decision], Iterable[tuple[Labels, float]] | None]
    """Returns the series of a decision; None leaves the subject's series unchanged."""


WORKLOAD_LABELS = ("namespace", "workload")


def workload_labels(subject: str) -> Labels:
    """Return the values of `WORKLOAD_LABELS` for a subject such as `shop/web`."""
    namespace, _, name = subject.rpartition("/")
    return namespace, name


def workload_gauge(name: str, number: str, what: str) -> GaugeSpec:
    """Return a gauge of this number by workload; a missing number has no series, rather than a 0."""

    def read(decision: Decision) -> Iterable[tuple[Labels, float]]:
        value = decision.reason.numbers.get(number)
        return () if value is None else ((workload_labels(decision.subject), float(value)),)

    return GaugeSpec(name, what, WORKLOAD_LABELS, read)


class CounterSpec(NamedTuple):
    """A counter that is read from each cycle."""

    name: str
    help: str
    labels: Labels
    read: Callable[[CycleReport], Iterable[tuple[str, Labels]]]
    """Returns the subject and the labels of each event."""


class LogLine(NamedTuple):
    """A log line whose text people search for."""

    level: str
    event: str
    fields: Mapping[str, object]


def _no_lines(_: CycleReport | Exception) -> Iterable[LogLine]:
    return ()


@dataclass(frozen=True, slots=True)
class Balancer:
    """The descriptor of one balancer, for the engine, the command line, the metrics and the dashboard."""

    name: str
    kinds: tuple[DefinedKind, ...]
    """The custom resources that the balancer defines."""
    decide: Callable[..., object]
    """The pure function that makes a decision."""
    redecide: Callable[[Record], Decision]
    """Makes the decision again from a record."""
    make_loop: Callable[[Wiring, LoopSettings], Loop] | None = None
    """Makes the operator's loop; None where the node agent runs the balancer."""
    observes_workloads: bool = True
    """Whether it needs the cluster's workloads, and the permission to read them."""
    gauges: tuple[GaugeSpec, ...] = ()
    counters: tuple[CounterSpec, ...] = ()
    verbs: tuple[str, str] = ("evict", "evicted")
    """The verb for its action on a pod: imperative and past tense."""
    log_lines: Callable[[CycleReport | Exception], Iterable[LogLine]] = _no_lines
    """Returns additional log lines for a report, or for the error that ended a cycle."""


def balancer(name: str) -> Balancer:
    """Return a balancer's descriptor, importing its code; KeyError where there is no such balancer."""
    found: Balancer = pkgutil.resolve_name(BALANCERS[name].descriptor)
    assert found.name == name, f"the table calls {found.name} {name}"
    return found

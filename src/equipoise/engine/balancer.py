"""The balancers that exist, and what the rest of the program knows of each.

A process imports the code of the balancers that it runs and no other: numpy alone costs the node agent its
memory and `--help` its time. So the table has what is known without a balancer's code, and the dotted name of
its descriptor, which is imported when it is first asked for. A sixth balancer is a folder, a row of this
table, and its commands.
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
    """What it is about, for the dashboard."""
    interval_seconds: float | None = None
    """How often the operator runs its cycle by default; None where the node agent runs it."""
    is_default: bool = True
    """Whether the operator runs it unless told otherwise."""
    title: str = ""
    """Its name for people, where that is not the capitalized one."""


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
    """Returns the series of a decision; None leaves the subject's series as they are."""


class CounterSpec(NamedTuple):
    """A counter that is read from each cycle."""

    name: str
    help: str
    labels: Labels
    read: Callable[[CycleReport], Iterable[tuple[str, Labels]]]
    """Returns the subject and the labels of each event."""


class LogLine(NamedTuple):
    """A line of the log that people look for by its words."""

    level: str
    event: str
    fields: Mapping[str, object]


def _no_lines(_: CycleReport | Exception) -> Iterable[LogLine]:
    return ()


@dataclass(frozen=True, slots=True)
class Balancer:
    """One balancer, as the engine, the command line, the metrics and the dashboard know it."""

    name: str
    kinds: tuple[DefinedKind, ...]
    """The custom resources that it brings."""
    decide: Callable[..., object]
    """Its pure function."""
    redecide: Callable[[Record], Decision]
    """Decides again from a record."""
    make_loop: Callable[[Wiring, LoopSettings], Loop] | None = None
    """Makes the operator's loop; None where the node agent runs the balancer."""
    observes_workloads: bool = True
    """Whether it needs the cluster's workloads, and the right to see them."""
    gauges: tuple[GaugeSpec, ...] = ()
    counters: tuple[CounterSpec, ...] = ()
    verbs: tuple[str, str] = ("evict", "evicted")
    """What it does to a pod, as an order and as an outcome."""
    log_lines: Callable[[CycleReport | Exception], Iterable[LogLine]] = _no_lines
    """Lines beside those of every cycle, of a report or of the error that ended a cycle."""


def balancer(name: str) -> Balancer:
    """Return a balancer's descriptor, importing its code; KeyError where there is no such balancer."""
    found: Balancer = pkgutil.resolve_name(BALANCERS[name].descriptor)
    assert found.name == name, f"the table calls {found.name} {name}"
    return found

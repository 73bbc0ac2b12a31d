"""What counts as disturbed, and how far one cycle may go: over workloads, behind a slow cache, in a pause."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from equipoise.core.cluster import Pod, Workload, WorkloadRef
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import EntryState, Ledger
from equipoise.core.reason import Code
from equipoise.engine.disruption import DisruptionBudget
from equipoise.ports import CycleReport, PolicyObject, Stored
from equipoise.rotation.command import plan
from equipoise.rotation.observe import away_now, is_away
from equipoise.rotation.policy import RotationPolicy
from equipoise.sim.load import Constant, Partitions
from equipoise.sim.world import World
from tests.support.rotation.tenants import ENFORCE, FrozenPods, Pauses, Policies, loop_in, ports_in
from tests.support.rotation.worlds import ledger_entry
from tests.support.sim.scenes import SIX_LOADS, six_pods

ALL: dict[str, Any] = {"selector": {}, "mode": "Enforce"}


def _workloads(*names: str) -> World:
    """Make workloads like the example's, without budgets of Kubernetes' own."""
    world = World(1)
    for number in range(3):
        world.add_node(f"node-{number}")
    for name in names:
        workload = world.add_workload(
            "shop", name, replicas=6, shape=Constant(sum(SIX_LOADS)), sharing=Partitions(SIX_LOADS)
        )
        world.add_hpa(workload, replicas_min=6, replicas_max=12, name=f"hpa-{name}")
    world.advance(1200)
    return world


def _accepted(report: CycleReport) -> int:
    return sum(outcome.result == "Accepted" for outcome in report.outcomes)


@pytest.mark.parametrize(("cluster_max", "gone"), [(0, 0), (1, 1), (2, 2), (10, 3)])
def test_the_clusters_budget_is_counted_down_within_one_cycle(cluster_max: int, gone: int) -> None:
    """Three workloads are hot at once; what the first takes, the next does not have."""
    world = _workloads("a", "b", "c")
    report = loop_in(world, Policies(ALL), disturbed_in_cluster_max=cluster_max).cycle(world.now)
    assert len(report.decisions) == 3
    assert _accepted(report) == gone
    codes = [decision.reason.code for decision in report.decisions]
    assert codes.count(Code.HELD_BY_BUDGET) == 3 - gone


def test_a_pod_that_was_sent_away_counts_until_it_is_out_of_sight() -> None:
    """Behind a cache that has not heard of the first eviction, there is no second one."""
    world = _workloads("web")
    policies = Policies(ENFORCE | {"cooldown": 0, "rotationsPerHour": 100})
    loop = loop_in(world, policies, cluster=FrozenPods(world))
    assert [_accepted(loop.cycle(world.now + second)) for second in (0, 1, 2)] == [1, 0, 0]


def test_a_finished_pod_disturbs_nobody() -> None:
    """The kubelet leaves objects of evicted pods behind, for days."""
    pod = six_pods(1).world.cluster.pods("shop")[0]
    assert not is_away(pod)
    assert is_away(msgspec.structs.replace(pod, is_ready=False))
    assert not is_away(msgspec.structs.replace(pod, is_ready=False, phase="Failed"))


STATES: dict[str, dict[str, Any]] = {
    "r": {},
    "l": {"deletion_at": 1.0, "is_ready": False},
    "t": {"is_disruption_target": True},
    "u": {"is_ready": False},
    "p": {"is_ready": False, "phase": "Pending"},
    "f": {"is_ready": False, "phase": "Failed"},
}
"""A pod that is ready, leaves, is about to leave, is unready, is pending, has failed."""


@pytest.mark.parametrize(
    ("pods", "away"),
    [
        ("rrrrrr", 0),
        ("rrrrr", 1),
        ("rrrrrl", 1),
        ("rrrrrt", 1),
        ("rrrrrlp", 1),
        ("rrrrrrl", 1),
        ("rrrrllp", 2),
        ("rrrrllpp", 2),
        ("rrrrlpu", 2),
        ("rrrrlu", 2),
        ("rrrrrup", 2),
        ("rrrrruff", 1),
        ("rrrrrff", 1),
        ("rrrrrrrr", 0),
        ("", 6),
    ],
)
def test_a_pod_on_its_way_out_and_the_one_that_comes_for_it_are_one(pods: str, away: int) -> None:
    """Of six that are wanted; what is unready or missing for another reason counts on top."""
    pod = six_pods(1).world.cluster.pods("shop")[0]
    assert away_now((msgspec.structs.replace(pod, **STATES[state]) for state in pods), 6) == away


class Swift:
    """A cluster whose ReplicaSets have made a new pod for one that leaves before anybody asks again."""

    def __init__(self, world: World) -> None:
        self._inner = world.cluster

    def pods_now(self, workload: Workload) -> Sequence[Pod]:
        pods = self._inner.pods_now(workload)
        new = {"is_ready": False, "phase": "Pending", "deletion_at": None, "is_disruption_target": False}
        leaving = [pod for pod in pods if pod.deletion_at is not None]
        return [*pods, *(msgspec.structs.replace(pod, uid=f"{pod.uid}-new", **new) for pod in leaving)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.mark.parametrize("unavailable_max", [1, 2, 3, 4])
def test_replacements_that_come_at_once_make_no_wave_smaller(unavailable_max: int) -> None:
    """As on a real cluster, where they are there within milliseconds."""
    world = _workloads("web")
    policies = Policies(ENFORCE | {"maxUnavailable": unavailable_max})
    report = loop_in(world, policies, cluster=Swift(world)).cycle(world.now)
    assert [outcome.result for outcome in report.outcomes] == ["Accepted"] * unavailable_max


def test_a_pod_that_is_missing_is_disturbed() -> None:
    """The replacement was never made (a quota, say): nobody else goes before it is there."""
    world = _workloads("web")
    preview = loop_in(world, Policies(ENFORCE | {"mode": "Preview"})).cycle(world.now).decisions[0]
    wanted = {*(action.uid for action in preview.actions), *(held.action.uid for held in preview.held)}
    seen = FrozenPods(world)
    missing = next(pod for pod in seen.pods() if pod.uid not in wanted)
    seen.forget(missing)
    (decision,) = loop_in(world, Policies(ENFORCE), cluster=seen).cycle(world.now).decisions
    assert decision.reason.code is Code.HELD_BY_HEALTH
    assert decision.reason.numbers["pods_ready"] == 5
    (workload,) = world.cluster.workloads("shop")
    budget = DisruptionBudget(set(), 10, ())
    assert budget.disturbed(seen.pods(), workload.replicas_wanted, Ledger()) == 1


def test_a_pod_in_the_ledger_is_disturbed_however_well_it_looks() -> None:
    """Meant to go or gone, and still in sight; what surely did not happen is not counted."""
    world = _workloads("web")
    (workload,) = world.cluster.workloads("shop")
    pods = world.cluster.pods("shop")
    budget, wanted = DisruptionBudget(set(), 10, ()), workload.replicas_wanted
    counts = []
    for state in EntryState:
        entry = ledger_entry(0, world.now, uid=pods[0].uid, state=state)
        counts.append((state, budget.disturbed(pods, wanted, Ledger(1, (entry,)))))
    assert counts == [(EntryState.INTENT, 1), (EntryState.DONE, 1), (EntryState.FAILED, 0)]


def test_a_pause_holds_what_is_left_of_a_wave() -> None:
    """Said while the first pod of four goes, it keeps the other three."""
    world, pauses = _workloads("web"), Pauses()

    def say_stop(passed: str) -> None:
        if passed == "outcome":
            pauses.who = "alice"

    policies = Policies(ENFORCE | {"maxUnavailable": 4})
    report = loop_in(world, policies, pauses=pauses, on_step=say_stop).cycle(world.now)
    assert _accepted(report) == 1


class Forgetful:
    """A store whose ledger of one workload makes no sense."""

    def __init__(self, world: World, name: str, data: Mapping[str, Any] | None = None) -> None:
        self._inner = world.store
        self._name = name
        self._data = data or {"entries": [{"at": "soon"}]}

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        ref = WorkloadRef("apps/v1", "Deployment", "shop", self._name)
        return {**self._inner.read_all(namespace), ref: Stored(self._data, "7")}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


DATED_9999 = ledger_entry(1, 0.0, state=EntryState.INTENT)
UNREADABLE: tuple[Mapping[str, Any], ...] = (
    {"entries": [{"at": "soon"}]},
    {"entries": [msgspec.to_builtins(DATED_9999) | {"at": "9999-12-31T23:59:59-23:59"}]},
    {"entries": [msgspec.to_builtins(DATED_9999) | {"at": "0001-01-01T00:00:00+23:59"}]},
    {"entries": "none", "memory": 7},
)


@pytest.mark.parametrize("data", UNREADABLE, ids=["no date", "year 10000", "year 0", "no entries"])
def test_a_ledger_that_is_unknown_holds_its_workload_and_no_other(data: Mapping[str, Any]) -> None:
    """The cycle goes on, and the reason says what is unknown."""
    world = _workloads("a", "b")
    report = loop_in(world, Policies(ALL), store=Forgetful(world, "a", data)).cycle(world.now)
    held, acted = report.decisions
    assert held.reason.code is Code.HELD_BY_BUDGET
    assert "its content is invalid" in held.reason.sentence
    assert acted.reason.code is Code.ROTATE
    assert _accepted(report) == 1


class Unreachable:
    """A store that does not answer."""

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        raise WorldFailed("no answer")


def test_without_its_ledgers_nobody_acts_and_a_plan_goes_on() -> None:
    """Who acts holds everything; who only looks is told what is missing."""
    world = _workloads("web")
    report = loop_in(world, Policies(ENFORCE), store=Unreachable()).cycle(world.now)
    assert [decision.reason.code for decision in report.decisions] == [Code.HELD_BY_BUDGET]
    assert report.outcomes == []
    assert report.warnings == ["the ledger of earlier actions cannot be read: no answer"]
    warned: list[str] = []
    ports = ports_in(world, store=Unreachable())
    decisions = plan(RotationPolicy(), ports, world.now, None, uses_dry_run=False, warn=warned.append)
    assert [decision.reason.code for decision in decisions] == [Code.ROTATE]
    assert warned == report.warnings


class Mute(Policies):
    """Policies whose status cannot be written."""

    def write_status(self, policy: PolicyObject, status: Any) -> None:
        raise WorldFailed("forbidden")


def test_a_status_that_cannot_be_written_is_told() -> None:
    """It would otherwise be missing without a word."""
    world = _workloads("web")
    report = loop_in(world, Mute(ENFORCE | {"mode": "Preview"})).cycle(world.now)
    assert report.warnings == ["the status of RotationPolicy shop/policy-0 could not be written: forbidden"]

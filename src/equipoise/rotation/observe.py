"""Join what the cluster and the metrics say: a few lists and a query per shard, never one per workload.

What the ledgers say of the workloads that are looked at, all of them read at once.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from equipoise.core.cluster import Hpa, Pdb, Pod, Selector, Workload, WorkloadRef
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import Ledger
from equipoise.engine.disruption import SYSTEM_NAMESPACES, opted_out_by, protection_of
from equipoise.engine.isolation import Isolation
from equipoise.ports import Cluster, CpuUsage, FailedTurn, Metrics, NotInstalled, Store, Stored
from equipoise.rotation.decide import NoPlan, choose_metric
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import CORES_MAX, Observation, ObservedHpa, ObservedWorkload, PodLoad
from equipoise.rotation.progress import load_memory

SAMPLE_AGE_MAX_SECONDS = 120.0
"""Two scrapes a minute apart: an older sample says nothing about now."""

FINISHED = frozenset({"Succeeded", "Failed"})
"""Phases of pods that are over: they were replaced, and only their objects are left."""


class Sample(NamedTuple):
    """What a container used over the window."""

    cores: float
    is_whole: bool
    """Whether its samples tell about the whole window."""


Usage = Mapping[tuple[str, str], Mapping[str, Sample]]
"""By container, by namespace and pod; only fresh samples."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """One look at the cluster, for all workloads at once."""

    at: float
    pods: Mapping[WorkloadRef, Sequence[Pod]]
    hpas: Mapping[WorkloadRef, Sequence[Hpa]]
    pdbs: Sequence[Pdb]
    usage: Mapping[float, Usage]
    """By metrics window."""
    pauses: Mapping[WorkloadRef, str]
    """Whose autoscaler is paused, and by what."""
    warnings: Sequence[str]
    failures: Sequence[str]
    """What could not be seen at all."""
    away: Collection[str]
    """The UIDs of all pods that are away, whoever caused it."""
    namespaces_protected: Collection[str] = SYSTEM_NAMESPACES
    partial: Mapping[float, str] = field(default_factory=dict)
    """By metrics window, why the usage is not whole or not there: nothing is decided from a part."""
    notes: set[str] = field(default_factory=set)
    """What came up on the way and should be said once, however many workloads it is about."""


@dataclass(frozen=True, slots=True)
class SnapshotReader:
    """What a look needs of the world."""

    cluster: Cluster
    metrics: Metrics
    isolation: Isolation
    beat: Callable[[], object]
    namespaces_protected: Collection[str]
    is_acting: bool

    def at(
        self,
        at: float,
        wanted: Sequence[tuple[float, Workload]],
        others: Sequence[Workload] = (),
        namespace: str | None = None,
    ) -> ClusterSnapshot:
        """See the workloads that are wanted, each over its own metrics window; of the others the pods."""
        workloads = [*(workload for _, workload in wanted), *others]
        listed = self.cluster.pods(namespace)
        pods = pods_by_workload(workloads, listed, self.isolation)
        usage: dict[float, Usage] = {}
        warnings: list[str] = []
        failures: list[str] = []
        missing: dict[float, str] = {}
        for window in sorted({window for window, _ in wanted}):
            names: dict[str, list[str]] = {}
            for each, workload in wanted:
                if each == window:
                    own = pods.get(workload.ref, ())
                    names.setdefault(workload.ref.namespace, []).extend(pod.name for pod in own)
            self.beat()
            answer = self._usage(names, at, window)
            if isinstance(answer, FailedTurn):
                # Unknown, not zero: every decision of this window says that its metrics are incomplete.
                usage[window], missing[window] = {}, answer.error
                failures.append(f"the usage over {window:g} s is unknown: {answer.error}")
                continue
            said, usage[window] = answer
            warnings += [f"{said.source}: {warning}" for warning in said.warnings]
            if said.partial:
                missing[window] = said.partial[0]
        away = {pod.uid for group in pods.values() for pod in group if is_away(pod)}
        # Of a workload whose pods can't be told, all count that may be its own.
        unsure = {each.ref.namespace for each in workloads if each.ref not in pods}
        away |= {pod.uid for pod in listed if pod.namespace in unsure and is_away(pod)}
        hpas, pdbs = hpas_by_workload(self.cluster.hpas(namespace)), self.cluster.pdbs(namespace)
        pauses, notes = self._autoscaler_pauses(namespace) if wanted else ({}, set())
        return ClusterSnapshot(
            *(at, pods, hpas, pdbs, usage, pauses, warnings, failures, away),
            namespaces_protected=self.namespaces_protected,
            partial=missing,
            notes=notes,
        )

    def _usage(
        self, names: Mapping[str, Sequence[str]], at: float, window: float
    ) -> tuple[CpuUsage, Usage] | FailedTurn:
        """Return what the source answered over one window and what is fresh of it, or why it is unknown."""
        try:
            answer = self.metrics.cpu_usage(names, at, window)
            return answer, fresh_usage(answer, at)
        except WorldFailed as error:
            return FailedTurn("", str(error))
        except Exception as error:  # noqa: BLE001 - it costs this window, not the others
            return self.isolation.take(f"usage over {window:g} s", error)

    def _autoscaler_pauses(self, namespace: str | None) -> tuple[Mapping[WorkloadRef, str], set[str]]:
        """Ask whose autoscaler is paused; who acts must know, who only looks is told when it can't."""
        try:
            return self.cluster.autoscaler_pauses(namespace), set()
        except WorldFailed as error:
            if self.is_acting:
                raise
            return {}, {str(error)}


def is_away(pod: Pod) -> bool:
    """Whether a pod serves nobody now, or is about to go."""
    if pod.phase in FINISHED:
        return False
    return pod.deletion_at is not None or pod.is_disruption_target or not pod.is_ready


def away_now(pods: Iterable[Pod], wanted: int) -> int:
    """Count how many pods a workload lacks: one on its way out and the one that comes for it are one."""
    there = [pod for pod in pods if pod.phase not in FINISHED]
    staying = [pod for pod in there if pod.deletion_at is None and not pod.is_disruption_target]
    lacking = max(0, wanted - len(staying)) + sum(not pod.is_ready for pod in staying)
    return max(len(there) - len(staying), lacking)


def hpas_by_workload(hpas: Iterable[Hpa]) -> Mapping[WorkloadRef, Sequence[Hpa]]:
    """Index the HPAs by what their `scaleTargetRef` names."""
    found: dict[WorkloadRef, list[Hpa]] = defaultdict(list)
    for hpa in hpas:
        found[hpa.target.canonical].append(hpa)
    return found


Labels = tuple[tuple[str, str], ...]


def pods_by_workload(
    workloads: Iterable[Workload], pods: Iterable[Pod], isolation: Isolation | None = None
) -> Mapping[WorkloadRef, Sequence[Pod]]:
    """Return the pods of each workload: those that its selector picks in its namespace, as its HPA does.

    One whose selector fails is left out: what its pods are is unknown.
    """
    isolation = isolation or Isolation()
    alike: dict[tuple[str, Labels], list[Pod]] = defaultdict(list)
    for pod in pods:
        alike[pod.namespace, pod.labels].append(pod)
    # Found by its rarest label, a workload costs what its own pods cost, however many others there are.
    by_label: dict[tuple[str, str, str], list[Labels]] = defaultdict(list)
    for namespace, labels in alike:
        for key, value in labels:
            by_label[namespace, key, value].append(labels)
    found: dict[WorkloadRef, Sequence[Pod]] = {}

    def picked(workload: Workload) -> list[Pod]:
        namespace = workload.ref.namespace
        return [
            pod
            for labels in _label_sets(workload.selector, namespace, alike, by_label)
            if workload.selector.matches(dict(labels))
            for pod in alike[namespace, labels]
        ]

    for workload in workloads:
        own = isolation.attempt(workload.ref.subject, partial(picked, workload))
        if not isinstance(own, FailedTurn):
            found[workload.ref] = own
    return found


def _label_sets(
    selector: Selector,
    namespace: str,
    alike: Mapping[tuple[str, Labels], object],
    by_label: Mapping[tuple[str, str, str], Sequence[Labels]],
) -> Sequence[Labels]:
    """Return the fewest label sets that can hold all that the selector picks; an empty one picks nothing."""
    if not selector.requirements:
        return []
    exact = [
        by_label.get((namespace, term.key, term.values[0]), ())
        for term in selector.requirements
        if term.operator == "In" and len(term.values) == 1
    ]
    return min(exact, key=len) if exact else [labels for place, labels in alike if place == namespace]


def fresh_usage(usage: CpuUsage, at: float) -> Usage:
    """Index the samples by pod and container, and leave out the old ones and what nothing can use."""
    found: dict[tuple[str, str], dict[str, Sample]] = {}
    is_fresh = ((usage.sampled_at >= at - SAMPLE_AGE_MAX_SECONDS) & (usage.cores <= CORES_MAX)).tolist()
    covered = usage.is_covered
    is_whole = [True] * len(is_fresh) if covered is None else covered.tolist()
    samples = map(Sample, usage.cores.tolist(), is_whole)
    rows = zip(usage.namespaces, usage.pods, usage.containers, samples, is_fresh, strict=True)
    for namespace, pod, container, sample, fresh in rows:
        if fresh:
            found.setdefault((namespace, pod), {})[container] = sample
    return found


def observe(policy: RotationPolicy, workload: Workload, seen: ClusterSnapshot) -> Observation:
    """Join what the cluster and the metrics say of one workload."""
    ref, at = workload.ref, seen.at
    hpas = tuple(_hpa(hpa, at) for hpa in seen.hpas.get(ref, ()))
    try:
        container = choose_metric(policy, hpas).container
    except NoPlan:
        container = ""
    usage = seen.usage[policy.metrics_window_seconds]
    pods = tuple(
        _load(policy, pod, usage, container, at) for pod in seen.pods[ref] if pod.phase not in FINISHED
    )
    partial = seen.partial.get(policy.metrics_window_seconds, "")
    return Observation(
        ref.subject, at, hpas, pods, ref.namespace, _workload(workload, seen), metrics_partial=partial
    )


def _workload(workload: Workload, seen: ClusterSnapshot) -> ObservedWorkload:
    return ObservedWorkload(
        kind=workload.ref.kind,
        replicas_wanted=workload.replicas_wanted,
        replicas_seen=workload.replicas_seen,
        replicas_updated=workload.replicas_updated,
        is_observed=workload.generation_observed >= workload.generation,
        opt_out=opted_out_by(workload.annotations),
        autoscaler_pause=seen.pauses.get(workload.ref, ""),
        is_protected=workload.ref.namespace in seen.namespaces_protected,
    )


def _hpa(hpa: Hpa, at: float) -> ObservedHpa:
    return ObservedHpa(
        name=hpa.name,
        metrics=hpa.metrics,
        replicas_min=hpa.replicas_min,
        replicas_max=hpa.replicas_max,
        replicas_current=hpa.replicas_current,
        replicas_desired=hpa.replicas_desired,
        scaled_seconds=None if hpa.scaled_at is None else at - hpa.scaled_at,
        tolerance_up=hpa.tolerance_up,
        tolerance_down=hpa.tolerance_down,
    )


def _load(policy: RotationPolicy, pod: Pod, usage: Usage, container: str, at: float) -> PodLoad:
    began = at - policy.metrics_window_seconds
    is_leaving = pod.deletion_at is not None or pod.is_disruption_target
    return PodLoad(
        name=pod.name,
        cpu_cores=_cores(pod, usage.get((pod.namespace, pod.name)), container, began),
        request_cores=_request(pod, container),
        is_ready=pod.is_ready and pod.phase == "Running" and not is_leaving,
        age_seconds=at - pod.created_at,
        has_restarted=pod.restarted_at is not None and pod.restarted_at > began,
        node=pod.node,
        uid=pod.uid,
        ready_seconds=None if pod.ready_since is None else at - pod.ready_since,
        protection=protection_of(
            pod,
            includes_local_storage=policy.includes_local_storage,
            includes_stateful_sets=policy.includes_stateful_sets,
        ),
        is_leaving=is_leaving,
        revision=pod.owner.uid if pod.owner is not None else "",
    )


def _cores(pod: Pod, samples: Mapping[str, Sample] | None, container: str, began: float) -> float | None:
    """Sum the pod's containers, or take the one; a container without a sample makes the sum unknown.

    So does one whose samples are of a part of the window only, since its usage would look too low. A pod that
    is younger than the window has no others, and nobody judges by it yet.
    """
    if samples is None:
        return None
    is_young = pod.created_at > began
    total = 0.0
    for name in (container,) if container else [part.name for part in pod.containers]:
        sample = samples.get(name)
        if sample is None or not (sample.is_whole or is_young):
            return None
        total += sample.cores
    return total


def _request(pod: Pod, container: str) -> float | None:
    if not container:
        return pod.cpu_request_cores
    return next((part.cpu_request_cores for part in pod.containers if part.name == container), None)


class LedgerState(NamedTuple):
    """The ledger of one workload as this cycle found it, or why it is unknown."""

    stored: Stored
    before: Ledger
    ledger: Ledger
    """The same, with every old intent settled by what the world shows."""
    memory: Mapping[str, Any]
    trouble: str = ""


_NOTHING = Ledger()


class Ledgers(NamedTuple):
    """All ledgers, or why none is known."""

    stored: Mapping[WorkloadRef, Stored]
    trouble: str = ""

    def of(
        self, workload: Workload, seen: ClusterSnapshot, cluster: Cluster, *, with_run: bool = True
    ) -> LedgerState:
        """Return what is remembered of one workload."""
        stored = self.stored.get(workload.ref, Stored({}))
        if self.trouble or not stored.version:
            return LedgerState(stored, _NOTHING, _NOTHING, {}, self.trouble)
        try:
            before = Ledger.from_data(stored.data)
            ledger = _settled(before, seen, cluster, workload)
            return LedgerState(stored, before, ledger, load_memory(ledger, with_run=with_run))
        except WorldFailed as error:
            return LedgerState(stored, _NOTHING, _NOTHING, {}, str(error))


NO_LEDGERS = Ledgers({})


def read_ledgers(store: Store, seen: ClusterSnapshot, namespace: str | None, *, is_acting: bool) -> Ledgers:
    """Read all ledgers at once. For who only looks, a ledger that was never installed is an empty one."""
    try:
        return Ledgers(store.read_all(namespace))
    except WorldFailed as error:
        if not is_acting and isinstance(error, NotInstalled):
            return Ledgers({})
        seen.notes.add(f"what was done before is unknown: {error}")
        return Ledgers({}, str(error))


def _settled(before: Ledger, seen: ClusterSnapshot, cluster: Cluster, workload: Workload) -> Ledger:
    """Return every old intent the outcome that the world shows.

    That one never happened is believed of the server alone: a cache may not have heard of it yet.
    """
    ledger = before.reconciled(_alive(seen.pods[workload.ref]), seen.at)
    if len(ledger.sent()) == len(before.sent()):
        return ledger
    return before.reconciled(_alive(cluster.pods_now(workload)), seen.at)


def _alive(pods: Sequence[Pod]) -> frozenset[str]:
    return frozenset(pod.uid for pod in pods if pod.deletion_at is None)

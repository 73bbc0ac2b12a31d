"""Advice for a live cluster: see its workloads and a week of their usage, decide lot by lot. Changes nothing.

Histories come in lots of whole namespaces. Each is reduced to statistics and decided before the next is
looked at, so memory holds a lot, not a cluster.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import structs

from equipoise.model.cluster import HpaSpec, Pod, Workload
from equipoise.model.decision import Decision
from equipoise.model.errors import WorldFailed
from equipoise.model.history import CPU, MEMORY, UsageHistory
from equipoise.model.references import WorkloadRef
from equipoise.ports import Autoscalers, Cluster, History, Owners
from equipoise.recommendation.belonging import Belonging
from equipoise.recommendation.choose import check_names, choose
from equipoise.recommendation.decide import decide
from equipoise.recommendation.observation import WEEK_SECONDS, Containers, Inherited, Observation
from equipoise.recommendation.policy import AdviceType, RecommendationPolicy
from equipoise.recommendation.usage import LotReader, Usage
from equipoise.stats.predict import Algorithm

STEP_SECONDS = 60.0
COUNTED = frozenset({"Pending", "Running"})
MADE_BY_CRANE = ("app.kubernetes.io/managed-by", "effective-hpa-controller")
"""An HPA that Crane writes has metrics of Crane's own; the advice is about what a person wrote."""

Peaks = Mapping[tuple[WorkloadRef, str], float]


@dataclass(frozen=True, slots=True)
class World:
    """Where a cluster and its past are seen."""

    cluster: Cluster
    history: History
    autoscalers: Autoscalers
    owners: Owners | None = None
    warn: Callable[[str], object] = str
    on_bytes: Callable[[int], None] | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants to know."""

    policy: RecommendationPolicy = field(default_factory=RecommendationPolicy)
    namespace: str | None = None
    """None are all."""
    names: Sequence[str] = ()
    algorithm: Algorithm | None = Algorithm.PROFILE
    about: AdviceType = AdviceType.HPA


def plan(asked: Asked, world: World, at: float) -> list[Decision]:
    """Decide for the workloads that were asked for, from the week before `at`."""
    check_names(asked.names)
    listed = world.cluster.workloads(asked.namespace)
    chosen = choose(listed, asked.namespace, asked.names)
    if not chosen:
        return []
    belonging = Belonging(listed, world.cluster.pods(asked.namespace))
    inherited = _inherited(asked, world)
    looking = _Looking(asked, world, belonging, chosen, inherited, at)
    return sorted(looking.decisions(), key=lambda found: (found.subject, found.extra["kind"]))


def _inherited(asked: Asked, world: World) -> Mapping[WorkloadRef, Inherited]:
    """Give what each workload's HPA has beside CPU; of several HPAs nobody knows which is meant."""
    if not asked.policy.inherits_hpa or asked.about is not AdviceType.HPA:
        return {}
    specs: dict[WorkloadRef, list[HpaSpec]] = defaultdict(list)
    for spec in world.autoscalers.specs(asked.namespace):
        if MADE_BY_CRANE not in spec.labels:
            specs[spec.target].append(spec)
    for ref, several in specs.items():
        if len(several) > 1:
            names = ", ".join(sorted(spec.name for spec in several))
            world.warn(f"{ref} has {len(several)} HPAs ({names}): nothing is inherited from them")
    return {ref: Inherited(one[0].metrics, one[0].behavior) for ref, one in specs.items() if len(one) == 1}


@dataclass(slots=True)
class _Looking:
    """One look at everything that was asked for."""

    asked: Asked
    world: World
    belonging: Belonging
    chosen: Sequence[Workload]
    inherited: Mapping[WorkloadRef, Inherited]
    at: float
    told: set[str] = field(default_factory=set)
    learnt: set[str] = field(default_factory=set)
    """Namespaces whose owners were asked for."""

    @property
    def end(self) -> float:
        """The last time of the grid, the same for everybody who looks in this minute."""
        return self.at // STEP_SECONDS * STEP_SECONDS

    def decisions(self) -> Iterator[Decision]:
        """Decide for each lot as it comes; whoever is in none has no samples."""
        peaks = self._peaks() if self.asked.about is AdviceType.RESOURCE else {}
        left = {workload.ref: workload for workload in self.chosen}
        for lot in self._lots():
            within = [ref for ref in left if lot.scope is None or ref.namespace in lot.scope]
            yield from self._decided(lot, [left.pop(ref) for ref in within], peaks)
            del lot  # before the next one is waited for
        nothing = UsageHistory(
            CPU.name, None, [], [], [], np.array([self.end]), np.zeros((0, 1)), STEP_SECONDS, ""
        )
        yield from self._decided(nothing, list(left.values()), peaks)

    def _lots(self, *, of_memory: bool = False) -> Iterator[UsageHistory]:
        spaces = {workload.ref.namespace for workload in self.chosen}
        is_all = self.asked.namespace is None and not self.asked.names
        lots = self.world.history.read(
            (MEMORY if of_memory else CPU,),
            self.end - WEEK_SECONDS + STEP_SECONDS,
            self.end,
            STEP_SECONDS,
            namespaces=None if is_all else sorted(spaces),
            on_bytes=self.world.on_bytes,
        )
        for lot in lots:
            for warning in lot.warnings:
                self._warn(warning)
            self._learn(lot)
            yield lot
            del lot

    def _warn(self, warning: str) -> None:
        if warning not in self.told:
            self.told.add(warning)
            self.world.warn(warning)

    def _learn(self, lot: UsageHistory) -> None:
        """Ask who owned pods that only their names tell of; without an answer the names decide."""
        spaces = {workload.ref.namespace for workload in self.chosen}
        unsure = (self.belonging.guessed(lot.namespaces, lot.pods) & spaces) - self.learnt
        if self.world.owners is None or not unsure:
            return
        self.learnt |= unsure
        try:
            self.belonging.learn(self.world.owners.replica_sets(sorted(unsure), self.end))
        except WorldFailed as error:
            self._warn(f"who owned pods that are gone is told from their names: {error}")

    def _peaks(self) -> Peaks:
        """Give the highest memory of each container, whichever pod had it."""
        chosen = {workload.ref for workload in self.chosen}
        peaks: dict[tuple[WorkloadRef, str], float] = {}
        for lot in self._lots(of_memory=True):
            highest = np.fmax.reduce(lot.values, axis=1, initial=np.nan).tolist()
            rows = zip(lot.namespaces, lot.pods, lot.containers, highest, strict=True)
            for namespace, pod, container, peak in rows:
                ref = self.belonging.of(namespace, pod)
                if ref in chosen and peak == peak:  # noqa: PLR0124 - NaN is not itself
                    peaks[ref, container] = max(peak, peaks.get((ref, container), 0.0))
        return peaks

    def _decided(self, lot: UsageHistory, workloads: Sequence[Workload], peaks: Peaks) -> Iterator[Decision]:
        by_ref = {workload.ref: workload for workload in workloads}
        reader = LotReader(lot, self.belonging, list(by_ref))
        for batch in reader.batches():
            used = reader.usage(batch, by_container=self.asked.about is AdviceType.RESOURCE)
            seen = self._observation([by_ref[ref] for ref in batch], used, peaks)
            found = decide(self.asked.policy, seen, self.asked.algorithm, self.asked.about)
            for decision, unknown in zip(found, used.pods_unknown.tolist(), strict=True):
                numbers = {**decision.reason.numbers, "pods_unknown": unknown}
                yield structs.replace(decision, reason=structs.replace(decision.reason, numbers=numbers))

    def _observation(self, workloads: Sequence[Workload], used: Usage, peaks: Peaks) -> Observation:
        refs = [workload.ref for workload in workloads]
        pods = [[pod for pod in self.belonging.pods.get(ref, ()) if _counts(pod)] for ref in refs]
        newest = [max(some, key=lambda pod: (pod.created_at, pod.name), default=None) for some in pods]
        ready_at = self.at - self.asked.policy.pod_ready_seconds_min
        return Observation(
            subjects=[ref.subject for ref in refs],
            kinds=[ref.kind for ref in refs],
            replicas=np.array([workload.replicas_wanted for workload in workloads], np.intp),
            pods=np.array([len(some) for some in pods], np.intp),
            available=np.array([sum(_is_available(pod, ready_at) for pod in some) for some in pods], np.intp),
            request_cores=np.array([_request(pod) for pod in newest]),
            history=used.cores,
            interval_seconds=STEP_SECONDS,
            at=self.end,
            pod_p99_cores=used.pod_p99_cores,
            inherited=[self.inherited.get(ref) for ref in refs],
            containers=_containers(refs, newest, used, peaks),
        )


def _counts(pod: Pod) -> bool:
    return pod.phase in COUNTED and pod.deletion_at is None


def _is_available(pod: Pod, ready_at: float) -> bool:
    return pod.phase == "Running" and pod.is_ready and (pod.ready_since or 0.0) <= ready_at


def _request(pod: Pod | None) -> float:
    """Give what a pod asks for; the newest has what the next ones will have."""
    cores = None if pod is None else pod.cpu_request_cores
    return np.nan if cores is None else cores


def _containers(
    refs: Sequence[WorkloadRef], newest: Sequence[Pod | None], used: Usage, peaks: Peaks
) -> Containers:
    """Give the containers that the workloads have now, in the order of their pods."""
    parts = [
        (place, ref, container.name)
        for place, (ref, pod) in enumerate(zip(refs, newest, strict=True))
        for container in (() if pod is None else pod.containers)
    ]
    return Containers(
        owner=np.array([place for place, _, _ in parts], np.intp),
        names=[name for _, _, name in parts],
        cpu_p99_cores=np.array([used.container_p99_cores.get((p, n), np.nan) for p, _, n in parts]),
        memory_peak_bytes=np.array([peaks.get((ref, name), np.nan) for _, ref, name in parts]),
    )

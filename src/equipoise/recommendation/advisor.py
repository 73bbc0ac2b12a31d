"""Advice for a live cluster: see its workloads and a week of their usage, decide lot by lot. Changes nothing.

Histories come in lots of whole namespaces. Each is reduced to statistics and decided before the next is
looked at, so memory holds a lot, not a cluster.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import msgspec
import numpy as np

from equipoise.core.cluster import HpaSpec, Pod, Workload, WorkloadRef
from equipoise.core.decision import Decision
from equipoise.core.errors import WorldFailed
from equipoise.engine.isolation import Isolation, WorkerBusy, failed_decision
from equipoise.ports import Autoscalers, Cluster, FailedTurn, History, Owners
from equipoise.ports.cluster import CPU, MEMORY, Measure, UsageHistory
from equipoise.recommendation.observe import WEEK_SECONDS, Containers, Inherited, Observation
from equipoise.recommendation.ownership import Belonging
from equipoise.recommendation.policy import AdviceType, RecommendationPolicy
from equipoise.recommendation.record import AdviceRequest, Batch, Decided, Facts, examine_all
from equipoise.recommendation.selection import check_names, choose
from equipoise.recommendation.usage import LotReader, Usage
from equipoise.stats.predict import Algorithm

STEP_SECONDS = 60.0
COUNTED = frozenset({"Pending", "Running"})
BYTES_MAX = 1e18
"""No node has so much memory: whoever measured more measured wrongly."""
MADE_BY_CRANE = ("app.kubernetes.io/managed-by", "effective-hpa-controller")
"""An HPA that Crane writes has metrics of Crane's own; the advice is about what a person wrote."""

Peaks = Mapping[tuple[WorkloadRef, str], float]
Pair = tuple[WorkloadRef, int]
"""A workload, and the place of a job that it gets advice for."""


class Lost(WorldFailed):
    """Somebody else leads, or we are to stop: nothing more is decided or written."""


PASSING = (WorkerBusy, Lost)
"""What keeps from deciding, and is about no workload."""


@dataclass(frozen=True, slots=True)
class DataSources:
    """Where a cluster and its past are seen."""

    cluster: Cluster
    history: History
    autoscalers: Autoscalers
    owners: Owners | None = None
    warn: Callable[[str], object] = str
    on_bytes: Callable[[int], None] | None = None
    decide: Callable[[Batch], list[list[Decided]]] = examine_all
    """Where a batch is decided: here, or in a process of its own."""


@dataclass(frozen=True, slots=True)
class AdviceScope:
    """What somebody wants to know."""

    policy: RecommendationPolicy = field(default_factory=RecommendationPolicy)
    namespace: str | None = None
    """None are all."""
    names: Sequence[str] = ()
    algorithm: Algorithm | None = Algorithm.PROFILE
    about: AdviceType = AdviceType.HPA


@dataclass(frozen=True, slots=True)
class AdviceBatch:
    """Workloads that get advice in the same way."""

    question: AdviceRequest
    workloads: Sequence[Workload]


class Advised(NamedTuple):
    """What was decided for one workload of one job, and from what."""

    job: int
    """Its place in the list of jobs."""
    ref: WorkloadRef
    decision: Decision
    facts: Facts | None
    """None where an error ended it before there were any."""


def plan(asked: AdviceScope, world: DataSources, at: float) -> list[Decision]:
    """Decide for the workloads that were asked for, from the week before `at`."""
    return [one.decision for one in advised(asked, world, at)]


def advised(asked: AdviceScope, world: DataSources, at: float) -> list[Advised]:
    """Decide for the workloads that were asked for, and give what decided beside each decision."""
    check_names(asked.names)
    listed = world.cluster.workloads(asked.namespace)
    chosen = choose(listed, asked.namespace, asked.names)
    if not chosen:
        return []
    job = AdviceBatch(AdviceRequest(asked.policy, asked.about, asked.algorithm), chosen)
    is_all = asked.namespace is None and not asked.names
    isolation = Isolation()
    found = list(advise_all([job], listed, world, at, asked.namespace, reads_all=is_all, isolation=isolation))
    for failed in isolation.failed:
        world.warn(f"{failed.subject}: {failed.error}")
    return sorted(found, key=lambda one: (one.ref.subject, one.ref.kind))


def advise_all(
    jobs: Sequence[AdviceBatch],
    listed: Sequence[Workload],
    world: DataSources,
    at: float,
    namespace: str | None = None,
    *,
    reads_all: bool = False,
    isolation: Isolation | None = None,
) -> Iterator[Advised]:
    """Decide for the workloads of all jobs from one reading of their past, as it comes in.

    `listed` are all workloads there are, so that no pod is given to the wrong one.
    """
    isolation = isolation or Isolation()
    belonging = Belonging(listed, world.cluster.pods(namespace), isolation)
    wants_hpas = any(
        job.question.policy.inherits_hpa and job.question.about is AdviceType.HPA for job in jobs
    )
    inherited = _inherited(world, namespace) if wants_hpas else {}
    chosen = {workload.ref: workload for job in jobs for workload in job.workloads}
    return _Looking(jobs, chosen, world, belonging, inherited, at, reads_all, isolation).advised()


def _inherited(world: DataSources, namespace: str | None) -> Mapping[WorkloadRef, Inherited]:
    """Return what each workload's HPA has beside CPU; of several HPAs nobody knows which is meant."""
    specs: dict[WorkloadRef, list[HpaSpec]] = defaultdict(list)
    for spec in world.autoscalers.specs(namespace):
        if spec.unreadable:
            name = f"{spec.target.namespace}/{spec.name}"
            world.warn(
                f"HorizontalPodAutoscaler {name} cannot be read ({spec.unreadable}): nothing is inherited"
            )
        elif MADE_BY_CRANE not in spec.labels:
            specs[spec.target].append(spec)
    for ref, several in specs.items():
        if len(several) > 1:
            names = ", ".join(sorted(spec.name for spec in several))
            world.warn(f"{ref} has {len(several)} HPAs ({names}): nothing is inherited from them")
    return {ref: Inherited(one[0].metrics, one[0].behavior) for ref, one in specs.items() if len(one) == 1}


@dataclass(slots=True)
class _Looking:
    """One look at everything that was asked for."""

    jobs: Sequence[AdviceBatch]
    chosen: Mapping[WorkloadRef, Workload]
    """Of all jobs."""
    world: DataSources
    belonging: Belonging
    inherited: Mapping[WorkloadRef, Inherited]
    at: float
    reads_all: bool
    """Whether all namespaces there are were asked for."""
    isolation: Isolation
    told: set[str] = field(default_factory=set)
    learnt: set[str] = field(default_factory=set)
    """Namespaces whose owners were asked for."""
    learning: Lock = field(default_factory=Lock)
    partial: dict[str, None] = field(default_factory=dict)
    """Why answers lacked data, whatever they were about: whoever is in none of them may be missing there."""
    partial_peaks: dict[WorkloadRef, str] = field(default_factory=dict)
    """Why the memory of a workload may be higher than is known."""

    @property
    def end(self) -> float:
        """The last time of the grid, the same for everybody who looks in this minute."""
        return self.at // STEP_SECONDS * STEP_SECONDS

    def advised(self) -> Iterator[Advised]:
        """Decide for each lot as it comes; whoever is in none has no samples."""
        peaks: dict[tuple[WorkloadRef, str], float] = {}
        left = dict(self.chosen)
        for lot in self._lots():
            if lot.measure == MEMORY.name:
                self._add_peaks(lot, peaks)
            else:
                within = [ref for ref in left if _is_within(ref, lot)]
                yield from self._decided(lot, [left.pop(ref).ref for ref in within], peaks)
            del lot  # before the next one is waited for
        nothing = UsageHistory(
            CPU.name,
            *(None, [], [], [], np.array([self.end]), np.zeros((0, 1)), STEP_SECONDS, ""),
            partial=tuple(self.partial),
        )
        yield from self._decided(nothing, list(left), peaks)

    def _lots(self) -> Iterator[UsageHistory]:
        """Read the memory that somebody asks for before the CPU of the same workloads."""
        everywhere = {ref.namespace for ref in self.chosen}
        of_memory = {ref.namespace for ref in self._resourced()}
        if of_memory == everywhere:
            yield from self._read((MEMORY, CPU), everywhere)
            return
        if of_memory:
            yield from self._read((MEMORY,), of_memory)
        yield from self._read((CPU,), everywhere)

    def _read(self, measures: Sequence[Measure], namespaces: Collection[str]) -> Iterator[UsageHistory]:
        lots = self.world.history.read(
            measures,
            self.end - WEEK_SECONDS + STEP_SECONDS,
            self.end,
            STEP_SECONDS,
            namespaces=None if self.reads_all else sorted(namespaces),
            grouping=self._grouping,
            on_bytes=self.world.on_bytes,
        )
        for lot in lots:
            for warning in lot.warnings:
                self._warn(warning)
            self.partial |= dict.fromkeys(lot.partial)
            self._learn(lot.namespaces, lot.pods)
            yield lot
            del lot

    def _grouping(self, namespace: str, pods: Sequence[str]) -> list[WorkloadRef | None]:
        """Say which pods of a large namespace belong together; it may be asked while a lot is looked at."""
        self._learn([namespace] * len(pods), pods)
        owners = (self.belonging.of(namespace, pod) for pod in pods)
        return [ref if ref in self.chosen else None for ref in owners]

    def _warn(self, warning: str) -> None:
        if warning not in self.told:
            self.told.add(warning)
            self.world.warn(warning)

    def _learn(self, namespaces: Sequence[str], pods: Sequence[str]) -> None:
        """Ask who owned pods that only their names tell of; without an answer the names decide."""
        spaces = {ref.namespace for ref in self.chosen}
        with self.learning:
            unsure = (self.belonging.guessed(namespaces, pods) & spaces) - self.learnt
            if self.world.owners is None or not unsure:
                return
            self.learnt |= unsure
            try:
                self.belonging.learn(self.world.owners.replica_sets(sorted(unsure), self.end))
            except WorldFailed as error:
                self._warn(f"who owned pods that are gone is told from their names: {error}")
            except Exception as error:  # noqa: BLE001 - the names tell it, too
                self.isolation.take("owners of pods that are gone", error)

    def _resourced(self) -> set[WorkloadRef]:
        """Return the workloads whose memory somebody asks for."""
        asking = (job for job in self.jobs if job.question.about is AdviceType.RESOURCE)
        return {workload.ref for job in asking for workload in job.workloads}

    def _add_peaks(self, lot: UsageHistory, peaks: dict[tuple[WorkloadRef, str], float]) -> None:
        """Keep the highest memory of each container, whichever pod had it."""
        chosen = self._resourced()
        if lot.partial:
            self.partial_peaks |= dict.fromkeys((r for r in chosen if _is_within(r, lot)), lot.partial[0])
        highest = np.fmax.reduce(lot.values, axis=1, initial=np.nan).tolist()
        rows = zip(lot.namespaces, lot.pods, lot.containers, highest, strict=True)
        for namespace, pod, container, peak in rows:
            ref = self.belonging.of(namespace, pod)
            if ref in chosen and peak <= BYTES_MAX:  # which NaN is not either
                peaks[ref, container] = max(peak, peaks.get((ref, container), 0.0))

    def _decided(self, lot: UsageHistory, refs: Sequence[WorkloadRef], peaks: Peaks) -> Iterator[Advised]:
        reader = LotReader(lot, self.belonging, refs, self.at)
        missing = next(iter(lot.partial), "")
        wanted = [{workload.ref for workload in job.workloads} for job in self.jobs]
        for batch in reader.batches():
            pairs = [(ref, job) for ref in batch for job, own in enumerate(wanted) if ref in own]
            found = self.isolation.each(
                pairs, partial(self._examined, reader, peaks, missing), lambda pair: pair[0].subject, PASSING
            )
            for (ref, job), one in zip(pairs, found, strict=True):
                failed = one if isinstance(one, FailedTurn) else self.belonging.failed.get(ref.namespace)
                if failed is not None:
                    yield Advised(job, ref, _failed(ref, failed), None)
                elif not isinstance(one, FailedTurn):
                    yield Advised(job, ref, *one)

    def _examined(
        self, reader: LotReader, peaks: Peaks, missing: str, pairs: Sequence[Pair]
    ) -> list[Decided]:
        """Decide for some workloads of some jobs, in arrays; `missing` is why the answer is partial."""
        batch = list(dict.fromkeys(ref for ref, _ in pairs))
        rows_of: dict[int, list[int]] = {}
        place = {ref: row for row, ref in enumerate(batch)}
        for ref, job in pairs:
            rows_of.setdefault(job, []).append(place[ref])
        by_container = any(job.question.about is AdviceType.RESOURCE for job in self.jobs)
        used = reader.usage(batch, by_container=by_container)
        parts = {tuple(range(len(batch))): used}
        asked = []
        for number, rows in sorted(rows_of.items()):
            if tuple(rows) not in parts:  # the same arrays for the same workloads are summarised once
                parts[tuple(rows)] = used.rows(rows)
            part, question = parts[tuple(rows)], self.jobs[number].question
            workloads = [self.chosen[batch[row]] for row in rows]
            seen = self._observation(question, workloads, part, peaks, missing)
            asked.append((question, seen, part.pods_unknown.tolist()))
        found: dict[Pair, Decided] = {}
        for (number, rows), decided in zip(sorted(rows_of.items()), self.world.decide(asked), strict=True):
            found |= {(batch[row], number): one for row, one in zip(rows, decided, strict=True)}
        return [found[pair] for pair in pairs]

    def _observation(
        self, question: AdviceRequest, workloads: Sequence[Workload], used: Usage, peaks: Peaks, missing: str
    ) -> Observation:
        refs = [workload.ref for workload in workloads]
        pods = [[pod for pod in self.belonging.pods.get(ref, ()) if _counts(pod)] for ref in refs]
        newest = [max(some, key=lambda pod: (pod.created_at, pod.name), default=None) for some in pods]
        ready_at = self.at - question.policy.pod_ready_seconds_min
        containers, whys = None, [missing] * len(refs)
        if question.about is AdviceType.RESOURCE:
            containers = _containers(refs, newest, used, peaks)
            whys = [missing or self.partial_peaks.get(ref, "") for ref in refs]
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
            containers=containers,
            measurable=used.measurable,
            unmeasured=used.unmeasured,
            partial=whys,
        )


def _failed(ref: WorkloadRef, failed: FailedTurn) -> Decision:
    """Return the decision for a workload whose advice an error ended, with the fields of any other."""
    extra: dict[str, Any] = {"kind": ref.kind, "recommended": None, "prediction": {}, "confidence": "low"}
    return msgspec.structs.replace(failed_decision(failed), subject=ref.subject, extra=extra)


def _is_within(ref: WorkloadRef, lot: UsageHistory) -> bool:
    """Whether all there is of a workload is in a lot."""
    is_there = lot.scope is None or ref.namespace in lot.scope
    return is_there and (lot.groups is None or ref in lot.groups)


def _counts(pod: Pod) -> bool:
    return pod.phase in COUNTED and pod.deletion_at is None


def _is_available(pod: Pod, ready_at: float) -> bool:
    return pod.phase == "Running" and pod.is_ready and (pod.ready_since or 0.0) <= ready_at


def _request(pod: Pod | None) -> float:
    """Return what a pod asks for; the newest has what the next ones will have."""
    cores = None if pod is None else pod.cpu_request_cores
    return np.nan if cores is None else cores


def _containers(
    refs: Sequence[WorkloadRef], newest: Sequence[Pod | None], used: Usage, peaks: Peaks
) -> Containers:
    """Return the containers that the workloads have now, in the order of their pods."""
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

"""Advice for a live cluster: list its workloads, read a week of their usage, and decide. Read-only.

A week of a large cluster does not fit into memory, so the history is read in parts of whole namespaces. Each
part is reduced to statistics and decided before the next one is read.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from threading import Lock
from typing import NamedTuple

import msgspec
import numpy as np

from equipoise.core.cluster import HpaSpec, Pod, Selector, Workload, WorkloadRef
from equipoise.core.decision import Decision
from equipoise.core.errors import WorldFailed
from equipoise.engine.isolation import Isolation, WorkerBusy, failed_decision, ignore
from equipoise.ports import Autoscalers, Cluster, FailedTurn, History, Owners
from equipoise.ports.cluster import CPU, MEMORY, Measure, UsageHistory
from equipoise.recommendation.decide import Batch, Examined, examine_all
from equipoise.recommendation.explain import AdviceDetails, Facts
from equipoise.recommendation.forecast import WEEK_SECONDS
from equipoise.recommendation.observe import Containers, Inherited, Observation, check_names, choose
from equipoise.recommendation.policy import AdviceRequest, AdviceType, RecommendationPolicy
from equipoise.recommendation.usage import HistoryReader, PodOwnership, Usage
from equipoise.stats.predict import Algorithm

STEP_SECONDS = 60.0
BYTES_MAX = 1e18
"""Largest plausible sample; larger ones count as missing."""
MADE_BY_CRANE = ("app.kubernetes.io/managed-by", "effective-hpa-controller")
"""Label of the HPAs that Crane writes. Their metrics are Crane's own, so advice does not inherit them."""

Pair = tuple[WorkloadRef, int]
"""A workload, and the index of its batch."""


class LeadershipLost(WorldFailed):
    """Another replica leads, or this one is stopping: nothing more is decided or written."""


RUN_ERRORS = (WorkerBusy, LeadershipLost)
"""Errors that end the whole run; no workload caused them."""


@dataclass(frozen=True, slots=True)
class DataSources:
    """The ports from which a cluster and its history are read."""

    cluster: Cluster
    history: History
    autoscalers: Autoscalers
    owners: Owners | None = None
    warn: Callable[[str], object] = ignore
    on_bytes: Callable[[int], None] | None = None
    decide: Callable[[Batch], list[list[Examined]]] = examine_all
    """Decides a batch, in this process or in a worker process."""


@dataclass(frozen=True, slots=True)
class AdviceScope:
    """Which workloads get advice, of which type, and how."""

    policy: RecommendationPolicy = field(default_factory=RecommendationPolicy)
    namespace: str | None = None
    """None means all namespaces."""
    names: Sequence[str] = ()
    algorithm: Algorithm | None = Algorithm.PROFILE
    about: AdviceType = AdviceType.HPA
    selector: Selector | None = None
    """The labels that workloads have; None means any."""

    def chosen(self, listed: Sequence[Workload], namespace: str | None) -> list[Workload]:
        """Return the listed workloads that are in scope, sorted by name."""
        found = choose(listed, namespace, self.names)
        if self.selector is None:
            return found
        return [workload for workload in found if self.selector.matches(dict(workload.labels))]


@dataclass(frozen=True, slots=True)
class AdviceBatch:
    """Workloads that get advice by the same request."""

    request: AdviceRequest
    workloads: Sequence[Workload]


class Advised(NamedTuple):
    """The decision for one workload of one batch, and the facts that it follows from."""

    batch: int
    """Index in the list of batches."""
    ref: WorkloadRef
    decision: Decision
    details: AdviceDetails
    facts: Facts | None
    """None where an error ended the advice before they were computed."""


def advised(scope: AdviceScope, sources: DataSources, at: float) -> list[Advised]:
    """Return the advice for all workloads in scope, from the week before `at`, with its facts."""
    check_names(scope.names)
    listed = sources.cluster.workloads(scope.namespace)
    chosen = scope.chosen(listed, scope.namespace)
    if not chosen:
        return []
    batch = AdviceBatch(AdviceRequest(scope.policy, scope.about, scope.algorithm), chosen)
    is_all = scope.namespace is None and not scope.names and scope.selector is None
    isolation = Isolation()
    found = advise_all([batch], listed, sources, at, scope.namespace, reads_all=is_all, isolation=isolation)
    ordered = sorted(found, key=lambda one: (one.ref.subject, one.ref.kind))
    for failed in isolation.failed:
        sources.warn(f"{failed.subject}: {failed.error}")
    return ordered


def advise_all(
    batches: Sequence[AdviceBatch],
    listed: Sequence[Workload],
    sources: DataSources,
    at: float,
    namespace: str | None = None,
    *,
    reads_all: bool = False,
    isolation: Isolation | None = None,
) -> Iterator[Advised]:
    """Yield the advice for the workloads of all batches, while their history is read once.

    `listed` are all workloads of the cluster, so that no pod is attributed to the wrong one.
    """
    isolation = isolation or Isolation()
    ownership = PodOwnership(listed, sources.cluster.pods(namespace), isolation)
    needs_hpas = any(
        batch.request.policy.inherits_hpa and batch.request.about is AdviceType.HPA for batch in batches
    )
    inherited = _inherited(sources, namespace) if needs_hpas else {}
    chosen = {workload.ref: workload for batch in batches for workload in batch.workloads}
    return _AdviceRun(batches, chosen, sources, ownership, inherited, at, reads_all, isolation).advised()


def _inherited(sources: DataSources, namespace: str | None) -> Mapping[WorkloadRef, Inherited]:
    """Return what each workload's HPA has beside CPU; nothing for a workload with several HPAs."""
    specs: dict[WorkloadRef, list[HpaSpec]] = defaultdict(list)
    for spec in sources.autoscalers.specs(namespace):
        if spec.unreadable:
            name = f"{spec.target.namespace}/{spec.name}"
            sources.warn(
                f"HorizontalPodAutoscaler {name} cannot be read ({spec.unreadable}): nothing is inherited"
            )
        elif MADE_BY_CRANE not in spec.labels:
            specs[spec.target].append(spec)
    for ref, several in specs.items():
        if len(several) > 1:
            names = ", ".join(sorted(spec.name for spec in several))
            sources.warn(f"{ref} has {len(several)} HPAs ({names}): nothing is inherited from them")
    return {ref: Inherited(one[0].metrics, one[0].behavior) for ref, one in specs.items() if len(one) == 1}


@dataclass(slots=True)
class _AdviceRun:
    """One pass over the history for all batches."""

    batches: Sequence[AdviceBatch]
    chosen: Mapping[WorkloadRef, Workload]
    """The workloads of all batches."""
    sources: DataSources
    ownership: PodOwnership
    inherited: Mapping[WorkloadRef, Inherited]
    at: float
    reads_all: bool
    """Whether the history of all namespaces is read."""
    isolation: Isolation
    peaks: dict[tuple[WorkloadRef, str], float] = field(default_factory=dict)
    """The highest memory of each container of a workload, over all pods."""
    warned: set[str] = field(default_factory=set)
    namespaces_resolved: set[str] = field(default_factory=set)
    """Namespaces in which the owners of past pods were queried."""
    resolving: Lock = field(default_factory=Lock)
    partial: dict[str, None] = field(default_factory=dict)
    """Why answers were partial. A workload in none of the answers may be among the missing data."""
    partial_peaks: dict[WorkloadRef, str] = field(default_factory=dict)
    """Why the memory peak of a workload may be too low, by workload."""

    @property
    def end(self) -> float:
        """The last time of the grid, the same for all runs of one minute."""
        return self.at // STEP_SECONDS * STEP_SECONDS

    def advised(self) -> Iterator[Advised]:
        """Yield the advice part by part as the history arrives; workloads in no part have no samples."""
        left = dict(self.chosen)
        for history in self._histories():
            if history.measure == MEMORY.name:
                self._add_peaks(history)
            else:
                within = [ref for ref in left if _is_within(ref, history)]
                yield from self._decided(history, [left.pop(ref).ref for ref in within])
            del history  # freed before the next part arrives
        nothing = UsageHistory(
            measure=CPU.name,
            scope=None,
            namespaces=[],
            pods=[],
            containers=[],
            timestamps=np.array([self.end]),
            values=np.zeros((0, 1)),
            window_seconds=STEP_SECONDS,
            source="",
            partial=tuple(self.partial),
        )
        yield from self._decided(nothing, list(left))

    def _histories(self) -> Iterator[UsageHistory]:
        """Yield histories; memory, where it is needed, comes before the CPU of the same workloads."""
        everywhere = {ref.namespace for ref in self.chosen}
        of_memory = {ref.namespace for ref in self._resourced()}
        if of_memory == everywhere:
            yield from self._read((MEMORY, CPU), everywhere)
            return
        if of_memory:
            yield from self._read((MEMORY,), of_memory)
        yield from self._read((CPU,), everywhere)

    def _read(self, measures: Sequence[Measure], namespaces: Collection[str]) -> Iterator[UsageHistory]:
        histories = self.sources.history.read(
            measures,
            self.end - WEEK_SECONDS + STEP_SECONDS,
            self.end,
            STEP_SECONDS,
            namespaces=None if self.reads_all else sorted(namespaces),
            grouping=self._grouping,
            on_bytes=self.sources.on_bytes,
        )
        for history in histories:
            for warning in history.warnings:
                self._warn(warning)
            self.partial |= dict.fromkeys(history.partial)
            self._resolve_owners(history.namespaces, history.pods)
            yield history
            del history

    def _grouping(self, namespace: str, pods: Sequence[str]) -> list[WorkloadRef | None]:
        """Return the pods of a large namespace by workload; called while another part is being decided."""
        self._resolve_owners([namespace] * len(pods), pods)
        owners = (self.ownership.of(namespace, pod) for pod in pods)
        return [ref if ref in self.chosen else None for ref in owners]

    def _warn(self, warning: str) -> None:
        if warning not in self.warned:
            self.warned.add(warning)
            self.sources.warn(warning)

    def _resolve_owners(self, namespaces: Sequence[str], pods: Sequence[str]) -> None:
        """Query the owners of past pods that are attributed by name only; failing that, names decide."""
        spaces = {ref.namespace for ref in self.chosen}
        with self.resolving:
            unsure = (self.ownership.guessed(namespaces, pods) & spaces) - self.namespaces_resolved
            if self.sources.owners is None or not unsure:
                return
            self.namespaces_resolved |= unsure
            try:
                self.ownership.learn(self.sources.owners.replica_sets(sorted(unsure), self.end))
            except WorldFailed as error:
                self._warn(f"who owned pods that are gone is told from their names: {error}")
            except Exception as error:  # noqa: BLE001 - falls back to the names
                self.isolation.take("owners of pods that are gone", error)

    def _resourced(self) -> set[WorkloadRef]:
        """Return the workloads whose advice needs memory."""
        batches = (batch for batch in self.batches if batch.request.about is AdviceType.RESOURCE)
        return {workload.ref for batch in batches for workload in batch.workloads}

    def _add_peaks(self, history: UsageHistory) -> None:
        chosen = self._resourced()
        if history.partial:
            within = [ref for ref in chosen if _is_within(ref, history)]
            self.partial_peaks |= dict.fromkeys(within, history.partial[0])
        highest = np.fmax.reduce(history.values, axis=1, initial=np.nan).tolist()
        rows = zip(history.namespaces, history.pods, history.containers, highest, strict=True)
        for namespace, pod, container, peak in rows:
            ref = self.ownership.of(namespace, pod)
            if ref in chosen and peak <= BYTES_MAX:  # NaN does not pass either
                self.peaks[ref, container] = max(peak, self.peaks.get((ref, container), 0.0))

    def _decided(self, history: UsageHistory, refs: Sequence[WorkloadRef]) -> Iterator[Advised]:
        reader = HistoryReader(history, self.ownership, refs, self.at)
        missing = next(iter(history.partial), "")
        selected = [{workload.ref for workload in batch.workloads} for batch in self.batches]
        for some in reader.batches():
            pairs = [(ref, number) for ref in some for number, own in enumerate(selected) if ref in own]
            examined = partial(self._examined, reader, missing)
            found = self.isolation.each(pairs, examined, lambda pair: pair[0].subject, RUN_ERRORS)
            for (ref, number), one in zip(pairs, found, strict=True):
                failed = one if isinstance(one, FailedTurn) else self.ownership.failed.get(ref.namespace)
                if failed is not None:
                    yield _failed(number, ref, failed)
                elif not isinstance(one, FailedTurn):
                    yield Advised(number, ref, *one)

    def _examined(self, reader: HistoryReader, missing: str, pairs: Sequence[Pair]) -> list[Examined]:
        """Decide for these pairs of workload and batch, in arrays; `missing` is why the answer is partial."""
        workloads_of: dict[int, list[Workload]] = defaultdict(list)
        for ref, number in pairs:
            workloads_of[number].append(self.chosen[ref])
        by_container = any(batch.request.about is AdviceType.RESOURCE for batch in self.batches)
        used: dict[tuple[WorkloadRef, ...], Usage] = {}
        requests, keys = [], []
        for number, workloads in sorted(workloads_of.items()):
            refs, request = tuple(workload.ref for workload in workloads), self.batches[number].request
            if refs not in used:  # the same arrays are summarised once
                used[refs] = reader.usage(refs, by_container=by_container)
            requests.append((request, self._observation(request, workloads, used[refs], missing)))
            keys += [(ref, number) for ref in refs]
        found = dict(zip(keys, chain.from_iterable(self.sources.decide(requests)), strict=True))
        return [found[pair] for pair in pairs]

    def _current_pods(self, ref: WorkloadRef) -> list[Pod]:
        pods = self.ownership.pods.get(ref, ())
        return [pod for pod in pods if pod.phase in {"Pending", "Running"} and pod.deletion_at is None]

    def _observation(
        self, request: AdviceRequest, workloads: Sequence[Workload], used: Usage, missing: str
    ) -> Observation:
        refs = [workload.ref for workload in workloads]
        pods = [self._current_pods(ref) for ref in refs]
        newest = [max(some, key=lambda pod: (pod.created_at, pod.name), default=None) for some in pods]
        ready_at = self.at - request.policy.pod_ready_seconds_min
        containers, whys = None, [missing] * len(refs)
        if request.about is AdviceType.RESOURCE:
            containers = _containers(refs, newest, used, self.peaks)
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
            unknown=used.pods_unknown,
            partial=whys,
        )


def _failed(number: int, ref: WorkloadRef, failed: FailedTurn) -> Advised:
    """Return the decision for a workload whose advice failed, with the same fields as any other."""
    details = AdviceDetails(ref.kind)
    decision = msgspec.structs.replace(failed_decision(failed), subject=ref.subject, extra=details.document)
    return Advised(number, ref, decision, details, None)


def _is_within(ref: WorkloadRef, history: UsageHistory) -> bool:
    """Return whether a part of the history has all samples of a workload."""
    is_in_scope = history.scope is None or ref.namespace in history.scope
    return is_in_scope and (history.groups is None or ref in history.groups)


def _is_available(pod: Pod, ready_at: float) -> bool:
    return pod.phase == "Running" and pod.is_ready and (pod.ready_since or 0.0) <= ready_at


def _request(pod: Pod | None) -> float:
    """Return the CPU request of a pod in cores; callers pass the newest, which matches the template."""
    cores = None if pod is None else pod.cpu_request_cores
    return np.nan if cores is None else cores


def _containers(
    refs: Sequence[WorkloadRef],
    newest: Sequence[Pod | None],
    used: Usage,
    peaks: Mapping[tuple[WorkloadRef, str], float],
) -> Containers:
    """Return the current containers of the workloads, in the order of their pods' specs."""
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

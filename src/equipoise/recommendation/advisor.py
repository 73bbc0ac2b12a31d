"""Advice for a live cluster: list its workloads, read a week of their usage, and decide. Read-only.

A week of a large cluster does not fit into memory, so the history is read in parts of whole namespaces. Each
part is reduced to statistics and decided before the next one is read.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from threading import Lock
from typing import NamedTuple

import msgspec
import numpy as np

from equipoise.core.cluster import Selector, Workload, WorkloadRef
from equipoise.core.decision import Decision
from equipoise.core.errors import WorldFailed
from equipoise.engine.isolation import Isolation, WorkerBusy, failed_decision, ignore
from equipoise.ports import Autoscalers, Cluster, FailedTurn, History, Owners
from equipoise.ports.cluster import CPU, MEMORY, Measure, UsageHistory
from equipoise.recommendation.decide import Batch, Examined, examine_all
from equipoise.recommendation.explain import AdviceDetails, Facts
from equipoise.recommendation.forecast import WEEK_SECONDS
from equipoise.recommendation.observe import check_names, choose
from equipoise.recommendation.settings import AdviceRequest, AdviceType, RecommendationPolicy
from equipoise.recommendation.snapshot import LiveFacts, inherited_by_workload, is_within
from equipoise.recommendation.usage import HistoryReader, PodOwnership, Usage
from equipoise.stats.predict import Algorithm

STEP_SECONDS = 60.0
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
    unscaled: Callable[[str | None], Sequence[Workload]] | None = None
    """Lists the workloads of a namespace that get advice about their requests only."""
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
    has_containers: bool = False
    """Whether HPA advice has the requests of the containers beside it."""
    shows_refused: bool = False
    """Whether HPA advice that an inspection refuses is shown beside the reason."""
    selector: Selector | None = None
    """The labels that workloads have; None means any."""

    @classmethod
    def of(cls, request: AdviceRequest, names: Sequence[str]) -> "AdviceScope":
        return cls(
            request.policy,
            None,
            names,
            request.algorithm,
            request.about,
            request.has_containers,
            request.shows_refused,
        )

    @property
    def request(self) -> AdviceRequest:
        return AdviceRequest(self.policy, self.about, self.algorithm, self.has_containers, self.shows_refused)

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
    request, listed = scope.request, sources.cluster.workloads(scope.namespace)
    batches = [AdviceBatch(request, listed)]
    if request.needs_containers and sources.unscaled is not None:
        others = sources.unscaled(scope.namespace)
        batches.append(AdviceBatch(replace(request, about=AdviceType.RESOURCE), others))
        listed = [*listed, *others]
    chosen = {workload.ref for workload in scope.chosen(listed, scope.namespace)}
    if not chosen:
        return []
    batches = [
        replace(batch, workloads=[each for each in batch.workloads if each.ref in chosen])
        for batch in batches
    ]
    is_all = scope.namespace is None and not scope.names and scope.selector is None
    isolation = Isolation()
    found = advise_all(batches, listed, sources, at, scope.namespace, reads_all=is_all, isolation=isolation)
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
    inherited, warnings = inherited_by_workload(sources.autoscalers.specs(namespace) if needs_hpas else ())
    for warning in warnings:
        sources.warn(warning)
    chosen = {workload.ref: workload for batch in batches for workload in batch.workloads}
    facts = LiveFacts(ownership, inherited, at, at // STEP_SECONDS * STEP_SECONDS, STEP_SECONDS)
    return _AdviceRun(batches, chosen, sources, facts, reads_all, isolation).advised()


@dataclass(slots=True)
class _AdviceRun:
    """One pass over the history for all batches."""

    batches: Sequence[AdviceBatch]
    chosen: Mapping[WorkloadRef, Workload]
    """The workloads of all batches."""
    sources: DataSources
    facts: LiveFacts
    reads_all: bool
    """Whether the history of all namespaces is read."""
    isolation: Isolation
    has_oom_kills: bool = False
    warned: set[str] = field(default_factory=set)
    namespaces_resolved: set[str] = field(default_factory=set)
    """Namespaces in which the owners of past pods were queried."""
    resolving: Lock = field(default_factory=Lock)
    partial: dict[str, None] = field(default_factory=dict)
    """Why answers were partial. A workload in none of the answers may be among the missing data."""

    @property
    def ownership(self) -> PodOwnership:
        return self.facts.ownership

    @property
    def end(self) -> float:
        return self.facts.end

    def advised(self) -> Iterator[Advised]:
        """Yield the advice part by part as the history arrives; workloads in no part have no samples."""
        left = dict(self.chosen)
        for history in self._histories():
            self._add_oom_kills()
            if history.measure == MEMORY.name:
                self.facts.add_peaks(history, self._resourced())
            else:
                within = [ref for ref in left if is_within(ref, history)]
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

    def _add_oom_kills(self) -> None:
        """Add the OOM kills of the week once, after the source of the history has answered."""
        if self.has_oom_kills:
            return
        self.has_oom_kills, chosen = True, self._resourced()
        recorded: Collection[tuple[str, str, str]] = ()
        if chosen and self.sources.owners is not None:
            try:
                recorded = self.sources.owners.oom_killed(self.end, WEEK_SECONDS)
            except WorldFailed as error:
                self._warn(f"OOM kills are read from the statuses of the pods only: {error}")
            except Exception as error:  # noqa: BLE001 - falls back to the statuses
                self.isolation.take("OOM kills of the week", error)
        self.facts.add_oom_kills(recorded, chosen, self.end - WEEK_SECONDS)

    def _resourced(self) -> set[WorkloadRef]:
        """Return the workloads whose advice needs memory."""
        batches = (batch for batch in self.batches if batch.request.needs_containers)
        return {workload.ref for batch in batches for workload in batch.workloads}

    def _decided(self, history: UsageHistory, refs: Sequence[WorkloadRef]) -> Iterator[Advised]:
        reader = HistoryReader(history, self.ownership, refs, self.facts.at)
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
        used: dict[tuple[float | None, tuple[WorkloadRef, ...]], Usage] = {}
        shares = [_cpu_share(batch.request) for batch in self.batches]
        common = next((share for share in shares if share is not None), None)
        requests, keys = [], []
        for number, workloads in sorted(workloads_of.items()):
            refs, request = tuple(workload.ref for workload in workloads), self.batches[number].request
            share = common if shares[number] is None else shares[number]
            if (share, refs) not in used:  # the same arrays are summarised once
                used[share, refs] = reader.usage(refs, share)
            seen = self.facts.observation(request, workloads, used[share, refs], missing)
            requests.append((request, seen))
            keys += [(ref, number) for ref in refs]
        found = dict(zip(keys, chain.from_iterable(self.sources.decide(requests)), strict=True))
        return [found[pair] for pair in pairs]


def _failed(number: int, ref: WorkloadRef, failed: FailedTurn) -> Advised:
    """Return the decision for a workload whose advice failed, with the same fields as any other."""
    details = AdviceDetails(ref.kind)
    decision = msgspec.structs.replace(failed_decision(failed), subject=ref.subject, extra=details.document)
    return Advised(number, ref, decision, details, None)


def _cpu_share(request: AdviceRequest) -> float | None:
    """Return the percentile of the containers' CPU that a request needs, from 0 to 1."""
    return request.policy.resource.cpu_percentile / 100 if request.needs_containers else None

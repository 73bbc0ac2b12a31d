"""Applies advice as an HPA, one workload at a time, as far as the guards allow it.

An obstacle is reported as the reason: another manager's HPA, a ScaledObject, a missing permission. Nothing
is taken over by force, and nothing is retried on its own. The manifests are a native HPA, and the seed's
EffectiveHorizontalPodAutoscaler.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from equipoise.core.cluster import API_VERSIONS, HpaSpec, Workload, WorkloadRef
from equipoise.core.decision import ApplyHpa, Decision, Outcome
from equipoise.core.errors import WorldFailed
from equipoise.core.reason import Code, Reason
from equipoise.engine.disruption import adoption_opted_out_by
from equipoise.engine.guards import held_by_pause
from equipoise.engine.isolation import ignore
from equipoise.ports import Applier, ApplyResult, Pauses
from equipoise.recommendation.containers import requests_of
from equipoise.recommendation.explain import AdviceDetails

PREDICTION_WINDOW_SECONDS = 3600
HISTORY_LENGTH = "7d"
UNSCALED = frozenset({"DaemonSet", "Job", "CronJob", "Pod"})
"""Built-in kinds that have pods but no `scale` subresource."""


def hpa_manifest(subject: str, details: AdviceDetails) -> dict[str, Any] | None:
    """Return an `autoscaling/v2` HPA; None where none is recommended."""
    return _manifest("autoscaling/v2", "HorizontalPodAutoscaler", subject, details)


def ehpa_manifest(subject: str, details: AdviceDetails, interval_seconds: float) -> dict[str, Any] | None:
    """Return an EHPA in Preview, with a prediction where the workload is predictable."""
    more: dict[str, Any] = {"scaleStrategy": "Preview"}
    if details.prediction is not None and details.prediction.is_predictable:
        # Crane supports no other algorithm; the manifest has this block whichever of ours decided.
        more["prediction"] = {
            "predictionWindowSeconds": PREDICTION_WINDOW_SECONDS,
            "predictionAlgorithm": {
                "algorithmType": "dsp",
                "dsp": {"sampleInterval": f"{interval_seconds:g}s", "historyLength": HISTORY_LENGTH},
            },
        }
    api_version = "autoscaling.crane.io/v1alpha1"
    return _manifest(api_version, "EffectiveHorizontalPodAutoscaler", subject, details, more)


def _manifest(
    api_version: str, kind: str, subject: str, details: AdviceDetails, more: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    if (hpa := details.hpa) is None:
        return None
    namespace, _, name = subject.rpartition("/")
    target = {"kind": details.kind, "name": name}
    if details.kind in API_VERSIONS:
        target = {"apiVersion": API_VERSIONS[details.kind], **target}
    spec = {
        "scaleTargetRef": target,
        "minReplicas": hpa.replicas_min,
        "maxReplicas": hpa.replicas_max,
        "metrics": hpa.metrics,
        **({} if hpa.behavior is None else {"behavior": hpa.behavior}),
        **(more or {}),
    }
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec}


UNKNOWN = "Unknown"
"""Result of a request that was sent and got no answer."""
UNANSWERED_MAX = 3
DONE = frozenset({ApplyResult.CREATED, ApplyResult.CHANGED, ApplyResult.UNCHANGED})
Refs = Mapping[tuple[str, str], Workload]


@dataclass(frozen=True, slots=True)
class Adopted:
    """A decision and the outcome of its action. An action that was not applied is held with its reason."""

    decision: Decision
    outcome: Outcome | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the API server refused the HPA, or gave no answer."""
        return self.decision.reason.code is Code.NOT_APPLIED

    @property
    def is_not_ours(self) -> bool:
        """Whether another field manager owns the HPA; a failure only for a command that asked for it."""
        return self.decision.reason.code is Code.NOT_OURS


def proposed(decision: Decision, details: AdviceDetails) -> Decision:
    """Return the decision with the action that applies its HPA; unchanged where none is recommended."""
    manifest = hpa_manifest(decision.subject, details)
    if manifest is None:
        return decision
    assert not decision.actions, "advice is proposed once"
    namespace, _, name = decision.subject.rpartition("/")
    return structs.replace(decision, actions=(ApplyHpa(name, manifest, namespace),))


def by_subject(workloads: Iterable[Workload]) -> Refs:
    """Return workloads by the subject and the kind that decisions have."""
    return {(workload.ref.subject, workload.ref.kind): workload for workload in workloads}


@dataclass(slots=True)
class HpaAdopter:
    """Applies advice to the workloads of a cluster, from a list taken just before."""

    applier: Applier
    pauses: Pauses
    workloads: Refs
    namespaces_protected: Collection[str] = ()
    is_dry_run: bool = False
    on_applied: Callable[[Workload, Decision, Outcome], object] = ignore
    """Called for every HPA that was created or changed."""
    check_leadership: Callable[[], object] = ignore
    """Called right before every attempt; raises where this process must not write any more."""
    unanswered: int = 0
    """Consecutive requests that the API server did not answer."""

    def adopt(self, decision: Decision, details: AdviceDetails, *, is_retry: bool = False) -> Adopted:
        """Propose, guard and apply; after several unanswered requests in a row, hold everything that follows.

        The guards are evaluated a second time where reading the current state took long.
        """
        planned = proposed(decision, details)
        if self.unanswered >= UNANSWERED_MAX:
            sentence = f"It was not tried: the API server gave no answer {self.unanswered} times in a row."
            return Adopted(planned.hold(Reason(Code.NOT_APPLIED, sentence)))
        workload = self.workloads.get((decision.subject, details.kind))
        planned = self._guarded(planned, workload)
        if not planned.actions:
            return Adopted(planned)
        (action,) = planned.actions
        assert isinstance(action, ApplyHpa), "advice is adopted by one HPA"
        assert workload is not None, "only what is there is applied to"
        outcome = self._applied(planned, workload, action)
        if outcome.result == ApplyResult.LATE and not is_retry:
            return self.adopt(decision, details, is_retry=True)
        return Adopted(_explained(planned, outcome), outcome)

    def _guarded(self, decision: Decision, workload: Workload | None) -> Decision:
        """Hold the action for the first reason that applies."""
        if not decision.actions:
            return decision
        namespace = decision.subject.rpartition("/")[0]
        if workload is None:
            return decision.hold(Reason(Code.OPTED_OUT, "The workload has gone since it was looked at."))
        if namespace in self.namespaces_protected:
            sentence = f"Namespace {namespace} is left alone unless -n names it."
            return decision.hold(Reason(Code.OPTED_OUT, sentence))
        if annotation := adoption_opted_out_by(workload.annotations):
            return decision.hold(Reason(Code.OPTED_OUT, f"The workload is opted out by {annotation}."))
        # Evaluated before every action: a pause may begin while the previous ones are applied.
        reason = held_by_pause(self, namespace)
        return decision if reason is None else decision.hold(reason)

    def pause_of(self, namespace: str) -> str | None:
        """Return who paused a namespace; count requests that were not answered."""
        try:
            return self.pauses.pause_of(namespace)
        except WorldFailed:
            self.unanswered += 1
            raise

    def _applied(self, decision: Decision, workload: Workload, action: ApplyHpa) -> Outcome:
        self.check_leadership()
        try:
            answer = self.applier.apply_hpa(action.manifest, is_dry_run=self.is_dry_run)
        except WorldFailed as error:
            self.unanswered += 1
            return Outcome(action, UNKNOWN, str(error))
        self.unanswered = 0
        outcome = Outcome(action, answer.result.value, answer.detail)
        if not self.is_dry_run and answer.result in {ApplyResult.CREATED, ApplyResult.CHANGED}:
            self.on_applied(workload, decision, outcome)
        return outcome


def _explained(decision: Decision, outcome: Outcome) -> Decision:
    """Hold the action that was not applied: a decision lists only actions that were carried out."""
    if outcome.result in DONE:
        return decision
    if outcome.result == ApplyResult.NOT_OURS:
        detail = outcome.detail
        who = detail if detail.startswith(".") else detail[:1].upper() + detail[1:]
        sentence = f"{who}: it is left alone. Change it there, or delete it first."
        return decision.hold(Reason(Code.NOT_OURS, sentence))
    what = f"The HPA was not applied ({outcome.result})"
    if outcome.result == UNKNOWN:
        what = "Whether the HPA was applied is unknown"
    sentence = f"{what}: {outcome.detail.rstrip('.')}."
    return decision.hold(Reason(Code.NOT_APPLIED, sentence))


def with_current(
    decided: Iterable[tuple[Decision, WorkloadRef]], workloads: Iterable[Workload], specs: Iterable[HpaSpec]
) -> list[Decision]:
    """Return each decision with the current replicas, HPAs and requests of its workload."""
    hpas: dict[WorkloadRef, list[HpaSpec]] = defaultdict(list)
    for spec in specs:
        hpas[spec.target].append(spec)
    current = {each.ref: {"current": _current(each, hpas[each.ref])} for each in workloads}
    return [
        structs.replace(decision, extra={**decision.extra, **current.get(ref, {})})
        for decision, ref in decided
    ]


def _current(workload: Workload, hpas: Sequence[HpaSpec]) -> dict[str, Any]:
    return {
        "replicas": workload.replicas_wanted,
        "hpas": [
            {
                "name": spec.name,
                "minReplicas": spec.replicas_min,
                "maxReplicas": spec.replicas_max,
                "targetUtilization": cpu_target(spec.metrics),
            }
            for spec in hpas
        ],
        "containers": [
            {"name": container.name, "requests": requests_of(container)} for container in workload.containers
        ],
    }


def cpu_target(metrics: Iterable[Mapping[str, Any]]) -> int | None:
    """Return the CPU utilisation that an HPA aims at, or None."""
    for metric in metrics:
        resource = metric.get("resource")
        if metric.get("type") == "Resource" and isinstance(resource, dict) and resource.get("name") == "cpu":
            percent = (resource.get("target") or {}).get("averageUtilization")
            return percent if isinstance(percent, int) else None
    return None

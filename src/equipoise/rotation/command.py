"""Rotation by a person's command: for the workloads that it names, with one policy, without an operator.

It is the production loop. `plan` looks once and changes nothing; `RotateCommand` goes on until every rotation
that it began is verified. It needs no Lease: each ledger's compare-and-swap keeps it and an operator apart,
and what it began is in the ledger, so that whoever comes next, the operator or another command, ends it.

Which workloads a person means: by name, or all that an HPA scales.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from equipoise.core.cluster import ObjectRef, Workload, WorkloadRef
from equipoise.core.decision import Action, Decision, Outcome, Record
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.core.reason import Code, Reason
from equipoise.crd.targets import Mode
from equipoise.engine.leadership import LeaselessLeadership
from equipoise.ports import Actuator, Clock, Cluster, Journal, Metrics, Pauses, PolicyObject, Store, Stored
from equipoise.rotation.assignment import Assigned
from equipoise.rotation.execute import MAYBE_GONE
from equipoise.rotation.loop import RotationLoop
from equipoise.rotation.observe import hpas_by_workload
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.progress import describe
from equipoise.rotation.status import CycleItem

SHORT_NAMES = {"Deployment": "deploy", "StatefulSet": "sts", "ReplicaSet": "rs", "DaemonSet": "ds"}
"""How kubectl's users write the kinds."""


def check_names(names: Collection[str]) -> None:
    """Refuse what cannot name a workload, before anything is asked."""
    for name in names:
        if not re.fullmatch(r"([^/\s]+/)?[^/\s]+", name):
            raise BadInput(f"workload {name!r}: expected NAME or KIND/NAME, such as web or deployment/web")


def choose_workloads(cluster: Cluster, namespace: str | None, names: Collection[str]) -> list[Workload]:
    """Return the named workloads, or all that an HPA scales."""
    check_names(names)
    hpas = hpas_by_workload(cluster.hpas(namespace))
    return _chosen(cluster, hpas, namespace, names)


def _chosen(
    cluster: Cluster,
    hpas: Mapping[WorkloadRef, object],
    namespace: str | None,
    names: Collection[str],
) -> list[Workload]:
    """Take the named workloads, or everything that an HPA scales; kinds that no list shows, by `scale`."""
    listed = {workload.ref: workload for workload in cluster.workloads(namespace)}
    chosen: dict[WorkloadRef, Workload] = {}
    for name in names or [""]:
        found = (
            [ref for ref in listed if _is_named(ref, name)]
            if name
            else [ref for ref in listed if ref in hpas]
        )
        others = [ref for ref in hpas if ref not in listed and (not name or _is_named(ref, name))]
        scaled = [workload for ref in others if (workload := cluster.workload(ref)) is not None]
        if name and not (found or scaled):
            where = f"namespace {namespace}" if namespace else "any namespace"
            raise WorldFailed(f"workload {name}: not found in {where}")
        chosen |= {ref: listed[ref] for ref in found} | {workload.ref: workload for workload in scaled}
    return sorted(chosen.values(), key=lambda workload: (workload.ref.subject, workload.ref.kind))


def _is_named(ref: WorkloadRef, text: str) -> bool:
    """Whether `web`, `deployment/web`, `deploy/web` or `deployments.apps/web` means this workload."""
    kind, _, name = text.rpartition("/")
    if ref.name != name:
        return False
    kind = kind.partition(".")[0].lower()
    return not kind or kind in {ref.kind.lower(), ref.kind.lower() + "s", SHORT_NAMES.get(ref.kind)}


IN_VAIN = {
    "Forbidden": Code.OPTED_OUT,
    "Refused": Code.PDB_BLOCKED,
    "Fenced": Code.HELD_BY_BUDGET,
}
"""What came of an action that it is no use to wait for, and the reason that it leaves."""
BY_HAND = ObjectRef("", "Command", "", "equipoise")


class NoPolicies:
    """A command is for the workloads that it names."""

    def policies(self) -> Sequence[PolicyObject]:
        """Return none."""
        return ()

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        """Never asked for, since there are none."""
        raise AssertionError((policy, status))


class NothingKept:
    """A store and a diary that are empty, and pauses that nobody said: for a plan that needs no cluster."""

    def read(self, key: WorkloadRef) -> Stored:
        """Find nothing."""
        del key
        return Stored({})

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        """Find nothing."""
        del namespace
        return {}

    def write(self, key: WorkloadRef, data: Mapping[str, Any], version: str) -> Stored:
        """Refuse: a plan writes nothing."""
        raise WorldFailed(f"the ledger of {key}: a plan must not write {version} {data}")

    def append(self, *records: Record, is_whole: bool = False) -> None:
        """Forget."""
        del records, is_whole

    def pause_of(self, namespace: str) -> str | None:
        """Know of no pause."""
        del namespace
        return None


@dataclass(frozen=True, slots=True)
class Ports:
    """What a command reaches beside the cluster and its metrics; by default nothing."""

    actuator: Actuator | None = None
    store: Store = field(default_factory=NothingKept)
    pauses: Pauses = field(default_factory=NothingKept)
    journal: Journal = field(default_factory=NothingKept)
    new_id: Callable[[float], str] = str
    now: Callable[[], float] | None = None
    namespaces_protected: Collection[str] = ("kube-system",)


def loop_by_hand(
    cluster: Cluster, metrics: Metrics, hands: Ports, guest: LeaselessLeadership, *, is_acting: bool
) -> RotationLoop:
    """Make the loop of a command: it asks the server before it shows a plan, and waits for no streak."""
    return RotationLoop(
        cluster=cluster,
        metrics=metrics,
        policies=NoPolicies(),
        pauses=hands.pauses,
        leadership=guest,
        store=hands.store,
        actuator=hands.actuator or _NoHands(),
        journal=hands.journal,
        new_id=hands.new_id,
        namespaces_protected=hands.namespaces_protected,
        is_acting=is_acting,
        asks_server=not is_acting and hands.actuator is not None,
        is_debounced=False,
        now=hands.now,
    )


class _NoHands:
    """For a plan that asks no server."""

    def evict(self, *_: object, **__: object) -> Any:
        raise AssertionError("a plan without an actuator asks no server")

    def record_event(self, *_: object, **__: object) -> None:
        raise AssertionError("a plan tells nobody")


def plan(
    policy: RotationPolicy,
    cluster: Cluster,
    metrics: Metrics,
    at: float,
    namespace: str | None,
    names: Collection[str] = (),
    *,
    warn: Callable[[str], object] = str,
    hands: Ports | None = None,
) -> list[Decision]:
    """Decide for the named workloads, or for all that an HPA scales; nothing is changed.

    `warn` is told what the metrics' source said beside its answer, such as that it is partial.
    """
    loop = loop_by_hand(cluster, metrics, hands or Ports(), LeaselessLeadership(lambda: 0.0), is_acting=False)
    assigned = _by_hand(policy, choose_workloads(cluster, namespace, names))
    turned, seen = loop.look(assigned, at, namespace)
    if seen.failures:
        raise WorldFailed("; ".join(seen.failures))
    for warning in (*seen.warnings, *sorted(seen.notes)):
        warn(warning)
    return [turn.decision for turn in turned]


def _by_hand(policy: RotationPolicy, workloads: Sequence[Workload]) -> list[Assigned]:
    return [Assigned(BY_HAND, policy, Mode.ENFORCE, workload) for workload in workloads]


@dataclass(slots=True)
class WorkloadResult:
    """What came of one workload so far."""

    last: Decision
    outcomes: list[Outcome] = field(default_factory=list)
    verdict: str = ""
    """What came of the rotation."""
    trouble: str = ""
    """Why nobody knows what was done before."""
    began_at: float = 0.0
    """When it was first looked at: an older verdict is not about what was done here."""

    def take(self, turn: CycleItem) -> None:
        """Add a turn."""
        self.last = turn.decision
        self.outcomes += turn.outcomes
        self.trouble = turn.trouble
        memory = turn.details.memory
        if self.evicted and memory.run is None and memory.last and memory.last.ended_at > self.began_at:
            self.verdict = describe(memory.last)

    @property
    def failure(self) -> str:
        """Why nothing could be done although something should have been, or nothing."""
        if self.evicted:
            return ""
        if self.last.reason.code is Code.INTERNAL_ERROR:
            return f"{self.last.subject}: {self.last.reason.sentence}"
        if self.trouble:
            unknown = f"what was done before is unknown: {self.trouble}"
            return f"{self.last.subject}: nothing was done, since {unknown}"
        refused = self._refused
        if refused is None or refused.result not in IN_VAIN:
            return ""
        return (
            f"{self.last.subject}: nothing was done: {refused.action.pod} {refused.result}, {refused.detail}"
        )

    @property
    def _refused(self) -> Outcome | None:
        return self.outcomes[-1] if self.outcomes else None

    @staticmethod
    def _held(last: Decision, refused: Outcome) -> Decision:
        """Say that what was asked for did not go."""
        detail = f" ({refused.detail.rstrip('.')})" if refused.detail else ""
        why = "the right to evict it is missing" if refused.result == "Forbidden" else refused.result
        sentence = f"{refused.action.pod} did not go: {why}{detail}."
        return last.hold(Reason(IN_VAIN.get(refused.result, Code.PDB_BLOCKED), sentence))

    @property
    def evicted(self) -> list[Action]:
        """The evictions that went, or may have gone."""
        return [outcome.action for outcome in self.outcomes if outcome.result in MAYBE_GONE]

    @property
    def decision(self) -> Decision:
        """What was done, in the shape of a plan: the actions are those that were carried out."""
        last = self.last
        if not self.evicted:
            return last if self._refused is None else self._held(last, self._refused)
        reason = Reason(Code.ROTATE, self.verdict or last.reason.sentence, last.reason.numbers)
        return msgspec.structs.replace(last, reason=reason, actions=tuple(self.evicted), held=())


@dataclass(slots=True)
class RotateCommand:
    """A command that rotates until everything that it began is verified."""

    loop: RotationLoop
    guest: LeaselessLeadership
    policy: RotationPolicy
    namespace: str | None
    names: Collection[str]
    clock: Clock
    wait: Callable[[], object]
    """Lets some seconds pass."""
    tell: Callable[[CycleItem], object]
    """Told of every turn."""
    warn: Callable[[str], object] = str
    done: dict[str, WorkloadResult] = field(default_factory=dict)

    def run(self, timeout_seconds: float) -> Sequence[WorkloadResult]:
        """Go on until nothing is under way; running out of time is a failure of the world."""
        began = self.clock.now()
        open_refs: set[WorkloadRef] | None = None
        while open_refs is None or open_refs:
            if open_refs is not None:
                self.wait()
            if self.clock.now() - began > timeout_seconds:
                raise WorldFailed(self._late(open_refs or (), timeout_seconds))
            open_refs = self._turn(open_refs)
        return list(self.done.values())

    def _late(self, open_refs: Collection[WorkloadRef], timeout_seconds: float) -> str:
        """Return what is open, and what was waited for last."""
        parts = [
            f"{ref}: not verified within {timeout_seconds:g} s ({_why(self.done.get(ref.subject))})"
            for ref in sorted(open_refs)
        ]
        return f"{'; '.join(parts)}; the ledger remembers what was done, and another `apply` goes on with it"

    def _turn(self, open_refs: set[WorkloadRef] | None) -> set[WorkloadRef]:
        self.guest.renew()
        try:
            workloads = choose_workloads(self.loop.cluster, self.namespace, self.names)
            chosen = [each for each in workloads if open_refs is None or each.ref in open_refs]
            turned, seen = self.loop.look(_by_hand(self.policy, chosen), self.clock.now(), self.namespace)
        except WorldFailed as error:
            if open_refs is None:
                raise
            # A rotation is under way: one bad look does not end it, the time-out does.
            self.warn(str(error))
            return open_refs
        for warning in (*seen.warnings, *seen.failures, *sorted(seen.notes)):
            self.warn(warning)
        for turn in turned:
            first = WorkloadResult(turn.decision, began_at=turn.at)
            self.done.setdefault(turn.decision.subject, first).take(turn)
            self.tell(turn)
        return {
            turn.item.workload.ref
            for turn in turned
            if (turn.is_under_way and not _is_in_vain(turn))
            or (turn.trouble and turn.item.workload.ref in (open_refs or ()))
        }


def _is_in_vain(turn: CycleItem) -> bool:
    """Whether the next wave was refused for good: to look on would not help."""
    return any(outcome.result in {"Forbidden", "Refused"} for outcome in turn.outcomes)


def _why(done: WorkloadResult | None) -> str:
    if done is None:
        return "nothing was seen of it"
    reason = done.last.reason
    return f"{reason.code.value}: {reason.sentence.rstrip('.')}"

"""Rotation from the command line: of the named workloads, with one policy, without an operator.

`plan` runs one cycle and changes nothing; `RotateCommand` runs cycles until every rotation that it began has
ended. It needs no Lease: the compare-and-swap of each ledger excludes concurrent commands and operators, and
a rotation's state is in the ledger, so that the operator or another command continues it.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import msgspec

from equipoise.core.cluster import ObjectRef, Workload, WorkloadRef, hpas_by_workload
from equipoise.core.decision import Action, Decision, Outcome
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.core.quantity import print_seconds
from equipoise.core.reason import Code, Reason
from equipoise.crd.targets import Mode
from equipoise.engine.executor import LeaselessLeadership
from equipoise.engine.isolation import Isolation, ignore
from equipoise.ports import Cluster, FailedTurn
from equipoise.rotation.execute import REFUSED, Guards, Planned, held_by_server
from equipoise.rotation.loop import DEFAULTS, CyclePlanner, Options, Rotator, record_of
from equipoise.rotation.observe import ClusterSnapshot, Ports
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.progress import describe
from equipoise.rotation.status import MAYBE_EVICTED, CycleItem, Target

SHORT_NAMES = {"Deployment": "deploy", "StatefulSet": "sts", "ReplicaSet": "rs", "DaemonSet": "ds"}
"""kubectl's short names of the kinds."""


def check_names(names: Collection[str]) -> None:
    """Raise BadInput for a text that cannot name a workload."""
    for name in names:
        if not re.fullmatch(r"([^/\s]+/)?[^/\s]+", name):
            raise BadInput(f"workload {name!r}: expected NAME or KIND/NAME, such as web or deployment/web")


def choose_workloads(cluster: Cluster, namespace: str | None, names: Collection[str]) -> list[Workload]:
    """Return the named workloads, or all that an HPA scales; other kinds are read by their `scale`."""
    check_names(names)
    hpas = hpas_by_workload(cluster.hpas(namespace))
    listed = {workload.ref: workload for workload in cluster.workloads(namespace)}
    chosen: dict[WorkloadRef, Workload] = {}
    for name in names or [""]:
        found = [ref for ref in listed if (_is_named(ref, name) if name else ref in hpas)]
        others = [ref for ref in hpas if ref not in listed and (not name or _is_named(ref, name))]
        scaled = [workload for ref in others if (workload := cluster.workload(ref)) is not None]
        if name and not (found or scaled):
            where = f"namespace {namespace}" if namespace else "any namespace"
            raise WorldFailed(f"workload {name}: not found in {where}")
        chosen |= {ref: listed[ref] for ref in found} | {workload.ref: workload for workload in scaled}
    return sorted(chosen.values(), key=lambda workload: (workload.ref.subject, workload.ref.kind))


def _is_named(ref: WorkloadRef, text: str) -> bool:
    """Return whether a text such as `web`, `deploy/web` or `deployments.apps/web` names this workload."""
    kind, _, name = text.rpartition("/")
    if ref.name != name:
        return False
    kind = kind.partition(".")[0].lower()
    return not kind or kind in {ref.kind.lower(), ref.kind.lower() + "s", SHORT_NAMES.get(ref.kind)}


FINAL_RESULTS = {
    "Forbidden": Code.OPTED_OUT,
    "Refused": Code.PDB_BLOCKED,
    "Fenced": Code.HELD_BY_BUDGET,
}
"""Results that will not change on retry, and the reason that each gives the decision."""
COMMAND_REF = ObjectRef("", "Command", "", "equipoise")


def _targets(policy: RotationPolicy, workloads: Sequence[Workload]) -> list[Target]:
    return [Target(COMMAND_REF, policy, Mode.ENFORCE, workload) for workload in workloads]


def plan(
    policy: RotationPolicy,
    ports: Ports,
    at: float,
    namespace: str | None,
    names: Collection[str] = (),
    *,
    options: Options = DEFAULTS,
    uses_dry_run: bool = True,
    warn: Callable[[str], object] = ignore,
) -> list[Decision]:
    """Decide for the named workloads, or for all that an HPA scales; nothing is changed.

    `uses_dry_run` sends the first eviction as a dry run. `warn` is called with warnings: those of the metrics
    source, such as that an answer is partial, and what could not be read.
    """
    ports = replace(ports, leadership=LeaselessLeadership(lambda: 0.0))
    isolation = Isolation()
    isolation.begin(at)
    planner = CyclePlanner(ports, options, isolation, is_acting=False)
    workloads = choose_workloads(ports.cluster, namespace, names)
    guards, plans = planner.plan_cycle(_targets(policy, workloads), at, namespace)
    decisions = []
    for target, planned in plans:
        ports.heartbeat()
        found: Decision | FailedTurn
        if isinstance(planned, FailedTurn):
            found = planned
        else:
            work = partial(_preview, ports, guards, planned, uses_dry_run=uses_dry_run)
            found = isolation.turn(target.workload.ref.subject, work)
        decisions.append(
            planner.failed(target, found, at).decision if isinstance(found, FailedTurn) else found
        )
    if guards.snapshot.failures:
        raise WorldFailed("; ".join(guards.snapshot.failures))
    for warning in _warnings(guards.snapshot, isolation):
        warn(warning)
    return decisions


def _warnings(snapshot: ClusterSnapshot, isolation: Isolation) -> list[str]:
    errors = {f"{failed.subject}: {failed.error}" for failed in isolation.failed}
    return [*snapshot.warnings, *snapshot.failures, *sorted(snapshot.notes | errors)]


def _preview(ports: Ports, guards: Guards, planned: Planned, *, uses_dry_run: bool) -> Decision:
    """Return and record a decision after the guards and the server's dry run."""
    decision = planned.decision
    if decision.actions:
        decision = guards.ask(planned, None)
        if uses_dry_run:
            decision, note = held_by_server(decision, ports.actuator)
            guards.snapshot.notes.update({note} - {""})
        guards.spend(planned, decision)
    at = guards.snapshot.at
    ports.journal.append(record_of(planned, decision, at, ports.new_id(at)))
    return decision


@dataclass(slots=True)
class WorkloadResult:
    """The results of one workload so far."""

    last: Decision
    outcomes: list[Outcome] = field(default_factory=list)
    result: str = ""
    """How its rotation ended."""
    ledger_error: str = ""
    """Why its ledger could not be read; empty if it could."""
    began_at: float = 0.0
    """When the workload was first observed; older results are not of this command."""

    def add(self, item: CycleItem) -> None:
        self.last = item.decision
        self.outcomes += item.outcomes
        self.ledger_error = item.ledger_error
        memory = item.details.memory
        if self.evicted and memory.run is None and memory.last and memory.last.ended_at > self.began_at:
            self.result = describe(memory.last)

    @property
    def failure(self) -> str:
        """Why nothing was evicted although something should have been; empty otherwise."""
        if self.evicted:
            return ""
        if self.last.reason.code is Code.INTERNAL_ERROR:
            return f"{self.last.subject}: {self.last.reason.sentence}"
        if self.ledger_error:
            why = f"the ledger of earlier actions cannot be read: {self.ledger_error}"
            return f"{self.last.subject}: no pod was evicted: {why}"
        if not self.outcomes or self.outcomes[-1].result not in FINAL_RESULTS:
            return ""
        refused = self.outcomes[-1]
        why = f"{refused.action.pod}: {refused.result}: {refused.detail}"
        return f"{self.last.subject}: no pod was evicted: {why}"

    @property
    def evicted(self) -> list[Action]:
        """The evictions that happened, or may have."""
        return [outcome.action for outcome in self.outcomes if outcome.result in MAYBE_EVICTED]

    @property
    def decision(self) -> Decision:
        """The last decision, with the actions that were carried out."""
        if self.evicted:
            reason = Reason(Code.ROTATE, self.result or self.last.reason.sentence, self.last.reason.numbers)
            return msgspec.structs.replace(self.last, reason=reason, actions=tuple(self.evicted), held=())
        if not self.outcomes:
            return self.last
        refused = self.outcomes[-1]
        detail = f" ({refused.detail.rstrip('.')})" if refused.detail else ""
        why = "the right to evict it is missing" if refused.result == "Forbidden" else refused.result
        sentence = f"{refused.action.pod} was not evicted: {why}{detail}."
        return self.last.hold(Reason(FINAL_RESULTS.get(refused.result, Code.PDB_BLOCKED), sentence))


@dataclass(slots=True)
class RotateCommand:
    """Rotates the named workloads until every rotation that it began has ended."""

    ports: Ports
    leadership: LeaselessLeadership
    policy: RotationPolicy
    namespace: str | None
    names: Collection[str]
    wait: Callable[[], object]
    """Called to wait between two cycles."""
    report: Callable[[CycleItem], object]
    """Called for each workload in each cycle."""
    options: Options = DEFAULTS
    warn: Callable[[str], object] = ignore
    results: dict[str, WorkloadResult] = field(default_factory=dict)
    rotator: Rotator = field(init=False)

    def __post_init__(self) -> None:
        """Set up the rotation without a Lease, and without waiting for pods to be hot in several cycles."""
        ports = replace(self.ports, leadership=self.leadership)
        self.rotator = Rotator(ports, replace(self.options, is_debounced=False))

    def run(self, timeout_seconds: float) -> Sequence[WorkloadResult]:
        """Run cycles until no rotation is under way; raises WorldFailed after the time-out."""
        began, open_refs = self.ports.now(), self._cycle(None)
        while open_refs:
            self.wait()
            if self.ports.now() - began > timeout_seconds:
                raise WorldFailed(self._timeout_error(open_refs, timeout_seconds))
            open_refs = self._cycle(open_refs)
        return list(self.results.values())

    def _timeout_error(self, open_refs: Collection[WorkloadRef], timeout_seconds: float) -> str:
        """Return the error of a time-out: the open rotations, and the last hold of each."""
        parts = []
        for ref in sorted(open_refs):
            why, result = "it was not observed", self.results.get(ref.subject)
            if result is not None:
                why = f"{result.last.reason.code.value}: {result.last.reason.sentence.rstrip('.')}"
            parts.append(f"{ref}: the rotation did not end within {print_seconds(timeout_seconds)} ({why})")
        return f"{'; '.join(parts)}; run `equipoise rotation apply` again to continue it"

    def _cycle(self, open_refs: set[WorkloadRef] | None) -> set[WorkloadRef]:
        """Run one cycle, over all named workloads at first; return those whose rotations are under way."""
        rotator = self.rotator
        self.leadership.renew()
        try:
            workloads = choose_workloads(rotator.ports.cluster, self.namespace, self.names)
            chosen = [each for each in workloads if open_refs is None or each.ref in open_refs]
            at = self.ports.now()
            rotator.begin(at)
            items, snapshot = rotator.run(_targets(self.policy, chosen), at, self.namespace)
        except WorldFailed as error:
            if open_refs is None:
                raise
            # One failed cycle does not end a rotation under way; the time-out does.
            self.warn(str(error))
            return open_refs
        for warning in _warnings(snapshot, rotator.isolation):
            self.warn(warning)
        for item in items:
            first = WorkloadResult(item.decision, began_at=item.at)
            self.results.setdefault(item.decision.subject, first).add(item)
            self.report(item)
        return {
            item.target.workload.ref
            for item in items
            # The next wave may be refused for good: waiting would not help.
            if (item.is_under_way and all(outcome.result not in REFUSED for outcome in item.outcomes))
            or (item.ledger_error and item.target.workload.ref in (open_refs or ()))
        }

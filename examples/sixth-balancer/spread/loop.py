"""The operator's cycle: each workload of each policy's namespace, one eviction at a time."""

from collections.abc import Callable
from dataclasses import dataclass

from equipoise.spread.decide import decide
from equipoise.spread.observe import observe
from equipoise.spread.policy import SpreadPolicy

from equipoise.core.cluster import PodRef, Workload
from equipoise.core.decision import Decision, EvictPod, Outcome
from equipoise.core.ledger import Ledger
from equipoise.crd.targets import Mode
from equipoise.engine.executor import FencedExecutor, Intent, evict
from equipoise.engine.guards import held_by_cooldown, held_by_others, held_by_pause
from equipoise.engine.recording import as_json, record
from equipoise.ports import Actuator, Cluster, CycleReport, Journal, Leadership, Pauses, Policies, Store

COOLDOWN_SECONDS = 300.0


@dataclass(slots=True)
class SpreadLoop:
    """The ports of a cycle; its memory is in the ledger of each workload."""

    cluster: Cluster
    policies: Policies
    pauses: Pauses
    leadership: Leadership
    store: Store
    actuator: Actuator
    journal: Journal
    new_id: Callable[[float], str]
    interval_seconds: float = 30.0
    name: str = "spread"

    def cycle(self, at: float) -> CycleReport:
        """Run one cycle. Returns an empty report unless this replica is the leader."""
        epoch = self.leadership.epoch()
        if epoch is None:
            return CycleReport((), ())
        decisions: list[Decision] = []
        outcomes: list[Outcome] = []
        for each in self.policies.policies():
            policy = SpreadPolicy.model_validate(each.spec)
            for workload in self.cluster.workloads(each.ref.namespace):
                decision, outcome = self._balance(policy, workload, at, epoch)
                decisions.append(decision)
                outcomes += outcome
        return CycleReport(decisions, outcomes)

    def _balance(
        self, policy: SpreadPolicy, workload: Workload, at: float, epoch: int
    ) -> tuple[Decision, list[Outcome]]:
        ref = workload.ref
        seen = observe(ref, self.cluster.pods_now(workload))
        decision = decide(policy, seen).decision
        stored = self.store.read(ref)
        ledger = Ledger.from_data(stored.data)
        for reason in (
            held_by_pause(self.pauses, ref.namespace),
            held_by_cooldown(ledger, self.name, COOLDOWN_SECONDS, at),
            held_by_others(ledger, self.name, at),
        ):
            decision = decision if reason is None else decision.hold(reason)
        outcomes = []
        if decision.actions and policy.mode is Mode.ENFORCE:
            (action,) = decision.actions
            assert isinstance(action, EvictPod), "nothing else is decided"
            intent = Intent(self.new_id(at), ref, action.pod, action.uid, at, epoch)
            executor = FencedExecutor(self.name, self.store, self.leadership, self._recheck(workload))
            pod = PodRef(ref.namespace, action.pod, action.uid)
            done = executor.execute(action, lambda: evict(self.actuator, pod), intent, stored)
            outcomes.append(done.outcome)
        asked = as_json(policy.model_dump(mode="json", by_alias=True))
        self.journal.append(record(self.name, asked, seen, {}, decision, at, self.new_id(at), outcomes))
        return decision, outcomes

    def _recheck(self, workload: Workload) -> Callable[[object], str | None]:
        def recheck(action: object) -> str | None:
            there = {pod.uid for pod in self.cluster.pods_now(workload) if pod.deletion_at is None}
            return None if getattr(action, "uid", "") in there else "the pod has gone since it was chosen"

        return recheck

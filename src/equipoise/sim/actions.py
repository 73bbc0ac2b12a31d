"""What balancers change in the simulated cluster: pods evicted within budgets or resized, templates, events.

An eviction is refused as the real API refuses it: by the budget's status, which the disruption controller
fills in a little later than the truth.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

import msgspec

from equipoise.core.cluster import Container, ObjectRef, PodRef, Resize, Workload, WorkloadRef
from equipoise.core.errors import WorldFailed
from equipoise.core.quantity import parse_bytes
from equipoise.ports import EvictionAnswer, EvictionResult
from equipoise.ports.actions import ResizeAnswer, ResizeResult, Values
from equipoise.proportional.functions import FIELDS, above_limit
from equipoise.sim import template
from equipoise.sim.cluster import workload_view
from equipoise.sim.controllers import Kubelet
from equipoise.sim.faults import FaultKind
from equipoise.sim.state import EvictionRequest, PdbState, PodState, SimState, WorkloadState
from equipoise.sim.template import Template


@dataclass(frozen=True, slots=True)
class RecordedEvent:
    """An event as `kubectl describe` would show it."""

    at: float
    about: ObjectRef
    reason: str
    sentence: str
    is_warning: bool


class SimActuator:
    """Evictions and events. Both halves of the disruption budget are here, and meet in its status."""

    def __init__(self, state: SimState, kubelet: Kubelet) -> None:
        self._state = state
        self._kubelet = kubelet
        self.events: list[RecordedEvent] = []
        state.listeners.append(self._notice)

    def _notice(self, workload: WorkloadState) -> None:
        for pdb in workload.pdbs:
            self.sync_soon(pdb)

    def sync_soon(self, pdb: PdbState) -> None:
        """Reconcile a budget after the controller's delay."""
        if not pdb.is_sync_due:
            pdb.is_sync_due = True
            self._state.timeline.after(self._state.settings.budget_delay_seconds, lambda: self._sync(pdb))

    def _sync(self, pdb: PdbState) -> None:
        pdb.is_sync_due = False
        now, believed_seconds = self._state.now, self._state.settings.disrupted_seconds
        pods = pdb.pods()
        here = {pod.name for pod in pods if pod.deletion_at is None}
        pdb.disrupted = {
            name: at for name, at in pdb.disrupted.items() if name in here and at + believed_seconds >= now
        }
        healthy = [pod for pod in pods if pod.is_ready and pod.deletion_at is None]
        counted = sum(pod.name not in pdb.disrupted for pod in healthy)
        controllers = {pod.workload.ref: pod.workload for pod in pods}
        scale = sum(workload.replicas for workload in controllers.values())
        found = template.status(pdb.budget, pods=len(pods), scale=scale, healthy=counted)
        pdb.healthy_seen, pdb.evicted_since = frozenset(pod.uid for pod in healthy), set()
        if found != pdb.status or not pdb.is_current:
            pdb.status, pdb.is_current = found, True
            pdb.version, pdb.view = self._state.next_version(), None
        if pdb.disrupted:
            self._state.timeline.after(believed_seconds, lambda: self.sync_soon(pdb))

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        self._state.check_api()
        answer = self._answer(pod, grace_seconds, is_dry_run=is_dry_run)
        self._state.log("EvictionAsked", pod, f"{answer.result} dry={is_dry_run}")
        if self._state.faults.now(FaultKind.EVICTION_ANSWER_LOST, str(pod)):
            raise WorldFailed(f"the answer to the eviction of {pod} was lost (simulated)")
        return answer

    def record_event(self, about: ObjectRef, reason: str, sentence: str, *, is_warning: bool = False) -> None:
        self._state.check_api()
        self.events.append(RecordedEvent(self._state.now, about, reason, sentence, is_warning))

    def _answer(self, ref: PodRef, grace_seconds: int | None, *, is_dry_run: bool) -> EvictionAnswer:
        """Answer an eviction as the API server does."""
        pod = self._state.pods.get((ref.namespace, ref.name))
        if pod is None:
            return EvictionAnswer(EvictionResult.GONE, f"pod {ref} is not there")
        if pod.phase == "Pending" or pod.deletion_at is not None:
            return self._let_go(pod, ref, None, grace_seconds, is_dry_run=is_dry_run)
        budgets = pod.workload.pdbs
        if len(budgets) > 1:
            return EvictionAnswer(
                EvictionResult.REFUSED, f"pod {ref} has {len(budgets)} PodDisruptionBudgets; one is supported"
            )
        budget = budgets[0] if budgets else None
        if budget is not None and not self.allows(budget, pod, is_dry_run=is_dry_run):
            status = budget.status
            detail = f"budget {budget.name} needs {status.desired} healthy pods, has {status.healthy}"
            return EvictionAnswer(EvictionResult.BLOCKED, detail)
        return self._let_go(pod, ref, budget, grace_seconds, is_dry_run=is_dry_run)

    def allows(self, pdb: PdbState, pod: PodState, *, is_dry_run: bool) -> bool:
        """Ask a budget for one pod, and take it from what the budget allows."""
        if not pod.is_ready:
            if pdb.budget.unhealthy_policy == "AlwaysAllow":
                return True
            if pdb.status.healthy >= pdb.status.desired > 0:
                return True
        if not pdb.is_current or pdb.status.allowed <= 0:
            return False
        if not is_dry_run:
            pdb.status = replace(pdb.status, allowed=pdb.status.allowed - 1)
            pdb.disrupted[pod.name] = self._state.now
            pdb.version, pdb.view = self._state.next_version(), None
        return True

    def _let_go(
        self, pod: PodState, ref: PodRef, pdb: PdbState | None, grace_seconds: int | None, *, is_dry_run: bool
    ) -> EvictionAnswer:
        # Compared last, as the server does: an order for another incarnation has cost its budget by now.
        if ref.uid and pod.uid != ref.uid:
            if pdb is not None:
                self.sync_soon(pdb)
            return EvictionAnswer(EvictionResult.GONE, f"pod {ref} is not there: the name is another's")
        if not is_dry_run:
            self._state.evictions.append(_audited(self._state, pdb, pod))
            if pdb is not None:
                pdb.evicted_since.add(pod.uid)
            pod.is_disruption_target = True
            self._kubelet.end(pod, grace_seconds=grace_seconds, why="Evicted")
        return EvictionAnswer(EvictionResult.ACCEPTED)


def _audited(state: SimState, pdb: PdbState | None, pod: PodState) -> EvictionRequest:
    """Count by hand what an eviction leaves; the budget's own numbers play no part but the one it wants."""
    if pdb is None:
        return EvictionRequest(state.now, pod.ref)
    healthy = {other.uid for other in pdb.pods() if other.is_ready and other.deletion_at is None}
    unseen = pdb.healthy_seen - healthy - pdb.evicted_since
    return EvictionRequest(
        at=state.now,
        pod=pod.ref,
        budget=pdb.name,
        healthy_left=len(healthy - {pod.uid}),
        lost_unseen=len(unseen),
        desired=pdb.status.desired,
        was_healthy=pod.uid in healthy,
    )


OURS = "equipoise"
RETRY_SECONDS = 60.0
"""The interval at which a node tries a deferred resize again."""


class SimSizes:
    """Resizes pods in place at once if their node has room, and restarts containers that must restart."""

    def __init__(
        self,
        state: SimState,
        roll_out: Callable[[WorkloadState, Template], None],
        crash: Callable[[PodState], None],
    ) -> None:
        self._state = state
        self._roll_out = roll_out
        self._crash = crash
        self._setters: dict[tuple[str, str], str] = {}
        self.has_resize = True
        """Whether this server can change pods in place."""
        self.vpas: dict[WorkloadRef, str] = {}
        self.writes: list[tuple[str, str]] = []
        """The field manager and the object of each write, in order."""

    def workload(self, ref: WorkloadRef) -> Workload | None:
        self._state.check_api()
        found = self._state.workloads.get(ref)
        return None if found is None else workload_view(found)

    def advised(self) -> Mapping[WorkloadRef, str]:
        self._state.check_api()
        return dict(self.vpas)

    def offers_resize(self) -> bool:
        self._state.check_api()
        return self.has_resize

    def resize(
        self,
        pod: PodRef,
        values: Values,
        *,
        sidecars: Collection[str] = (),
        version: str = "",
        is_dry_run: bool = False,
        manager: str = OURS,
    ) -> ResizeAnswer:
        del sidecars
        self._state.check_api()
        found = self._state.pods.get((pod.namespace, pod.name))
        if not self.has_resize:
            return ResizeAnswer(ResizeResult.UNSUPPORTED, "the server could not find the requested resource")
        resized = _resized(found, f"pod {pod}", pod.uid, version, values)
        if isinstance(resized, ResizeAnswer):
            return resized
        assert found is not None, "an absent object was answered"
        template = replace(found.template, containers=resized)
        if template.qos_class != found.template.qos_class:
            return ResizeAnswer(ResizeResult.REFUSED, "Pod QOS Class may not change as a result of resizing")
        if not is_dry_run:
            self._ask_node(found, resized)
            self._note(manager, "Pod", pod.name)
        return ResizeAnswer(ResizeResult.ACCEPTED)

    def set_template(
        self,
        workload: ObjectRef,
        values: Values,
        *,
        sidecars: Collection[str] = (),
        version: str = "",
        is_dry_run: bool = False,
        manager: str = OURS,
    ) -> ResizeAnswer:
        del sidecars
        self._state.check_api()
        ref = WorkloadRef(workload.api_version, workload.kind, workload.namespace, workload.name)
        found = self._state.workloads.get(ref)
        resized = _resized(found, f"{ref}", workload.uid, version, values)
        if isinstance(resized, ResizeAnswer):
            return resized
        assert found is not None, "an absent object was answered"
        if not is_dry_run:
            if resized != found.template.containers:
                self._roll_out(found, replace(found.template, containers=resized))
            self._note(manager, ref.kind, ref.name)
        return ResizeAnswer(ResizeResult.ACCEPTED)

    def setter_of(self, about: ObjectRef, container: str, section: str, resource: str) -> str:
        del container, section, resource
        self._state.check_api()
        return self._setters.get((about.kind, about.name), "")

    def _note(self, manager: str, kind: str, name: str) -> None:
        self.writes.append((manager, f"{kind} {name}"))
        if manager == OURS:
            self._setters.pop((kind, name), None)
        else:
            self._setters[kind, name] = manager

    def _ask_node(self, pod: PodState, resized: tuple[Container, ...]) -> None:
        """Resize on the node, or report why not: never (Infeasible), or not now (Deferred)."""
        node, template = pod.node, replace(pod.template, containers=resized)
        pod.desired, pod.resize = resized, None
        if node is not None:
            cpu, memory = template.cpu_request_cores, template.memory_request_bytes
            cpu_taken = node.cpu_taken_cores + (cpu - pod.template.cpu_request_cores)
            memory_taken = node.memory_taken_bytes + (memory - pod.template.memory_request_bytes)
            is_never = cpu > node.cpu_cores or memory > node.memory_bytes
            if is_never or cpu_taken > node.cpu_cores or memory_taken > node.memory_bytes:
                state = "Infeasible" if is_never else "Deferred"
                pod.resize = Resize(state, "Node didn't have enough capacity")
                if not is_never:
                    self._state.timeline.after(RETRY_SECONDS, lambda: self._retry(pod, resized))
                self._state.pod_changed(pod)
                return
            node.cpu_taken_cores, node.memory_taken_bytes = cpu_taken, memory_taken
        restarts = _restarts(pod.template.containers, resized)
        if template.cpu_limit_cores != pod.template.cpu_limit_cores:
            pod.quotas.clear()  # the kubelet writes the new limit
        pod.template, pod.desired, pod.limit_cores = template, None, template.cpu_limit_cores
        self._state.log("Resized", pod.ref)
        self._state.pod_changed(pod)
        if restarts:
            self._crash(pod)

    def _retry(self, pod: PodState, resized: tuple[Container, ...]) -> None:
        if pod.desired == resized and pod.uid in pod.workload.pods and pod.deletion_at is None:
            self._ask_node(pod, resized)


def _resized(
    found: PodState | WorkloadState | None, name: str, uid: str, version: str, values: Values
) -> tuple[Container, ...] | ResizeAnswer:
    """Return an object's containers with these values, or why the API server refuses them."""
    if found is None or found.uid != uid:
        return ResizeAnswer(ResizeResult.GONE, f"{name} is not there")
    if version and version != str(found.version):
        return ResizeAnswer(ResizeResult.OUTDATED, f"{name} has been modified")
    try:
        return _changed(found.containers, values)
    except ValueError as error:
        return ResizeAnswer(ResizeResult.REFUSED, str(error))


def _changed(containers: tuple[Container, ...], values: Values) -> tuple[Container, ...]:
    """Return the containers with these values; raises ValueError if the API server would refuse them."""
    names = {each.name for each in containers}
    if unknown := [name for name in values if name not in names]:
        raise ValueError(f"spec.containers: no container {unknown[0]}")
    changed = []
    for container in containers:
        fields = {
            FIELDS[section, resource]: parse_bytes(text)
            for section, part in values.get(container.name, {}).items()
            for resource, text in part.items()
        }
        changed.append(msgspec.structs.replace(container, **fields))
    if violation := above_limit(changed):
        raise ValueError(f"spec.containers: {violation}")
    return tuple(changed)


def _restarts(before: tuple[Container, ...], after: tuple[Container, ...]) -> bool:
    return any(
        getattr(old, name) != getattr(new, name)
        for old, new in zip(before, after, strict=True)
        for (_, resource), name in FIELDS.items()
        if resource in old.restarts_for
    )

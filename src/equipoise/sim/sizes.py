"""Requests and limits in the simulated cluster: resized in place, set in templates, changed by others."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import msgspec

from equipoise.core.cluster import Container, ObjectRef, PodRef, Resize, Workload, WorkloadRef
from equipoise.core.errors import WorldFailed
from equipoise.core.quantity import parse_bytes
from equipoise.ports.actions import ResizeAnswer, ResizeResult, Values
from equipoise.proportional.functions import FIELDS, above_limit
from equipoise.sim.cluster import workload_view
from equipoise.sim.faults import FaultKind
from equipoise.sim.state import PodState, SimState, WorkloadState
from equipoise.sim.template import Template

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
        """Return a workload."""
        self._check_available()
        found = self._state.workloads.get(ref)
        return None if found is None else workload_view(found)

    def advised(self) -> Mapping[WorkloadRef, str]:
        """Return the workloads whose requests a VerticalPodAutoscaler sets."""
        self._check_available()
        return dict(self.vpas)

    def offers_resize(self) -> bool:
        """Return whether the server can change pods in place."""
        self._check_available()
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
        """Change one incarnation of a pod in place, as this field manager."""
        del sidecars
        self._check_available()
        found = self._state.pods.get((pod.namespace, pod.name))
        if not self.has_resize:
            return ResizeAnswer(ResizeResult.UNSUPPORTED, "the server could not find the requested resource")
        if found is None or found.uid != pod.uid:
            return ResizeAnswer(ResizeResult.GONE, f"pod {pod} is not there")
        if version and version != str(found.version):
            return ResizeAnswer(ResizeResult.OUTDATED, f"pod {pod} has been modified")
        try:
            resized = _changed(found.containers, values)
        except ValueError as error:
            return ResizeAnswer(ResizeResult.REFUSED, str(error))
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
        """Change a template, as this field manager."""
        del sidecars
        self._check_available()
        ref = WorkloadRef(workload.api_version, workload.kind, workload.namespace, workload.name)
        found = self._state.workloads.get(ref)
        if found is None or found.uid != workload.uid:
            return ResizeAnswer(ResizeResult.GONE, f"{ref} is not there")
        if version and version != str(found.version):
            return ResizeAnswer(ResizeResult.OUTDATED, f"{ref} has been modified")
        try:
            resized = _changed(found.template.containers, values)
        except ValueError as error:
            return ResizeAnswer(ResizeResult.REFUSED, str(error))
        if not is_dry_run:
            if resized != found.template.containers:
                self._roll_out(found, replace(found.template, containers=resized))
            self._note(manager, ref.kind, ref.name)
        return ResizeAnswer(ResizeResult.ACCEPTED)

    def setter_of(self, about: ObjectRef, container: str, section: str, resource: str) -> str:
        """Return the other field manager that set it last; empty if there is none."""
        del container, section, resource
        self._check_available()
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
        more = (
            template.cpu_request_cores - pod.template.cpu_request_cores,
            template.memory_request_bytes - pod.template.memory_request_bytes,
        )
        if node is not None:
            is_never = (
                template.cpu_request_cores > node.cpu_cores
                or template.memory_request_bytes > node.memory_bytes
            )
            is_not_now = (
                node.cpu_taken_cores + more[0] > node.cpu_cores
                or node.memory_taken_bytes + more[1] > node.memory_bytes
            )
            if is_never or is_not_now:
                state = "Infeasible" if is_never else "Deferred"
                pod.resize = Resize(state, "Node didn't have enough capacity")
                if not is_never:
                    self._state.timeline.after(RETRY_SECONDS, lambda: self._retry(pod, resized))
                self._state.pod_changed(pod)
                return
            node.cpu_taken_cores += more[0]
            node.memory_taken_bytes += more[1]
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

    def _check_available(self) -> None:
        if self._state.faults.now(FaultKind.API_UNAVAILABLE):
            raise WorldFailed("the API server does not answer (simulated)")


def _changed(containers: tuple[Container, ...], values: Values) -> tuple[Container, ...]:
    """Return the containers with these values; raises ValueError if the API server would refuse them."""
    unknown = [name for name in values if name not in {each.name for each in containers}]
    if unknown:
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

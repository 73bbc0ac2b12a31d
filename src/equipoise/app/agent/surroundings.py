"""What the API server tells of one node, kept up to date by watches: behind the loop's `Surroundings`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event
from typing import Any

from equipoise.adapters.http import Backoff
from equipoise.adapters.kubernetes import ApiError, Client, KubernetesActuator, Reflector, Unreachable
from equipoise.adapters.kubernetes.node_pods import CRANE_AGENT, NODE, PODS_OF_NODE, TAINT
from equipoise.adapters.kubernetes.nodes import NodeMarks
from equipoise.adapters.kubernetes.policies import KubernetesPolicies
from equipoise.adapters.kubernetes.reflector import AGE_MAX_SECONDS
from equipoise.app.agent.objects import read_objects
from equipoise.model.crd.kind import Kind
from equipoise.model.errors import WorldFailed
from equipoise.qos.kind import POD_QOS, QOS_KINDS
from equipoise.qos.pods import PodTold
from equipoise.qos.policy import QosPolicy

CONDITION = "EquipoiseWaterlineCrossed"
SYNC_SECONDS = 60.0
"""How long the first list of the node, and then that of its pods, is waited for."""
NOT_FOUND = 404
APP_LABELS = frozenset({"app", "app.kubernetes.io/name"})
Wait = Callable[[Event, float], bool]
"""Waits for something for so many seconds, and tells whether it has come."""


class NodeSurroundings:
    """The pods, the policies and the node itself. `start()` it, and `stop()` it in the end."""

    def __init__(
        self,
        client: Client,
        actuator: KubernetesActuator,
        node: str,
        *,
        evictions_per_round: int | None = None,
        excess_percent: int = 0,
    ) -> None:
        self.node = node
        self.problems: tuple[str, ...] = ()
        """What is wrong with policies, each by its path; such objects are left out."""
        self._client = client
        self._actuator = actuator
        self._settings = {"evictions_per_round": evictions_per_round, "excess_percent": excess_percent}
        self._pods = Reflector(client, PODS_OF_NODE, params={"fieldSelector": f"spec.nodeName={node}"})
        self._nodes = Reflector(client, NODE, params={"fieldSelector": f"metadata.name={node}"})
        once = client.twin(backoff=Backoff(attempts_max=1))  # a round must not wait for the API server
        self._policies = {kind.name: _policies(once, kind) for kind in QOS_KINDS}
        self._marks = NodeMarks(once)
        self._known: tuple[tuple[tuple[str, str, str], ...], QosPolicy] = ((), QosPolicy(**self._settings))

    def start(self, wait: Wait = Event.wait) -> None:
        """Begin to watch, and wait until the node and its pods were listed once."""
        for reflector in self._reflectors():
            reflector.start()
        for reflector in (self._nodes, self._pods):
            if not wait(reflector.synced, SYNC_SECONDS):
                why = reflector.last_error or "no answer"
                raise WorldFailed(
                    f"{self._client.address}: the {reflector.kind.plural} of {self.node}: {why}"
                )
        if self._nodes.cache.get("", self.node) is None:
            raise WorldFailed(f"node {self.node}: not found at {self._client.address}; --node names another")

    def stop(self) -> None:
        """End the watches."""
        for reflector in self._reflectors():
            reflector.stop(1.0)

    def waiting_for(self) -> str:
        """Say what has not been listed yet, or nothing."""
        waiting = [one for one in (self._nodes, self._pods) if not one.synced.is_set()]
        if not waiting:
            return ""
        why = f": {waiting[0].last_error}" if waiting[0].last_error else ""
        return f"the {waiting[0].kind.plural} of {self.node} have not been listed yet{why}"

    def _reflectors(self) -> Iterator[Reflector[Any]]:
        yield self._pods
        yield self._nodes
        for policies in self._policies.values():
            yield policies.reflector

    def pods(self) -> Sequence[PodTold]:
        """Give the pods of this node."""
        return self._pods.cache.records()

    def crane_agent(self) -> str:
        """Name a pod of Crane's own agent on this node, or give nothing: two hands on one quota."""
        for pod in self.pods():
            if any(value == CRANE_AGENT and key in APP_LABELS for key, value in pod.labels) or (
                pod.owner == "DaemonSet" and pod.name.startswith(f"{CRANE_AGENT}-")
            ):
                return pod.key
        return ""

    def policy(self) -> QosPolicy:
        """Give all that is asked for, as one; it is put together again only when an object has changed.

        Where the server has told nothing of the node, its pods or the policies for minutes, all is a guess:
        it raises. `pods()` does not, since giving back must be possible then.
        """
        for reflector in self._reflectors():
            self._refuse_if_old(reflector)
        allows_all = _is_absent(self._policies[POD_QOS.name].reflector)
        objects = [one for name in self._policies for one in self._listed(name)]
        versions = tuple(sorted((one.ref.kind, one.ref.name, one.version) for one in objects))
        if versions != self._known[0]:
            if objects and allows_all:
                self._refuse_if_installed_since()
            policy, self.problems = read_objects(objects)
            self._known = (versions, policy.model_copy(update=self._settings))
        return self._known[1]

    def _refuse_if_old(self, reflector: Reflector[Any]) -> None:
        age_seconds = reflector.last_contact_age_seconds(self._client.world.monotonic())
        if not reflector.synced.is_set() or age_seconds <= AGE_MAX_SECONDS:
            return
        if _is_absent(reflector) and not reflector.cache.records():
            return  # the kind was removed, and its objects before it
        why = f": {reflector.last_error}" if reflector.last_error else ""
        raise Unreachable(
            f"the {reflector.kind.plural} of {self.node} are unknown: the API server last told of them "
            f"{age_seconds:.0f} s ago, expected at most {AGE_MAX_SECONDS:g} s{why}"
        )

    def _listed(self, name: str) -> Sequence[Any]:
        try:
            return self._policies[name].policies()
        except Unreachable:
            if _is_absent(self._policies[name].reflector):
                return ()
            raise

    def _refuse_if_installed_since(self) -> None:
        """Ask whether there is still no PodQOS where there was none: without, all pods may be acted on.

        A kind that is not there is listed again every half a minute only, and others may have come with it.
        """
        try:
            self._policies[POD_QOS.name].listed()
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
        else:
            raise Unreachable(
                f"the {POD_QOS.plural} have not been listed yet: they were not installed before"
            )

    def uid(self) -> str:
        """Give the node's UID, for events."""
        node = self._nodes.cache.get("", self.node)
        return "" if node is None else node.uid

    def labels(self) -> Mapping[str, str]:
        """Give the node's labels."""
        node = self._nodes.cache.get("", self.node)
        return {} if node is None else dict(node.labels)

    def is_scheduling_disabled(self) -> bool:
        """Tell whether our own taint is on the node."""
        node = self._nodes.cache.get("", self.node)
        return node is not None and node.is_disabled

    def set_scheduling(self, *, is_disabled: bool, sentence: str) -> None:
        """Put our taint and condition on the node, or take them off."""
        # The taint is what a successor looks at, so it is the first to come and the last to go.
        if is_disabled:
            # Not sent again later in the same round: somebody may have said stop by then.
            self._marks.add_taint(self.node, TAINT)
            self._marks.set_condition(self.node, CONDITION, "True", "WaterlineCrossed", sentence)
        else:
            marks = self._actuator.nodes
            marks.set_condition(self.node, CONDITION, "False", "WaterlinesClear", sentence)
            marks.remove_taint(self.node, TAINT.key, TAINT.effect)


def _is_absent(reflector: Reflector[Any]) -> bool:
    """Tell whether the kind is not installed, so that nobody asks for anything by it."""
    error = reflector.last_error
    return isinstance(error, ApiError) and error.status == NOT_FOUND


def _policies(client: Client, kind: Kind) -> KubernetesPolicies:
    return KubernetesPolicies(
        client, group=kind.group, version=kind.version, name=kind.name, plural=kind.plural
    )

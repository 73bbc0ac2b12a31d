"""What the API server tells of one node, kept up to date by watches: behind the loop's `NodeContext`.

Objects of the cluster read as policies; what does not fit is left out, and said.

What the agent says: in its log, and as events on its node and pods. Quiet where there is no news.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import Event
from typing import Any

from pydantic import BaseModel

from equipoise.adapters.http import Backoff
from equipoise.adapters.kubernetes import ApiError, Client, KubernetesActuator, Reflector, Unreachable
from equipoise.adapters.kubernetes.actions import NodeMarks
from equipoise.adapters.kubernetes.node import CRANE_AGENT, NODE, PODS_OF_NODE, TAINT
from equipoise.adapters.kubernetes.policies import KubernetesPolicies
from equipoise.core.cluster import ObjectRef
from equipoise.core.decision import DisableScheduling, EnableScheduling, Outcome
from equipoise.core.documents import explain
from equipoise.core.errors import DECODE_ERRORS, EquipoiseError, WorldFailed
from equipoise.crd.definition import Kind
from equipoise.ports import PolicyObject
from equipoise.ports.node import NodePod
from equipoise.qos.execute import WELL, came_otherwise
from equipoise.qos.loop import NodeCycleReport
from equipoise.qos.objects import POD_QOS, QOS_KINDS, QosObject, assemble_valid
from equipoise.qos.policy import QosPolicy
from equipoise.qos.state import Judged
from equipoise.runtime.logs import FailedTurnLines, Log, log_failure


def read_objects(objects: Iterable[PolicyObject]) -> tuple[QosPolicy, tuple[str, ...]]:
    """Return all that is asked for as one, and what is wrong with the rest."""
    seen = list(objects)
    read: list[QosObject] = []
    problems: list[str] = []
    for one in seen:
        where = f"{one.ref.kind} {one.ref.name}"
        if one.unreadable:
            problems.append(f"{where}: the object cannot be read: {one.unreadable}")
            continue
        spec = _spec(one.ref.kind, one.spec)
        if isinstance(spec, str):
            problems.append(f"{where}: spec.{spec}")
        else:
            read.append(QosObject(one.ref.kind, one.ref.name, spec, where))
    policy, wrong = assemble_valid(read)
    if policy.pods is None and any(one.ref.kind == POD_QOS.name for one in seen):
        # Somebody said who may be acted on, and nobody understands it: so nobody may be.
        policy = policy.model_copy(update={"pods": ()})
    return policy, (*problems, *wrong)


def _spec(kind: str, spec: Mapping[str, Any]) -> BaseModel | str:
    model = next(one.body["spec"] for one in QOS_KINDS if one.name == kind)
    try:
        return model.model_validate(dict(spec), by_alias=True, by_name=False)
    except DECODE_ERRORS as error:
        return explain(error)


CONDITION = "EquipoiseWaterlineCrossed"
SYNC_SECONDS = 60.0
"""How long the first list of the node, and then that of its pods, is waited for."""
NOT_FOUND = 404
APP_LABELS = frozenset({"app", "app.kubernetes.io/name"})
Wait = Callable[[Event, float], bool]
"""Waits for something for so many seconds, and tells whether it has come."""


class WatchedNode:
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
        once = client.with_own_connections(
            backoff=Backoff(attempts_max=1)
        )  # a round must not wait for the API server
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
        """Return what has not been listed yet, or nothing."""
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

    def pods(self) -> Sequence[NodePod]:
        """Return the pods of this node."""
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
        """Return all that is asked for, as one; it is put together again only when an object has changed.

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
        was_removed = _is_absent(reflector) and not reflector.cache.records()  # the kind, after its objects
        if reflector.synced.is_set() and not was_removed:
            reflector.require_fresh(f"the {reflector.kind.plural} of {self.node}")

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
        """Return the node's UID, for events."""
        node = self._nodes.cache.get("", self.node)
        return "" if node is None else node.uid

    def labels(self) -> Mapping[str, str]:
        """Return the node's labels."""
        node = self._nodes.cache.get("", self.node)
        return {} if node is None else dict(node.labels)

    def is_scheduling_disabled(self) -> bool:
        """Return whether our own taint is on the node."""
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
    """Return whether the kind is not installed, so that nobody asks for anything by it."""
    error = reflector.last_error
    return isinstance(error, ApiError) and error.status == NOT_FOUND


def _policies(client: Client, kind: Kind) -> KubernetesPolicies:
    return KubernetesPolicies(
        client, group=kind.group, version=kind.version, name=kind.name, plural=kind.plural
    )


PROBLEMS_SAID_MAX = 5
FOUND_SAID_MAX = 20
"""So many quotas that one look found have an event; the log has all."""
AGAIN_SECONDS = 600.0
"""How long the same failure of the same action is not told again, nor where the same bug is."""


class EventReporter:
    """Tells of rounds: when the reason changes, something was done, or fails that did not before."""

    def __init__(
        self,
        log: Log,
        actuator: KubernetesActuator,
        node_api: WatchedNode,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._failed_turns = FailedTurnLines(log, monotonic)
        self._actuator = actuator
        self._node_api = node_api
        self._monotonic = monotonic
        self._code = ""
        self._problems: tuple[str, ...] = ()
        self._failures: dict[tuple[object, ...], float] = {}
        self._bugs: dict[tuple[str, ...], float] = {}
        self._found: dict[str, str] = {}

    def report(self, done: NodeCycleReport) -> None:
        """Say what is news of one round."""
        self._report_problems()
        decision = done.decision
        code = decision.reason.code.value
        sentence = decision.reason.sentence + came_otherwise(decision, done.outcomes)
        news = self._news(done.outcomes)
        is_news = code != self._code or bool(news)
        self._code = code
        (self._log.info if is_news else self._log.debug)(sentence, reason=code, node=decision.subject)
        for warning in done.warnings:
            self._log.warning(warning)
        self._failed_turns.tell(done.failed_turns)
        if is_news:
            self._actuator.record_event(self._node(), code, sentence)
        for outcome in news:
            self._report_pod(outcome, code, sentence)

    def warn(self, reason: str, sentence: str) -> None:
        """Say something that somebody has to look at, on the node too."""
        self._log.warning(sentence)
        self._actuator.record_event(self._node(), reason, sentence, is_warning=True)

    def report_failure(self, error: Exception) -> None:
        """Log that a round failed; the traceback of a bug once in ten minutes."""
        if isinstance(error, EquipoiseError):
            self._log.warning("a round failed", error=str(error))
            return
        now, key = self._monotonic(), (type(error).__name__, str(error))
        self._bugs = {one: at for one, at in self._bugs.items() if now - at < AGAIN_SECONDS}
        if key in self._bugs:
            self._log.error("a round failed", error=f"unexpected {key[0]}: {key[1]}")
            return
        self._bugs[key] = now
        log_failure(self._log, "a round failed", error)

    def report_state(self, lost: str, unlocked: str, *, is_damaged: bool) -> None:
        """Log what is wrong with the state file."""
        if unlocked:
            self._log.warning("the state file is not locked", error=unlocked)
        if lost:
            say = self._log.warning if is_damaged else self._log.info
            say("what is throttled is looked for in the cgroups", reason=lost)

    def report_damage(self, sentence: str) -> None:
        """Record an event on the node that the state file was damaged; the log has it already."""
        said = f"{sentence}. What is throttled is looked for in the cgroups."
        self._actuator.record_event(self._node(), "StateFileDamaged", said, is_warning=True)

    def report_found(self, found: Judged) -> None:
        """Log each quota that is lower than its container asks for, and record an event, once."""
        all_ = [("ThrottleFound", one) for one in found.ours] + [
            ("QuotaUnclear", one) for one in found.unclear
        ]
        news = [(reason, one) for reason, one in all_ if self._found.get(one.part.id) != one.sentence]
        for place, (reason, one) in enumerate(news):
            self._found[one.part.id] = one.sentence
            self._log.warning(one.sentence, pod=one.pod.key, reason=reason)
            if place < FOUND_SAID_MAX:
                pod = ObjectRef("v1", "Pod", one.pod.namespace, one.pod.name, one.pod.uid)
                self._actuator.record_event(pod, reason, one.sentence, is_warning=bool(one.why_left))

    def _report_problems(self) -> None:
        """Say which policies are left out, when that has changed; on the node, since no status is written."""
        problems = self._node_api.problems
        if problems == self._problems:
            return
        self._problems = problems
        for place, problem in enumerate(problems):
            sentence = f"left out: {problem}"
            if place < PROBLEMS_SAID_MAX:
                self.warn("PolicyLeftOut", sentence)
            else:
                self._log.warning(sentence)

    def _news(self, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """Leave out failures that were told lately: one of every round is told every ten minutes."""
        now = self._monotonic()
        self._failures = {key: at for key, at in self._failures.items() if now - at < AGAIN_SECONDS}
        found = []
        for outcome in outcomes:
            key = (type(outcome.action), outcome.action.pod, outcome.action.uid, outcome.result)
            if outcome.result in WELL or key not in self._failures:
                found.append(outcome)
                if outcome.result not in WELL:
                    self._failures[key] = now
        return found

    def _report_pod(self, outcome: Outcome, code: str, sentence: str) -> None:
        action = outcome.action
        if isinstance(action, DisableScheduling | EnableScheduling):
            if outcome.result not in WELL:
                self.warn("NotScheduled", f"{type(action).__name__}: {outcome.result} ({outcome.detail})")
            return
        namespace, _, name = action.pod.partition("/")
        detail = f" ({outcome.detail})" if outcome.detail else ""
        pod = ObjectRef("v1", "Pod", namespace, name, action.uid)
        said = f"{type(action).__name__}: {outcome.result}{detail}. {sentence}"
        self._actuator.record_event(pod, code, said, is_warning=outcome.result not in WELL)

    def _node(self) -> ObjectRef:
        return ObjectRef("v1", "Node", "", self._node_api.node, self._node_api.uid())

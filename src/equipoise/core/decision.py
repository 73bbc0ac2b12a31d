"""Actions and decisions as data, and the record of a decision's inputs."""

import hashlib
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from equipoise.core.reason import Code, Reason


class TaggedAction(msgspec.Struct, frozen=True, tag_field="kind", tag=True, omit_defaults=True):
    """An action; in JSON its `kind` is the name of its class."""


class EvictPod(TaggedAction, frozen=True):
    """Ask the API server to evict one incarnation of a pod."""

    pod: str
    namespace: str = ""
    uid: str = ""
    metric: str = ""
    """The node metric that caused the action, if any."""
    release: float | None = None
    gap_after: dict[str, float | None] | None = None
    grace_seconds: int | None = None
    """None: the pod's own grace period."""


class ThrottlePod(TaggedAction, frozen=True):
    """Lower what a pod may use: its containers' CPU quotas, or have the kernel reclaim its memory.

    Actions on a node name a pod as NAMESPACE/NAME, so their `namespace` is empty.
    """

    pod: str
    metric: str
    uid: str = ""
    namespace: str = ""
    release: float | None = None
    gap_after: dict[str, float | None] | None = None
    quota: dict[str, int] | None = None
    """The new CPU quota of each changed container, in microseconds per period."""
    reclaim: dict[str, int] | None = None
    """The bytes to reclaim from each container."""


class RestorePod(TaggedAction, frozen=True):
    """Raise the CPU quotas of a throttled pod again; -1 is unlimited."""

    pod: str
    metric: str = ""
    uid: str = ""
    namespace: str = ""
    release: float | None = None
    gap_after: dict[str, float | None] | None = None
    quota: dict[str, int] | None = None


class DisableScheduling(TaggedAction, frozen=True):
    """Let no new pod come to a node."""

    node: str
    metric: str = ""
    pod: str = ""
    """Empty: the action is about the node."""
    uid: str = ""
    namespace: str = ""


class EnableScheduling(TaggedAction, frozen=True):
    """Let pods come to a node again."""

    node: str
    pod: str = ""
    uid: str = ""
    namespace: str = ""


class MovePod(TaggedAction, frozen=True, rename={"source": "from", "destination": "to"}):
    """Move an idle pod from one tier to another; with a UID, only that incarnation of it."""

    pod: str
    source: str
    destination: str
    namespace: str = ""
    uid: str = ""


class SetResources(TaggedAction, frozen=True):
    """Set the requests and limits of a workload's pods, container by container."""

    workload: str
    containers: list[dict[str, Any]]
    namespace: str = ""
    pod: str = ""
    """One pod of the workload; empty means all."""
    uid: str = ""


class ApplyHpa(TaggedAction, frozen=True):
    """Make a workload's HPA, or bring the one that we made to this."""

    workload: str
    manifest: dict[str, Any]
    namespace: str = ""
    pod: str = ""
    """Empty: the action is about the workload."""
    uid: str = ""


class TierPodAction(TaggedAction, frozen=True):
    """What the actions about one pod of a tier have in common."""

    pod: str
    uid: str = ""
    namespace: str = ""


class RegisterPod(TierPodAction, frozen=True):
    """Take a pod that Kubernetes has into a tier; another incarnation of a name replaces the old one."""


class UnregisterPod(TierPodAction, frozen=True):
    """Forget a pod that Kubernetes has no more, its calls with it."""


class SuspendPod(TierPodAction, frozen=True):
    """Assign no more calls to a pod while it is not ready; its calls go on."""


class ResumePod(TierPodAction, frozen=True):
    """Assign calls to a suspended pod again."""


class RecoverPod(TierPodAction, frozen=True):
    """Put back a pod that nobody holds; only ever seen as an outcome, since a script decides it."""


RegistrationAction = RegisterPod | UnregisterPod | SuspendPod | ResumePod
"""The actions that keep the tiers in step with Kubernetes' pods."""
Action = (
    EvictPod
    | MovePod
    | SetResources
    | ApplyHpa
    | RegisterPod
    | UnregisterPod
    | SuspendPod
    | ResumePod
    | RecoverPod
    | ThrottlePod
    | RestorePod
    | DisableScheduling
    | EnableScheduling
)
"""One change, tagged with its kind."""


class Held(msgspec.Struct, frozen=True):
    """An action that a guard kept back, and which guard it was."""

    action: Action
    reason: Code
    sentence: str = ""


class Decision(msgspec.Struct, frozen=True):
    """What one balancer wants for one subject: the actions in order, why, and what to remember."""

    subject: str
    reason: Reason
    actions: tuple[Action, ...] = ()
    held: tuple[Held, ...] = ()
    memory: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    """Fields of the decision's document that only one balancer has."""

    def hold(self, reason: Reason, after: int = 0) -> "Decision":
        """Hold all actions but the first `after` for this reason.

        When no action is left, the guard's reason becomes the decision's; a decision without actions is
        returned unchanged. Held actions stay in the order of execution, so the first one has that reason too.
        """
        assert after >= 0, "a guard lets none go, or some"
        if len(self.actions) <= after:
            return self
        remaining, back = self.actions[:after], self.actions[after:]
        held = tuple(Held(action, reason.code, reason.sentence) for action in back) + self.held
        why = self.reason
        if not remaining:
            why = Reason(reason.code, reason.sentence, self.reason.numbers | reason.numbers)
        assert len(remaining) + len(held) == len(self.actions) + len(self.held), "no action is lost"
        return msgspec.structs.replace(self, reason=why, actions=remaining, held=held)


D = TypeVar("D")


class Decided(NamedTuple, Generic[D]):
    """A decision, and the typed details from which its numbers are derived.

    Code reads the details; the numbers are for people and scripts.
    """

    decision: Decision
    details: D


class Outcome(msgspec.Struct, frozen=True):
    """What came of one action."""

    action: Action
    result: str
    detail: str = ""


class Streak(msgspec.Struct, frozen=True):
    """How often the same was decided again right after a record, until when, and from what at last."""

    times: int
    until: float
    reason: Reason
    inputs_hash: str = ""
    changed_at: float | None = None
    """When the last decision's sentence became what it is; None if it is the record's, or unknown."""


class Record(msgspec.Struct, frozen=True):
    """Everything that went into a decision and what came of it, so that it can be decided again."""

    id: str
    balancer: str
    at: float
    policy: dict[str, Any]
    observation: dict[str, Any]
    memory: dict[str, Any]
    decision: Decision
    outcomes: tuple[Outcome, ...] = ()
    inputs_hash: str = ""
    """The hash of policy, observation and memory, also where these were not stored."""
    version: str = ""
    """The version of the program that decided."""
    streak: Streak | None = None
    has_readings: bool = True
    """False if nothing could be read of what the decision is about, such as a node's usage."""

    @property
    def reason(self) -> Reason:
        """Return the latest reason: its code is the record's, its sentence and numbers may be newer."""
        return self.decision.reason if self.streak is None else self.streak.reason

    @property
    def changed_at(self) -> float | None:
        """Return when the latest sentence became what it is, if it is not the record's own."""
        return None if self.streak is None else self.streak.changed_at

    @property
    def has_inputs(self) -> bool:
        """Return whether the record has its inputs, so that it can be replayed."""
        return bool(self.policy or self.observation)

    @property
    def until(self) -> float:
        """Return when the same was last decided."""
        return self.at if self.streak is None else self.streak.until

    def without_inputs(self) -> "Record":
        """Return the record without its inputs; the hash stays."""
        return msgspec.structs.replace(self, policy={}, observation={}, memory={})

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, line: bytes | str) -> "Record":
        return msgspec.json.decode(line, type=cls)


def hash_inputs(policy: Mapping[str, Any], observation: object, memory: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the inputs' canonical JSON: equal inputs have equal hashes.

    An observation has the same hash before and after a round trip through JSON.
    """
    return hashlib.sha256(msgspec.json.encode([policy, observation, memory], order="sorted")).hexdigest()


def plan_document(balancer: str, decisions: list[Decision]) -> dict[str, Any]:
    """Return the plan in the shape that scripts rely on."""
    return {"balancer": balancer, "decisions": [_decision_document(decision) for decision in decisions]}


def outcome_document(outcome: Outcome) -> dict[str, Any]:
    action: dict[str, Any] = msgspec.to_builtins(outcome.action)
    return action | {"result": outcome.result, "detail": outcome.detail}


def _decision_document(decision: Decision) -> dict[str, Any]:
    return {
        "subject": decision.subject,
        "reason": decision.reason.code.value,
        "sentence": decision.reason.sentence,
        "actions": [msgspec.to_builtins(action) for action in decision.actions],
        "held": [
            msgspec.to_builtins(held.action) | {"reason": held.reason.value, "sentence": held.sentence}
            for held in decision.held
        ],
        "numbers": decision.reason.numbers,
        **decision.extra,
    }

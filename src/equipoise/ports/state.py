"""What outlives a cycle: memory, leadership, pauses, policies, the journal, the cycle's report, and tiers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from equipoise.core.errors import WorldFailed
from equipoise.crd.definition import Standing

if TYPE_CHECKING:
    from equipoise.core.cluster import ObjectRef, WorkloadRef
    from equipoise.core.decision import Decision, MovePod, Outcome, Record, RegistrationAction
    from equipoise.core.pools import PoolAnswer, PoolsSnapshot


class StoreConflict(Exception):  # noqa: N818 - reads as a fact
    """The object has another version than the one read: read and decide again."""


class NotInstalled(WorldFailed):
    """The kind that holds the memory is not installed: no memory was ever written."""


@dataclass(frozen=True, slots=True)
class Stored:
    """An entry of the store. The version of an absent entry is empty."""

    data: Mapping[str, Any]
    version: str = ""


class Store(Protocol):
    """Persistent memory: small documents, written by compare-and-swap."""

    def read(self, workload: WorkloadRef) -> Stored:
        """Read the entry of a workload; an absent one is empty, with an empty version."""

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        """Read all entries; a namespace of None means all namespaces.

        An entry with invalid content is returned as it is; its reader judges it.
        """

    def write(self, workload: WorkloadRef, data: Mapping[str, Any], version: str) -> Stored:
        """Write an entry if it still has this version, else raise StoreConflict."""


class Leadership(Protocol):
    """Whether this process, and no other, may act."""

    def epoch(self) -> int | None:
        """Return the Lease transition that this process leads in; None when it does not lead or is unsure.

        Checked right before every action against the monotonic time since the last renewal: a process that
        was stopped for longer than the lease gets None.
        """


class Pauses(Protocol):
    """Pauses that users have asked for."""

    def pause_of(self, namespace: str) -> str | None:
        """Return who or what paused this namespace, else None; raise when unknown, and nothing is done."""


@dataclass(frozen=True, slots=True)
class PolicyObject:
    """A policy object of the cluster: its spec, and its last status."""

    ref: ObjectRef
    generation: int
    version: str
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at: float = 0.0
    unreadable: str = ""
    """Why the object cannot be decoded; then its spec is unknown, and nothing is done for it."""


class Policies(Protocol):
    """The custom resources of one kind of policy."""

    def policies(self) -> Sequence[PolicyObject]: ...

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        """Replace a policy's status; raise StoreConflict when it has changed since it was read."""


class OwnedPolicies(Policies, Protocol):
    """The custom resources of several kinds, which may be defined by somebody else; listed anew each time."""

    def standing(self, kind: str) -> Standing:
        """Return whose the definition of this kind is."""


class Journal(Protocol):
    """The log of decisions. Losing it changes no decision, so it never raises."""

    def append(self, *records: Record, is_whole: bool = False) -> None:
        """Write records; with `is_whole` also those that repeat the last one of their subject."""


@dataclass(frozen=True, slots=True)
class FailedTurn:
    """A workload, policy or pod whose processing an error ended, while all others went on."""

    subject: str
    error: str
    """The error on one line."""
    traceback: str = ""
    """Empty where the error is no bug: then a system outside failed, and `error` describes it."""
    place: str = ""
    """The file and line that raised the error: failures with the same place have the same cause."""

    @property
    def is_bug(self) -> bool:
        """Return whether the error is a bug, not a failure outside."""
        return bool(self.traceback)


@dataclass(frozen=True, slots=True)
class CycleReport:
    """The decisions of one cycle and their outcomes.

    A subject that the last report has and this one has not no longer exists.
    """

    decisions: Sequence[Decision]
    outcomes: Sequence[Outcome]
    warnings: Sequence[str] = ()
    failure: str = ""
    """What could not be observed; not empty means that the cycle failed, although it decided."""
    carried: Sequence[Decision] = ()
    """Decisions of earlier cycles that are still valid, since their next evaluation is not due."""
    failed_turns: Sequence[FailedTurn] = ()
    """Errors of single workloads or policies; the cycle succeeded all the same."""


class Analyses(Protocol):
    """The custom resources Analytics and Recommendation, whichever product defined them."""

    def definition_owner(self) -> tuple[Standing, str]:
        """Return the owner of the definitions, and the evidence where that is not obvious."""

    def analytics(self) -> Sequence[PolicyObject]:
        """List the Analytics; a status has the generation that it describes."""

    def recommendations(self) -> Sequence[PolicyObject]: ...

    def create(self, manifest: Mapping[str, Any]) -> PolicyObject:
        """Create a Recommendation, named by the server; after a lost answer there may be one more."""

    def set_adoption(self, recommendation: PolicyObject, adoption: str) -> PolicyObject:
        """Change a Recommendation's adoption; raise StoreConflict when it has changed since it was read."""

    def write_status(self, about: PolicyObject, status: Mapping[str, Any]) -> None:
        """Replace the status as its definition allows; raise StoreConflict when it has changed since."""

    def delete(self, recommendation: PolicyObject) -> None:
        """Delete the object with this name and UID; succeed when it no longer exists."""


class Unanswered(WorldFailed):
    """The request was sent, and whether it took effect is unknown."""


class PoolsUpkeep(Protocol):
    """What the operator's loop needs of the tiers."""

    def snapshot(self, *, is_thorough: bool = False, also: Sequence[str] = ()) -> PoolsSnapshot:
        """Read every pod, each atomically; with `is_thorough` also keys that no set refers to.

        The pods in `also` are read whether a tier has them or not.
        """

    def reconcile(self, actions: Sequence[RegistrationAction], epoch: int | None) -> Sequence[PoolAnswer]:
        """Register, unregister, suspend and resume pods in this order; return one answer for each."""

    def move(
        self, moves: Sequence[MovePod], version: str, epoch: int | None, *, marks_busy: bool = False
    ) -> Sequence[PoolAnswer]:
        """Move idle pods, planned from this version of the config; `marks_busy` marks busy ones instead."""

    def recover(self, pods: Sequence[str], epoch: int | None) -> Sequence[PoolAnswer]:
        """Free pods that no call holds, once two reads a lease apart agree."""


class Pools(PoolsUpkeep, Protocol):
    """Pods in tiers. Each write is atomic and idempotent.

    An epoch of None is a caller without leader election. WorldFailed means that nothing was changed,
    Unanswered that the outcome is unknown. A refusal means that nothing was changed, too: it is returned only
    when all that was sent for it was answered.
    """

    def register(self, pod: str, uid: str, epoch: int | None, metadata: str = "") -> PoolAnswer:
        """Add a pod to a tier."""

    def unregister(self, pod: str, uid: str, epoch: int | None) -> PoolAnswer:
        """Remove a pod that no longer exists, with its calls."""

    def allocate(self, call: str, tier: str = "") -> PoolAnswer:
        """Assign a free pod to a call; a repeated request returns the same pod."""

    def release(self, call: str, pod: str = "") -> PoolAnswer:
        """End a call; with `pod`, only when that pod has it."""

    def heartbeat(self, call: str) -> PoolAnswer:
        """Renew the lease of a call."""

    def drain(self, pod: str, uid: str = "") -> PoolAnswer:
        """Assign no more calls to the pod."""

    def undrain(self, pod: str, uid: str = "") -> PoolAnswer:
        """Assign calls to the pod again."""

    def set_config(self, text: str, version: str, tiers_to_empty: Sequence[str] = ()) -> PoolAnswer:
        """Replace the tiers if the config still has this version; tiers that are removed must be empty."""

    def repair(self, pod: str, epoch: int | None) -> PoolAnswer:
        """Repair contradictory keys of a pod, where only one repair is possible."""

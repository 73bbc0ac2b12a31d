"""What outlives a cycle: memory, leadership, what people said, the diary.

What the recommendation needs of its own kinds. An adapter and the simulator stand behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from equipoise.core.errors import WorldFailed
from equipoise.crd.definition import Standing

if TYPE_CHECKING:
    from equipoise.core.cluster import ObjectRef, WorkloadRef
    from equipoise.core.decision import Decision, Outcome, Record


class StoreConflict(Exception):  # noqa: N818 - reads as a fact
    """Somebody else wrote in between: read again, decide again."""


class NotInstalled(WorldFailed):
    """The place where memory is kept has not been made yet: nothing was ever remembered."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What a store holds under a key. The version of an absent entry is empty."""

    data: Mapping[str, Any]
    version: str = ""


class Store(Protocol):
    """Memory that outlives us: small documents, written by compare-and-swap."""

    def read(self, workload: WorkloadRef) -> Stored:
        """Read the entry of a workload; an absent one is empty, with an empty version."""
        ...

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        """Read every entry at once; None means all namespaces.

        An entry whose content makes no sense is given as it is, for its reader to judge.
        """
        ...

    def write(self, workload: WorkloadRef, data: Mapping[str, Any], version: str) -> Stored:
        """Write an entry if it still has this version, else raise StoreConflict."""
        ...


class Leadership(Protocol):
    """Whether we, and nobody else, may act."""

    def epoch(self) -> int | None:
        """Return the Lease transition that we lead in, or None when we do not lead or can't be sure.

        It is asked right before every action, and is answered from the monotonic time since the last
        renewal: a process that was stopped for longer than the lease gets None, not an old belief.
        """
        ...


class Pauses(Protocol):
    """Where people have said stop."""

    def pause_of(self, namespace: str) -> str | None:
        """Return who or what paused this namespace, or None; not knowing raises, and nothing is done."""
        ...


@dataclass(frozen=True, slots=True)
class PolicyObject:
    """A policy as it stands in the cluster: what was asked, and what we last said about it."""

    ref: ObjectRef
    generation: int
    version: str
    spec: Mapping[str, Any]
    status: Mapping[str, Any]
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at: float = 0.0
    unreadable: str = ""
    """Why the object cannot be read; then nothing of its spec is known, and nothing is done for it."""


class Policies(Protocol):
    """The custom resources of one kind of policy."""

    def policies(self) -> Sequence[PolicyObject]:
        """List them."""
        ...

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        """Replace what we say about a policy; StoreConflict when it has changed since it was read."""
        ...


class Journal(Protocol):
    """The diary. Losing it changes no decision, so it never raises."""

    def append(self, *records: Record, is_whole: bool = False) -> None:
        """Keep these."""
        ...


@dataclass(frozen=True, slots=True)
class FailedTurn:
    """The turn of one workload, policy or pod that an error ended, while all others went on."""

    subject: str
    error: str
    """On one line."""
    traceback: str = ""
    """Empty where it was no bug: then the world failed, and the line says how."""
    place: str = ""
    """The file and line that raised it: subjects with the same one have the same cause."""

    @property
    def is_bug(self) -> bool:
        """Whether nobody foresaw it."""
        return bool(self.traceback)


@dataclass(frozen=True, slots=True)
class CycleReport:
    """What one cycle decided for everything it looks after, and what came of it.

    A subject that was in the last report and is not in this one has vanished.
    """

    decisions: Sequence[Decision]
    outcomes: Sequence[Outcome]
    warnings: Sequence[str] = ()
    failure: str = ""
    """What of the world could not be seen, so that this was no good cycle although it decided."""
    carried: Sequence[Decision] = ()
    """Decided in an earlier cycle and standing still, since it is not time to look again."""
    failed_turns: Sequence[FailedTurn] = ()
    """What an error cost single workloads or policies; the cycle is a good one all the same."""


class Analyses(Protocol):
    """The custom resources in which advice is asked for and given, whoever defined them."""

    def definition_owner(self) -> tuple[Standing, str]:
        """Return whose the definitions are, and how we know where that is not plain."""
        ...

    def analytics(self) -> Sequence[PolicyObject]:
        """List what was asked for; a status knows the generation that it is about."""
        ...

    def recommendations(self) -> Sequence[PolicyObject]:
        """List the advice that was given."""
        ...

    def create(self, manifest: Mapping[str, Any]) -> PolicyObject:
        """Make a Recommendation, named by the server; after a lost answer there may be one more."""
        ...

    def set_adoption(self, recommendation: PolicyObject, adoption: str) -> PolicyObject:
        """Change what becomes of advice; StoreConflict when it has changed since it was read."""
        ...

    def write_status(self, about: PolicyObject, status: Mapping[str, Any]) -> None:
        """Replace the status the way its definition allows; StoreConflict when it has changed meanwhile."""
        ...

    def delete(self, recommendation: PolicyObject) -> None:
        """Remove exactly this one; one that is gone already is fine."""
        ...

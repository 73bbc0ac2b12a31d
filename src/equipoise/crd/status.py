"""What we write into the status of a policy.

The disruption ledger of one workload: what was done to its pods, by whom, and what came of it.
"""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from equipoise.core.ledger import EntryState
from equipoise.crd.definition import Column, DefinedKind
from equipoise.crd.fields import Count, Memory, Moment, Name, SchemaPart, Text, UniqueBy
from equipoise.crd.targets import LabelKey, WorkloadTarget

ENTRIES_MAX = 200
"""How many entries a list in status holds; a count beside it says how many there are."""
TEXT_LENGTH_MAX = 32768

Reason = Annotated[
    str, Text(r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$", "a reason of one word such as Rotate", 128)
]
Sentence = Annotated[str, Field(max_length=TEXT_LENGTH_MAX)]
Subject = Annotated[str, Field(max_length=512)]


class Truth(StrEnum):
    """What a condition can be."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Condition(SchemaPart):
    """One condition, in the shape that all of Kubernetes uses."""

    type: LabelKey = Field(description="The type of the condition, such as Ready.")
    status: Truth = Field(description="The status of the condition.")
    observed_generation: Count | None = Field(
        None,
        alias="observedGeneration",
        description="The generation of the policy that the condition describes.",
    )
    last_transition_time: Moment = Field(
        alias="lastTransitionTime", description="The time at which the status last changed."
    )
    reason: Reason = Field(description="The reason, as one CamelCase word.")
    message: Sentence = Field(description="The reason, as a sentence.")


Conditions = Annotated[tuple[Condition, ...], Field(max_length=32), UniqueBy("type")]


class LastDecision(SchemaPart):
    """The decision that was made last, or the last that did something."""

    reason: Reason = Field(description="The reason, as a code of a closed list.")
    sentence: Sentence = Field("", description="The reason, as a sentence.")
    at: Moment = Field(description="The time of the decision.")
    subject: Subject = Field("", description="The workload of the decision.")


class WorkloadDecision(SchemaPart):
    """What was decided last for one of the workloads."""

    subject: Subject = Field(description="The workload.")
    reason: Reason = Field(description="The reason, as a code of a closed list.")
    sentence: Sentence = Field("", description="The reason, as a sentence.")
    at: Moment | None = Field(None, description="The time since which the reason has been the same.")


class PolicyStatus(SchemaPart):
    """What the status of every policy begins with."""

    observed_generation: Count | None = Field(
        None,
        alias="observedGeneration",
        description="The generation of the policy that the status describes.",
    )
    conditions: Conditions = Field((), description="The conditions of the policy, such as Ready.")
    last_decision: LastDecision | None = Field(None, alias="lastDecision", description="The latest decision.")


Word = Annotated[str, Text(r"^[A-Za-z][A-Za-z0-9]*$", "one word of letters and digits", 63)]


BALANCERS_MAX = 16
"""More than there are, by far."""


class LedgerEntry(SchemaPart):
    """One action on one incarnation of a pod, written before it is sent."""

    id: str = Field(min_length=1, max_length=128, description="The ID of the action, also in events.")
    round: str = Field("", max_length=128, description="The ID that all actions of one decision have.")
    balancer: Word = Field(description="The balancer that decided it.")
    action: Word = Field(description="The kind of the action, such as EvictPod.")
    pod: Name = Field(description="The pod's name.")
    uid: str = Field("", max_length=64, description="The pod's UID.")
    at: Moment = Field(description="The time at which the intent was written.")
    state: EntryState = Field(description="The state of the action.")
    epoch: Count = Field(0, description="The Lease transition in which it was written.")


class LedgerData(SchemaPart):
    """All that is remembered of one workload's disruptions; it is replaced by compare-and-swap."""

    workload: WorkloadTarget = Field(description="The workload of the ledger.")
    epoch: Count = Field(0, description="The highest Lease transition of all writers; it never decreases.")
    epochs: dict[str, Count] = Field(
        {}, max_length=BALANCERS_MAX, description="The same for each balancer, which may have its own Lease."
    )
    entries: Annotated[tuple[LedgerEntry, ...], UniqueBy("id")] = Field(
        (), max_length=ENTRIES_MAX, description="The newest actions, oldest first."
    )
    entries_total: Count = Field(0, alias="entriesTotal", description="The number of all actions so far.")
    memory: Memory = Field({}, description="The state that each balancer keeps from one cycle to the next.")


LEDGER = DefinedKind(
    group="equipoise.dev",
    version="v1alpha1",
    name="Ledger",
    plural="ledgers",
    description="The actions on the pods of one workload. Equipoise writes it; do not edit it.",
    body={"data": LedgerData},
    required=("data",),
    columns=(
        Column("Kind", ".data.workload.kind"),
        Column("Workload", ".data.workload.name"),
        Column("Entries", ".data.entriesTotal", "integer"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)

"""The disruption ledger of one workload: what was done to its pods, by whom, and what came of it."""

from typing import Annotated

from pydantic import Field

from equipoise.model.crd.fields import Count, Memory, Moment, Name, Part, Text, UniqueBy
from equipoise.model.crd.kind import Column, Kind
from equipoise.model.crd.status import ENTRIES_MAX
from equipoise.model.crd.targets import WorkloadTarget
from equipoise.model.ledger import EntryState

Word = Annotated[str, Text(r"^[A-Za-z][A-Za-z0-9]*$", "one word of letters and digits", 63)]


BALANCERS_MAX = 16
"""More than there are, by far."""


class Entry(Part):
    """One action on one incarnation of a pod, written before it is sent."""

    id: str = Field(min_length=1, max_length=128, description="What identifies this action, also in events.")
    round: str = Field("", max_length=128, description="What the actions of one decision share.")
    balancer: Word = Field(description="The balancer that wants it.")
    action: Word = Field(description="What is done, such as EvictPod.")
    pod: Name = Field(description="The pod's name.")
    uid: str = Field("", max_length=64, description="The incarnation of that name.")
    at: Moment = Field(description="When the intent was written.")
    state: EntryState = Field(description="How far it has come.")
    epoch: Count = Field(0, description="The Lease transition that it was written in.")


class LedgerData(Part):
    """All that is remembered of one workload's disruptions; it is replaced by compare-and-swap."""

    workload: WorkloadTarget = Field(description="Whose ledger this is.")
    epoch: Count = Field(0, description="The highest Lease transition of all who wrote; it never falls.")
    epochs: dict[str, Count] = Field(
        {}, max_length=BALANCERS_MAX, description="The same by balancer, since each may have its own Lease."
    )
    entries: Annotated[tuple[Entry, ...], UniqueBy("id")] = Field(
        (), max_length=ENTRIES_MAX, description="The newest actions, oldest first."
    )
    entries_total: Count = Field(0, alias="entriesTotal", description="How many there have ever been.")
    memory: Memory = Field({}, description="What the balancers carry over, by balancer.")


LEDGER = Kind(
    group="equipoise.dev",
    version="v1alpha1",
    name="Ledger",
    plural="ledgers",
    description="What was done to the pods of one workload. Equipoise writes it; leave it alone.",
    body={"data": LedgerData},
    required=("data",),
    columns=(
        Column("Kind", ".data.workload.kind"),
        Column("Workload", ".data.workload.name"),
        Column("Entries", ".data.entriesTotal", "integer"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)

"""The custom resource: `ScalingPolicy`, what it asks for and what came of it."""

from typing import Annotated

from pydantic import Field

from equipoise.model.crd.amounts import Amount
from equipoise.model.crd.fields import Count, Memory, Moment, Part, Text, UniqueBy
from equipoise.model.crd.kind import Column, Kind
from equipoise.model.crd.status import ENTRIES_MAX, Conditions, LastDecision, Reason, Sentence
from equipoise.proportional.written import WrittenScalingPolicySpec

SlotName = Annotated[
    str,
    Text(
        r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?\.(requests|limits)\.(cpu|memory)$",
        "a container's resource such as kube-dns.requests.cpu",
        280,
    ),
]
Ratio = Annotated[str, Text(r"^[0-9]{1,9}/[0-9]{1,9}$", "two counts such as 3/5", 19)]


class LastChange(Part):
    """When a value was last replaced."""

    at: Moment = Field(description="When.")
    before: Amount | None = Field(None, description="What was in force before; absent where unknown.")
    after: Amount = Field(description="What is in force since.")


class ResourceStatus(Part):
    """One resource of one container."""

    name: SlotName = Field(description="Which one: CONTAINER.requests.cpu.")
    current: Amount | None = Field(None, description="What is in force.")
    target: Amount | None = Field(None, description="What the cluster asked for last.")
    scale_up_below: Amount | None = Field(
        None, alias="scaleUpBelow", description="A value below this is scaled up now."
    )
    scale_down_above: Amount | None = Field(
        None, alias="scaleDownAbove", description="A value above this is scaled down now."
    )
    reason: Reason | None = Field(None, description="Why it was set or is held, as one code.")
    last_change: LastChange | None = Field(None, alias="lastChange", description="When it was last replaced.")


class WindowStatus(Part):
    """The targets that the smoothing looks at."""

    observations: Count = Field(0, description="How many are kept.")
    since: Moment | None = Field(None, description="When the first target under this policy was seen.")


class ScalingPolicyStatus(Part):
    """What came of the policy."""

    observed_generation: Count | None = Field(
        None, alias="observedGeneration", description="The generation that this status is about."
    )
    conditions: Conditions = Field((), description="Ready, and why not.")
    last_decision: LastDecision | None = Field(
        None, alias="lastDecision", description="The decision that was made last."
    )
    resources: Annotated[tuple[ResourceStatus, ...], UniqueBy("name")] = Field(
        (), max_length=ENTRIES_MAX, description="The latest target of each resource, and why it is held."
    )
    window: WindowStatus | None = Field(None, description="The targets that the smoothing looks at.")
    pods_at_target: Ratio | None = Field(
        None, alias="podsAtTarget", description="How many pods have what is in force, of how many."
    )
    message: Sentence = Field("", description="What a change costs: whether it restarts anything.")
    memory: Memory = Field({}, description="What the next decision needs.")


SCALING_POLICY = Kind(
    group="scalingpolicy.kope.io",
    version="v1alpha1",
    name="ScalingPolicy",
    plural="scalingpolicies",
    description="Lets a workload's requests and limits follow the size of the cluster, without flapping.",
    body={"spec": WrittenScalingPolicySpec, "status": ScalingPolicyStatus},
    required=("spec",),
    short_names=("scalpol",),
    columns=(
        Column("Kind", ".spec.scaleTargetRef.kind"),
        Column("Target", ".spec.scaleTargetRef.name"),
        Column("Reason", ".status.lastDecision.reason"),
        Column("Pods", ".status.podsAtTarget", description="Pods that have what is in force."),
        Column("Why", ".status.lastDecision.sentence", priority=1),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)

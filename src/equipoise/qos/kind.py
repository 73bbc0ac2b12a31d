"""The custom resources: waterlines in two spellings, what to do at them, and to which pods."""

from pydantic import Field

from equipoise.model.crd.fields import Count, Part
from equipoise.model.crd.kind import Column, Kind
from equipoise.model.crd.status import Conditions
from equipoise.qos.policy import AvoidanceActionSpec, NodeQOSEnsurancePolicySpec, NodeQOSSpec, PodQOSSpec

GROUP = "ensurance.crane.io"
VERSION = "v1alpha1"
AGE = Column("Age", ".metadata.creationTimestamp", "date")


class Status(Part):
    """What came of it; what was done is told by the node and its pods."""

    observed_generation: Count | None = Field(
        None, alias="observedGeneration", description="The generation that this status is about."
    )
    conditions: Conditions = Field((), description="Ready, and why not.")


NODE_QOS_ENSURANCE_POLICY = Kind(
    group=GROUP,
    version=VERSION,
    name="NodeQOSEnsurancePolicy",
    plural="nodeqosensurancepolicies",
    description="Waterlines of nodes, and what is done when they are crossed.",
    body={"spec": NodeQOSEnsurancePolicySpec, "status": Status},
    required=("spec",),
    short_names=("nep",),
    is_namespaced=False,
    columns=(AGE,),
)
NODE_QOS = Kind(
    group=GROUP,
    version=VERSION,
    name="NodeQOS",
    plural="nodeqoss",
    description="Waterlines of nodes, and what is done when they are crossed; the later spelling.",
    body={"spec": NodeQOSSpec, "status": Status},
    required=("spec",),
    short_names=("nq",),
    is_namespaced=False,
    columns=(AGE,),
)
AVOIDANCE_ACTION = Kind(
    group=GROUP,
    version=VERSION,
    name="AvoidanceAction",
    plural="avoidanceactions",
    description="What is done when a waterline is crossed: throttle, evict, or let no new pod come.",
    body={"spec": AvoidanceActionSpec, "status": Status},
    required=("spec",),
    short_names=("avoid",),
    is_namespaced=False,
    columns=(Column("Cooldown", ".spec.coolDownSeconds", "integer", "In seconds."), AGE),
)
POD_QOS = Kind(
    group=GROUP,
    version=VERSION,
    name="PodQOS",
    plural="podqoss",
    description="Which pods may be acted on, and how.",
    body={"spec": PodQOSSpec, "status": Status},
    required=("spec",),
    short_names=("pq",),
    is_namespaced=False,
    columns=(AGE,),
)
QOS_KINDS = (NODE_QOS_ENSURANCE_POLICY, NODE_QOS, AVOIDANCE_ACTION, POD_QOS)

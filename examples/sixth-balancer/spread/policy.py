"""What a user writes: how many pods of one workload a node may have."""

from pydantic import Field

from equipoise.crd.definition import DefinedKind
from equipoise.crd.fields import SchemaPart
from equipoise.crd.targets import Mode


class SpreadPolicy(SchemaPart):
    """The spec of a SpreadPolicy; it is about all workloads of its namespace."""

    pods_per_node_max: int = Field(
        2, alias="podsPerNodeMax", ge=1, le=1000, description="How many pods of one workload a node may have."
    )
    mode: Mode = Field(Mode.PREVIEW, description="Enforce evicts; Preview only says what it would do.")


SPREAD_POLICY = DefinedKind(
    group="equipoise.dev",
    version="v1alpha1",
    name="SpreadPolicy",
    plural="spreadpolicies",
    description="Keeps the pods of each workload in its namespace spread over the nodes.",
    body={"spec": SpreadPolicy},
    required=("spec",),
)

"""The workloads of a policy, and whether it may act on them."""

from enum import StrEnum
from typing import Annotated, Self

from pydantic import ConfigDict, Field, model_validator

from equipoise.core.cluster import Requirement, Selector
from equipoise.crd.fields import Name, SchemaPart, Text, rule, rules

VALUES_RULE = "expected values with In and NotIn, and none with Exists and DoesNotExist"

LabelKey = Annotated[
    str,
    Text(
        r"^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$",
        "a label's key such as tier or example.com/tier",
        317,
    ),
]
LabelValue = Annotated[
    str,
    Text(
        r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", "a label's value of letters, digits, -, _ and .", 63
    ),
]
ApiVersion = Annotated[
    str,
    Text(
        r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9]+((alpha|beta)[0-9]+)?$",
        "an API version such as apps/v1",
        317,
    ),
]
KindName = Annotated[str, Text(r"^[A-Z][A-Za-z0-9]*$", "a kind such as Deployment", 63)]


class Mode(StrEnum):
    """Whether the operator acts for a policy or only says what it would do."""

    PREVIEW = "Preview"
    ENFORCE = "Enforce"


class WorkloadTarget(SchemaPart):
    """One workload, in the policy's own namespace."""

    api_version: ApiVersion = Field(
        "apps/v1", alias="apiVersion", description="The API version of the workload's kind."
    )
    kind: KindName = Field(description="Deployment, StatefulSet, or any kind with a scale subresource.")
    name: Name = Field(description="The workload's name.")


class Operator(StrEnum):
    """How a label is compared."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class LabelTerm(SchemaPart):
    """One term of a label selector."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(self.operator in ['In', 'NotIn']) == (has(self.values) && size(self.values) > 0)",
                VALUES_RULE,
            )
        )
    )

    key: LabelKey = Field(description="The label's key.")
    operator: Operator = Field(description="The operator of the comparison.")
    values: tuple[LabelValue, ...] = Field(
        (), max_length=50, description="The values that In and NotIn compare with."
    )

    @model_validator(mode="after")
    def _has_values_where_needed(self) -> Self:
        if (self.operator in {Operator.IN, Operator.NOT_IN}) != bool(self.values):
            raise ValueError(VALUES_RULE)
        return self


class LabelSelector(SchemaPart):
    """Workloads by their labels, in the policy's own namespace; all terms must hold, and {} takes all."""

    match_labels: dict[LabelKey, LabelValue] = Field(
        {}, alias="matchLabels", max_length=50, description="Labels that a workload must have."
    )
    match_expressions: tuple[LabelTerm, ...] = Field(
        (), alias="matchExpressions", max_length=50, description="Requirements that must be met, too."
    )

    @property
    def selector(self) -> Selector:
        exact = [Requirement(key, "In", (value,)) for key, value in sorted(self.match_labels.items())]
        terms = [Requirement(term.key, term.operator.value, term.values) for term in self.match_expressions]
        return Selector((*exact, *terms))

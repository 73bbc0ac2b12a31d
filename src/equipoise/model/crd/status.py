"""What we write into the status of a policy."""

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from equipoise.model.crd.fields import Count, Moment, Part, Text, UniqueBy
from equipoise.model.crd.targets import LabelKey

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


class Condition(Part):
    """One condition, in the shape that all of Kubernetes uses."""

    type: LabelKey = Field(description="What it is about, such as Ready.")
    status: Truth = Field(description="Whether it holds.")
    observed_generation: Count | None = Field(
        None, alias="observedGeneration", description="The generation of the policy that it was judged by."
    )
    last_transition_time: Moment = Field(
        alias="lastTransitionTime", description="When its status last changed."
    )
    reason: Reason = Field(description="Why, as one word.")
    message: Sentence = Field(description="Why, as a sentence.")


Conditions = Annotated[tuple[Condition, ...], Field(max_length=32), UniqueBy("type")]


class LastDecision(Part):
    """The decision that was made last, or the last that did something."""

    reason: Reason = Field(description="Why, as one code of the closed list.")
    sentence: Sentence = Field("", description="Why, as a sentence.")
    at: Moment = Field(description="When it was decided.")
    subject: Subject = Field("", description="The workload that it is about.")


class WorkloadDecision(Part):
    """What was decided last for one of the workloads."""

    subject: Subject = Field(description="The workload.")
    reason: Reason = Field(description="Why, as one code of the closed list.")
    sentence: Sentence = Field("", description="Why, as a sentence.")
    at: Moment | None = Field(None, description="Since when this has been the reason.")

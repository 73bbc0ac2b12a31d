"""A workload described in a file: what `rotation plan --from FILE` reads.

Settings from `--set` and from the environment variables of the earlier rebalancer.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator

from equipoise.core.cluster import HpaMetric
from equipoise.core.documents import explain, merged, validated, without_nulls
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.core.quantity import parse_cores, parse_seconds
from equipoise.rotation.policy import ENVIRONMENT, RotationPolicy
from equipoise.rotation.preconditions import CORES_MAX, Observation, ObservedHpa, PodLoad

Cores = Annotated[float, BeforeValidator(parse_cores), Field(le=CORES_MAX)]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class _Target(_Part):
    type: str
    value: Cores

    @field_validator("value")
    @classmethod
    def _above_zero(cls, value: float) -> float:
        if value <= 0:
            raise ValueError("expected a target above 0")
        return value


class _Hpa(_Part):
    name: str = ""
    target: _Target
    metric: str = "cpu"


class _Pod(_Part):
    name: str = Field(min_length=1)
    cpu: Cores | None = None
    request: Cores | None = None
    ready: bool = True
    age: Annotated[float, BeforeValidator(parse_seconds)] | None = None
    node: str = ""
    restarts: int = Field(0, ge=0)


class PlanFile(_Part):
    """The whole file. A pod without `cpu` has no sample; what is not said counts as harmless."""

    workload: str = ""
    hpa: _Hpa | None = None
    pods: list[_Pod]
    policy: dict[str, Any] = {}

    @field_validator("workload")
    @classmethod
    def _a_name(cls, value: str) -> str:
        if value and not re.fullmatch(r"([^/\s]+/)?[^/\s]+", value):
            raise ValueError(f"expected NAMESPACE/NAME or NAME, got {value!r}")
        return value

    @field_validator("pods")
    @classmethod
    def _unique(cls, pods: list[_Pod]) -> list[_Pod]:
        names: set[str] = set()
        for pod in pods:
            if pod.name in names:
                raise ValueError(f"expected unique names, got {pod.name!r} twice")
            names.add(pod.name)
        return pods


def read_plan_file(
    document: object, source: str, below: Mapping[str, Any], above: Mapping[str, Any]
) -> tuple[RotationPolicy, Observation]:
    """Return the policy and the observation of a parsed file.

    The file's policy wins over the settings `below` it (the environment), and gives way to those `above`
    (the command line).
    """
    file = validated(PlanFile, without_nulls(document), source)
    validated(RotationPolicy, file.policy, f"{source}: policy")
    policy = validated(RotationPolicy, merged(below, file.policy, above), "policy")
    namespace, _, name = file.workload.rpartition("/")
    subject = f"{namespace}/{name}" if namespace else name or source
    hpas: tuple[ObservedHpa, ...] = ()
    if file.hpa is not None:
        metric = HpaMetric("Resource", file.hpa.metric, file.hpa.target.type, file.hpa.target.value)
        hpas = (ObservedHpa(file.hpa.name or policy.hpa_prefix, (metric,)),)
    pods = tuple(
        PodLoad(each.name, each.cpu, each.request, each.ready, each.age, each.restarts > 0, each.node)
        for each in file.pods
    )
    return policy, Observation(subject, at=0.0, hpas=hpas, pods=pods, namespace=namespace)


def rotation_settings(environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Read the rotation's variables as settings; an empty one counts as not set."""
    settings: dict[str, Any] = {}
    for name, path in ENVIRONMENT.items():
        value = environment.get(name, "").strip()
        if not value:
            continue
        alone: dict[str, Any] = {}
        _put(alone, path, value)
        try:
            RotationPolicy.model_validate(alone)
        except DECODE_ERRORS as error:  # refused under the name that the user gave it
            message = explain(error).partition(": ")[2]
            raise BadInput(f"environment variable {name}: {message}") from error
        settings = merged(settings, alone)
    return settings


def set_options(texts: Sequence[str]) -> dict[str, Any]:
    """Read `--set KEY=VALUE`, where a key may have dots: `kafkaLag.threshold=5`."""
    settings: dict[str, Any] = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not all(key.split(".")):
            raise BadInput(f"--set {text}: expected KEY=VALUE, such as topK=3")
        _put(settings, tuple(key.split(".")), value)
    return settings


def _put(settings: dict[str, Any], path: tuple[str, ...], value: str) -> None:
    *parents, last = path
    for parent in parents:
        inner = settings.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise BadInput(f"--set {'.'.join(path)}: {parent} already has a value of its own")
        settings = inner
    settings[last] = value

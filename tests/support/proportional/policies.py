"""Policies and looks at clusters for tests."""

from collections.abc import Iterable, Mapping
from typing import Any

from equipoise.core.quantity import NANO
from equipoise.proportional.decide import Assessment, Observation, assess, decide
from equipoise.proportional.functions import CompiledPolicy
from equipoise.proportional.parse import read_spec
from equipoise.proportional.policy import ScalingPolicySpec
from equipoise.proportional.smoothing import ProportionalMemory

TARGET = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "kube-dns"}}
CPU = "kube-dns.requests.cpu"
MEMORY = "kube-dns.requests.memory"


def spec(
    *functions: Mapping[str, Any],
    resource: str = "cpu",
    smoothing: Mapping[str, Any] | None = None,
    quantization: Any = None,
    **bounds: Any,
) -> dict[str, Any]:
    """Give a policy of one container and one resource, in the canonical form."""
    rules: list[dict[str, Any]] = [{"resource": resource, "function": dict(one)} for one in functions]
    rules[0] |= bounds
    container: dict[str, Any] = {"name": "kube-dns", "resources": {"requests": rules}}
    if quantization is not None:
        container["quantization"] = quantization
    return TARGET | {"containers": [container]} | ({"smoothing": dict(smoothing)} if smoothing else {})


def policy(*functions: Mapping[str, Any], **parts: Any) -> ScalingPolicySpec:
    """Read it."""
    return read_spec(spec(*functions, **parts), "test")


def target(asked: ScalingPolicySpec, key: str = CPU, **inputs: Any) -> str:
    """Say what a cluster of this size asks for, as it would be written."""
    bare = asked.model_copy(update={"smoothing": type(asked.smoothing)()})
    seen = Observation("kube-dns", 0, {name: str(size) for name, size in inputs.items()})
    written = decide(bare, seen).decision.reason.numbers["target"][key]
    assert isinstance(written, str)
    return written


def run(
    asked: ScalingPolicySpec,
    cores: Iterable[float],
    current: int | None = None,
    seconds: float = 10,
) -> list[Assessment]:
    """Take one step after the other; what was set is in force in the next one."""
    ready, memory, steps = CompiledPolicy.of(asked), ProportionalMemory(), []
    (slot,) = ready.slots
    for number, size in enumerate(cores):
        at = round(number * seconds * 1000)
        known = {} if current is None else {slot.key: current}
        taken = assess(ready, at, {"cores": round(size * NANO)}, known, memory)
        current, memory = taken.applied.get(slot.key), taken.memory
        steps.append(taken)
    return steps


def applied(steps: Iterable[Assessment], key: str = CPU) -> list[int | None]:
    """Give what was in force after each step."""
    return [taken.applied.get(key) for taken in steps]

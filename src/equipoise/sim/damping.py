"""Ways to keep a value from flapping, side by side on the same policy and the same histories.

Each strategy stands alone on the policy's bare function, with the policy's own settings where it has any, and
else with settings made from the cluster's size. The last one is the policy as it was written.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from equipoise.model.duration import print_seconds
from equipoise.model.quantity import NANO, Quantity
from equipoise.model.reason import Code
from equipoise.proportional.decide import Asked, step
from equipoise.proportional.functions import Inputs, Slot, target
from equipoise.proportional.memory import ProportionalMemory
from equipoise.proportional.policy import ScalingPolicySpec
from equipoise.proportional.written import read_spec
from equipoise.sim.cluster_sizes import History

NONE, AS_WRITTEN = "none", "as written"
DELAY_SECONDS = 300
PARTS = 20
"""A default segment is a twentieth of the cluster; a default shift, and a default level, two."""

Document = dict[str, Any]


class Strategy(NamedTuple):
    """One way, and with which settings."""

    name: str
    settings: str
    asked: Asked


@dataclass(frozen=True, slots=True)
class Course:
    """What was in force, look by look, and when it was changed."""

    applied: list[dict[str, int]]
    changed: list[int]
    """The numbers of the looks."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one strategy made of one history."""

    changes: int
    over_provision_mean: float
    below_model_share: float
    below_model_worst: float


@dataclass(frozen=True, slots=True)
class Summary:
    """What one strategy made of all histories of one kind, on average."""

    name: str
    settings: str
    changes: float
    changes_per_hour: float
    over_provision_mean: float
    below_model_share: float
    below_model_worst: float


def strategies(policy: ScalingPolicySpec, start: Inputs) -> list[Strategy]:
    """Give every way to follow this policy's function in a cluster that begins with this size."""
    bare = _bare(policy)
    own = _document(policy).get("smoothing", {})
    down = own.get("delayScaleDown", {})
    shift = down.get("inputs") or {name: _tenth(start[name]) for name in sorted(policy.inputs)}
    seconds = down.get("delaySeconds", DELAY_SECONDS)
    span, far = print_seconds(seconds), ", ".join(f"{size} {name}" for name, size in shift.items())
    share = own.get(
        "percentile", {"target": 0.8, "lowThreshold": 0.6, "highThreshold": 0.95, "windowSeconds": 300}
    )
    shares = f"{share['lowThreshold']:g}/{share['target']:g}/{share['highThreshold']:g}"
    smoothings = {
        "delay by inputs": ({"delayScaleDown": {"inputs": shift}}, f"down after {far}"),
        "delay by time": ({"delayScaleDown": {"delaySeconds": seconds}}, f"down after {span}"),
        "delay by both": (
            {"delayScaleDown": {"inputs": shift, "delaySeconds": seconds}},
            f"down after {far}, or {span}",
        ),
        "percentile": ({"percentile": share}, f"{shares} of {print_seconds(share['windowSeconds'])}"),
    }
    found = [Strategy(NONE, "every target at once", _asked(bare))]
    found.append(_segmented(policy, bare, start))
    found.append(_quantized(policy, bare, start))
    found += [
        Strategy(name, settings, _asked(bare | {"smoothing": smoothing}))
        for name, (smoothing, settings) in smoothings.items()
    ]
    if read_spec(bare, "strategy") != policy:
        found.append(Strategy(AS_WRITTEN, "the policy itself", _remembering(Asked.of(policy))))
    return found


def run(strategy: Strategy, history: History) -> Course:
    """Follow a history; what the policy asks for at its beginning is in force then."""
    asked = strategy.asked
    in_force = {slot.key: asked.target(slot, history.inputs[0]) for slot in asked.slots}
    memory, applied, changed = ProportionalMemory(), [], []
    for number, (at, inputs) in enumerate(zip(history.times, history.inputs, strict=True)):
        taken = step(asked, at, inputs, in_force, memory)
        if taken.code is Code.SET:
            changed.append(number)
        in_force, memory = taken.applied, taken.memory
        applied.append(in_force)
    return Course(applied, changed)


def modelled(policy: ScalingPolicySpec, history: History) -> list[dict[str, int]]:
    """Give what the bare function says, look by look: no rounding, no levels, no smoothing."""
    asked = _asked(_bare(policy))
    return [{slot.key: asked.target(slot, inputs) for slot in asked.slots} for inputs in history.inputs]


def judge(course: Course, model: list[dict[str, int]]) -> Outcome:
    """Compare what was in force with the model: too much, and too little."""
    over, below, worst, pairs = 0.0, 0, 0.0, 0
    for applied, wanted in zip(course.applied, model, strict=True):
        is_below = False
        for key, value in wanted.items():
            share = applied[key] / value - 1 if value else 0.0
            over, pairs = over + max(share, 0.0), pairs + 1
            is_below, worst = is_below or share < 0, max(worst, -share)
        below += is_below
    return Outcome(len(course.changed), over / max(pairs, 1), below / max(len(model), 1), worst)


def study(
    policy: ScalingPolicySpec,
    start: Inputs,
    histories: Iterable[History],
    told: Callable[[int], object] | None = None,
) -> list[Summary]:
    """Run every strategy through every history, and give the means."""
    ways = strategies(policy, start)
    outcomes: dict[str, list[Outcome]] = {}
    hours = 0.0
    for done, history in enumerate(histories, 1):
        model = modelled(policy, history)
        hours += history.hours
        for way in ways:
            outcomes.setdefault(way.name, []).append(judge(run(way, history), model))
        if told is not None:
            told(done)
    return [_summary(way, outcomes[way.name], hours) for way in ways]


def _summary(way: Strategy, outcomes: list[Outcome], hours: float) -> Summary:
    count = len(outcomes)
    changes = sum(outcome.changes for outcome in outcomes)
    return Summary(
        name=way.name,
        settings=way.settings,
        changes=changes / count,
        changes_per_hour=changes / hours if hours else 0.0,
        over_provision_mean=math.fsum(outcome.over_provision_mean for outcome in outcomes) / count,
        below_model_share=math.fsum(outcome.below_model_share for outcome in outcomes) / count,
        below_model_worst=max(outcome.below_model_worst for outcome in outcomes),
    )


def _document(policy: ScalingPolicySpec) -> Document:
    written: Document = policy.model_dump(mode="json", by_alias=True, exclude_none=True)
    return written


def _bare(policy: ScalingPolicySpec) -> Document:
    """Leave out segments, levels and smoothing."""
    document = _document(policy) | {"smoothing": {}}
    for container in document["containers"]:
        container["quantization"] = []
        for section in ("requests", "limits"):
            for rule in container["resources"][section]:
                rule["function"]["segments"] = []
    return document


def _asked(document: Document) -> Asked:
    return _remembering(Asked.of(read_spec(document, "strategy")))


def _remembering(asked: Asked) -> Asked:
    """Ask the functions once for each size: a history has few of them, and many looks."""
    known: dict[tuple[str, tuple[int, ...]], int] = {}

    def remembered(slot: Slot, inputs: Inputs) -> int:
        key = slot.key, tuple(inputs.values())
        if key not in known:
            known[key] = target(slot, inputs)
        return known[key]

    return asked._replace(target=remembered)


def _tenth(nanos: int) -> str:
    """Give a tenth of a size, at least one."""
    return str(Quantity(max(1, round(nanos / NANO / PARTS * 2)) * NANO))


def _segmented(policy: ScalingPolicySpec, bare: Document, start: Inputs) -> Strategy:
    own = _document(policy)
    document = _bare(policy)
    has_own = any(part.function.segments for part in _rules(policy))
    for written, container in zip(own["containers"], document["containers"], strict=True):
        for section in ("requests", "limits"):
            for given, rule in zip(
                written["resources"][section], container["resources"][section], strict=True
            ):
                every = _twentieth(start.get(rule["function"].get("input", ""), 0))
                default = [{"at": 0, "every": every}] if every else []
                rule["function"]["segments"] = given["function"]["segments"] if has_own else default
    inputs = ", ".join(f"{_twentieth(start[name])} {name}" for name in sorted(policy.inputs))
    return Strategy("segments", "the policy's" if has_own else f"every {inputs}", _asked(bare | document))


def _quantized(policy: ScalingPolicySpec, bare: Document, start: Inputs) -> Strategy:
    own = _document(policy)["containers"]
    document, settings = _bare(policy), []
    if any(container["quantization"] for container in own):
        for written, container in zip(own, document["containers"], strict=True):
            container["quantization"] = written["quantization"]
        return Strategy("quantization", "the policy's", _asked(bare | document))
    asked = Asked.of(read_spec(bare, "strategy"))
    for container in document["containers"]:
        levels: Mapping[str, str] = {
            slot.resource.value: _level(slot, start)
            for slot in asked.slots
            if slot.container == container["name"]
        }
        container["quantization"] = [{"resource": name, "base": base} for name, base in levels.items()]
        settings += [f"{base} of {name}" for name, base in levels.items()]
    return Strategy("quantization", f"every {', '.join(dict.fromkeys(settings))}", _asked(bare | document))


def _rules(policy: ScalingPolicySpec) -> list[Any]:
    return [
        rule
        for container in policy.containers
        for rule in (*container.resources.requests, *container.resources.limits)
    ]


def _twentieth(nanos: int) -> str:
    return str(Quantity(math.ceil(nanos / NANO / PARTS) * NANO)) if nanos else ""


def _level(slot: Slot, start: Inputs) -> str:
    """Give a readable distance of levels near a tenth of the first value: 1, 2 or 5 of something."""
    wanted = max(1, target(slot, start) * 2 // PARTS)
    power = 10 ** (len(str(wanted)) - 1)
    readable = max(size * power for size in (1, 2, 5) if size * power <= wanted)
    return slot.text(readable)

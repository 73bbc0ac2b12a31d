"""Compares the smoothing strategies on the same policy and the same histories of a cluster's size.

Each strategy is applied alone to the policy's bare function, with the policy's own settings where it has any,
and else with settings made from the cluster's size. The last one is the policy as it was written. Histories
are recorded, or generated from a seed: updates, flapping nodes, autoscalers.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from equipoise.core.quantity import NANO, Quantity, print_seconds
from equipoise.core.reason import Code
from equipoise.engine.isolation import ignore
from equipoise.proportional.decide import assess
from equipoise.proportional.functions import CompiledPolicy, Inputs, Slot, target
from equipoise.proportional.parse import read_spec
from equipoise.proportional.policy import ScalingPolicySpec
from equipoise.proportional.smoothing import ProportionalMemory


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """The cluster at the beginning of a history, and the interval of observations."""

    nodes: int = 50
    node_cores: int = 4
    node_memory_bytes: int = 16 * 1024**3
    node_pods: int = 30
    interval_seconds: float = 10.0
    hours: float = 2.0

    @property
    def observation_count(self) -> int:
        return max(1, round(self.hours * 3600 / self.interval_seconds))

    def sized(self, ready: int) -> dict[str, int]:
        """Return the inputs while so many nodes are ready."""
        return {
            "nodes": ready * NANO,
            "cores": ready * self.node_cores * NANO,
            "memory": ready * self.node_memory_bytes * NANO,
            "pods": ready * self.node_pods * NANO,
        }


@dataclass(frozen=True, slots=True)
class SizeHistory:
    """A cluster's size at each observation."""

    times: list[int]
    """Milliseconds."""
    inputs: list[Inputs]

    @property
    def hours(self) -> float:
        """The length: each observation stands for the time until the next one."""
        if len(self.times) < 2:  # noqa: PLR2004 - one observation has no length
            return 0.0
        span = self.times[-1] - self.times[0]
        return span / 3_600_000 * len(self.times) / (len(self.times) - 1)


Walk = Callable[[ClusterShape, random.Random], Iterator[int]]
"""Yields the number of ready nodes at each observation, without end."""


def random_walk(cluster: ClusterShape, rng: random.Random) -> Iterator[int]:
    """Add or remove nodes at every observation: the hardest case."""
    nodes = cluster.nodes
    while True:
        yield nodes
        nodes = max(1, nodes + int(rng.gauss(0, 1)))


def rolling_update(cluster: ClusterShape, rng: random.Random) -> Iterator[int]:
    """Take one node after the other away for a minute or two, until all have been replaced."""
    yield from _steady(cluster.nodes, 300, cluster)
    for _ in range(cluster.nodes):
        yield from _steady(cluster.nodes - 1, rng.uniform(30, 110), cluster)
        yield from _steady(cluster.nodes, rng.uniform(5, 40), cluster)
    while True:
        yield cluster.nodes


def node_flap(cluster: ClusterShape, rng: random.Random) -> Iterator[int]:
    while True:
        yield from _steady(cluster.nodes, rng.uniform(20, 240), cluster)
        yield from _steady(cluster.nodes - 1, rng.uniform(20, 120), cluster)


def autoscaler_burst(cluster: ClusterShape, rng: random.Random) -> Iterator[int]:
    """Add a batch of nodes within minutes, keep it for a while, and remove it node by node."""
    while True:
        yield from _steady(cluster.nodes, rng.uniform(300, 1200), cluster)
        extra = max(1, round(cluster.nodes * rng.uniform(0.2, 0.6)))
        added = 0
        while added < extra:
            added = min(extra, added + rng.randint(1, max(1, cluster.nodes // 8)))
            yield from _steady(cluster.nodes + added, rng.uniform(10, 40), cluster)
        yield from _steady(cluster.nodes + extra, rng.uniform(600, 1800), cluster)
        while added > 0:
            added = max(0, added - rng.randint(1, 3))
            yield from _steady(cluster.nodes + added, rng.uniform(10, 60), cluster)


def _steady(nodes: int, seconds: float, cluster: ClusterShape) -> Iterator[int]:
    for _ in range(max(1, round(seconds / cluster.interval_seconds))):
        yield max(1, nodes)


WALKS: Mapping[str, Walk] = {
    "random-walk": random_walk,
    "rolling-update": rolling_update,
    "node-flap": node_flap,
    "autoscaler-burst": autoscaler_burst,
}
"""Every generated history, by its name."""


def generate(name: str, cluster: ClusterShape, seed: int) -> SizeHistory:
    """Return one history; the same seed gives the same one.

    It begins up to a tenth above or below the cluster's size: what is round in one is not in the next.
    """
    rng = random.Random(f"{name}/{seed}")  # noqa: S311 - a simulation
    spread = cluster.nodes // 10
    begun = replace(cluster, nodes=cluster.nodes + rng.randint(-spread, spread))
    walk = WALKS[name](begun, rng)
    step = round(cluster.interval_seconds * 1000)
    sizes: list[Inputs] = [cluster.sized(nodes) for nodes in islice(walk, cluster.observation_count)]
    return SizeHistory([number * step for number in range(len(sizes))], sizes)


NONE, AS_WRITTEN = "none", "as written"
DELAY_SECONDS = 300
PERCENTILE = {"target": 0.8, "lowThreshold": 0.6, "highThreshold": 0.95, "windowSeconds": 300}
PARTS = 20
"""A default segment is a twentieth of the cluster; a default shift, and a default level, two."""

Document = dict[str, Any]


class SmoothingStrategy(NamedTuple):
    """One strategy, and its settings."""

    name: str
    settings: str
    compiled: CompiledPolicy


@dataclass(frozen=True, slots=True)
class StrategyRun:
    """The values in force at each observation, and when they changed."""

    applied: list[dict[str, int]]
    changed: list[int]
    """The indexes of the observations."""


@dataclass(frozen=True, slots=True)
class StrategyOutcome:
    """The result of one strategy for one history."""

    changes: int
    over_provision_mean: float
    below_model_share: float
    below_model_worst: float


@dataclass(frozen=True, slots=True)
class StrategySummary:
    """The mean results of one strategy for all histories of one kind."""

    name: str
    settings: str
    changes: float
    changes_per_hour: float
    over_provision_mean: float
    below_model_share: float
    below_model_worst: float


def strategies(policy: ScalingPolicySpec, start: Inputs) -> list[SmoothingStrategy]:
    """Return every strategy for this policy's function in a cluster that begins with this size."""
    bare = _bare(policy)
    own = _document(policy).get("smoothing", {})
    down = own.get("delayScaleDown", {})
    shift = down.get("inputs") or {name: _tenth(start[name]) for name in sorted(policy.inputs)}
    seconds = down.get("delaySeconds", DELAY_SECONDS)
    span, far = print_seconds(seconds), ", ".join(f"{size} {name}" for name, size in shift.items())
    share = own.get("percentile", PERCENTILE)
    shares = f"{share['lowThreshold']:g}/{share['target']:g}/{share['highThreshold']:g}"
    by_inputs, by_time = {"inputs": shift}, {"delaySeconds": seconds}
    smoothings = (
        ("delay by inputs", f"down after {far}", {"delayScaleDown": by_inputs}),
        ("delay by time", f"down after {span}", {"delayScaleDown": by_time}),
        ("delay by both", f"down after {far}, or {span}", {"delayScaleDown": by_inputs | by_time}),
        ("percentile", f"{shares} of {print_seconds(share['windowSeconds'])}", {"percentile": share}),
    )
    found = [
        SmoothingStrategy(NONE, "every target at once", _compiled(bare)),
        _segmented(policy, start),
        _quantized(policy, start),
    ]
    found += [
        SmoothingStrategy(name, settings, _compiled(bare | {"smoothing": smoothing}))
        for name, settings, smoothing in smoothings
    ]
    if read_spec(bare, "strategy") != policy:
        itself = _with_cache(CompiledPolicy.of(policy))
        found.append(SmoothingStrategy(AS_WRITTEN, "the policy itself", itself))
    return found


def run(strategy: SmoothingStrategy, history: SizeHistory) -> StrategyRun:
    """Run a strategy through a history; the target at its beginning is in force then."""
    compiled = strategy.compiled
    in_force = {slot.key: compiled.target(slot, history.inputs[0]) for slot in compiled.slots}
    memory, applied, changed = ProportionalMemory(), [], []
    for number, (at, inputs) in enumerate(zip(history.times, history.inputs, strict=True)):
        assessment = assess(compiled, at, inputs, in_force, memory)
        if assessment.code is Code.SET:
            changed.append(number)
        in_force, memory = assessment.applied, assessment.memory
        applied.append(in_force)
    return StrategyRun(applied, changed)


def modelled(policy: ScalingPolicySpec, history: SizeHistory) -> list[dict[str, int]]:
    """Return the bare function's values at each observation: no rounding, no levels, no smoothing."""
    compiled = _compiled(_bare(policy))
    return [{slot.key: compiled.target(slot, inputs) for slot in compiled.slots} for inputs in history.inputs]


def judge(strategy_run: StrategyRun, model: list[dict[str, int]]) -> StrategyOutcome:
    """Compare what was in force with the model: too much, and too little."""
    over, below, worst, pairs = 0.0, 0, 0.0, 0
    for applied, model_values in zip(strategy_run.applied, model, strict=True):
        is_below = False
        for key, value in model_values.items():
            share = applied[key] / value - 1 if value else 0.0
            over, pairs = over + max(share, 0.0), pairs + 1
            is_below, worst = is_below or share < 0, max(worst, -share)
        below += is_below
    return StrategyOutcome(len(strategy_run.changed), over / max(pairs, 1), below / max(len(model), 1), worst)


def study(
    policy: ScalingPolicySpec,
    start: Inputs,
    histories: Iterable[SizeHistory],
    on_progress: Callable[[int], object] = ignore,
) -> list[StrategySummary]:
    """Run every strategy through every history, and return the means."""
    compared = strategies(policy, start)
    outcomes: dict[str, list[StrategyOutcome]] = {}
    hours = 0.0
    for done, history in enumerate(histories, 1):
        model = modelled(policy, history)
        hours += history.hours
        for strategy in compared:
            outcomes.setdefault(strategy.name, []).append(judge(run(strategy, history), model))
        on_progress(done)
    return [_summary(strategy, outcomes[strategy.name], hours) for strategy in compared]


def _summary(strategy: SmoothingStrategy, outcomes: list[StrategyOutcome], hours: float) -> StrategySummary:
    count = len(outcomes)
    changes = sum(outcome.changes for outcome in outcomes)
    return StrategySummary(
        name=strategy.name,
        settings=strategy.settings,
        changes=changes / count,
        changes_per_hour=changes / hours if hours else 0.0,
        over_provision_mean=math.fsum(outcome.over_provision_mean for outcome in outcomes) / count,
        below_model_share=math.fsum(outcome.below_model_share for outcome in outcomes) / count,
        below_model_worst=max(outcome.below_model_worst for outcome in outcomes),
    )


def _document(policy: ScalingPolicySpec) -> Document:
    written: Document = policy.model_dump(mode="json", by_alias=True, exclude_none=True)
    return written


def _rules(document: Document) -> list[Document]:
    """Return the rules for requests and limits of all containers."""
    resources = [container["resources"] for container in document["containers"]]
    return [rule for each in resources for section in ("requests", "limits") for rule in each[section]]


def _bare(policy: ScalingPolicySpec) -> Document:
    """Leave out segments, levels and smoothing."""
    document = _document(policy) | {"smoothing": {}}
    for container in document["containers"]:
        container["quantization"] = []
    for rule in _rules(document):
        rule["function"]["segments"] = []
    return document


def _compiled(document: Document) -> CompiledPolicy:
    return _with_cache(CompiledPolicy.of(read_spec(document, "strategy")))


def _with_cache(compiled: CompiledPolicy) -> CompiledPolicy:
    """Return the policy with cached targets: a history has few sizes, and many observations."""
    cache: dict[tuple[str, tuple[int, ...]], int] = {}

    def cached_target(slot: Slot, inputs: Inputs) -> int:
        key = slot.key, tuple(inputs.values())
        if key not in cache:
            cache[key] = target(slot, inputs)
        return cache[key]

    return compiled._replace(target=cached_target)


def _tenth(nanos: int) -> str:
    return str(Quantity(max(1, round(nanos / NANO / PARTS * 2)) * NANO))


def _segmented(policy: ScalingPolicySpec, start: Inputs) -> SmoothingStrategy:
    own, document = _rules(_document(policy)), _bare(policy)
    has_own = any(rule["function"]["segments"] for rule in own)
    for written, rule in zip(own, _rules(document), strict=True):
        every = _twentieth(start.get(rule["function"].get("input", ""), 0))
        default = [{"at": 0, "every": every}] if every else []
        rule["function"]["segments"] = written["function"]["segments"] if has_own else default
    inputs = ", ".join(f"{_twentieth(start[name])} {name}" for name in sorted(policy.inputs))
    return SmoothingStrategy(
        "segments", "as in the policy" if has_own else f"every {inputs}", _compiled(document)
    )


def _quantized(policy: ScalingPolicySpec, start: Inputs) -> SmoothingStrategy:
    own, document = _document(policy)["containers"], _bare(policy)
    if any(container["quantization"] for container in own):
        for written, container in zip(own, document["containers"], strict=True):
            container["quantization"] = written["quantization"]
        return SmoothingStrategy("quantization", "as in the policy", _compiled(document))
    settings = []
    slots = CompiledPolicy.of(read_spec(document, "strategy")).slots
    for container in document["containers"]:
        levels = {
            slot.resource.value: _level(slot, start) for slot in slots if slot.container == container["name"]
        }
        container["quantization"] = [{"resource": name, "base": base} for name, base in levels.items()]
        settings += [f"{base} of {name}" for name, base in levels.items()]
    return SmoothingStrategy(
        "quantization", f"every {', '.join(dict.fromkeys(settings))}", _compiled(document)
    )


def _twentieth(nanos: int) -> str:
    return str(Quantity(math.ceil(nanos / NANO / PARTS) * NANO)) if nanos else ""


def _level(slot: Slot, start: Inputs) -> str:
    """Return a readable distance of levels near a tenth of the first value: 1, 2 or 5 of something."""
    model_values = max(1, target(slot, start) * 2 // PARTS)
    power = 10 ** (len(str(model_values)) - 1)
    readable = max(size * power for size in (1, 2, 5) if size * power <= model_values)
    return slot.text(readable)

"""The descriptor of the pools: their loop, metrics, log lines, and how their records are decided again."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from equipoise.core.decision import Decision, MovePod, Outcome, Record, RecoverPod
from equipoise.core.errors import BadInput
from equipoise.core.pools import PoolCode
from equipoise.core.reason import Code
from equipoise.crd.targets import Mode
from equipoise.engine.balancer import Balancer, CounterSpec, GaugeSpec, Labels, LogLine
from equipoise.engine.recording import replay_holds
from equipoise.pools.decide import decide
from equipoise.pools.loop import PoolsLoop
from equipoise.pools.observe import STATES, Observation, TierUnreadable
from equipoise.pools.policy import TierPolicy
from equipoise.pools.rebalance import LOST
from equipoise.pools.registration import PodLists, RegistrationRule, reconcile
from equipoise.ports import CycleReport
from equipoise.ports.wiring import Loop, LoopSettings, Wiring


def redecide(recorded: Record) -> Decision:
    """Decide again from a record; the actions that guards held are taken from it, too."""
    if "tiers" in recorded.policy:
        policy = TierPolicy.model_validate(recorded.policy)
        decision, _ = decide(policy, msgspec.convert(recorded.observation, Observation))
    else:
        rule = msgspec.convert(recorded.policy, RegistrationRule)
        lists = msgspec.convert(recorded.observation, PodLists)
        decision, _ = reconcile(rule, lists, recorded.memory, recorded.at)
    return replay_holds(recorded, decision)


def make_loop(wiring: Wiring, settings: LoopSettings) -> Loop:
    """Return the loop; it watches the pods that the settings select."""
    options, interval_seconds = settings.pools, settings.interval_seconds("pools")
    namespace = _expected(options.namespace, "namespace", "the namespace of the tiers' pods")
    selector = _expected(
        options.selector, "selector", "the labels of the tiers' pods, such as app=voice-agent"
    )
    pools = wiring.pools()  # a setting of it is refused before any pod is watched
    pods = wiring.selected_pods(namespace, selector)
    return PoolsLoop(
        pools=pools,
        pods=pods.pods,
        is_gone=pods.is_gone,
        pauses=wiring.pauses,
        leadership=wiring.leadership,
        journal=wiring.journal,
        new_id=wiring.new_id,
        namespace=namespace,
        interval_seconds=interval_seconds,
        rule=RegistrationRule(options.loss_max, min(options.missing_seconds, interval_seconds)),
        is_acting=options.mode is Mode.ENFORCE,
        marks_busy=options.marks_busy,
        heartbeat=wiring.heartbeat,
        has_changed=pods.has_changed,
    )


def _expected(value: str | None, name: str, what: str) -> str:
    if not value:
        raise BadInput(f"pools.{name}: expected {what} because balancers includes pools")
    return value


TierCounts = dict[str, Any]
Read = Callable[[TierCounts], Iterable[tuple[Labels, float]]]


def _prefix(decision: Decision) -> str:
    return decision.subject.removesuffix("/pods")


def _of_tiers(name: str, what: str, read: Read, *labels: str) -> GaugeSpec:
    """Return a gauge with series for each tier; decisions without tiers do not change it."""

    def series(decision: Decision) -> Iterable[tuple[Labels, float]] | None:
        tiers: dict[str, TierCounts] | None = decision.extra.get("tiers")
        if tiers is None:
            return None
        prefix = _prefix(decision)
        return [((prefix, tier, *more), value) for tier, row in tiers.items() for more, value in read(row)]

    return GaugeSpec(name, what, ("prefix", "tier", *labels), series)


def _of_prefix(name: str, key: str, what: str) -> GaugeSpec:
    def series(decision: Decision) -> Iterable[tuple[Labels, float]] | None:
        if "tiers" not in decision.extra:
            return None
        return (((_prefix(decision),), decision.extra.get(key, 0)),)

    return GaugeSpec(name, what, ("prefix",), series)


def _missing(decision: Decision) -> Iterable[tuple[Labels, float]] | None:
    if "tiers" in decision.extra or decision.reason.code is Code.INTERNAL_ERROR:
        return None
    return (((_prefix(decision),), decision.reason.numbers.get("missing", 0)),)


def _moves(report: CycleReport) -> Iterator[tuple[str, Labels]]:
    for decision in report.decisions[:1]:
        for outcome in report.outcomes:
            action = outcome.action
            if isinstance(action, MovePod) and outcome.result == PoolCode.MOVED:
                yield decision.subject, (_prefix(decision), action.source, action.destination)


def _recovered(report: CycleReport) -> Iterator[tuple[str, Labels]]:
    for decision in report.decisions[:1]:
        for outcome in report.outcomes:
            if isinstance(outcome.action, RecoverPod) and outcome.result == PoolCode.RECOVERED:
                yield decision.subject, (_prefix(decision),)


def log_lines(result: CycleReport | Exception) -> Iterator[LogLine]:
    """Yield the seed's log lines: each move and recovery, and tiers that could not be read."""
    if isinstance(result, TierUnreadable):
        fields = {"tier": result.tier, "error": str(result)}
        yield LogLine("warning", "rebalance: failed to get assigned count", fields)
    if isinstance(result, Exception):
        return
    for outcome in result.outcomes:
        if isinstance(outcome.action, RecoverPod) and outcome.result == PoolCode.RECOVERED:
            yield LogLine("info", "Recovered pod", {"pod": outcome.action.pod})
    yield from move_lines(result.outcomes)


def move_lines(outcomes: Iterable[Outcome]) -> Iterator[LogLine]:
    """Yield the seed's log lines about moves: each one, those that failed, and how many there were."""
    moved = 0
    for outcome in outcomes:
        action = outcome.action
        if not isinstance(action, MovePod):
            continue
        if outcome.result == PoolCode.MOVED:
            moved += 1
            fields = {"pod": action.pod, "from_tier": action.source, "to_tier": action.destination}
            yield LogLine("info", "Rebalanced pod", fields)
        if outcome.result in {*LOST, PoolCode.WRONG_TYPE}:
            fields = {"pod": action.pod, "error": outcome.detail}
            yield LogLine("warning", "rebalance: Lua script failed", fields)
    if moved:
        yield LogLine("info", "Rebalancing complete", {"pods_moved": moved})


BALANCER = Balancer(
    "pools",
    kinds=(),
    decide=decide,
    redecide=redecide,
    make_loop=make_loop,
    observes_workloads=False,
    gauges=(
        _of_tiers(
            "equipoise_pool_pods",
            "Pods of a tier by activity.",
            lambda row: [((state,), row[state]) for state in STATES],
            "state",
        ),
        _of_tiers(
            "equipoise_pool_target", "Pods that a tier should have.", lambda row: [((), row["target"])]
        ),
        _of_tiers("equipoise_pool_calls", "Calls that a tier serves.", lambda row: [((), row["calls"])]),
        _of_prefix("equipoise_pool_pending_moves", "pending", "Busy pods that move when they are released."),
        _of_prefix(
            "equipoise_pool_violations",
            "broken",
            "Violated invariants of the tiers; `equipoise pools fsck` lists them.",
        ),
        GaugeSpec(
            "equipoise_pool_missing_pods",
            "Registered pods that Kubernetes does not list.",
            ("prefix",),
            _missing,
        ),
    ),
    counters=(
        CounterSpec("equipoise_pool_moves", "Pods moved between tiers.", ("prefix", "from", "to"), _moves),
        CounterSpec(
            "equipoise_pool_recovered",
            "Pods without an owner that were made available again.",
            ("prefix",),
            _recovered,
        ),
    ),
    verbs=("move", "moved"),
    log_lines=log_lines,
)

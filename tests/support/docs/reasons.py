"""A sentence for each reason, as it is printed: `python -m tests.support.docs.reasons` writes them anew.

Each is made by the code that decides, holds or reports with this reason; `core/reasons.toml` has the texts.
"""

import dataclasses
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from equipoise.core.cluster import HpaMetric
from equipoise.core.decision import Decision, Outcome, SetResources
from equipoise.core.ledger import Ledger
from equipoise.core.reason import Code, Reason
from equipoise.crd.windows import Window, held_by_window
from equipoise.engine.disruption import held_by_hourly_budget
from equipoise.engine.guards import held_by_cooldown, held_by_lag, held_by_leader, held_by_pause
from equipoise.engine.isolation import failed_reason
from equipoise.pools.decide import decide as decide_pools
from equipoise.pools.observe import Activity, PodInTier, TierPods
from equipoise.pools.observe import Observation as ObservedTiers
from equipoise.pools.policy import policy_from
from equipoise.pools.registration import (
    ListedPod,
    ListedState,
    PodLists,
    RegisteredPod,
    RegistrationRule,
    reconcile,
)
from equipoise.ports import ApplyAnswer, ApplyResult, FailedTurn
from equipoise.proportional.applied import AppliedState, PolicyMemory, PolicyState
from equipoise.proportional.decide import Observation as ObservedSize
from equipoise.proportional.decide import decide as decide_size
from equipoise.proportional.execute import held_by_contention
from equipoise.recommendation.adopt import HpaAdopter, by_subject
from equipoise.recommendation.explain import AdviceDetails, RecommendedHpa
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import ObservedHpa, PodLoad
from equipoise.rotation.progress import RotationMemory
from equipoise.sim import World
from equipoise.sim.load import Constant
from tests.fixtures.kept import kept
from tests.support.pools.worlds import config
from tests.support.proportional.policies import CPU
from tests.support.proportional.policies import policy as scaling_policy
from tests.support.qos import worlds as nodes
from tests.support.recommendation.worlds import advised, observation
from tests.support.recommendation.worlds import policy as advice_policy
from tests.support.rotation.worlds import NOW, decision_of, ledger_entry, live, pod, seed_pods, world
from tests.support.source_tree import ROOT

TEXTS = ROOT / "src" / "equipoise" / "core" / "reasons.toml"
Sentence = tuple[str, str, str]
"""A group, a code and a sentence."""


def sentences() -> dict[tuple[str, str], str]:
    """Return a sentence for each reason of each group."""
    found = [*_rotation(), *_recommendation(), *_proportional(), *_qos(), *_pools(), *_guards()]
    found.append(("Errors", *_parts(failed_reason(FailedTurn("shop/web", "KeyError: 'cpu'", "traceback")))))
    return {(group, code): sentence for group, code, sentence in reversed(found)}


def _parts(reason: Reason | None) -> tuple[str, str]:
    assert reason is not None, "an example holds"
    return reason.code.value, reason.sentence


def _told(group: str, decisions: Sequence[Decision]) -> Iterator[Sentence]:
    for decision in decisions:
        yield group, *_parts(decision.reason)


def _named(pods: Sequence[PodLoad]) -> list[PodLoad]:
    return [msgspec.structs.replace(each, name=f"web-{each.name}") for each in pods]


def _rotation() -> Iterator[Sentence]:
    settings, pods = RotationPolicy(), _named(seed_pods())
    alone = world(*pods)
    memory = HpaMetric("Resource", "memory", "Utilization", 70)
    even = [
        pod(f"web-{name}", cpu) for name, cpu in zip("abcdef", (1.2, 1.2, 1.15, 1.1, 1.1, 1.1), strict=True)
    ]
    hpas = (*alone.hpas, ObservedHpa("web", alone.hpas[0].metrics))
    seen = [
        alone,
        world(*pods[2:]),
        world(*even),
        world(*pods[:2]),
        world(msgspec.structs.replace(pods[0], cpu_cores=None), *pods[1:]),
        msgspec.structs.replace(alone, hpas=()),
        msgspec.structs.replace(alone, hpas=hpas),
        world(*pods, metric=memory),
    ]
    yield from _told("Rotation", [decision_of(settings, each) for each in seen])


def _recommendation() -> Iterator[Sentence]:
    nothing = float("nan")
    found = [
        advised(),
        advised(advice_policy(deployment_min_replicas="3"), observation(replicas=2)),
        advised(seen=observation(pods=0)),
        advised(seen=observation(available=4)),
        advised(peak=4.0),
        advised(highest=4.2),
        advised(seen=observation(request=nothing)),
        advised(seen=dataclasses.replace(observation(), partial=["store 10.0.0.7:10901 is down"])),
        advised(p99=nothing, lowest=nothing, highest=nothing, p95=nothing, peak=nothing, samples=0),
    ]
    yield from _told("Recommendation", found)


def _proportional() -> Iterator[Sentence]:
    ten, far = {"input": "cores", "slope": "10m"}, {"inputs": {"cores": 20}, "delaySeconds": 300}

    def size(current: str, smoothing: Any = None, memory: Any = None, at: int = 0, **more: Any) -> Decision:
        asked = scaling_policy(ten, smoothing=smoothing)
        seen = ObservedSize("kube-system/kube-dns", at, {"cores": "30"}, {CPU: current}, **more)
        return decide_size(asked, seen, memory or {}).decision

    percentile: dict[str, Any] = {"percentile": {}}
    memory: dict[str, Any] = {}
    for number in range(4):
        asked = scaling_policy(ten, smoothing=percentile)
        seen = ObservedSize("dns", number * 10, {"cores": "20" if number == 1 else "30"}, {CPU: "1"})
        memory = decide_size(asked, seen, memory).decision.memory
    lately = {"cores": "20"}
    held = decide_size(
        scaling_policy(ten, smoothing=percentile), ObservedSize("dns", 50, lately, {CPU: "300m"}), memory
    )
    full = "Node didn't have enough resource: cpu, requested: 300, used: 3900, capacity: 4000"
    found = [
        size("250m"),
        size("300m"),
        size("400m", {"delayScaleDown": far}),
        held.decision,
        size("200m", percentile),
        size("300m", stuck={"Infeasible": "kube-dns-7d9 (Node didn't have enough capacity: cpu)"}),
        size("300m", stuck={"Deferred": f"kube-dns-7d9 ({full})"}),
    ]
    yield from _told("Proportional scaling", found)
    contended = AppliedState(reverts=(1, 2), contending_manager="kubectl-edit", generation=1)
    yield "Proportional scaling", *_parts(held_by_contention(contended))
    yield "Proportional scaling", *_parts(_refused_change())


def _refused_change() -> Reason:
    """Return why a change that the API server refused waits."""
    state, key = PolicyState(PolicyMemory(), 1), ("InPlace", {CPU: 300})
    detail = "kube-dns-7d9: exceeded quota: compute, requested: requests.cpu=300m, used: 3900m, limited: 4"
    state.record_outcomes([Outcome(SetResources("kube-system/kube-dns", []), "Refused", detail)], key, 0.0)
    held = state.held_by_refusal(key, 1.0)
    assert held is not None, "a refused change waits"
    return held


def _qos() -> Iterator[Sentence]:
    node, rule, policy = nodes.node, nodes.rule, nodes.policy
    pods = [nodes.pod("report", 3, "6Gi"), nodes.pod("web", 2, "8Gi", quota=200000, limit={"cpu": 4})]
    evicting, throttling = (
        rule("memory_total_utilization", 75, "evict"),
        rule("cpu_total_usage", 6000, "throttle"),
    )
    closing, patient = rule("cpu_total_usage", 6000, "close"), dict(throttling, avoidanceThreshold=3)
    busy, calm = {"cpu_total_usage": 7000, "memory_total_usage": "52Gi"}, {"cpu_total_usage": 3000}
    found = [
        node(busy, pods, policy(throttling)),
        node(busy, pods, policy(evicting)),
        node(busy | {"cpu_total_usage": 9000}, pods, policy(evicting, throttling)),
        node(calm, pods, policy(throttling), state={"throttled": ["d/web"]}),
        node(busy, pods, policy(closing)),
        node(calm, pods, policy(throttling)),
        node(busy, [], policy(evicting)),
    ]
    yield from _told("Node quality of service", [nodes.decided(each) for each in found])
    waiting = node(busy, pods, policy(patient), state={"breaches": {"cpu-total-usage": 1}})
    yield from _told("Guards", [nodes.decided(waiting)])


def _pools() -> Iterator[Sentence]:
    def tiers(gold: int, basic: int, activity: Activity = Activity.IDLE) -> Decision:
        names = {
            "gold": [f"agent-{n}" for n in range(gold)],
            "basic": [f"agent-{n + 9}" for n in range(basic)],
        }
        seen = tuple(
            TierPods(tier, tuple(PodInTier(name, activity) for name in pods)) for tier, pods in names.items()
        )
        return decide_pools(
            policy_from(config(gold=2, basic=2), "test"), ObservedTiers("voice", seen)
        ).decision

    found = [tiers(1, 3), tiers(2, 2), tiers(2, 3), tiers(1, 2), tiers(1, 3, Activity.BUSY)]
    yield from _told("Pools", found)
    ready = ListedPod("agent-0", "u0", ListedState.READY)
    for known in ((), (RegisteredPod("agent-0", "u0"),)):
        lists = PodLists("voice/pods", (ready,), known)
        yield from _told("Pools", [reconcile(RegistrationRule(0.3, 30.0), lists, {}, 0.0).decision])


class _Paused:
    def pause_of(self, namespace: str) -> str:
        return f"namespace {namespace} is paused (release 42)"


class _Follower:
    def epoch(self) -> None:
        return None


class _Applying:
    """An applier that gives one answer to everything."""

    def __init__(self, answer: ApplyAnswer) -> None:
        self._answer = answer

    def apply_hpa(self, *_: Any, **__: Any) -> ApplyAnswer:
        return self._answer


def _guards() -> Iterator[Sentence]:
    settings, pods = RotationPolicy(), _named(seed_pods())
    window = Window.model_validate({"schedule": "0 2 * * 1-5", "duration": "2h", "timeZone": "Europe/Berlin"})
    follower: Any = _Follower()
    for reason in (
        held_by_pause(_Paused(), "shop"),
        held_by_leader(follower),
        held_by_window([window], NOW),
        held_by_lag(1200.0, 1000.0, "kafka_consumergroup_lag"),
        held_by_hourly_budget(Ledger(entries=(ledger_entry(1, NOW - 60),)), "rotation", 1, NOW),
        held_by_cooldown(Ledger(entries=(ledger_entry(1, NOW - 60),)), "rotation", 900, NOW),
    ):
        yield "Guards", *_parts(reason)
    futile = RotationMemory(failures=3, futile_until=NOW + 3600).to_data()
    starting = msgspec.structs.replace(pods[2], is_ready=False)
    found = [
        decision_of(settings, live(*pods, workload={"replicas_updated": 2})),
        decision_of(settings, live(*pods, hpa={"replicas_desired": 8})),
        decision_of(settings, live(pods[0], pods[1], starting, *pods[3:])),
        decision_of(settings, live(*pods), futile),
        decision_of(settings, live(*pods, workload={"opt_out": "equipoise.dev/rotate=false"})),
    ]
    yield from _told("Guards", found)
    blocked = [each for record in kept("rotation") for each in record.decision.held]
    yield from (("Guards", held.reason.value, held.sentence) for held in blocked)
    yield from _adoptions()


def _adoptions() -> Iterator[Sentence]:
    """Yield why an HPA was not applied."""
    world = World(7)
    world.add_node("node-1")
    world.add_workload("shop", "web", replicas=3, shape=Constant(1.0))
    world.advance(60)
    metrics = [{"type": "Resource", "resource": {"name": "cpu"}}]
    details = AdviceDetails("Deployment", hpa=RecommendedHpa(2, 6, 60, metrics, None))
    advice = Decision("shop/web", Reason(Code.RECOMMEND, "2 to 6 replicas."), extra=details.document)
    denied = 'admission webhook "quota.example.com" denied the request: at most 4 replicas'
    for answer in (
        ApplyAnswer(ApplyResult.NOT_OURS, "HorizontalPodAutoscaler shop/web is managed by Helm", "Helm"),
        ApplyAnswer(ApplyResult.REFUSED, denied),
    ):
        applier: Any = _Applying(answer)
        adopter = HpaAdopter(applier, world.pauses, by_subject(world.cluster.workloads()))
        yield from _told("Guards", [adopter.adopt(advice, details).decision])


def written(text: str) -> str:
    """Return the text of `reasons.toml` with the sentences as they are printed now."""
    now = sentences()

    def example(found: re.Match[str]) -> str:
        sentence = now[found["group"], found["code"]]
        return f"{found['head']}example = {json.dumps(sentence, ensure_ascii=False)}\n"

    entry = r'(?P<head>code = "(?P<code>\w+)"\ngroup = "(?P<group>[^"]+)"\n.*?)example = [^\n]*\n'
    return re.sub(entry, example, text, flags=re.DOTALL)


if __name__ == "__main__":
    TEXTS.write_text(written(TEXTS.read_text()))

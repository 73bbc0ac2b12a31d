"""Bad input gets one message with the path of the field, and nothing is decided."""

from typing import Any

import pytest

from equipoise.core.errors import BadInput
from equipoise.crd.manifest import problems
from equipoise.qos.status import QOS_KINDS
from tests.support.qos.worlds import CLOSE, EVICT, action, decided, node, pod, pod_qos, policy, rule

GOOD = rule("cpu_total_usage", 6000, "evict")
USAGE = {"cpu_total_usage": 1}


def _spec(document: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return document | {"spec": document["spec"] | spec}


PARTS: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown metric": (
        policy(rule("cpu", 1, "evict")),
        "policies[5].spec.objectiveEnsurances[0].metricRule.name",
    ),
    "a waterline of 0": (
        policy(rule("cpu_total_usage", 0, "evict")),
        "policies[5].spec.objectiveEnsurances[0].metricRule.value: expected an amount above 0",
    ),
    "a bad quantity": (
        policy(rule("cpu_total_usage", "6k5", "evict")),
        "policies[5].spec.objectiveEnsurances[0].metricRule.value",
    ),
    "an unknown action": (
        policy(rule("cpu_total_usage", 1, "none")),
        "policies[5].spec.objectiveEnsurances[0].actionName: expected the name of an AvoidanceAction",
    ),
    "memory without memoryThrottle": (
        policy(rule("memory_total_usage", 1, "throttle")),
        "policies[5].spec.objectiveEnsurances[0].actionName: expected an action with memoryThrottle.forceGC",
    ),
    "CPU without cpuThrottle": (
        policy(rule("cpu_load_1_min", 1, "reclaim")),
        "policies[5].spec.objectiveEnsurances[0].actionName: expected an action with cpuThrottle",
    ),
    "no rule": (policy(), "policies[5].spec.objectiveEnsurances"),
    "two rules of one name": (policy(GOOD, GOOD), "policies[5].spec.objectiveEnsurances"),
    "a threshold of 0": (
        policy(GOOD | {"avoidanceThreshold": 0}),
        "policies[5].spec.objectiveEnsurances[0].avoidanceThreshold",
    ),
    "an unknown key": (policy(GOOD, seletor={}), "policies[5].spec.seletor: unknown key"),
    "a probe over the network": (
        policy(GOOD, nodeQualityProbe={"httpGet": {"port": 80}}),
        "policies[5].spec.nodeQualityProbe.httpGet: unknown key",
    ),
    "a throttle that throttles nothing": (
        action("x", throttle={}),
        "policies[5].spec.throttle: expected cpuThrottle, memoryThrottle or both",
    ),
    "a ratio above 100": (
        action("x", throttle={"cpuThrottle": {"minCPURatio": 101}}),
        "policies[5].spec.throttle.cpuThrottle.minCPURatio",
    ),
    "a step of 0": (
        action("x", throttle={"cpuThrottle": {"stepCPURatio": 0}}),
        "policies[5].spec.throttle.cpuThrottle.stepCPURatio",
    ),
    "an unknown comparator": (action("x", sortBy=["age"]), "policies[5].spec.sortBy[0]"),
    "a comparator twice": (
        action("x", sortBy=["name", "name"]),
        "policies[5].spec.sortBy: expected each comparator once",
    ),
    "the same name twice": (
        EVICT,
        "policies[5].metadata.name: expected a unique name for each AvoidanceAction",
    ),
    "a PodQOS for nobody": (
        pod_qos(allowedActions=["evict"]),
        "policies[5].spec: expected labelSelector, scopeSelector or both",
    ),
    "a priority range that is none": (
        pod_qos(
            scopeSelector={
                "matchExpressions": [{"scopeName": "Priority", "operator": "In", "values": ["9-1"]}]
            }
        ),
        "policies[5].spec.scopeSelector.matchExpressions[0]: expected a priority such as 1000",
    ),
    "another group": (
        CLOSE | {"apiVersion": "v1"},
        "policies[5].apiVersion: expected ensurance.crane.io/v1alpha1",
    ),
    "another kind": (CLOSE | {"kind": "Pod"}, "policies[5].kind: expected one of NodeQOSEnsurancePolicy"),
    "no name": (CLOSE | {"metadata": {}}, "policies[5].metadata.name: missing"),
}


@pytest.mark.parametrize("case", PARTS)
def test_a_bad_policy_is_named_by_its_path(case: str) -> None:
    """In a file."""
    document, message = PARTS[case]
    with pytest.raises(BadInput) as refused:
        decided(node(USAGE, [pod("a", 1)], document))
    assert str(refused.value).startswith(f"node.yaml: {message}")


BY_MANIFEST = {
    case: part for case, part in PARTS.items() if "action" not in part[1] and "AvoidanceAction" not in part[1]
}


@pytest.mark.parametrize(
    "case", [case for case in BY_MANIFEST if not case.startswith(("another", "no name"))]
)
def test_a_bad_manifest_is_refused_by_validate_too(case: str) -> None:
    """What one object can tell alone, at the same path."""
    document, message = PARTS[case]
    kind = next(kind for kind in QOS_KINDS if kind.name == document["kind"])
    found = [f"policies[5].{problem.path}: {problem.message}" for problem in problems(kind, document)]
    path = message.partition(": ")[0]
    assert any(one.startswith(path) for one in found), found


def _field(path: str, value: Any) -> dict[str, Any]:
    document: dict[str, Any] = node(USAGE, [pod("a", 1)], policy(GOOD))
    part: Any = document
    *most, last = path.split(".")
    for step in most:
        part = part[int(step)] if step.isdigit() else part.setdefault(step, {})
    part[last] = value
    return document


FIELDS: dict[str, tuple[str, Any, str]] = {
    "no size": ("node.cpu_cores", 0, "node.cpu_cores: expected a size above 0"),
    "a metric that is none": (
        "node.usage",
        {"cpu": 1},
        "node.usage: expected the name of a metric such as cpu_total_usage, got 'cpu'",
    ),
    "negative usage": (
        "node.usage",
        {"cpu_total_usage": -1},
        "node.usage.cpu_total_usage: expected an amount of 0 or more",
    ),
    "not a number": ("node.usage", {"cpu_total_usage": float("nan")}, "node.usage.cpu_total_usage"),
    "a class that is none": ("pods.0.qosClass", "Best", "pods[0].qosClass: expected one of BestEffort"),
    "a quota of 0": (
        "pods.0.containers",
        [{"name": "c", "quota": 0}],
        "pods[0].containers[0].quota: expected microseconds",
    ),
    "a container twice": (
        "pods.0.containers",
        [{"name": "c"}, {"name": "c"}],
        "pods[0].containers: expected unique names",
    ),
    "a pod twice": ("pods", [pod("a"), pod("a")], "pods: expected unique names, got 'd/a' twice"),
    "a time without a zone": (
        "pods.0.startTime",
        "2026-01-01T00:00:00",
        "pods[0].startTime: expected a time such as",
    ),
    "a stranger": (
        "state.throttled",
        ["d/b"],
        "state.throttled[0]: expected NAMESPACE/NAME of a pod, got 'd/b'",
    ),
    "a rule that is none": ("state.breaches", {"x": 1}, "state.breaches.x: expected the name of a rule"),
    "a count below 0": ("state.clear", {"cpu-total-usage": -1}, "state.clear.cpu-total-usage"),
    "no time": ("state.lastTrigger", "soon", "state.lastTrigger: expected a time such as"),
    "a budget below 0": ("budget.evictionsPerRound", -1, "budget.evictionsPerRound"),
    "an unknown key": ("polices", [], "polices: unknown key"),
}


@pytest.mark.parametrize("case", FIELDS)
def test_a_bad_field_is_named_by_its_path(case: str) -> None:
    """In the rest of the file."""
    path, value, message = FIELDS[case]
    with pytest.raises(BadInput) as refused:
        decided(_field(path, value))
    assert str(refused.value).startswith(f"node.yaml: {message}")


def test_the_last_trigger_may_be_a_time_or_a_span() -> None:
    """For one action, or for all."""
    for value in ("2026-01-31T08:00:00Z", 90, "5m", 1_799_999_000, {"evict": "1h"}, None):
        decided(_field("state.lastTrigger", value))

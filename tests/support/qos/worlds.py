"""Nodes in a few words, as the file of `qos plan` writes them."""

from typing import Any

from equipoise.core.decision import Decision, plan_document
from equipoise.qos.decide import decide
from equipoise.qos.plan_file import read_plan_file

AT = 1_800_000_000.0
GI = 2**30
API = "ensurance.crane.io/v1alpha1"

Document = dict[str, Any]


def pod(name: str, cpu: Any = None, memory: Any = None, **fields: Any) -> Document:
    """Give a pod of one container `c`; fields of the container are recognised by their names."""
    inner = {key: fields.pop(key) for key in ("quota", "request", "limit", "reclaimable") if key in fields}
    container = {"name": "c", "cpu": cpu, "memory": memory} | inner
    return {"name": name, "namespace": "d", "containers": [container]} | fields


def action(name: str, **spec: Any) -> Document:
    return {"apiVersion": API, "kind": "AvoidanceAction", "metadata": {"name": name}, "spec": spec}


def rule(metric: str, value: Any, then: str, name: str = "", **fields: Any) -> Document:
    return {
        "name": name or metric.replace("_", "-"),
        "metricRule": {"name": metric, "value": value},
        "actionName": then,
    } | fields


def policy(*rules: Document, name: str = "p", **spec: Any) -> Document:
    return {
        "apiVersion": API,
        "kind": "NodeQOSEnsurancePolicy",
        "metadata": {"name": name},
        "spec": {"objectiveEnsurances": list(rules)} | spec,
    }


def pod_qos(name: str = "q", **spec: Any) -> Document:
    return {"apiVersion": API, "kind": "PodQOS", "metadata": {"name": name}, "spec": spec}


EVICT = action("evict", coolDownSeconds=300, eviction={"terminationGracePeriodSeconds": 30})
THROTTLE = action("throttle", throttle={"cpuThrottle": {"minCPURatio": 10, "stepCPURatio": 20}})
RECLAIM = action("reclaim", throttle={"memoryThrottle": {"forceGC": True}})
BOTH = action("both", throttle={"cpuThrottle": {"minCPURatio": 0, "stepCPURatio": 20}}, eviction={})
CLOSE = action("close", coolDownSeconds=60)
ACTIONS = (EVICT, THROTTLE, RECLAIM, BOTH, CLOSE)


def node(usage: Document, pods: list[Document], *policies: Document, **others: Any) -> Document:
    """Give a whole file: a node of 16 cores and 64Gi with the usual actions."""
    return {
        "node": {"name": "n1", "cpu_cores": 16, "memory": "64Gi", "usage": usage},
        "pods": pods,
        "policies": [*ACTIONS, *policies],
    } | others


def decided(document: Document, at: float = AT, excess: int = 0) -> Decision:
    planned = read_plan_file(document, "node.yaml", at, excess)
    return decide(planned.policy, planned.seen, planned.memory).decision


def plan(document: Document, at: float = AT, excess: int = 0) -> Document:
    """Give the decision as scripts get it."""
    (found,) = plan_document("qos", [decided(document, at, excess)])["decisions"]
    assert isinstance(found, dict)
    return found


def names(decision: Document, kind: str = "") -> list[str]:
    """Give the pods that are acted on, in order, without their namespace."""
    return [one["pod"].removeprefix("d/") for one in decision["actions"] if kind in {"", one["kind"]}]

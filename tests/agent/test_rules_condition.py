"""What an agent reports about its rules in a condition of its node: when, how often, and where it may not."""

from dataclasses import dataclass, field

import msgspec
import pytest

from equipoise.adapters.kubernetes import ApiError
from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.kinds import NODES
from equipoise.adapters.kubernetes.node import NODE
from equipoise.core.cluster import RulesCondition
from equipoise.qos.explain import RuleDetails
from equipoise.runtime.agent.reporting import FORBIDDEN_SECONDS, RulesReporter
from tests.support.operator.worlds import logged

NOON = 1_767_268_800.0


@dataclass
class Node:
    """The node's condition on the server, and in the agent's watch."""

    now: float = NOON
    refusal: ApiError | None = None
    condition: RulesCondition | None = None
    attempts: int = 0
    writes: list[str] = field(default_factory=list)

    def reported_rules(self) -> RulesCondition | None:
        return self.condition

    def report_rules(self, rules: RulesCondition) -> None:
        self.attempts += 1
        if self.refusal is not None:
            raise self.refusal
        self.writes.append(f"{rules.status} {rules.reason}: {rules.message}")
        self.condition = RulesCondition(rules.status, rules.reason, rules.message, self.now)


def _rule(state: str) -> RuleDetails:
    return RuleDetails(
        "cpu_total_usage", None if state == "Unknown" else 1.0, 2.0, "evict", state, 0, 0, False, False
    )


class Reports:
    """A reporter on a clock of its own."""

    def __init__(self, node: Node) -> None:
        log, self.lines = logged("info")
        self.node = node
        self.reporter = RulesReporter(log, node, self, lambda: self.node.now)  # type: ignore[arg-type]

    def now(self) -> float:
        return self.node.now

    def after(self, seconds: float, **states: str) -> None:
        self.node.now += seconds
        self.reporter.report({f"busy/{name}": _rule(state) for name, state in states.items()})


def test_a_condition_is_written_when_a_rule_is_crossed_and_renewed_while_it_stays() -> None:
    """At most twice a minute; and every five minutes, so that its age shows that somebody looks."""
    node = Node()
    reports = Reports(node)
    reports.after(0, cpu="Clear", memory="Clear")
    assert node.writes == ["False NoRuleCrossed: clear: busy/cpu, busy/memory"]
    reports.after(10, cpu="Crossed", memory="Clear")
    assert len(node.writes) == 1
    reports.after(20, cpu="Crossed", memory="Clear")
    assert node.writes[1:] == ["True RulesCrossed: crossed: busy/cpu; clear: busy/memory"]
    for _ in range(60):
        reports.after(10, cpu="Crossed", memory="Released")
    assert len(node.writes) == 4
    assert len(set(node.writes[1:])) == 1


def test_a_node_without_rules_has_no_condition() -> None:
    """Until it had one: then nothing is crossed any more."""
    node = Node()
    reports = Reports(node)
    reports.after(0)
    assert node.attempts == 0
    reports.after(60, cpu="Crossed")
    reports.after(60)
    assert node.writes[-1] == "False NoRules: no rule is for this node"


def test_a_first_round_without_usage_is_not_reported() -> None:
    """CPU usage needs two readings; usage that stays unknown is."""
    node = Node()
    reports = Reports(node)
    reports.after(0, cpu="Unknown")
    reports.after(10, cpu="Unknown")
    assert node.attempts == 0
    reports.after(10, cpu="Unknown")
    assert node.writes == ["Unknown UsageUnknown: unknown: busy/cpu"]


def test_an_agent_that_may_not_write_it_asks_seldom_and_says_so_once() -> None:
    """The right comes with agent.taint, which is off by default."""
    node = Node(refusal=ApiError("server", "PATCH nodes", 403, "Forbidden", "no"))
    reports = Reports(node)
    for _ in range(int(FORBIDDEN_SECONDS / 10)):
        reports.after(10, cpu="Crossed")
    assert node.attempts == 1
    reports.after(10, cpu="Crossed")
    assert node.attempts == 2
    assert len(reports.lines()) == 1
    node.refusal = None
    reports.after(FORBIDDEN_SECONDS, cpu="Crossed")
    assert len(node.writes) == 1


@pytest.mark.parametrize("has_reported", [True, False])
def test_an_agent_that_ends_leaves_nothing_that_looks_fresh(has_reported: bool) -> None:
    """Only where there is such a condition."""
    node = Node()
    reports = Reports(node)
    if has_reported:
        reports.after(0, cpu="Crossed")
    reports.reporter.end()
    assert node.writes[1:] == ["Unknown AgentStopped: the node agent has stopped"] * has_reported


def test_the_condition_is_read_from_the_node_as_it_was_written() -> None:
    """By the agent's own watch, and by the operator's."""
    condition = {
        "type": "EquipoiseRulesCrossed",
        "status": "True",
        "reason": "RulesCrossed",
        "message": "crossed: busy/cpu; clear: busy/memory",
        "lastHeartbeatTime": "2026-01-01T12:00:00Z",
    }
    ready = {"type": "Ready", "status": "True"}
    raw = msgspec.json.encode(
        {"metadata": {"name": "n1", "uid": "u"}, "status": {"conditions": [ready, condition]}}
    )
    expected = RulesCondition("True", "RulesCrossed", "crossed: busy/cpu; clear: busy/memory", NOON)
    for kind in (NODE, NODES):
        found = kind.decode(Decoder(), kind.decode_object(raw))
        assert found is not None
        assert found.rules == expected
        assert found.rules.rules() == {"busy/cpu": True, "busy/memory": False}

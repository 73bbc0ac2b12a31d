"""The status of the qos kinds: what the leader counts from what agents report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.cluster import RULES_LENGTH_MAX, Node, ObjectRef, RulesCondition
from equipoise.core.errors import WorldFailed
from equipoise.crd.definition import Standing
from equipoise.ports import PolicyObject, StoreConflict
from equipoise.qos.status import (
    AGAIN_SECONDS,
    QOS_KINDS,
    REPORT_SECONDS_MAX,
    JudgedObject,
    QosStatusLoop,
    judge_objects,
)
from tests.support.qos.worlds import (
    AT,
    BOTH,
    CLOSE,
    EVICT,
    RECLAIM,
    THROTTLE,
    Document,
    pod_qos,
    policy,
    rule,
)

CPU = rule("cpu_total_usage", 6000, "evict", "cpu")
MEMORY = rule("memory_total_usage", "10Gi", "evict", "memory")
BUSY = policy(CPU, MEMORY, name="busy", selector={"matchLabels": {"pool": "batch"}})
OPEN = policy(rule("cpu_load_1_min", 8, "close", "load", strategy="Preview"), name="open")


def _object(document: Document, **parts: Any) -> PolicyObject:
    name = document["metadata"]["name"]
    ref = ObjectRef(document["apiVersion"], document["kind"], "", name, f"uid-{name}")
    return PolicyObject(ref, generation=1, version="1", spec=document["spec"], status={}, **parts)


def _node(name: str, report: RulesCondition | None = None, **labels: str) -> Node:
    return Node(name, name, "1", True, False, 4.0, 2.0**34, 110, tuple(labels.items()), report)


def _report(at: float = AT, **rules: bool | None) -> RulesCondition:
    named = {name.replace("__", "/"): is_crossed for name, is_crossed in rules.items()}
    found = RulesCondition.of(named)
    return RulesCondition(found.status, found.reason, found.message, at)


def _judged(documents: Sequence[Document], nodes: Sequence[Node]) -> dict[str, JudgedObject]:
    found = judge_objects([_object(each) for each in documents], nodes, AT)
    assert len(found) == len(documents)
    return {one.policy.ref.name: one for one in found}


def _counts(one: JudgedObject) -> tuple[int | None, int | None, int | None]:
    return one.nodes, one.crossed, one.unknown


NAMES = st.from_regex(r"[a-z]([-a-z0-9.]{0,40}[a-z0-9])?/[a-z]([-a-z0-9.]{0,40}[a-z0-9])?", fullmatch=True)


@given(st.dictionaries(NAMES, st.sampled_from([True, False, None]), max_size=80))
def test_a_condition_says_what_is_crossed_and_no_more(rules: dict[str, bool | None]) -> None:
    """Read back as it was written; what has no room, or is unknown, is not there."""
    condition = RulesCondition.of(rules)
    known = {name: state for name, state in rules.items() if state is not None}
    read = condition.rules()
    assert read.items() <= known.items()
    assert len(condition.message) < RULES_LENGTH_MAX + 64
    if sum(len(name) + 2 for name in rules) <= RULES_LENGTH_MAX:
        assert read == known
    expected = "True" if any(rules.values()) else "Unknown" if rules and not known else "False"
    assert condition.status == expected


@pytest.mark.parametrize("status", ["Unknown", "", "Maybe"])
def test_a_condition_that_is_unknown_says_nothing(status: str) -> None:
    """Such as that of an agent which has stopped."""
    assert RulesCondition(status, "AgentStopped", "crossed: a/b").rules() == {}


@pytest.mark.parametrize("message", ["", "crossed", "somebody: else; wrote: this", "; ; :"])
def test_words_of_others_are_no_rules(message: str) -> None:
    """Whoever wrote them."""
    assert RulesCondition("True", "X", message).rules() == {}


def test_nodes_are_counted_by_what_their_agents_report() -> None:
    """Crossed, clear, and unknown: none reported, too long ago, not about this rule."""
    nodes = [
        _node("crossed", _report(busy__cpu=True, busy__memory=False, open__load=False), pool="batch"),
        _node("clear", _report(busy__cpu=False, busy__memory=False, open__load=True), pool="batch"),
        _node("silent", pool="batch"),
        _node("old", _report(AT - REPORT_SECONDS_MAX - 1, busy__cpu=True, busy__memory=True), pool="batch"),
        _node("half", _report(busy__cpu=False), pool="batch"),
        _node("other", _report(busy__cpu=True, open__load=False), pool="web"),
    ]
    found = _judged(
        [BUSY, OPEN, EVICT, CLOSE, THROTTLE, pod_qos("q", labelSelector={}, allowedActions=["evict"])], nodes
    )
    assert {name: _counts(one) for name, one in found.items()} == {
        "busy": (5, 1, 3),
        "open": (6, 1, 3),
        "evict": (5, 1, 3),
        "close": (6, 1, 3),
        "throttle": (0, 0, 0),
        "q": (5, 1, 3),
    }
    assert all(one.rejection is None for one in found.values())


def test_nobody_knows_is_not_zero() -> None:
    """Without a report of any node, the number of crossed ones is absent."""
    found = _judged([BUSY, EVICT], [_node("a", pool="batch"), _node("b", pool="batch")])
    for one in found.values():
        assert _counts(one) == (2, None, 2)
        assert "nodesCrossed" not in one.content()


@pytest.mark.parametrize(
    ("document", "code", "words"),
    [
        (
            policy(rule("cpu_total_usage", 1, "none"), name="x"),
            "InvalidAction",
            "spec.objectiveEnsurances[0].actionName",
        ),
        (policy(rule("memory_total_usage", 1, "throttle"), name="x"), "InvalidAction", "memoryThrottle"),
        (policy(CPU | {"avoidanceThreshold": 0}, name="x"), "InvalidSpec", "avoidanceThreshold"),
        (
            policy(CPU, name="x", selector={"matchLabels": {"no": "node"}}),
            "NoNodes",
            "spec.selector: expected",
        ),
        (
            pod_qos("x", labelSelector={}, allowedActions=["evict", "nil"]),
            "InvalidAction",
            "spec.allowedActions[1]",
        ),
    ],
)
def test_what_agents_do_not_follow_is_not_ready(document: Document, code: str, words: str) -> None:
    """With the path of the field, and what was expected; the counts of an invalid object are unknown."""
    one = _judged([document, EVICT, THROTTLE], [_node("a", _report(x__cpu=True))])["x"]
    assert one.rejection is not None
    assert one.rejection.code == code
    assert words in one.rejection.sentence
    assert one.ready()["status"] == "False"
    assert (one.nodes is None) == (code != "NoNodes" and document["kind"] != "PodQOS")


def test_an_unreadable_object_costs_itself() -> None:
    """Its neighbours have their status."""
    broken = _object(OPEN, unreadable="nested too deeply")
    found = judge_objects([broken, _object(EVICT)], [_node("a")], AT)
    assert [one.ready()["reason"] for one in found] == ["Unreadable", "Accepted"]


def test_a_summary_is_what_the_spec_asks_for() -> None:
    """One line for a column of `kubectl get`."""
    many = policy(*(rule("cpu_total_usage", 1000 + n, "evict", f"r{n}") for n in range(5)), name="many")
    found = _judged([BUSY, OPEN, EVICT, THROTTLE, RECLAIM, BOTH, CLOSE, many], [_node("a")])
    assert found["busy"].summary.startswith("cpu_total_usage > ")
    assert found["busy"].summary.count(": evict") == 2
    assert found["open"].summary == "cpu_load_1_min > 8: close (preview)"
    assert found["many"].summary.endswith(" and 2 more")
    assert {name: found[name].summary for name in ("evict", "throttle", "reclaim", "both", "close")} == {
        "evict": "Evict (30 s to end)",
        "throttle": "ThrottleCPU (20% per cycle)",
        "reclaim": "ReclaimMemory",
        "both": "ThrottleCPU (20% per cycle), Evict",
        "close": "DisableScheduling",
    }


@dataclass
class Objects:
    """Objects on a server, one of whose definitions may be somebody else's."""

    documents: list[Document]
    owner: Standing = Standing.OURS
    failure: WorldFailed | None = None
    keeps: bool = True
    """Whether the definition has the fields that are written."""
    statuses: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    writes: list[str] = field(default_factory=list)

    def policies(self) -> list[PolicyObject]:
        if self.failure is not None:
            raise self.failure
        found = [_object(each) for each in self.documents]
        return [replace(one, status=self.statuses.get(one.ref.name, {})) for one in found]

    def standing(self, kind: str) -> Standing:
        assert kind in {one.name for one in QOS_KINDS}
        return self.owner

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        if policy.ref.name == "contended":
            raise StoreConflict("somebody else wrote")
        self.writes.append(policy.ref.name)
        if self.keeps:
            self.statuses[policy.ref.name] = status


@dataclass
class World:
    """The nodes, and who leads."""

    listed: list[Node]
    leads: int | None = 1

    def nodes(self) -> list[Node]:
        return self.listed

    def epoch(self) -> int | None:
        return self.leads


def _loop(objects: Objects, world: World, **parts: Any) -> QosStatusLoop:
    return QosStatusLoop(objects, world, world, **parts)  # type: ignore[arg-type]  # a part of a cluster


def test_a_status_is_written_when_a_count_changes_and_at_no_other_time() -> None:
    """By the leader alone; the time of the condition stays while it holds."""
    objects, world = Objects([BUSY, EVICT]), World([_node("a", pool="batch")], leads=None)
    loop = _loop(objects, world)
    loop.cycle(AT)
    assert objects.writes == []
    world.leads = 1
    loop.cycle(AT)
    assert objects.writes == ["busy", "evict"]
    since = objects.statuses["busy"]["conditions"][0]["lastTransitionTime"]
    for minute in range(1, 4):
        loop.cycle(AT + 60 * minute)
    assert len(objects.writes) == 2
    world.listed = [_node("a", _report(AT + 240, busy__cpu=True, busy__memory=False), pool="batch")]
    loop.cycle(AT + 240)
    assert objects.writes == ["busy", "evict"] * 2
    status = objects.statuses["busy"]
    assert (status["nodes"], status["nodesCrossed"], status["nodesUnknown"]) == (1, 1, 0)
    assert status["conditions"][0]["lastTransitionTime"] == since
    world.listed = [_node("a", _report(AT + 300, busy__cpu=True, busy__memory=True), pool="batch")]
    loop.cycle(AT + 300)  # another rule, the same counts
    assert len(objects.writes) == 4


@pytest.mark.parametrize(
    ("owner", "takes_over", "count"),
    [(Standing.OURS, False, 1), (Standing.FOREIGN, False, 0), (Standing.FOREIGN, True, 1)],
)
def test_objects_of_somebody_elses_kinds_are_left_alone(
    owner: Standing, takes_over: bool, count: int
) -> None:
    """Unless the administrator says to take over."""
    objects = Objects([EVICT], owner)
    loop = _loop(objects, World([_node("a")]), takes_over=takes_over)
    assert loop.cycle(AT).failure == ""
    assert len(objects.writes) == count


def test_a_definition_without_the_fields_is_not_written_every_minute() -> None:
    """An older one drops them: once an hour is enough."""
    objects = Objects([EVICT], keeps=False)
    loop = _loop(objects, World([_node("a")]))
    for minute in range(int(AGAIN_SECONDS / 60) + 1):
        loop.cycle(AT + 60 * minute)
    assert objects.writes == ["evict", "evict"]


def test_what_cannot_be_listed_is_a_warning_and_nothing_is_written() -> None:
    """A missing right must not keep the operator from being ready."""
    objects = Objects([EVICT], failure=WorldFailed("403: forbidden"))
    report = _loop(objects, World([_node("a")])).cycle(AT)
    assert (report.failure, objects.writes) == ("", [])
    assert list(report.warnings) == ["the status of the qos kinds is not written: 403: forbidden"]


def test_a_conflict_is_settled_by_the_next_round() -> None:
    """It is no error, and costs its object alone."""
    contended = policy(CPU, name="contended")
    objects = Objects([contended, EVICT])
    report = _loop(objects, World([_node("a")])).cycle(AT)
    assert (list(report.warnings), objects.writes) == ([], ["evict"])

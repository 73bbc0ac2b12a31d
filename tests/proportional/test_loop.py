"""The loop at work in the simulator: it follows the cluster, keeps still, and stops where it must."""

from itertools import pairwise
from typing import Any
from unittest.mock import patch

import pytest

from equipoise.core.cluster import Container
from equipoise.crd.targets import Mode
from equipoise.ports.actions import ResizeAnswer, ResizeResult
from tests.support.proportional.running import CPU_PER_CORE, MEMORY, NAMESPACE, POD, POLICY, Run, spec

UNSUPPORTED = ResizeAnswer(ResizeResult.UNSUPPORTED, "Pod running on node without support for resize")
PERCENTILE = {"percentile": {"target": 0.8, "lowThreshold": 0.6, "highThreshold": 0.95}}


def test_pods_follow_the_cluster_in_place_and_nothing_restarts() -> None:
    """20 cores ask for 300m; the template stays, and status and events say what it cost: nothing."""
    run = Run()
    pods = set(run.workload.pods)
    assert run.reason() == "Set"
    assert run.requests() == [0.3] * 3
    assert run.requests("log") == [0.05] * 3
    assert (run.template(), run.restarts, set(run.workload.pods)) == (0.1, 0, pods)
    assert run.status["message"] == "Pods are resized in place; nothing restarts."
    assert run.reason() == "Unchanged"
    assert run.status["podsAtTarget"] == "3/3"
    assert run.conditions == {"Ready": "Accepted", "Applied": "AllPods"}
    (resource,) = run.status["resources"]
    assert (resource["current"], resource["target"]) == ("300m", "300m")
    assert resource["lastChange"]["before"] == "100m"
    assert [(e.reason, e.is_warning) for e in run.world.actuator.events] == [("Set", False)]
    run.check_replay()


def test_a_preview_changes_nothing_and_says_so() -> None:
    """In status alone; no write to a pod, no event, no change remembered."""
    run = Run(mode=Mode.PREVIEW)
    assert [run.reason() for _ in range(3)] == ["Set"] * 3
    assert run.requests() == [0.1] * 3
    assert run.world.sizes.writes == []
    assert run.conditions == {"Ready": "Accepted", "Applied": "Preview"}
    assert "Preview" in run.status["conditions"][0]["message"]
    assert "lastChange" not in run.status["resources"][0]
    assert run.world.policies.writes == 1
    run.check_replay()


def test_a_pod_born_from_the_old_template_gets_the_value_without_a_restart() -> None:
    """Scale up after a change in place: within one cycle of Running."""
    run = Run()
    run.cycle()
    run.world.scale(run.workload, 5)
    run.world.advance(30)
    assert sorted(map(str, run.requests())) == ["0.1", "0.1", "0.3", "0.3", "0.3"]
    decision = run.cycle()
    assert "2 of 5 pods do not have the values in force yet" in decision.reason.sentence
    assert run.requests() == [0.3] * 5
    assert run.restarts == 0
    assert run.reason() == "Unchanged"
    assert run.status["podsAtTarget"] == "5/5"
    run.check_replay()


@pytest.mark.parametrize(("smoothing", "changes"), [(PERCENTILE, 0), ({}, 2)], ids=["percentile", "none"])
def test_a_rolling_update_of_the_nodes(smoothing: dict[str, Any], changes: int) -> None:
    """Every node in turn is away for 30 s: smoothing keeps still, and without it the value flaps."""
    run = Run(policy=spec(smoothing=smoothing), change_seconds=0.0)
    for _ in range(30):
        run.cycle()
    assert run.requests() == [0.3] * 3
    before = run.our_writes()
    for node in list(run.nodes):
        run.drop(node)
        for _ in range(3):
            run.cycle()
        run.revive(node)
        for _ in range(3):
            run.cycle()
    written = (run.our_writes() - before) // 3
    assert written == 0 if changes == 0 else written >= changes
    run.check_replay()


def test_whoever_puts_the_old_value_back_twice_has_it() -> None:
    """At most two writes for each pod, then a condition with the other one's name; an edit begins anew."""
    run = Run(replicas=1)
    for expected in ("Set", "Set", "FoughtBy", "FoughtBy"):
        assert run.reason() == expected
        run.put_back("100m")
    assert run.our_writes() == 2
    assert run.conditions["Applied"] == "FoughtBy"
    assert "argocd" in run.status["lastDecision"]["sentence"]
    run.start()  # another process knows it too
    assert run.reason() == "FoughtBy"
    assert run.our_writes() == 2
    assert [e.reason for e in run.world.actuator.events] == ["Set", "Set", "FoughtBy"]
    run.world.policies.add(NAMESPACE, POLICY, spec(updateMode="InPlace"))
    assert run.reason() == "Set"
    assert run.our_writes() == 3
    run.check_replay()


def test_a_template_that_is_put_back_twice_stays_so() -> None:
    """The same for rollouts."""
    run = Run(policy=spec(updateMode="Rollout"), rollout_seconds=0.0, change_seconds=0.0)
    seen = []
    for _ in range(20):
        seen.append(run.reason(60.0))
        if run.template() != 0.1:
            run.world.advance(60)
            run.put_back("100m", is_template=True)
    assert run.our_writes() == 2
    assert seen[-1] == "FoughtBy"
    assert "argocd" in run.status["lastDecision"]["sentence"]


def test_a_server_without_resize_gets_a_new_template() -> None:
    """Said before it is done; the next change waits for the rollout, and then for its own time."""
    run = Run(change_seconds=0.0, rollout_seconds=120.0)
    run.world.sizes.has_resize = False
    pods = set(run.workload.pods)
    assert run.reason() == "Set"
    assert "cannot resize pods in place; every pod is replaced" in run.status["message"]
    assert run.template() == 0.3
    run.add_nodes(1)
    assert run.reason(1.0) in {"HeldByRollout", "HeldByCooldown"}
    run.world.advance(60)
    assert run.requests() == [0.3] * 3
    assert not pods & set(run.workload.pods)
    assert run.reason() == "HeldByCooldown"
    run.world.advance(120)
    assert run.reason() == "Set"
    assert run.template() == 0.34
    run.check_replay()


def test_another_qos_class_needs_a_rollout() -> None:
    """A pod that asks for nothing can't be given a request in place."""
    run = Run(containers=(Container("dns"),))
    assert run.reason() == "Set"
    assert "QoS class would change from BestEffort to Burstable" in run.status["message"]
    assert run.template() == 0.3


def test_in_place_only_is_refused_where_it_would_need_a_rollout() -> None:
    """Nothing is changed, and the condition says why."""
    run = Run(containers=(Container("dns"),), policy=spec(updateMode="InPlace"))
    assert [run.reason() for _ in range(3)] == ["Refused"] * 3
    assert run.our_writes() == 0
    assert run.conditions["Applied"] == "Refused"


@pytest.mark.parametrize(
    ("answer", "reason"), [(ResizeResult.REFUSED, "Refused"), (ResizeResult.FORBIDDEN, "OptedOut")]
)
def test_what_the_server_refuses_is_not_in_force_and_is_asked_for_again_ever_later(
    answer: ResizeResult, reason: str
) -> None:
    """Nothing is remembered as changed; after five minutes it is tried once more."""
    run = Run(replicas=1)
    asked: list[float] = []

    def refuse(*args: Any, **options: Any) -> ResizeAnswer:
        asked.append(run.world.now)
        return ResizeAnswer(answer, "exceeded quota: small")

    with patch.object(run.world.sizes, "resize", refuse):
        for _ in range(100):
            run.cycle()
        assert run.reason() == reason
    assert [round(b - a) for a, b in pairwise(asked)] == [300, 600]
    (resource,) = run.status["resources"]
    assert (resource["current"], "lastChange" in resource) == ("100m", False)
    assert "exceeded quota: small" in run.status["lastDecision"]["sentence"]
    assert len(run.world.actuator.events) <= 2 * len(asked)
    assert run.reason(3600.0) == "Set"
    assert run.requests() == [0.3]
    run.check_replay()


def test_a_node_that_cannot_change_pods_in_place_gets_new_ones() -> None:
    """In mode Auto: asked again 30 s after the first such answer, then the template."""
    run = Run(rollout_seconds=0.0)
    with patch.object(run.world.sizes, "resize", return_value=UNSUPPORTED) as resize:
        assert [run.reason() for _ in range(3)] == ["Set", "Refused", "Refused"]
        assert "The resize is tried again after 30 s" in run.status["lastDecision"]["sentence"]
        assert (resize.call_count, run.template()) == (1, 0.1)
        assert [run.reason() for _ in range(2)] == ["Set", "Set"]
        assert resize.call_count == 2
    assert "a node cannot resize pods in place; every pod is replaced" in run.status["message"]
    assert run.template() == 0.3


@pytest.mark.parametrize("mode", ["Auto", "InPlace"])
def test_a_pod_that_its_node_has_not_reported_yet_is_changed_in_place_later(mode: str) -> None:
    """The server says the same of a container whose resources the kubelet has not reported yet."""
    run = Run(rollout_seconds=0.0, policy=spec(updateMode=mode))
    with patch.object(run.world.sizes, "resize", return_value=UNSUPPORTED):
        assert run.reason() == "Set"
    assert [run.reason() for _ in range(3)] == ["Refused", "Refused", "Set"]
    assert "tried again" not in run.status["lastDecision"]["sentence"]
    assert (run.template(), run.restarts, run.requests()) == (0.1, 0, [0.3] * 3)
    run.check_replay()


def test_an_accepted_change_forgets_that_a_node_could_not_change_pods() -> None:
    """Young pods that are refused now and then, hours apart, do not add up to a rollout."""
    run = Run(rollout_seconds=0.0, change_seconds=0.0)
    for nodes in (1, 1, 1):
        with patch.object(run.world.sizes, "resize", return_value=UNSUPPORTED):
            assert run.reason() == "Set"
        assert [run.reason() for _ in range(3)] == ["Refused", "Refused", "Set"]
        run.add_nodes(nodes)
    assert run.template() == 0.1
    assert run.restarts == 0


def test_a_request_above_its_limit_is_refused_before_anybody_is_asked() -> None:
    """With both numbers."""
    run = Run(containers=(Container("dns", 0.1, MEMORY, 0.2, MEMORY * 2),))
    assert run.reason() == "Refused"
    assert (
        "CPU request of dns, 0.3 cores, is above its limit of 0.2 cores"
        in run.status["lastDecision"]["sentence"]
    )
    assert run.our_writes() == 0


def test_a_container_that_must_restart_does_so_one_pod_at_a_time_and_says_so_before() -> None:
    """The event comes before the deed, and no two pods are away at once."""
    run = Run(containers=(Container("dns", 0.1, MEMORY, restarts_for=("cpu",)),))
    run.cycle()
    assert "the container dns restarts" in run.status["message"]
    first, second = run.world.actuator.events[:2]
    assert "restarts" in first.sentence
    assert "Accepted" not in first.sentence
    assert "Accepted" in second.sentence
    assert run.requests().count(0.3) == 1
    for _ in range(30):
        run.world.advance(5)
        away = sum(not pod.is_ready for pod in run.workload.pods.values())
        assert away <= 1
        run.loop.cycle(run.world.now)
    assert run.requests() == [0.3] * 3
    assert run.restarts == 3


@pytest.mark.parametrize(("cpu", "state"), [("10m", ""), ("1", "Infeasible"), ("190m", "Deferred")])
def test_what_a_node_cannot_give_is_reported_and_asked_for_once(cpu: str, state: str) -> None:
    """The pod keeps what it has; nobody writes again."""
    rule = {"resource": "cpu", "function": {"input": "cores", "base": "100m", "slope": cpu}}
    containers = [{"name": "dns", "resources": {"requests": [rule]}}]
    run = Run(replicas=1, policy=spec(containers=containers))
    if state == "Deferred":
        other = run.world.add_workload("shop", "big", replicas=5)
        run.world.advance(60)
        assert len(other.pods) == 5
    run.cycle()
    for _ in range(3):
        code = run.reason()
    assert run.our_writes() == 1
    assert code == (state or "Unchanged")
    assert run.conditions["Applied"] == (state or "AllPods")
    assert run.status["podsAtTarget"] == ("0/1" if state else "1/1")
    run.check_replay()


def test_a_vpa_or_another_policy_on_the_target_is_a_conflict() -> None:
    """Nothing is changed for either of them, and both say why."""
    run = Run()
    run.world.sizes.vpas[run.workload.ref] = "VerticalPodAutoscaler kube-system/dns (Auto)"
    report = run.loop.cycle(run.world.now)
    assert report.decisions == []
    assert run.conditions == {"Ready": "Conflict"}
    assert "VerticalPodAutoscaler kube-system/dns (Auto)" in run.status["conditions"][0]["message"]
    run.world.sizes.vpas.clear()
    run.world.policies.add(NAMESPACE, "second", spec())
    assert run.loop.cycle(run.world.now).decisions == []
    for policy in run.world.policies.policies():
        assert policy.status["conditions"][0]["reason"] == "Conflict"
    assert run.world.sizes.writes == []
    run.world.policies.remove(NAMESPACE, "second")
    assert run.reason() == "Set"


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"scaleTargetRef": {"kind": "Deployment", "name": "nobody"}}, "NoWorkload", "no Deployment"),
        ({"containers": [{"name": "other"}]}, "NoContainer", "spec.containers[0].name"),
        ({"nodeSelector": {"matchLabels": {"none": "such"}}}, "NoNodes", "Ready node"),
        ({"updateMode": "Sometimes"}, "InvalidSpec", "spec.updateMode"),
    ],
)
def test_a_policy_that_cannot_be_followed_says_why(changes: dict[str, Any], reason: str, words: str) -> None:
    """With the path of the field; nothing is changed."""
    run = Run(policy=spec(**changes))
    assert run.loop.cycle(run.world.now).decisions == []
    assert run.conditions == {"Ready": reason}
    assert words in run.status["conditions"][0]["message"]
    assert run.world.sizes.writes == []
    writes = run.world.policies.writes
    run.loop.cycle(run.world.now + 10)
    assert run.world.policies.writes == writes


def test_pods_are_an_unknown_input_where_only_some_namespaces_are_seen() -> None:
    """A part is never taken for the whole."""
    rule = {"resource": "cpu", "function": {"input": "pods", "slope": "10m"}}
    containers = [{"name": "dns", "resources": {"requests": [rule]}}]
    run = Run(policy=spec(containers=containers), is_cluster_wide=False)
    run.loop.cycle(run.world.now)
    assert run.conditions == {"Ready": "InputUnknown"}
    run.start(is_cluster_wide=True)
    assert run.reason() == "Set"
    assert run.requests() == [0.03] * 3


def test_holds() -> None:
    """A pause, a lost lease and the rate limit hold a change; nothing is written to a pod."""
    run = Run(change_seconds=60.0)
    run.world.pauses.pause(NAMESPACE, "test")
    assert run.reason() == "HeldByPause"
    run.world.pauses.resume(NAMESPACE)
    run.lease.now = None
    run.world.advance(10)
    assert run.loop.cycle(run.world.now).decisions == ()
    assert run.world.sizes.writes == []
    run.lease.now = 8
    assert run.reason() == "Set"
    run.add_nodes(1)
    assert run.reason() == "HeldByCooldown"
    assert run.reason(50.0) == "Set"
    run.check_replay()


def test_an_opted_out_workload_is_left_alone() -> None:
    """By its own annotation."""
    run = Run(annotations=(("equipoise.dev/scale", "false"),))
    assert run.reason() == "OptedOut"
    assert run.world.sizes.writes == []


def test_a_utilization_hpa_is_warned_about() -> None:
    """Its percentage means something else after the change."""
    run = Run()
    run.world.add_hpa(run.workload, replicas_min=1, replicas_max=9)
    run.cycle()
    assert run.conditions["UtilizationChanges"] == "UtilizationHpa"


def test_several_slots_of_several_containers_are_set_at_once() -> None:
    """Requests and limits, cpu and memory, in one write for each pod."""
    memory = {"resource": "memory", "function": {"input": "nodes", "base": "128Mi", "slope": "1Mi"}}
    resources = {"requests": [CPU_PER_CORE, memory], "limits": [memory]}
    containers = [{"name": name, "resources": resources} for name in ("dns", "log")]
    run = Run(policy=spec(containers=containers), containers=POD)
    assert run.reason() == "Set"
    assert run.our_writes() == 3
    for pod in run.world.cluster.pods(NAMESPACE):
        for container in pod.containers:
            assert container.memory_limit_bytes == container.memory_request_bytes == 133 * 2.0**20
            assert container.cpu_request_cores == 0.3
    run.check_replay()

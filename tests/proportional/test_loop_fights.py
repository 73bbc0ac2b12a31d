"""Whose doing it was: a revert counts once, pods of others are left alone, a refusal is one pod's."""

from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from equipoise.core.cluster import Container, Owner, PodRef, Resize
from equipoise.ports.actions import ResizeAnswer, ResizeResult
from equipoise.proportional.applied import choose_strategy
from equipoise.proportional.functions import slots
from equipoise.proportional.observe import owned_pods
from equipoise.proportional.parse import WrittenScalingPolicySpec
from equipoise.proportional.policy import UpdateMode
from tests.support.proportional.running import MEMORY, NAMESPACE, POLICY, Run, spec


def test_a_revert_counts_once_however_long_a_hold_keeps_it_from_being_mended() -> None:
    """A pause is no fight: afterwards the value is set again, and the second revert ends it."""
    run = Run(replicas=1)
    assert [run.reason() for _ in range(2)] == ["Set", "Unchanged"]
    run.world.pauses.pause(NAMESPACE, "test")
    run.put_back("100m")
    assert [run.reason() for _ in range(3)] == ["HeldByPause"] * 3
    run.world.pauses.resume(NAMESPACE)
    assert [run.reason() for _ in range(2)] == ["Set", "Unchanged"]
    run.put_back("100m")
    assert run.reason() == "FoughtBy"
    assert run.our_writes() == 2


def test_a_template_that_is_put_back_once_is_set_again_after_its_time() -> None:
    """The wait between two rollouts is not taken for a second revert."""
    run = Run(policy=spec(updateMode="Rollout"))
    assert [run.reason(60.0) for _ in range(2)] == ["Set", "Unchanged"]
    run.put_back("100m", is_template=True)
    seen = [run.reason(60.0) for _ in range(12)]
    assert set(seen) == {"HeldByCooldown", "Set", "Unchanged"}
    assert run.our_writes() == 2


def test_more_pods_than_one_cycle_mends_are_one_revert() -> None:
    """Those of the next cycle have not been put back once more."""
    run = Run(nodes=60, replicas=150)
    run.add_nodes(10)
    for _ in range(3):
        run.cycle()
    run.put_back("100m")
    assert "FoughtBy" not in {run.reason() for _ in range(4)}
    assert len(set(run.requests())) == 1


def test_another_process_knows_which_pods_had_the_value() -> None:
    """So a restart of the operator is not worth a third write."""
    run = Run(replicas=1)
    run.cycle()
    for _ in range(2):
        assert run.reason() == "Unchanged"
        run.put_back("100m")
        run.start()
        last = run.reason()
    assert (last, run.our_writes()) == ("FoughtBy", 2)
    assert "argocd" in run.status["lastDecision"]["sentence"]


def test_a_late_view_is_no_revert() -> None:
    """Where the cache still shows the old value, the server is asked before anybody is blamed."""
    run = Run(replicas=1)
    before = run.world.cluster.pods(NAMESPACE)
    run.cycle()
    with patch.object(run.world.cluster, "pods", return_value=before):
        assert [run.reason() for _ in range(4)] == ["Set"] * 4
    assert run.reason() == "Unchanged"
    assert "reverts" not in run.status["memory"]["deeds"]


def test_pods_of_another_workload_are_left_alone_though_the_selector_picks_them() -> None:
    """Of a canary whose labels are a superset, and of a ReplicaSet that somebody made by hand."""
    run = Run()
    workload = run.world.sizes.workload(run.workload.ref)
    assert workload is not None
    own = run.world.cluster.pods(NAMESPACE)
    revision = dict(own[0].labels)["pod-template-hash"]
    owners = [
        Owner("apps/v1", "ReplicaSet", f"dns-canary-{revision}", "1"),
        Owner("apps/v1", "ReplicaSet", "dns", "2"),
        Owner("apps/v1", "StatefulSet", f"dns-{revision}", "3"),
        None,
    ]
    others = [
        msgspec.structs.replace(own[0], name=f"other-{number}", owner=owner)
        for number, owner in enumerate(owners)
    ]
    found = owned_pods([workload], [*own, *others])
    assert list(found[workload.ref]) == list(own)
    ref = workload.ref._replace(kind="StatefulSet")
    stateful = msgspec.structs.replace(workload, ref=ref, uid="3")
    assert [pod.name for pod in owned_pods([stateful], [*own, *others])[ref]] == ["other-2"]


def test_a_replica_set_that_a_deployment_made_is_refused() -> None:
    """Another template of it would make the Deployment start all over."""
    run = Run(policy=spec(scaleTargetRef={"kind": "ReplicaSet", "name": "dns-1"}))
    real = run.world.sizes.workload(run.workload.ref)
    assert real is not None
    made = msgspec.structs.replace(real, owner=Owner("apps/v1", "Deployment", "dns", "9"))
    with patch.object(run.world.sizes, "workload", return_value=made):
        assert run.loop.cycle(run.world.now).decisions == []
    assert run.conditions == {"Ready": "NoWorkload"}
    assert "name Deployment dns instead" in run.status["conditions"][0]["message"]


def test_a_pod_that_is_refused_does_not_keep_the_value_from_the_others() -> None:
    """Its node may be why; it is asked for again ever later, and pods born meanwhile get it at once."""
    run = Run(replicas=4)
    real = run.world.sizes.resize
    first = min(run.world.cluster.pods(NAMESPACE), key=lambda pod: (pod.created_at, pod.name)).name
    asked: list[float] = []

    def resize(pod: PodRef, *args: Any, **options: Any) -> ResizeAnswer:
        if pod.name != first:
            return real(pod, *args, **options)
        asked.append(run.world.now)
        return ResizeAnswer(ResizeResult.REFUSED, "node too small")

    with patch.object(run.world.sizes, "resize", resize):
        run.cycle()
        assert run.requests().count(0.3) == 3
        assert run.reason() == "Refused"
        run.world.scale(run.workload, 5)
        run.world.advance(30)
        assert run.reason() == "Set"
        assert run.requests().count(0.3) == 4
        for _ in range(20):
            assert run.reason() == "Refused"
        assert len(asked) == 1
        for _ in range(20):
            run.cycle()
        assert len(asked) == 2
    assert run.status["podsAtTarget"] == "4/5"


def test_where_every_pod_is_refused_few_are_asked() -> None:
    """A quota is everybody's."""
    run = Run(replicas=9)
    refused = ResizeAnswer(ResizeResult.REFUSED, "exceeded quota: small")
    with patch.object(run.world.sizes, "resize", return_value=refused) as resize:
        assert [run.reason() for _ in range(4)] == ["Set", "Refused", "Refused", "Refused"]
        assert resize.call_count == 3


@pytest.mark.parametrize("state", ["InProgress", "Deferred"])
def test_the_next_pod_restarts_only_after_the_last_change_was_carried_out(state: str) -> None:
    """A node that is slow still shows a ready pod, which restarts at any moment."""
    run = Run(containers=(Container("dns", 0.1, MEMORY, restarts_for=("cpu",)),))
    pods = [
        msgspec.structs.replace(pod, resize=Resize(state) if number == 0 else None)
        for number, pod in enumerate(run.world.cluster.pods(NAMESPACE))
    ]
    with patch.object(run.world.cluster, "pods", return_value=pods):
        decision = run.cycle()
    assert decision.reason.code.value == "HeldByHealth"
    assert pods[0].name in decision.reason.sentence
    assert run.our_writes() == 0


def test_the_warning_about_an_hpa_stays_as_long_as_it_holds() -> None:
    """Not only in the cycle that changes something; and it costs no writes at rest."""
    run = Run()
    run.world.add_hpa(run.workload, replicas_min=3, replicas_max=9)
    for _ in range(3):
        run.cycle()
    assert run.conditions["UtilizationChanges"] == "UtilizationHpa"
    writes = run.world.policies.writes
    run.cycle()
    assert run.world.policies.writes == writes


@pytest.mark.parametrize(
    ("known", "has", "way"),
    [
        ("Guaranteed", Container("dns", 0.1, MEMORY, 0.1, MEMORY), UpdateMode.ROLLOUT),
        ("Burstable", Container("dns", 0.1, MEMORY, 0.1, MEMORY), UpdateMode.IN_PLACE),
        ("Burstable", Container("dns", 0.2, MEMORY), UpdateMode.IN_PLACE),
        ("BestEffort", Container("dns"), UpdateMode.ROLLOUT),
    ],
    ids=["leaves Guaranteed", "settled by an init container", "a LimitRange's defaults", "asks for nothing"],
)
def test_the_qos_class_of_the_pods_decides_the_way(known: str, has: Container, way: UpdateMode) -> None:
    """Not that of the template, and not what only an init container settles: a rollout restarts all."""
    run = Run(containers=(Container("dns"),))
    workload = run.world.sizes.workload(run.workload.ref)
    assert workload is not None
    pods = [
        msgspec.structs.replace(pod, qos_class=known, containers=(has,))
        for pod in run.world.cluster.pods(NAMESPACE)
    ]
    asked = slots(WrittenScalingPolicySpec.model_validate(spec()))
    chosen = choose_strategy(
        UpdateMode.AUTO, asked, {"dns.requests.cpu": 50}, workload, pods, offers_resize=True
    )
    assert chosen.mode is way


def test_pods_that_ask_to_be_left_alone_keep_a_rollout_away() -> None:
    """As they keep a restart in place away; a change that restarts nothing is none of their business."""
    run = Run(policy=spec(updateMode="Rollout"))
    pods = [
        msgspec.structs.replace(pod, annotations=(("karpenter.sh/do-not-disrupt", "true"),))
        for pod in run.world.cluster.pods(NAMESPACE)
    ]
    with patch.object(run.world.cluster, "pods", return_value=pods):
        assert run.reason() == "OptedOut"
        run.world.policies.add(NAMESPACE, POLICY, spec())
        assert run.reason() == "Set"
    assert (run.template(), run.requests()) == (0.1, [0.3] * 3)


def test_a_restart_is_announced_before_and_what_restarts_nothing_is_not() -> None:
    """Whoever sits at a terminal hears of it in time."""
    said: list[tuple[str, int]] = []
    run = Run(replicas=1)
    run.start(announce=lambda words: said.append((words, run.our_writes())))
    run.cycle()
    assert said == []
    run.world.policies.add(NAMESPACE, POLICY, spec(updateMode="Rollout"))
    run.cycle(600.0)
    ((words, writes),) = said
    assert (writes, "every pod is replaced" in words) == (1, True)

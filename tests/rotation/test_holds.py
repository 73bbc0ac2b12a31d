"""What holds a rotation although a pod is hot: every state of a workload, its code, its sentence."""

from typing import Any

import msgspec
import pytest

from equipoise.core.reason import Code
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import Observation, PodLoad
from equipoise.rotation.progress import RotationMemory
from tests.support.rotation.worlds import NOW, decision_of, live, pod, seed_pods

POLICY = RotationPolicy()


def _changed(name: str, **changes: Any) -> list[PodLoad]:
    """The seed's pods, with one of them different."""
    return [msgspec.structs.replace(each, **changes) if each.name == name else each for each in seed_pods()]


def _under(cpu: float) -> list[PodLoad]:
    """One hot pod, and five that make the mean what it is to be: 0.7 is the target."""
    return [pod("a", 2.0), *(pod(name, cpu) for name in "bcdef")]


HOLDS: dict[str, tuple[Observation, Code, str, dict[str, Any]]] = {
    "opted out": (
        live(*seed_pods(), workload={"opt_out": "equipoise.dev/rotate=false"}),
        Code.OPTED_OUT,
        "The annotation equipoise.dev/rotate=false excludes the workload.",
        {},
    ),
    "protected namespace": (
        live(*seed_pods(), workload={"is_protected": True}),
        Code.OPTED_OUT,
        "Pods in namespace shop are never evicted.",
        {},
    ),
    "StatefulSet": (
        live(*seed_pods(), workload={"kind": "StatefulSet"}),
        Code.OPTED_OUT,
        "A StatefulSet is rotated only if includeStatefulSets is true.",
        {},
    ),
    "autoscaler paused": (
        live(*seed_pods(), workload={"autoscaler_pause": "ScaledObject web has paused=true"}),
        Code.HELD_BY_PAUSE,
        "The autoscaling of the workload is paused: ScaledObject web has paused=true.",
        {},
    ),
    "unobserved generation": (
        live(*seed_pods(), workload={"is_observed": False}),
        Code.HELD_BY_ROLLOUT,
        "The controller has not processed the newest spec of the workload yet.",
        {"replicas_updated": 6, "replicas_seen": 6},
    ),
    "not all updated": (
        live(*seed_pods(), workload={"replicas_updated": 2, "replicas_seen": 7}),
        Code.HELD_BY_ROLLOUT,
        "A rollout is in progress: 2 of 7 pods have the newest version.",
        {"replicas_updated": 2, "replicas_seen": 7},
    ),
    "two ReplicaSets": (
        live(*(msgspec.structs.replace(each, revision=f"rs-{each.name < 'c'}") for each in seed_pods())),
        Code.HELD_BY_ROLLOUT,
        "A rollout is in progress: the pods have 2 versions.",
        {"replicas_updated": 6, "replicas_seen": 6},
    ),
    "one unready": (
        live(*_changed("c", is_ready=False)),
        Code.HELD_BY_HEALTH,
        "5 of 6 pods are ready (c is not). Rotation waits until all of them are.",
        {"pods_ready": 5, "pods_unready": 1, "replicas_wanted": 6},
    ),
    "one missing": (
        live(*seed_pods(), workload={"replicas_wanted": 7}),
        Code.HELD_BY_HEALTH,
        "6 of 7 pods are ready. Rotation waits until all of them are.",
        {"pods_ready": 6, "pods_unready": 0, "replicas_wanted": 7},
    ),
    "one terminating beside a whole workload": (
        live(*seed_pods(), pod("g", None, is_ready=False, is_leaving=True), workload={"replicas_wanted": 6}),
        Code.HELD_BY_HEALTH,
        "6 of 6 pods are ready (g is not). Rotation waits until all of them are.",
        {"pods_ready": 6, "pods_unready": 1, "replicas_wanted": 6},
    ),
    "scaling": (
        live(*seed_pods(), hpa={"replicas_desired": 8}),
        Code.HELD_BY_SCALING,
        "HPA keda-hpa-web is scaling from 6 to 8 replicas.",
        {"replicas_current": 6, "replicas_desired": 8},
    ),
    "at its maximum": (
        live(*seed_pods(), hpa={"replicas_max": 6}),
        Code.HELD_BY_SCALING,
        "HPA keda-hpa-web is at its maximum of 6 replicas, so no pod can be spared.",
        {"replicas_wanted": 6, "replicas_max": 6},
    ),
    "just scaled": (
        live(*seed_pods(), hpa={"scaled_seconds": 299.0}),
        Code.HELD_BY_SCALING,
        (
            "HPA keda-hpa-web scaled the workload 4m59s ago; the usage over 5m still includes samples from "
            "before."
        ),
        {"scaled_seconds": 299.0},
    ),
    "just scaled, by a clock ahead of ours": (
        live(*seed_pods(), hpa={"scaled_seconds": -0.4}),
        Code.HELD_BY_SCALING,
        "HPA keda-hpa-web scaled the workload 0s ago; the usage over 5m still includes samples from before.",
        {"scaled_seconds": -0.4},
    ),
    "about to scale up": (
        live(*_under(0.6)),
        Code.HELD_BY_SCALING,
        "The mean usage is 119% of the target of HPA keda-hpa-web, so the HPA is about to scale up.",
        {"usage_ratio": pytest.approx(5 / 6 / 0.7)},
    ),
    "about to scale down": (
        live(*_under(0.3)),
        Code.HELD_BY_SCALING,
        "The mean usage is 83% of the target of HPA keda-hpa-web, so the HPA is about to scale down.",
        {"usage_ratio": pytest.approx(3.5 / 6 / 0.7)},
    ),
}


@pytest.mark.parametrize("name", HOLDS)
def test_a_state_of_the_workload_holds_with_its_own_words(name: str) -> None:
    """The code, the sentence with its numbers, and all that was wanted is held, in order."""
    seen, code, sentence, numbers = HOLDS[name]
    decision = decision_of(POLICY, seen)
    assert (decision.reason.code, decision.reason.sentence) == (code, sentence)
    assert decision.reason.numbers | numbers == decision.reason.numbers
    assert decision.actions == ()
    assert {held.reason for held in decision.held} == {code}
    assert {held.sentence for held in decision.held} == {sentence}
    assert decision.held[0].action.pod == "a"
    assert decision.reason.numbers["improvement_percent"] > 10


LETS_GO: dict[str, tuple[RotationPolicy, Observation]] = {
    "at rest": (POLICY, live(*seed_pods())),
    "StatefulSets included": (
        RotationPolicy(includes_stateful_sets=True),
        live(*seed_pods(), workload={"kind": "StatefulSet"}),
    ),
    "one version": (POLICY, live(*(msgspec.structs.replace(each, revision="rs-1") for each in seed_pods()))),
    "one short of its maximum": (POLICY, live(*seed_pods(), hpa={"replicas_max": 7})),
    "scaled a window ago": (POLICY, live(*seed_pods(), hpa={"scaled_seconds": 300.0})),
    "idle at its minimum": (POLICY, live(*_under(0.3), hpa={"replicas_min": 6})),
    "a wider tolerance up": (POLICY, live(*_under(0.6), hpa={"tolerance_up": 0.2})),
    "a wider tolerance down": (POLICY, live(*_under(0.3), hpa={"tolerance_down": 0.2})),
    "an HPA that never read its metrics": (POLICY, live(*seed_pods(), hpa={"replicas_desired": 0})),
    "more than wanted": (POLICY, live(*seed_pods(), workload={"replicas_wanted": 5})),
    "a status that counts no pod we miss": (
        POLICY,
        live(*seed_pods(), workload={"replicas_updated": 5, "replicas_seen": 5}),
    ),
    "a pod that finished its rollout on a shorter window": (
        RotationPolicy(metrics_window_seconds=60),
        live(*seed_pods(), hpa={"scaled_seconds": 61.0}),
    ),
}


@pytest.mark.parametrize("name", LETS_GO)
def test_the_other_side_of_each_line_lets_go(name: str) -> None:
    """One step beside what holds, nothing does."""
    decision = decision_of(*LETS_GO[name])
    assert decision.reason.code is Code.ROTATE
    assert decision.held == ()
    assert decision.actions[0].pod == "a"


@pytest.mark.parametrize("way", ["tolerance_up", "tolerance_down"])
def test_a_narrower_tolerance_of_the_hpa_itself_holds(way: str) -> None:
    """Kubernetes lets each HPA say its own; 5 % above and below the target are no rest then."""
    pods = seed_pods() if way == "tolerance_up" else [*seed_pods(), pod("g", 0.1)]
    assert decision_of(POLICY, live(*pods)).reason.code is Code.ROTATE
    decision = decision_of(POLICY, live(*pods, hpa={way: 0.02}))
    assert decision.reason.code is Code.HELD_BY_SCALING


def test_a_paused_autoscaler_explains_a_missing_hpa() -> None:
    """KEDA's `paused` deletes the HPA: the reason is the pause, and there is nothing to hold."""
    seen = live(*seed_pods(), workload={"autoscaler_pause": "ScaledObject web has paused=true"})
    without = msgspec.structs.replace(seen, hpas=())
    decision = decision_of(POLICY, without)
    assert decision.reason.code is Code.HELD_BY_PAUSE
    assert "paused=true" in decision.reason.sentence
    assert (decision.actions, decision.held) == ((), ())
    alone = msgspec.structs.replace(without, workload=live(*seed_pods()).workload)
    assert decision_of(POLICY, alone).reason.code is Code.NO_HPA


def test_the_first_hold_in_order_is_the_one_that_is_told() -> None:
    """Opted out, paused, rollout, health, scaling, futile: each is heard when those before are silent."""
    workload = {
        "opt_out": "equipoise.dev/rotate=false",
        "autoscaler_pause": "paused",
        "replicas_updated": 1,
        "replicas_wanted": 7,
    }
    memory = RotationMemory(failures=3, futile_until=NOW + 60).to_data()
    hpa = {"replicas_desired": 9}
    told = []
    for key in ("opt_out", "autoscaler_pause", "replicas_updated", "replicas_wanted", None):
        told.append(decision_of(POLICY, live(*seed_pods(), workload=workload, hpa=hpa), memory).reason.code)
        if key is not None:
            del workload[key]
    told.append(decision_of(POLICY, live(*seed_pods()), memory).reason.code)
    assert told == [
        Code.OPTED_OUT,
        Code.HELD_BY_PAUSE,
        Code.HELD_BY_ROLLOUT,
        Code.HELD_BY_HEALTH,
        Code.HELD_BY_SCALING,
        Code.FUTILE,
    ]


@pytest.mark.parametrize("name", HOLDS)
def test_a_calm_workload_has_nothing_to_hold(name: str) -> None:
    """Without a hot pod the reason stays what the algorithm said: a guard only holds actions."""
    seen = HOLDS[name][0]
    calm = tuple(
        msgspec.structs.replace(each, cpu_cores=None if each.cpu_cores is None else 0.7) for each in seen.pods
    )
    decision = decision_of(POLICY, msgspec.structs.replace(seen, pods=calm))
    assert decision.reason.code is Code.NO_HOT_PODS
    assert decision.held == ()


def test_from_a_file_only_the_algorithm_decides() -> None:
    """What the file does not say counts as harmless, whatever the HPA's numbers are."""
    seen = live(*_changed("c", is_ready=False), hpa={"replicas_desired": 9, "replicas_max": 6})
    assert decision_of(POLICY, seen).actions == ()
    assert len(decision_of(POLICY, msgspec.structs.replace(seen, workload=None)).actions) == 4


PROTECTED = "it uses local storage"


@pytest.mark.parametrize("name", "abcdef")
def test_a_protected_pod_is_never_chosen_and_is_counted(name: str) -> None:
    """Neither as hot nor as cold; the others are chosen as if it were not a candidate."""
    decision = decision_of(POLICY, live(*_changed(name, protection=PROTECTED)))
    chosen = {action.pod for action in decision.actions}
    assert name not in chosen
    assert decision.reason.numbers["pods_protected"] == 1
    assert decision.reason.numbers["candidates"] == 5
    assert name not in {*decision.reason.numbers["hot"], *decision.reason.numbers["cold"]}


def test_a_hot_pod_that_is_protected_says_why_it_stays() -> None:
    """All that are hot are protected: no plan, and the sentence names the busiest and its reason."""
    pods = [
        msgspec.structs.replace(each, protection=PROTECTED if (each.cpu_cores or 0) > 1 else "")
        for each in seed_pods()
    ]
    decision = decision_of(POLICY, live(*pods))
    assert decision.reason.code is Code.OPTED_OUT
    assert decision.reason.sentence == (
        "a is hot with 1.2 cores, but it is never evicted because it uses local storage. 2 pods are "
        "protected."
    )
    assert (decision.actions, decision.held) == ((), ())
    assert decision.reason.numbers["pods_protected"] == 2


def test_a_calm_pod_that_is_protected_changes_nothing() -> None:
    """It is only counted."""
    pods = [pod(name, 0.7, protection=PROTECTED if name == "a" else "") for name in "abcdef"]
    decision = decision_of(POLICY, live(*pods))
    assert decision.reason.code is Code.NO_HOT_PODS
    assert decision.reason.numbers["pods_protected"] == 1


def test_a_futile_workload_waits_until_its_time_and_says_both() -> None:
    """How many tries failed, and when the next one is."""
    memory = RotationMemory(failures=4, futile_until=1_800_007_200.0).to_data()
    held = decision_of(POLICY, live(*seed_pods()), memory)
    assert held.reason.code is Code.FUTILE
    assert held.reason.sentence == (
        "4 rotations in a row did not lower the usage of the hottest pod by 10%. The imbalance probably "
        "follows the load or the node, not the pod. The next attempt is after 2027-01-15 10:00 UTC."
    )
    assert held.reason.numbers["rotations_failed"] == 4
    assert held.reason.numbers["futile_until"] == 1_800_007_200.0
    assert decision_of(POLICY, live(*seed_pods(), at=1_800_007_200.0), memory).reason.code is Code.ROTATE

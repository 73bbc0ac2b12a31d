"""The rotation's decision, case by case."""

import msgspec
import pytest

from equipoise.core.cluster import HpaMetric
from equipoise.core.decision import Decision
from equipoise.core.reason import Code
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import Observation, ObservedHpa, PodLoad
from tests.support.rotation.worlds import UTILIZATION_70, decision_of, pod, seed_pods, world

POLICY = RotationPolicy()


def _order(decision: Decision) -> list[str]:
    return [action.pod for action in decision.actions]


def test_the_seeds_example_rotates_a_b_f_e_for_34_8_percent() -> None:
    """The worked example, number by number."""
    decision = decision_of(POLICY, world(*seed_pods()))
    assert _order(decision) == ["a", "b", "f", "e"]
    assert decision.reason.code is Code.ROTATE
    numbers = decision.reason.numbers
    assert numbers["target_cores"] == 0.7
    assert numbers["threshold_cores"] == 1.05
    assert numbers["hot"] == ["a", "b"]
    assert numbers["cold"] == ["f", "e"]
    assert numbers["average_hot_cores"] == 1.15
    assert numbers["average_rotated_cores"] == 0.75
    assert numbers["improvement_percent"] == pytest.approx(0.4 / 1.15 * 100, rel=1e-12)
    assert "34.8%" in decision.reason.sentence


def test_a_pod_exactly_at_the_threshold_is_not_hot() -> None:
    """0.7 x 1.5 is 1.05, whatever the floats make of it."""
    decision = decision_of(POLICY, world(pod("a", 1.05), pod("b", 0.5), pod("c", 0.1)))
    assert decision.reason.code is Code.NO_HOT_PODS
    assert decision.actions == ()
    assert decision.reason.numbers["improvement_percent"] is None
    above = decision_of(POLICY, world(pod("a", 1.051), pod("b", 0.5), pod("c", 0.1)))
    assert _order(above) == ["a", "c"]


def test_an_improvement_of_exactly_the_minimum_is_not_enough() -> None:
    """Hot 2.0 and cold 1.6: (2 - 1.8) / 2 is 10 %, and more than that is asked."""
    pods = (pod("a", 2.0), pod("b", 1.6), pod("c", 1.9))
    policy = RotationPolicy(top_k=1)
    metric = HpaMetric("Resource", "cpu", "AverageValue", 1.0)
    decision = decision_of(policy, world(*pods, metric=metric))
    assert decision.reason.code is Code.INSUFFICIENT_IMPROVEMENT
    assert decision.reason.numbers["improvement_percent"] == pytest.approx(10)
    lower = RotationPolicy(top_k=1, improvement_percent_min=9.99)
    assert decision_of(lower, world(*pods, metric=metric)).reason.code is Code.ROTATE


@pytest.mark.parametrize("cores", [0.1, 0.3, 0.7, 1.1, 2.3])
def test_the_noise_of_equal_pods_is_no_improvement(cores: float) -> None:
    """Also where any improvement would do."""
    policy = RotationPolicy.model_validate({"minimumImprovementPercent": 0, "toleranceMultiplier": 0.01})
    for count in range(3, 12):
        equal = [pod(f"p{number}", cores) for number in range(count)]
        assert decision_of(policy, world(*equal)).reason.code is Code.INSUFFICIENT_IMPROVEMENT


def test_hot_and_cold_never_share_a_pod_and_k_is_never_shrunk() -> None:
    """Three pods and K of two: two are busiest, so one is left to be cold."""
    decision = decision_of(POLICY, world(pod("a", 1.2), pod("b", 1.1), pod("c", 0.1)))
    assert _order(decision) == ["a", "b", "c"]


def test_ties_are_broken_by_name() -> None:
    """Equal pods are taken in the order of their names, hot and cold alike."""
    pods = [pod(name, 1.2) for name in "dcba"] + [pod(name, 0.1) for name in "zyx"]
    decision = decision_of(POLICY, world(*pods))
    assert _order(decision) == ["a", "b", "x", "y"]


@pytest.mark.parametrize(
    "harmless",
    [{"is_ready": False}, {"age_seconds": 599.0}, {"has_restarted": True}],
    ids=["unready", "young", "restarted"],
)
def test_a_pod_that_cannot_be_judged_is_no_candidate(harmless: dict[str, object]) -> None:
    """The busiest pod is left alone, and the next ones are judged without it."""
    pods = [msgspec.structs.replace(seed_pods()[0], **harmless), *seed_pods()[1:]]
    decision = decision_of(POLICY, world(*pods))
    assert "a" not in _order(decision)
    assert _order(decision) == ["b", "f", "e"]


def test_a_pod_of_the_minimum_age_is_a_candidate() -> None:
    """Metrics window plus warm-up: ten minutes; and a policy may ask for another age."""
    pods = [pod("a", 1.4, age_seconds=600.0), pod("b", 0.5), pod("c", 0.2)]
    assert decision_of(POLICY, world(*pods)).reason.code is Code.ROTATE
    older = RotationPolicy(pod_age_min_seconds=601)
    assert decision_of(older, world(*pods)).reason.code is Code.NO_HOT_PODS


@pytest.mark.parametrize(("missing", "code"), [(1, Code.ROTATE), (2, Code.METRICS_INCOMPLETE)])
def test_nine_of_ten_ready_pods_must_have_a_sample(missing: int, code: Code) -> None:
    """Exactly 90 % is enough; the sentence says how many were unknown."""
    pods = [pod(f"p{n}", 2.0 if n == 0 else 0.1) for n in range(10 - missing)]
    pods += [pod(f"q{n}", None) for n in range(missing)]
    decision = decision_of(POLICY, world(*pods))
    assert decision.reason.code is code
    assert decision.reason.numbers["pods_unknown"] == missing
    assert f"{missing if code is Code.ROTATE else 10 - missing} of 10 ready pods" in decision.reason.sentence


def test_too_few_ready_pods_are_left_alone() -> None:
    """Unready pods carry nothing, so they do not count."""
    decision = decision_of(POLICY, world(pod("a", 2.0), pod("b", 0.1), pod("c", 0.1, is_ready=False)))
    assert decision.reason.code is Code.TOO_FEW_REPLICAS
    assert (
        decision_of(RotationPolicy(replicas_min=2), world(*seed_pods()[:2])).reason.code
        is not Code.TOO_FEW_REPLICAS
    )
    assert decision_of(RotationPolicy(replicas_min=1), world()).reason.code is Code.TOO_FEW_REPLICAS


def test_the_mean_request_is_of_the_ready_pods() -> None:
    """An unready giant does not move the target."""
    decision = decision_of(POLICY, world(*seed_pods(), pod("g", 0.0, 50.0, is_ready=False)))
    assert decision.reason.numbers["target_cores"] == 0.7


def test_an_average_value_target_is_the_target() -> None:
    """Requests play no part then."""
    pods = [msgspec.structs.replace(each, request_cores=None) for each in seed_pods()]
    decision = decision_of(POLICY, world(*pods, metric=HpaMetric("Resource", "cpu", "AverageValue", 0.7)))
    assert _order(decision) == ["a", "b", "f", "e"]


@pytest.mark.parametrize("request_cores", [None, 0.0])
def test_a_utilization_target_without_a_request_is_unsupported(request_cores: float | None) -> None:
    """No request, no utilisation; the sentence names the pod."""
    pods = [*seed_pods(), pod("g", 0.5, request_cores)]
    decision = decision_of(POLICY, world(*pods))
    assert decision.reason.code is Code.UNSUPPORTED_TARGET
    assert " g " in decision.reason.sentence


@pytest.mark.parametrize(
    "metric",
    [
        HpaMetric("Resource", "memory", "Utilization", 70),
        HpaMetric("Resource", "cpu", "Value", 1),
        HpaMetric("Resource", "cpu", "Utilization", 0),
        HpaMetric("Pods", "cpu", "AverageValue", 1),
        HpaMetric("External", "lag", "AverageValue", 100),
    ],
    ids=lambda metric: f"{metric.type}-{metric.name}-{metric.target_type}-{metric.target_value}",
)
def test_any_other_target_is_unsupported(metric: HpaMetric) -> None:
    """Only CPU as a resource can be compared with a pod's usage."""
    assert decision_of(POLICY, world(*seed_pods(), metric=metric)).reason.code is Code.UNSUPPORTED_TARGET


def test_the_cpu_metric_is_found_among_others() -> None:
    """A pod-wide CPU metric wins over one container's; two containers' are not one target."""
    memory = HpaMetric("Resource", "memory", "Utilization", 50)
    one = HpaMetric("ContainerResource", "cpu", "Utilization", 70, "app")
    two = HpaMetric("ContainerResource", "cpu", "Utilization", 70, "side")
    for metrics, code in [
        ((memory, one, UTILIZATION_70), Code.ROTATE),
        ((memory, one), Code.ROTATE),
        ((one, two), Code.UNSUPPORTED_TARGET),
        ((), Code.UNSUPPORTED_TARGET),
    ]:
        seen = Observation("x", 0.0, (ObservedHpa("h", metrics),), tuple(seed_pods()))
        assert decision_of(POLICY, seen).reason.code is code


def _behind(*names: str) -> Observation:
    hpas = tuple(ObservedHpa(name, (UTILIZATION_70,)) for name in names)
    return Observation("shop/web", 0.0, hpas, tuple(seed_pods()))


@pytest.mark.parametrize(
    ("prefix", "names", "code"),
    [
        ("", [], Code.NO_HPA),
        ("", ["web"], Code.ROTATE),
        ("", ["web", "keda-hpa-web"], Code.AMBIGUOUS_HPA),
        ("keda-hpa", ["web", "keda-hpa-web"], Code.ROTATE),
        ("keda-hpa", ["web"], Code.NO_HPA),
    ],
)
def test_the_hpa_is_the_one_that_names_the_workload(prefix: str, names: list[str], code: Code) -> None:
    """None, one, several; a prefix narrows the choice."""
    assert decision_of(RotationPolicy(hpa_prefix=prefix), _behind(*names)).reason.code is code


def test_every_sentence_is_one_sentence_for_people() -> None:
    """Starts like a sentence or a name, ends with a full stop, no braces, no float noise."""
    seen = [
        world(*seed_pods()),
        world(pod("a", 0.1), pod("b", 0.1), pod("c", 0.1)),
        world(),
        _behind(),
        _behind("a", "b"),
    ]
    policies = [POLICY, RotationPolicy(improvement_percent_min=90), RotationPolicy(hpa_prefix="x")]
    for policy in policies:
        for each in seen:
            sentence = decision_of(policy, each).reason.sentence
            assert sentence.endswith(".")
            assert not set(sentence) & set("{}[]<>\n")
            assert "000000" not in sentence


def test_a_tolerance_without_measure_lets_nobody_be_hot() -> None:
    """Whatever a policy says, the threshold stays a number: one policy must not end the cycle of all."""
    metric = HpaMetric("Resource", "cpu", "AverageValue", 100.0)
    decision = decision_of(RotationPolicy(tolerance_multiplier=1e308), world(*seed_pods(), metric=metric))
    assert decision.reason.code is Code.NO_HOT_PODS


@pytest.mark.parametrize(
    ("kept", "young", "says"),
    [
        ("abcdef", "", "No pod is hot, and all pods are protected: a is never evicted because it uses"),
        (
            "abc",
            "def",
            "No unprotected pod is a candidate yet: each is younger than 10m (minPodAge), restarted",
        ),
        (
            "",
            "abcdef",
            "No pod is a candidate yet: all are younger than 10m (minPodAge) or restarted recently.",
        ),
        ("abc", "", "No pod is hot: the busiest pod, d, uses 0.1 cores, and the threshold is 1.05 cores."),
    ],
)
def test_nobody_to_judge_says_why(kept: str, young: str, says: str) -> None:
    """Too young, or never evicted anyway: two things to do about it."""
    pods = [
        pod(
            *(name, 0.1),
            age_seconds=1.0 if name in young else 9000.0,
            protection="it uses local storage" if name in kept else "",
        )
        for name in "abcdef"
    ]
    decision = decision_of(POLICY, world(*pods))
    assert decision.reason.code is Code.NO_HOT_PODS
    assert decision.reason.sentence.startswith(says)


def test_one_ready_pod_is_ready() -> None:
    """The sentence that most small workloads get."""
    assert decision_of(POLICY, world(pod("a", 0.1))).reason.sentence == (
        "1 of 1 pods is ready; rotation requires at least 3 (minReplicas)."
    )


def test_no_candidate_means_no_hot_pod() -> None:
    """All pods are young: there is nothing to judge, and nothing is done."""
    pods: list[PodLoad] = [msgspec.structs.replace(each, age_seconds=1.0) for each in seed_pods()]
    decision = decision_of(POLICY, world(*pods))
    assert decision.reason.code is Code.NO_HOT_PODS
    assert "candidate" in decision.reason.sentence

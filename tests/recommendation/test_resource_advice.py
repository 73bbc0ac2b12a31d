"""Requests and limits of containers: who gets them, what each setting changes, and what is left alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from pydantic import ValidationError

from equipoise.core.decision import Record
from equipoise.core.errors import BadInput
from equipoise.core.quantity import parse_bytes, parse_cores
from equipoise.core.reason import Code
from equipoise.recommendation.balancer import redecide
from equipoise.recommendation.decide import Examined, decide_from, facts_of
from equipoise.recommendation.explain import ContainerAmounts, ContainerFacts, Facts, record
from equipoise.recommendation.policy import AnalyticsSpec
from equipoise.recommendation.settings import AdviceRequest, AdviceType, read_policy
from tests.support.recommendation.worlds import NAN, observation, policy, statistics

GI = 2.0**30
APP = ContainerFacts("app", 0.2, GI, 1.0, 2 * GI, 2.0, 4 * GI)


def _facts(*containers: ContainerFacts, **more: Any) -> Facts:
    (facts,) = facts_of(observation(), statistics())
    return structs.replace(facts, containers=list(containers), **more)


def _examined(facts: Facts, **settings: str) -> Examined:
    keys = {f"resource.{key.replace('_', '-')}": value for key, value in settings.items()}
    (found,) = decide_from(AdviceRequest(read_policy(keys, "test"), AdviceType.RESOURCE), [facts])
    return found


def _sizes(container: ContainerFacts, **settings: str) -> ContainerAmounts:
    sizes = _examined(_facts(container), **settings).details.sizes
    assert sizes is not None
    return sizes[0].recommended


@pytest.mark.parametrize(
    "seen",
    [
        {"replicas": 0},
        {"available": 0},
        {"unmeasured": 9, "measurable": 10},
        {"peak_cores": 0.01},
        {"highest_median_cores": 4.0},
        {"request_cores": None},
        {"pod_p99_cores": None, "known_samples": 0},
    ],
)
def test_no_inspection_about_scaling_refuses_requests(seen: dict[str, Any]) -> None:
    """Each of these refuses an HPA."""
    facts = _facts(APP, **seen)
    ((refused, *_),) = decide_from(AdviceRequest(policy()), [facts])
    assert refused.reason.code is not Code.RECOMMEND
    decision = _examined(facts).decision
    assert decision.reason.code is Code.RECOMMEND
    assert decision.extra["recommended"]["containers"][0]["requests"]["cpu"] == "230m"


@pytest.mark.parametrize(
    ("facts", "code"),
    [
        (_facts(APP, pods=0), Code.NO_PODS),
        (_facts(ContainerFacts("app", None, None)), Code.NO_SAMPLES),
        (_facts(APP, partial="a store is down"), Code.METRICS_INCOMPLETE),
        (_facts(APP, pods=0, kind="CronJob"), Code.RECOMMEND),
    ],
)
def test_requests_need_pods_and_samples(facts: Facts, code: Code) -> None:
    """A CronJob has no pods between two runs; an answer that lacks data may lack the peak."""
    decision = _examined(facts).decision
    assert decision.reason.code is code
    assert (decision.extra["recommended"] is None) == (code is not Code.RECOMMEND)
    assert ("containers" in decision.extra) == (code is Code.RECOMMEND)


def test_pods_without_samples_lower_the_confidence() -> None:
    """Requests are advised all the same."""
    assert _examined(_facts(APP)).details.confidence == "high"
    assert _examined(_facts(APP, measurable=10, unmeasured=2)).details.confidence == "low"


def test_a_plan_has_todays_amounts_beside_the_recommended_ones() -> None:
    """What is not set is left out; a limit below its request is raised to it."""
    tight = ContainerFacts("proxy", 0.2, GI, None, None, 0.1, GI)
    assert _examined(_facts(APP, tight)).decision.extra["containers"] == [
        {
            "name": "app",
            "current": {
                "requests": {"cpu": "1", "memory": "2Gi"},
                "limits": {"cpu": "2", "memory": "4Gi"},
            },
            "recommended": {
                "requests": {"cpu": "230m", "memory": "1234800000"},
                "limits": {"cpu": "2", "memory": "4Gi"},
            },
        },
        {
            "name": "proxy",
            "current": {"requests": {}, "limits": {"cpu": "100m", "memory": "1Gi"}},
            "recommended": {
                "requests": {"cpu": "230m", "memory": "1234800000"},
                "limits": {"cpu": "230m", "memory": "1234800000"},
            },
        },
    ]


@pytest.mark.parametrize(
    ("settings", "requests", "limits"),
    [
        ({"cpu_margin": "50%"}, {"cpu": "300m"}, {}),
        ({"cpu_margin": "0.5"}, {"cpu": "300m"}, {}),
        ({"cpu_margin": "50"}, {"cpu": "300m"}, {}),
        ({"cpu_margin": "0"}, {"cpu": "200m"}, {}),
        ({"memory_margin": "100%"}, {"memory": str(2 * 2**30)}, {}),
        ({"min_cpu": "500m"}, {"cpu": "500m"}, {}),
        ({"min_memory": "3Gi"}, {"memory": str(3 * 2**30)}, {}),
        ({"min_change_percent": "77"}, {"cpu": "230m"}, {}),
        ({"min_change_percent": "78"}, {"cpu": "1"}, {}),
        ({"cpu_limits": "remove"}, {"cpu": "230m"}, {"cpu": None}),
        ({"cpu_limits": "keep"}, {"cpu": "230m"}, {"cpu": "2"}),
    ],
)
def test_each_setting_changes_its_amount(
    settings: dict[str, str], requests: dict[str, str], limits: dict[str, str | None]
) -> None:
    """A percentage may be written in three ways."""
    found = _sizes(APP, **settings)
    for name, text in requests.items():
        read = parse_cores if name == "cpu" else parse_bytes
        assert read(found.requests[name]) == pytest.approx(read(text), rel=1e-5)
    assert {name: found.limits.get(name) for name in limits} == limits


def test_excluded_containers_get_no_advice() -> None:
    """By name or pattern; a workload of which all are excluded says so."""
    proxy = ContainerFacts("istio-proxy", 0.1, GI)
    sizes = _examined(_facts(APP, proxy), exclude_containers="x, istio-*").details.sizes
    assert sizes is not None
    assert [one.name for one in sizes] == ["app"]
    nothing = _examined(_facts(APP), exclude_containers="*").decision
    assert nothing.extra["recommended"] == {"containers": []}
    assert nothing.reason.sentence == "Every container is excluded (resource.exclude-containers)."


def test_an_oom_kill_raises_memory_above_the_limit() -> None:
    """The peak was seen before the kill; the limit was not enough. However small the change is."""
    killed = structs.replace(APP, is_oom_killed=True, memory_limit_bytes=GI, memory_request_bytes=GI)
    found = _examined(_facts(killed), min_change_percent="90")
    assert found.details.sizes is not None
    amounts = found.details.sizes[0].recommended
    expected = pytest.approx(GI * 1.2 * 1.15, rel=1e-5)
    assert parse_bytes(amounts.requests["memory"]) == expected
    assert parse_bytes(amounts.limits["memory"]) == expected
    assert "1.38 GiB of memory (out of memory at 1 GiB, + 20% + 15%)" in found.decision.reason.sentence
    unlimited = structs.replace(APP, is_oom_killed=True, memory_limit_bytes=None)
    assert parse_bytes(_sizes(unlimited).requests["memory"]) == expected


AMOUNTS = st.none() | st.floats(0.001, 1000)


@given(
    st.builds(
        ContainerFacts, st.just("app"), AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS, st.booleans()
    ),
    st.sampled_from(["keep", "remove"]),
)
def test_a_request_covers_the_usage_and_no_limit_is_below_its_request(
    container: ContainerFacts, cpu_limits: str
) -> None:
    """The API server would reject such a container."""
    sizes = _examined(_facts(container), cpu_limits=cpu_limits).details.sizes
    if container.cpu_cores is None and container.memory_peak_bytes is None:
        assert sizes is None
        return
    assert sizes is not None
    amounts = sizes[0].recommended
    for name, used in (("cpu", container.cpu_cores), ("memory", container.memory_peak_bytes)):
        read = parse_cores if name == "cpu" else parse_bytes
        if used is not None:
            assert read(amounts.requests[name]) >= used * (1 - 1e-5)
        if name in amounts.limits and name in amounts.requests:
            assert read(amounts.limits[name]) >= read(amounts.requests[name])
    assert (cpu_limits == "keep" and container.cpu_limit_cores is not None) == ("cpu" in amounts.limits)


SHARES = st.floats(0, 3) | st.just(0.0)


@given(
    st.integers(0, 6),
    st.integers(1, 6),
    st.floats(0, 1),
    st.floats(0, 40),
    SHARES,
    SHARES,
    st.sampled_from([1, 4]),
)
def test_the_named_settings_give_the_advice_that_was_refused(
    replicas: int, pods: int, share: float, peak: float, lowest: float, more: float, needed: int
) -> None:
    """A plan shows it beside the reason; with the settings of its sentence, it is the advice."""
    keys = {"ehpa.deployment-min-replicas": str(needed), "ehpa.workload-min-replicas": str(needed)}
    seen = observation(replicas=replicas, pods=pods, available=int(pods * share))
    facts = facts_of(seen, statistics(peak=peak, lowest=lowest, highest=lowest + more))
    (refused,) = decide_from(AdviceRequest(read_policy(keys, "test"), shows_refused=True), facts)
    would = refused.decision.extra.get("wouldRecommend")
    if refused.decision.reason.code is Code.RECOMMEND:
        assert would is None
        return
    assert would is not None
    assert refused.decision.extra["recommended"] is None
    words = refused.decision.reason.sentence.replace(":", " ").split()
    flags = [word for word, before in zip(words[1:], words, strict=False) if before == "--set"]
    assert flags
    changed = read_policy(keys | dict(flag.split("=") for flag in flags), "test")
    (advised,) = decide_from(AdviceRequest(changed), facts)
    assert advised.decision.extra["recommended"] == would


@pytest.mark.parametrize(
    "seen",
    [
        facts_of(observation(request=NAN), statistics(peak=1.0)),
        facts_of(observation(pods=0), statistics(peak=1.0)),
        facts_of(observation(), statistics(peak=NAN, p99=NAN, samples=0)),
    ],
)
def test_nothing_is_shown_where_no_setting_would_do(seen: list[Facts]) -> None:
    """Without a request, pods or samples there is nothing to compute."""
    (found,) = decide_from(AdviceRequest(policy(), shows_refused=True), seen)
    assert "wouldRecommend" not in found.decision.extra
    assert "--set" not in found.decision.reason.sentence


def test_an_analytics_shows_the_reason_alone() -> None:
    """Its status is the seed's."""
    (found,) = decide_from(AdviceRequest(policy()), facts_of(observation(), statistics(peak=1.0)))
    assert found.decision.reason.code is Code.LOW_USAGE
    assert "wouldRecommend" not in found.decision.extra
    assert "--set" not in found.decision.reason.sentence


@pytest.mark.parametrize(
    "request_",
    [
        AdviceRequest(policy(), AdviceType.RESOURCE),
        AdviceRequest(policy(), has_containers=True, shows_refused=True),
        AdviceRequest(
            read_policy({"resource.cpu-percentile": "95", "resource.min-memory": "2Gi"}, "test"),
            AdviceType.RESOURCE,
        ),
    ],
)
def test_a_record_decides_the_same_amounts_again(request_: AdviceRequest) -> None:
    """From the facts and settings in it, also after it was written and read."""
    facts = _facts(structs.replace(APP, is_oom_killed=True), peak_cores=1.0)
    (found,) = decide_from(request_, [facts])
    written = record(request_, facts, found.decision, 0.0, "1")
    assert redecide(Record.from_json(written.to_json())) == found.decision


def test_an_analytics_takes_the_settings_of_requests() -> None:
    """By the same keys as `--set`; an unknown one is named."""
    spec = {"type": "Resource", "resourceSelectors": [{"kind": "Deployment", "name": "web"}]}
    config = {"resource.cpu-margin": "30%", "resource.cpu-limits": "remove", "ehpa.time-zone": "UTC"}
    found = AnalyticsSpec.model_validate(spec | {"config": config}).request.policy.resource
    assert (found.cpu_margin_percent, found.cpu_limits) == (30, "remove")
    with pytest.raises(ValidationError, match=r"resource\.margin: unknown key"):
        AnalyticsSpec.model_validate(spec | {"config": {"resource.margin": "1"}})


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("cpu-margin", "much", "expected a percentage such as 15, 15% or 0.15"),
        ("cpu-margin", "-1", "expected greater than or equal to 0"),
        ("cpu-percentile", "20", "expected greater than or equal to 50"),
        ("cpu-percentile", "nan", "expected a finite number"),
        ("min-cpu", "1Gi", "which is an amount of memory"),
        ("cpu-limits", "off", "expected 'keep' or 'remove'"),
    ],
)
def test_a_bad_setting_of_requests_is_named(key: str, value: str, message: str) -> None:
    """By its whole key, with what was expected."""
    with pytest.raises(BadInput, match=rf"^here: resource\.{key}: ") as caught:
        read_policy({f"resource.{key}": value}, "here")
    assert message in str(caught.value)

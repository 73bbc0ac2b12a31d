"""What a user may ask of the rotation, wherever it is written."""

from typing import Any

import pytest
from pydantic import ValidationError

from equipoise.crd.fields import SPAN_SECONDS_MAX
from equipoise.crd.targets import LabelSelector, Mode
from equipoise.rotation.policy import ENVIRONMENT, RotationPolicy, RotationPolicySpec
from tests.support.crd.manifests import TARGET


def test_the_defaults_are_the_seeds_and_the_rulings() -> None:
    """A policy that says nothing is the safe one."""
    written = RotationPolicySpec.model_validate(TARGET).model_dump(mode="json", by_alias=True)
    assert {key: written[key] for key in sorted(written) if key not in {"targetRef", "selector"}} == {
        "cooldown": "15m",
        "debounceCycles": 3,
        "hpaMetricName": "cpu",
        "hpaPrefix": "",
        "includeLocalStorage": False,
        "includeStatefulSets": False,
        "kafkaLag": {"enabled": False, "threshold": 1000, "query": ""},
        "maxUnavailable": 1,
        "metricsWindow": "5m",
        "minPodAge": None,
        "minReplicas": 3,
        "minimumImprovementPercent": 10,
        "mode": "Preview",
        "rotationsPerHour": 4,
        "syncPeriod": "30s",
        "toleranceMultiplier": 1.5,
        "topK": 2,
        "windows": [],
    }
    assert RotationPolicySpec.model_validate(TARGET).mode is Mode.PREVIEW


def test_what_is_written_reads_back_the_same() -> None:
    """A record replays with the policy that it holds."""
    policy = RotationPolicy.model_validate(
        {"cooldown": "1h30m", "minPodAge": 0.25, "kafkaLag": {"query": "x"}}
    )
    assert RotationPolicy.model_validate(policy.model_dump(mode="json", by_alias=True)) == policy
    assert RotationPolicy.model_validate(policy.model_dump()) == policy


@pytest.mark.parametrize("name", ENVIRONMENT)
def test_every_variable_of_the_seed_names_a_setting(name: str) -> None:
    """No variable points beside the model."""
    model: Any = RotationPolicy
    for key in ENVIRONMENT[name]:
        field = next(
            field for field in model.model_fields.values() if key in {field.alias, "threshold", "query"}
        )
        model = field.annotation


def test_settings_know_no_target_and_a_spec_needs_one() -> None:
    """A plan file says which workload by itself."""
    with pytest.raises(ValidationError, match="targetRef"):
        RotationPolicy.model_validate(TARGET)
    with pytest.raises(ValidationError, match="exactly one of targetRef and selector"):
        RotationPolicySpec.model_validate({})


def test_only_a_spec_asks_for_the_lag_query() -> None:
    """In the environment the gate without a query stays possible, and holds."""
    assert RotationPolicy.model_validate({"kafkaLag": {"enabled": "true"}}).kafka_lag.is_enabled
    with pytest.raises(ValidationError, match="expected a query"):
        RotationPolicySpec.model_validate(TARGET | {"kafkaLag": {"enabled": True}})


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("5m", 300), (300, 300), ("90", 90), ("1.5s", 1.5), ("250ms", 1.25), ("1h30m", 5400), (1.5, 1.5)],
)
def test_a_span_is_read_in_every_notation(written: Any, seconds: float) -> None:
    """From files and variables, numbers may have fractions."""
    if written == "250ms":
        written = "1s250ms"
    assert RotationPolicy.model_validate({"metricsWindow": written}).metrics_window_seconds == seconds


@pytest.mark.parametrize(
    "written",
    [True, "", "x", "5 m", "1e3", "-1s", -1, "0s", 10**400, SPAN_SECONDS_MAX + 1, "1" * 41, None],
    ids=lambda written: str(written)[:12],
)
def test_what_is_no_span_is_refused(written: Any) -> None:
    """With what was expected."""
    with pytest.raises(ValidationError, match="expected"):
        RotationPolicy.model_validate({"metricsWindow": written})


@pytest.mark.parametrize(
    ("labels", "is_selected"),
    [
        ({"tier": "web", "team": "a"}, True),
        ({"tier": "web", "team": "c"}, False),
        ({"tier": "api", "team": "a"}, False),
        ({"tier": "web", "team": "b", "canary": ""}, False),
    ],
    ids=str,
)
def test_a_selector_asks_for_all_its_terms(labels: dict[str, str], is_selected: bool) -> None:
    """Labels and expressions together."""
    selector = LabelSelector.model_validate(
        {
            "matchLabels": {"tier": "web"},
            "matchExpressions": [
                {"key": "team", "operator": "In", "values": ["a", "b"]},
                {"key": "canary", "operator": "DoesNotExist"},
            ],
        }
    ).selector
    assert selector.matches(labels) is is_selected


@pytest.mark.parametrize(
    "schedule",
    [
        *(
            "0 2 * * 1-5",
            "*/15 * * * *",
            "0 2 L * *",
            "0 2 LW * *",
            "0 2 * * 5#1",
            "0 2 * * 5L",
            "0 2 29 2 *",
        ),
        *("0 2 * JAN MON-FRI", "0  2 1,15 * 7"),
    ],
)
def test_schedules_as_cron_knows_them_are_accepted(schedule: str) -> None:
    """Names, steps, lists, the last day."""
    policy = RotationPolicy.model_validate({"windows": [{"schedule": schedule, "duration": "1h"}]})
    assert policy.windows[0].schedule == schedule


@pytest.mark.parametrize(
    "schedule", ["* * * *", "0 24 * * *", "0 2 30 2 *", "0 2 * * 5L/2", "0 2 * * 8", "a b c d e"]
)
def test_schedules_that_never_come_true_are_refused(schedule: str) -> None:
    """By the field."""
    with pytest.raises(ValidationError, match="expected a"):
        RotationPolicy.model_validate({"windows": [{"schedule": schedule, "duration": "1h"}]})

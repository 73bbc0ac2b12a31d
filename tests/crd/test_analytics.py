"""What `problems` and the schemas say about Analytics and Recommendations."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from equipoise.crd.definition import DefinedKind, definition, schema_of
from equipoise.crd.manifest import problems, refusals, without_nulls
from equipoise.recommendation.policy import ANALYTICS, RECOMMENDATION, AnalyticsSpec
from equipoise.recommendation.settings import RecommendationPolicy
from tests.support.cli.running import equipoise
from tests.support.crd.analytics_manifests import ALL_KEYS, ANALYTICS_BAD, ANALYTICS_GOOD, SPEC, analytics
from tests.support.crd.manifests import Bad

EXAMPLE = Path(__file__).parents[2] / "examples" / "05-analytics.yaml"


def _kind(document: dict[str, Any]) -> DefinedKind:
    return ANALYTICS if document["kind"] == ANALYTICS.name else RECOMMENDATION


@pytest.mark.parametrize("document", ANALYTICS_GOOD.values(), ids=list(ANALYTICS_GOOD))
def test_a_good_manifest_has_no_problem(document: dict[str, Any]) -> None:
    """Neither for us nor for the schema."""
    kind = _kind(document)
    assert problems(kind, document) == []
    schema = schema_of(kind)
    part = {key: value for key, value in document.items() if key != "metadata"}
    assert list(refusals(schema, without_nulls(schema, part))) == []


@pytest.mark.parametrize("bad", ANALYTICS_BAD, ids=lambda bad: bad.name)
def test_a_bad_manifest_has_one_problem_with_its_path(bad: Bad) -> None:
    """The path that was written, and what was expected."""
    (problem,) = problems(_kind(bad.document), bad.document)
    assert problem.path == bad.path
    assert problem.message.startswith(("expected", "missing", "unknown key"))


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"ehpa.nope": "1"}, "ehpa.nope: unknown key"),
        ({"replicas.default-min-replicas": "1"}, "expected a key that starts with ehpa."),
        ({"ehpa.pod-available-ratio": "2"}, "ehpa.pod-available-ratio: expected less than or equal to 1"),
        ({"ehpa.min-cpu-target-utilization": "80"}, "at or below ehpa.max-cpu-target-utilization"),
    ],
    ids=lambda part: str(part)[:30],
)
def test_a_setting_that_nobody_knows_is_named(config: dict[str, str], words: str) -> None:
    """No schema can tell; `equipoise validate` and the operator do."""
    (problem,) = problems(ANALYTICS, analytics(SPEC | {"config": config}))
    assert problem.path == "spec.config"
    assert words in problem.message


def test_the_seeds_keys_and_defaults() -> None:
    """Saying what holds anyway changes nothing."""
    said = AnalyticsSpec.model_validate(SPEC | {"config": ALL_KEYS})
    assert said.request.policy == RecommendationPolicy()
    plain = AnalyticsSpec.model_validate(SPEC)
    assert plain.completion_strategy.seconds is None
    daily = AnalyticsSpec.model_validate(
        SPEC | {"completionStrategy": {"completionStrategyType": "Periodical"}}
    )
    assert daily.completion_strategy.seconds == 86400


def test_kubectl_prints_name_and_age_alone() -> None:
    """As the seed shows it; more columns are for `-o wide`."""
    (version,) = definition(ANALYTICS)["spec"]["versions"]
    shown = [one["name"] for one in version["additionalPrinterColumns"] if not one.get("priority")]
    assert shown == ["Age"]
    names = definition(RECOMMENDATION)["spec"]["names"]
    assert (names["shortNames"], names["plural"]) == (["recommend"], "recommendations")


def test_the_example_is_valid_and_fits_its_published_schema() -> None:
    """For `validate`, and for editors; the Deployment beside it is not ours."""
    done = equipoise("validate", "-o", "json", str(EXAMPLE))
    assert (done.returncode, json.loads(done.stdout)["checked"]) == (0, 1)
    published = json.loads(equipoise("schema", "analytics").stdout)
    jsonschema.Draft202012Validator.check_schema(published)
    _, document = yaml.safe_load_all(EXAMPLE.read_text())
    jsonschema.validate(document, published)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(analytics(SPEC | {"type": "Replicas"}), published)

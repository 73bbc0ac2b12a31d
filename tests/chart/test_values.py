"""The chart's files agree with the program and with each other, without Helm."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from equipoise import __version__
from equipoise.adapters.metrics_server import NAMESPACES_ONE_BY_ONE_MAX
from equipoise.adapters.prometheus.discover import NAMESPACES as PROMETHEUS_NAMESPACES
from equipoise.runtime.layers import leaf_paths
from equipoise.runtime.settings import Settings

CHART = Path(__file__).parents[2] / "charts" / "equipoise"
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
THE_CHARTS_OWN = {
    ("balancers",),
    ("http", "address"),
    ("journal", "path"),
    ("kubernetes", "context"),
    ("kubernetes", "kubeconfig"),
    ("lease", "name"),
    ("lease", "namespace"),
    ("pools", "acceptEviction"),
    ("pools", "lease"),
    ("pools", "mode"),
    ("pools", "namespace"),
    ("pools", "prefix"),
    ("pools", "redisUrl"),
    ("pools", "redisUrlFile"),
    ("pools", "selector"),
    ("qos", "statuses"),
}
"""Settings that follow from the release, or that make no sense in a pod."""
IMPOSSIBLE: dict[str, list[Any]] = {
    "agent.interval": ["often", "", 10],
    "agent.stateFolder": ["state", "/", "//", "/var/../etc", "/."],
    "config.intervals.rotation": ["often", "", "-30s", -1, "30 s", "1y"],
    "config.journal.ageMax": ["a week", -1],
    "config.journal.bytesMax": ["lots", "256MB", "1Ki", 1000, "-1Gi", 0],
    "config.lease.durationSeconds": [0, 3601, 1.5],
    "config.prometheus.namespaces": ["monitoring", [""], ["Monitoring"], ["a.b"]],
    "extraEnv": [[{"name": ""}], [{"value": "x"}]],
    "journal.sizeLimit": ["big", "", "512MB", "-1Gi"],
    "networkPolicy.apiServer.cidrs": [["10.0.0.1"], ["10.0.0.1/33"], ["300.0.0.0/8"], ["fd00::/129"]],
    "podDisruptionBudget.maxUnavailable": ["half", "101%", "-1", -1, ""],
    "pools.lease": ["long", -1],
    "resources.limits": [{"memory": "1GB"}, {"cpu": -1}, {"cpu": ""}],
}
POSSIBLE: dict[str, list[Any]] = {
    "agent.interval": ["1s", "1500ms", "1h"],
    "agent.stateFolder": ["/var/lib/equipoise/agent", "/data/.state/"],
    "config.intervals.rotation": [30, 1.5, "30", "1h30m", "0.5h", "1d"],
    "config.journal.ageMax": ["7d", 3600],
    "config.journal.bytesMax": ["256Mi", "1.5G", 1 << 28, "1048576", "1024Ki", "1e9"],
    "config.prometheus.namespaces": [[], ["monitoring"], ["a", "b"]],
    "journal.sizeLimit": ["512Mi", "1G", "1073741824"],
    "networkPolicy.apiServer.cidrs": [
        ["10.0.0.0/8", "0.0.0.0/0", "::/0", "fd00::1/128", "::ffff:10.0.0.1/128"]
    ],
    "podDisruptionBudget.maxUnavailable": [0, 1, "1", "0%", "50%", "100%"],
    "pools.lease": ["15m", 900],
    "resources.limits": [
        {"memory": "1Gi", "cpu": 2},
        {"cpu": "1500m", "nvidia.com/gpu": 1},
        {"cpu": 0.5},
        {},
    ],
}
SPANS: dict[str, list[float]] = yaml.safe_load(
    re.findall(
        r'define "equipoise.spans" -}}(.*?){{- end',
        (CHART / "templates" / "_checks.tpl").read_text(),
        re.DOTALL,
    )[0]
)
"""The bounds that the chart holds spans to, in seconds."""
ENDLESS = 1e12


def _nested(path: str, value: object) -> dict[str, Any]:
    for name in reversed(path.split(".")):
        value = {name: value}
    assert isinstance(value, dict)
    return value


def _leaves(schema: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Give the path of everything in a schema that is not itself a closed mapping."""
    for name, part in schema["properties"].items():
        if "properties" in part and part.get("additionalProperties") is False:
            yield from _leaves(part, (*above, name))
        else:
            yield (*above, name)


def _open_mappings(schema: Any, path: str = "values") -> Iterator[str]:
    """Give every mapping with named keys that also takes others."""
    if isinstance(schema, dict):
        if "properties" in schema and "required" not in schema and schema.get("additionalProperties", True):
            yield path
        for name, part in schema.items():
            yield from _open_mappings(part, f"{path}.{name}")


def test_the_charts_app_version_is_the_programs() -> None:
    """The default image is the one of this source."""
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["appVersion"] == __version__


def test_every_setting_of_the_operator_can_be_set_by_a_value() -> None:
    """No more and no less: what the schema takes is what the operator knows, but for what the chart sets."""
    known = set(leaf_paths())
    assert known >= THE_CHARTS_OWN
    assert set(_leaves(SCHEMA["properties"]["config"])) == known - THE_CHARTS_OWN


def test_every_value_has_a_default_and_a_schema() -> None:
    """`values.yaml` is the reference: it shows whatever the schema takes."""
    shown = {key: part for key, part in SCHEMA["properties"].items() if key != "global"}
    assert list(shown) == list(VALUES)
    for key, part in shown.items():
        if isinstance(VALUES[key], dict) and VALUES[key] and key != "resources":
            assert set(part["properties"]) == set(VALUES[key]), key


def test_no_mapping_of_the_schema_takes_a_key_that_nobody_reads() -> None:
    """A typo fails, however deep; only objects of Kubernetes' own are left to the API server."""
    assert list(_open_mappings(SCHEMA)) == []


def test_nothing_secret_can_be_written_into_the_config_map() -> None:
    """A URL with a password is refused where it would be readable."""
    pattern = SCHEMA["properties"]["config"]["properties"]["prometheus"]["properties"]["url"]["pattern"]
    assert re.search(pattern, "http://prometheus.monitoring:9090/prefix")
    assert not re.search(pattern, "https://someone:secret@prometheus.monitoring")


@pytest.mark.parametrize("path", IMPOSSIBLE)
def test_a_value_that_can_not_work_is_refused(path: str) -> None:
    """By its place: not rendered, installed and then refused by a pod again and again."""
    for value in IMPOSSIBLE[path]:
        with pytest.raises(jsonschema.ValidationError) as refused:
            jsonschema.validate(_nested(path, value), SCHEMA)
        assert refused.value.json_path.startswith(f"$.{path}"), value


def test_a_value_that_works_is_taken() -> None:
    """In each form that the programs and Kubernetes read; so are all defaults."""
    taken = [VALUES, *(_nested(path, value) for path, values in POSSIBLE.items() for value in values)]
    validator = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)
    refused = [error.message for values in taken for error in validator.iter_errors(values)]
    assert len(taken) > len(POSSIBLE)
    assert refused == []


def test_the_chart_holds_every_span_to_the_programs_own_bounds() -> None:
    """No span is left out, and none is narrower or wider than the operator takes it."""
    config = SCHEMA["properties"]["config"]
    spans = {"config." + ".".join(path) for path in _leaves(config) if "$ref" in str(_part(config, path))}
    assert set(SPANS) == {*spans, "pools.lease", "agent.interval"}
    assert SPANS["agent.interval"] == [1, 3600]
    for path, (least, most) in SPANS.items():
        if path == "agent.interval":
            continue
        setting = path.removeprefix("config.")
        for taken in (least, most):
            Settings.model_validate(_nested(setting, taken))
        for refused in [least - 0.001] + [most + 1] * (most < ENDLESS):
            with pytest.raises(ValidationError):
                Settings.model_validate(_nested(setting, refused))


def _part(schema: dict[str, Any], path: tuple[str, ...]) -> Any:
    for name in path:
        schema = schema["properties"][name]
    return schema


def test_the_chart_knows_the_leases_defaults() -> None:
    """By which it tells whether one number alone keeps their order."""
    lease = Settings().lease
    said = f'"retrySeconds" {lease.retry_seconds:g} "renewSeconds" {lease.renew_seconds:g}'
    assert (
        f'{said} "durationSeconds" {lease.duration_seconds}'
        in (CHART / "templates" / "_checks.tpl").read_text()
    )


def test_the_chart_knows_when_usage_is_read_in_one_list() -> None:
    """The right has to be of the whole cluster from there on."""
    rules = (CHART / "templates" / "_rules.tpl").read_text()
    assert f".Values.config))) {NAMESPACES_ONE_BY_ONE_MAX}) -}}}}" in rules


def test_the_chart_knows_where_a_prometheus_is_looked_for() -> None:
    """So that the right to ask it is given in the same namespaces."""
    usual = " ".join(f'"{name}"' for name in PROMETHEUS_NAMESPACES)
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    assert f"default (list {usual} .Release.Namespace) (dig" in helpers

"""The chart's files agree with the program and with each other, without Helm."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from equipoise import __version__
from equipoise.adapters.resource_metrics import NAMESPACES_ONE_BY_ONE_MAX
from equipoise.app.operator.layers import leaf_paths

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
    ("pools", "lease"),
    ("pools", "mode"),
    ("pools", "namespace"),
    ("pools", "prefix"),
    ("pools", "redisUrl"),
    ("pools", "redisUrlFile"),
    ("pools", "selector"),
}
"""Settings that follow from the release, or that make no sense in a pod."""


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


def test_the_chart_knows_when_usage_is_read_in_one_list() -> None:
    """The right has to be of the whole cluster from there on."""
    rules = (CHART / "templates" / "_rules.tpl").read_text()
    assert f".Values.config))) {NAMESPACES_ONE_BY_ONE_MAX}) -}}}}" in rules

"""`equipoise qos plan`, as scripts and people use it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.cli.running import equipoise, terminal
from tests.support.qos.worlds import node, pod, pod_qos, policy, rule

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "06-qos-plan.yaml"
HIGH = node({"cpu_total_usage": 8000}, [pod("a", 3)], policy(rule("cpu_total_usage", 6000, "evict")))


@cache
def _schema(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(equipoise("schema", name).stdout)
    return schema


def _plan(document: Any, *arguments: str) -> dict[str, Any]:
    text = document if isinstance(document, str) else json.dumps(document)
    done = equipoise("qos", "plan", "--from", "-", "-o", "json", *arguments, stdin=text)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    jsonschema.validate(found, _schema("plan"))
    jsonschema.validate(found, _schema("qos-plan"))
    (decision,) = found["decisions"]
    assert (found["balancer"], isinstance(decision, dict)) == ("qos", True)
    return decision  # type: ignore[no-any-return]


def test_the_example_evicts_for_memory_and_throttles_for_the_rest() -> None:
    """As its comment says; the file is what its schema describes, and its policies are valid."""
    document = yaml.safe_load(EXAMPLE.read_text())
    jsonschema.validate(json.loads(json.dumps(document, default=str)), _schema("qos-plan-file"))
    decision = _plan(EXAMPLE.read_text())
    assert decision["reason"] == "ThrottleAndEvict"
    assert [(one["kind"], one["pod"], one.get("quota")) for one in decision["actions"]] == [
        ("EvictPod", "batch/report", None),
        ("ThrottlePod", "batch/thumbnails", {"worker": 240000}),
        ("ThrottlePod", "shop/web", {"web": 320000}),
    ]
    assert decision["numbers"]["left"]["throttleDown"] == {"cpu_total_usage": -650}
    checked = equipoise("validate", "-", stdin=yaml.safe_dump_all(document["policies"]))
    assert checked.returncode == 0, checked.stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_people_read_it_in_a_table(columns: int) -> None:
    """Nothing is cut off, at any width; and nothing was changed."""
    done = equipoise("qos", "plan", "--from", str(EXAMPLE), environment=terminal(columns))
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= columns
    assert "…" not in done.stdout
    for word in ("evict     batch/report", "throttle  shop/web", "web 320000", "Nothing was changed."):
        assert word in done.stdout


def test_yaml_says_the_same_and_excess_widens() -> None:
    """One document."""
    done = equipoise("qos", "plan", "--from", str(EXAMPLE), "-o", "yaml")
    assert yaml.safe_load(done.stdout)["decisions"] == [_plan(EXAMPLE.read_text())]
    assert _plan(HIGH, "--excess", "50")["numbers"]["gaps"]["evict"] == {"cpu_total_usage": 3000}


def test_a_pod_qos_that_allows_an_unknown_action_is_warned_of() -> None:
    """On standard error: the plan holds, and the document is whole."""
    asked = pod_qos(labelSelector={}, allowedActions=["evict", "evct"])
    text = json.dumps(HIGH | {"policies": [*HIGH["policies"], asked]})
    done = equipoise("qos", "plan", "--from", "-", "-o", "json", stdin=text)
    assert (done.returncode, json.loads(done.stdout)["decisions"][0]["reason"]) == (0, "Evict")
    assert done.stderr.startswith("warning: -: policies[6].spec.allowedActions[1]: expected the name of an")
    assert done.stderr.count("\n") == 1


def test_quiet_nodes_have_a_reason_too() -> None:
    """Nothing to do is a decision, and leaves with 0."""
    quiet = HIGH | {"node": HIGH["node"] | {"usage": {"cpu_total_usage": 5999.999}}}
    assert _plan(quiet)["reason"] == "BelowWaterlines"
    table = equipoise("qos", "plan", "--from", "-", stdin=json.dumps(quiet | {"policies": []}))
    assert "BelowWaterlines. No policy has a waterline for n1." in table.stdout


BAD = {
    "a file that is missing": (["--from", "none.yaml"], "", "error: none.yaml: No such file"),
    "a wrong field": (
        ["--from", "-"],
        '{"node": 1}',
        "error: -: node: expected a mapping, got 1 (and 2 more)",
    ),
    "no YAML": (["--from", "-"], "{", "error: -: expected one YAML document"),
    "no file": ([], "", "error: --from or --node: expected exactly one of them"),
    "a file and a node": (
        ["--from", "-", "--node", "n"],
        "",
        "error: --from or --node: expected exactly one",
    ),
    "a bad percentage": (["--from", "-", "--excess", "-1"], "", "error: Invalid value for '--excess'"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_leaves_with_2(case: str) -> None:
    """And prints nothing else."""
    arguments, stdin, message = BAD[case]
    done = equipoise("qos", "plan", *arguments, stdin=stdin)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(message), done.stderr
    assert done.stderr.count("\n") == 1

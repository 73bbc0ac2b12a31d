"""`equipoise crds`, `validate` and `schema`, as scripts use them."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from equipoise.cli.manifests import KINDS
from equipoise.cli.schemas import json_schema
from tests.support.cli.running import equipoise
from tests.support.crd.manifests import TARGET, policy

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "02-rotationpolicy.yaml"


@cache
def _schema(name: str) -> dict[str, Any]:
    done = equipoise("schema", name)
    assert done.returncode == 0, done.stderr
    schema: dict[str, Any] = json.loads(done.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def _findings(*arguments: str, stdin: str = "") -> tuple[int, dict[str, Any], str]:
    done = equipoise("validate", "-o", "json", *arguments, stdin=stdin)
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(document, _schema("validate"))
    return done.returncode, document, done.stderr


def test_print_gives_documents_that_kubectl_takes() -> None:
    """YAML documents by default; a List in JSON; one object when one is asked for."""
    documents = list(yaml.safe_load_all(equipoise("crds", "print").stdout))
    listed = json.loads(equipoise("crds", "print", "-o", "json").stdout)
    assert (listed["kind"], listed["items"]) == ("List", documents)
    names = [document["metadata"]["name"] for document in documents]
    assert names == [kind.definition_name for kind in KINDS]
    assert {"ledgers.equipoise.dev", "scalingpolicies.scalingpolicy.kope.io"} < set(names)
    for word in ("rotpol", "RotationPolicy", "rotationpolicies", "rotationpolicies.equipoise.dev"):
        assert json.loads(equipoise("crds", "print", "-o", "json", word).stdout) == documents[1]


def test_an_unknown_kind_is_bad_input() -> None:
    """One line, with the kinds there are."""
    done = equipoise("crds", "print", "nonsense")
    assert (done.returncode, done.stdout) == (2, "")
    known = ", ".join(kind.name for kind in KINDS)
    assert done.stderr == f"error: kind 'nonsense': expected one of {known}\n"


def test_the_example_is_valid() -> None:
    """Both of its documents, for `validate` and for its published schema."""
    status, document, said = _findings(str(EXAMPLE))
    assert (status, said) == (0, "")
    assert document == {"valid": True, "findings": [], "checked": 2, "notOurs": []}
    schema = _schema("rotationpolicy")
    for manifest in yaml.safe_load_all(EXAMPLE.read_text()):
        jsonschema.validate(manifest, schema)


def test_every_problem_is_found_with_file_document_and_path(tmp_path: Path) -> None:
    """And one line on standard error for the first."""
    file = tmp_path / "policies.yaml"
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    bad = policy(TARGET | {"topK": 0, "topk": 1}, name="bad")
    file.write_text(yaml.safe_dump_all([foreign, policy(TARGET), bad]))
    status, document, said = _findings(str(file))
    assert status == 2
    assert document["valid"] is False
    assert document["checked"] == 2
    assert document["notOurs"] == [f"{file}: document 1: ConfigMap settings"]
    where = {"file": str(file), "document": 3, "kind": "RotationPolicy", "name": "bad"}
    assert document["findings"] == [
        where | {"path": "spec.topK", "message": "expected greater than or equal to 1, got 0"},
        where | {"path": "spec.topk", "message": "unknown key"},
    ]
    assert said == (
        f"error: {file}: document 3 (RotationPolicy bad): spec.topK: "
        "expected greater than or equal to 1, got 0 (and 1 more)\n"
    )


def test_the_table_shows_the_same() -> None:
    """For people."""
    done = equipoise("validate", "-", stdin=yaml.safe_dump(policy({})), environment={"COLUMNS": "160"})
    assert done.returncode == 2
    assert "expected exactly one of targetRef and selector" in done.stdout
    assert "1 manifest of Equipoise checked, 1 document with problems, 0 of others." in done.stdout


HEAD = "apiVersion: equipoise.dev/v1alpha1\nkind: RotationPolicy\nmetadata: {name: a}\n"
SPEC = "spec: {targetRef: {kind: Deployment, name: web}, "


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        (f"{HEAD}{SPEC}topK: 2, topK: 3}}", "", "the key 'topK' occurs twice"),
        (f"{HEAD}spec: {{", "", "expected YAML, but at line"),
        ("- a", "", "expected a mapping"),
        ("just text", "", "expected a mapping"),
        (f"{HEAD}{SPEC}hpaPrefix: !!binary aGk=}}", "", "could not determine a constructor"),
        (f"{HEAD}{SPEC}hpaPrefix: 2026-01-01}}", "", ""),
        (f"{HEAD}{SPEC}toleranceMultiplier: .nan}}", "spec.toleranceMultiplier", "expected a finite number"),
        (f"{HEAD}{SPEC}topK: !!int 1:30}}", "", "expected a number, got '1:30'"),
        (f"{HEAD}{SPEC}cooldown: 1:30}}", "spec.cooldown", "such as 90s, 5m or 1h30m, got '1:30'"),
        (f"{HEAD}a: &a [*a]", "", "the alias *a contains itself in line 4"),
        (
            "apiVersion: equipoise.dev/v1\nkind: RotationPolicy",
            "apiVersion",
            "expected equipoise.dev/v1alpha1",
        ),
        ("apiVersion: equipoise.dev/v1alpha1\nkind: Rotation", "kind", "expected Ledger or RotationPolicy"),
        ("apiVersion: equipoise.dev/v1alpha1\nkind: [1]", "kind", "expected Ledger or RotationPolicy"),
        ("kind: RotationPolicy", "apiVersion", "expected equipoise.dev/v1alpha1, got ''"),
        (
            "apiVersion: equipois.dev/v1alpha1\nkind: RotationPolicy",
            "apiVersion",
            "expected equipoise.dev/v1alpha1, got 'equipois.dev/v1alpha1'",
        ),
        ("", "", "expected a manifest of one of Ledger, RotationPolicy,"),
        ("null\n---\n# nothing", "", "got none"),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}", "", "got none"),
        ("apiVersion: v1\nkind: List\nitems: 3", "", "got none"),
        (f"apiVersion: v1\nkind: ConfigMap\n---\n{HEAD}{SPEC}}}", "", ""),
        (HEAD + "spec: 3", "spec", "expected a mapping, got 3"),
        (
            "apiVersion: v1\nkind: List\nitems: [{apiVersion: equipoise.dev/v1alpha1, kind: Ledger}]",
            "items[0].metadata",
            "expected a mapping with a name",
        ),
    ],
)
def test_odd_files_are_judged_as_kubectl_would(text: str, path: str, message: str) -> None:
    """A date is text, a key comes once, anchors have an end."""
    status, document, _ = _findings("-", stdin=text)
    if not message:
        assert status == 0
        return
    assert status == 2
    finding = document["findings"][0]
    assert finding["path"] == path
    assert message in finding["message"]


def test_anchors_that_stand_for_billions_are_refused() -> None:
    """In bounded time and memory."""
    lines = ["a: &a [x,x,x,x,x,x,x,x,x,x]"]
    lines += [
        f"{name}: &{name} [{','.join(['*' + last] * 10)}]"
        for last, name in zip("abcdefg", "bcdefgh", strict=True)
    ]
    status, document, _ = _findings("-", stdin="\n".join(lines))
    assert status == 2
    assert "once anchors are written out" in document["findings"][0]["message"]


def test_what_comes_before_a_document_without_end_is_judged_too() -> None:
    """And the one that is refused has its own number."""
    status, document, _ = _findings("-", stdin=f"{HEAD}spec: 3\n---\na: &a [*a]\n")
    assert status == 2
    assert [(found["document"], found["path"]) for found in document["findings"]] == [(1, "spec"), (2, "")]


def test_a_missing_file_is_bad_input() -> None:
    """Nothing on standard output."""
    done = equipoise("validate", "no/such.yaml")
    assert (done.returncode, done.stdout, done.stderr) == (
        2,
        "",
        "error: no/such.yaml: No such file or directory\n",
    )


def test_every_schema_that_is_listed_is_a_schema() -> None:
    """JSON Schema 2020-12, with a title; that of an OpenAPI document stands in its head."""
    names = equipoise("schema", "--list").stdout.split()
    assert {
        "plan",
        "decision",
        "rotation-plan-file",
        "rotationpolicy",
        "ledger",
        "doctor",
        "validate",
    } <= set(names)
    for schema in map(json_schema, names):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert (schema["info"] if "openapi" in schema else schema)["title"]
    assert equipoise("schema", "nonsense").returncode == 2


def test_a_plan_and_its_file_fit_their_schemas() -> None:
    """The example in, the plan out."""
    file = ROOT / "examples" / "01-rotation-plan.yaml"
    jsonschema.validate(yaml.safe_load(file.read_text()), _schema("rotation-plan-file"))
    plan = json.loads(equipoise("rotation", "plan", "--from", str(file), "-o", "json").stdout)
    jsonschema.validate(plan, _schema("plan"))
    for decision in plan["decisions"]:
        jsonschema.validate(decision, _schema("decision"))


@pytest.mark.parametrize(
    "document",
    [
        {
            "pods": [{"name": "a", "cpu": "250m", "age": "10m"}],
            "policy": {"cooldown": 5, "metricsWindow": "5m"},
        },
        {
            "pods": [],
            "hpa": {"target": {"type": "AverageValue", "value": "700m"}},
            "policy": {"kafkaLag": {}},
        },
    ],
)
def test_the_schema_of_a_plan_file_takes_quantities_and_spans(document: dict[str, Any]) -> None:
    """As the command does."""
    jsonschema.validate(document, _schema("rotation-plan-file"))


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("rotation-plan-file", {"pods": [{"cpu": 1}]}),
        ("rotation-plan-file", {"pods": [], "policy": {"topk": 1}}),
        ("rotation-plan-file", {"pods": [], "policy": {"topK": 0}}),
        ("rotationpolicy", policy(TARGET | {"topk": 1})),
        ("rotationpolicy", policy(TARGET | {"cooldown": "5x"})),
        ("rotationpolicy", policy(TARGET | {"toleranceMultiplier": 0})),
        ("plan", {"balancer": "rotation"}),
        ("decision", {"subject": "a", "reason": "Because"}),
    ],
    ids=str,
)
def test_a_schema_refuses_what_does_not_fit(name: str, document: dict[str, Any]) -> None:
    """A schema that takes everything would prove nothing."""
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document, _schema(name))

"""Our definitions on the real API server, and whether it and `equipoise validate` agree."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from equipoise.cli.manifests import KINDS
from equipoise.proportional.parse import read_spec
from equipoise.proportional.status import SCALING_POLICY
from equipoise.recommendation.policy import AnalyticsSpec, RecommendationSpec
from equipoise.rotation.policy import RotationPolicySpec
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.crd import manifests
from tests.support.crd.analytics_manifests import ANALYTICS_BAD, ANALYTICS_GOOD
from tests.support.crd.manifests import AT, TARGET, Bad, policy
from tests.support.crd.scaling_manifests import SCALING_BAD, SCALING_GOOD
from tests.testbed import ControlPlane, StartControlPlane
from tests.testbed.api import ApiError

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GROUP = "/apis/equipoise.dev/v1alpha1"
BAD = [*manifests.BAD, *SCALING_BAD, *ANALYTICS_BAD]
GOOD = (
    manifests.GOOD
    | {f"scaling: {name}": document for name, document in SCALING_GOOD.items()}
    | {f"advice: {name}": document for name, document in ANALYTICS_GOOD.items()}
)
SPECS: dict[str, type[BaseModel]] = {
    "RotationPolicy": RotationPolicySpec,
    "Analytics": AnalyticsSpec,
    "Recommendation": RecommendationSpec,
}
Answers = dict[str, tuple[str, str]]


def _apply(plane: ControlPlane, *arguments: str) -> tuple[int, dict[str, str], str]:
    done = equipoise("crds", "apply", "-o", "json", "--kubeconfig", str(plane.kubeconfig), *arguments)
    results = {one["name"]: one["result"] for one in json.loads(done.stdout or "{}").get("definitions", [])}
    return done.returncode, results, done.stderr


@pytest.fixture(scope="module")
def served(control_plane: ControlPlane) -> ControlPlane:
    """The shared control plane, with our definitions."""
    status, _, said = _apply(control_plane)
    assert status == 0, said
    return control_plane


def _collection(document: dict[str, Any], namespace: str) -> str:
    kind = next(kind for kind in KINDS if kind.name == document["kind"])
    return f"/apis/{kind.api_version}/namespaces/{namespace}/{kind.plural}"


def _server_says(plane: ControlPlane, document: dict[str, Any], namespace: str = "default") -> str:
    """Send it with strict validation, without keeping it; give the refusal, or nothing."""
    query = {"fieldValidation": "Strict", "dryRun": "All"}
    try:
        plane.api.request("POST", _collection(document, namespace), document, query=query)
    except ApiError as error:
        return str(error) if error.status in {400, 422} else ""
    return ""


def _we_say(documents: list[dict[str, Any]], file: Path) -> dict[int, str]:
    file.write_text(yaml.safe_dump_all(documents, sort_keys=False))
    done = equipoise("validate", "-o", "json", str(file))
    assert done.returncode in {0, 2}, done.stderr
    findings = json.loads(done.stdout)["findings"]
    return {one["document"]: f"{one['path']}: {one['message']}" for one in reversed(findings)}


@pytest.fixture(scope="module")
def answers(served: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Answers:
    """What the server and what we say about each bad manifest."""
    ours = _we_say([bad.document for bad in BAD], tmp_path_factory.mktemp("bad") / "bad.yaml")
    return {
        bad.name: (_server_says(served, bad.document), ours.get(number, ""))
        for number, bad in enumerate(BAD, 1)
    }


def test_every_definition_is_established_and_structural(served: ControlPlane) -> None:
    """No condition says otherwise."""
    for kind in KINDS:
        status = served.api.get(f"{DEFINITIONS}/{kind.definition_name}")["status"]
        conditions = {condition["type"]: condition["status"] for condition in status["conditions"]}
        assert conditions["Established"] == "True"
        assert conditions["NamesAccepted"] == "True"
        assert "NonStructuralSchema" not in conditions


def test_applying_again_changes_nothing(served: ControlPlane) -> None:
    """Quiet at rest: the version stays."""
    path = f"{DEFINITIONS}/{KINDS[0].definition_name}"
    before = served.api.get(path)["metadata"]["resourceVersion"]
    status, results, _ = _apply(served)
    assert (status, set(results.values())) == (0, {"Unchanged"})
    assert served.api.get(path)["metadata"]["resourceVersion"] == before


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_a_bad_manifest_is_refused(answers: Answers, bad: Bad) -> None:
    """By both, or by the operator alone where no schema can tell."""
    server, ours = answers[bad.name]
    assert ours.startswith(f"{bad.path}: ")
    assert bool(server) == bad.is_seen_by_server, server


def test_the_table_of_refusals_can_be_read(answers: Answers) -> None:
    """Shown with `pytest -s`; at least 30 rows, and one line for each."""
    assert len(answers) >= 30
    for name, (server, ours) in answers.items():
        print(f"| {name} | {_short(server) or 'accepts: the operator refuses'} | {_short(ours)} |")


def _short(text: str) -> str:
    text = " ".join(text.split()).partition(" is invalid: ")[2] or " ".join(text.split())
    return text if len(text) <= 150 else text[:149] + "…"


@pytest.mark.parametrize("name", GOOD)
def test_a_good_manifest_passes_both(served: ControlPlane, tmp_path: Path, name: str) -> None:
    """What we call valid, the server takes."""
    assert _server_says(served, GOOD[name]) == ""
    assert _we_say([GOOD[name]], tmp_path / "good.yaml") == {}


@pytest.mark.parametrize("name", [name for name, document in GOOD.items() if "spec" in document])
def test_the_server_fills_in_the_defaults_of_the_model(served: ControlPlane, name: str) -> None:
    """An object from the server reads the same as the manifest did."""
    made = served.api.request(
        "POST", _collection(GOOD[name], "default"), GOOD[name], query={"dryRun": "All"}
    )["spec"]
    given = {key: value for key, value in GOOD[name]["spec"].items() if value is not None}
    if name.startswith("nulls"):
        del given["kafkaLag"]
    if GOOD[name]["kind"] == SCALING_POLICY.name:
        assert read_spec(made, "server") == read_spec(given, "manifest")
        return
    model = SPECS[GOOD[name]["kind"]]
    wanted = model.model_validate(given)
    assert model.model_validate(made) == wanted
    written = wanted.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert {key for key, value in written.items() if value not in ("", [], {})} <= set(made)


def test_kubectl_shows_the_columns_by_the_short_name(served: ControlPlane, namespace: str) -> None:
    """And the status is a subresource: only its own path writes it."""
    path = f"{GROUP}/namespaces/{namespace}/rotationpolicies"
    status = {
        "observedGeneration": 1,
        "workloads": 3,
        "realisedImprovementPercent": 21.5,
        "lastDecision": {"reason": "Rotate", "sentence": "a is hot.", "at": AT, "subject": "shop/web"},
        "conditions": [
            {"type": "Ready", "status": "True", "reason": "Fine", "message": "", "lastTransitionTime": AT}
        ],
        "memory": {"anything": [{"goes": True}]},
    }
    made = served.api.create(path, policy(TARGET, status=status))
    assert "status" not in made
    written = served.api.request("PUT", f"{path}/web/status", made | {"status": status})
    assert written["status"] == status
    assert written["metadata"]["generation"] == made["metadata"]["generation"]
    heading, row = served.kubectl("get", "rotpol", "-n", namespace).splitlines()
    assert heading.split() == ["NAME", "MODE", "READY", "REASON", "WORKLOADS", "IMPROVEMENT", "AGE"]
    assert row.split()[:6] == ["web", "Preview", "True", "Rotate", "3", "21.5"]
    assert "rotationpolicy.equipoise.dev/web" in served.kubectl(
        "get", "equipoise", "-n", namespace, "-o", "name"
    )


@pytest.mark.parametrize(
    "status",
    [
        {"workloads": -1},
        {"decisions": [{"subject": "a", "reason": "Rotate"}] * 201},
        {"lastDecision": {"reason": "two words", "at": AT}},
        {"conditions": [{"type": "Ready"}]},
        {"memory": []},
    ],
    ids=lambda status: next(iter(status)),
)
def test_a_bad_status_is_refused(served: ControlPlane, namespace: str, status: dict[str, Any]) -> None:
    """What we write is held to its shape too."""
    path = f"{GROUP}/namespaces/{namespace}/rotationpolicies"
    made = served.api.create(path, policy(TARGET))
    with pytest.raises(ApiError, match="invalid"):
        served.api.request("PUT", f"{path}/web/status", made | {"status": status})


def test_a_list_from_kubectl_is_valid(served: ControlPlane, namespace: str) -> None:
    """`kubectl get -o yaml | equipoise validate -`."""
    served.api.create(f"{GROUP}/namespaces/{namespace}/rotationpolicies", policy(TARGET))
    listed = served.kubectl("get", "rotpol", "-n", namespace, "-o", "yaml")
    done = equipoise("validate", "-o", "json", "-", stdin=listed)
    assert json.loads(done.stdout) == {"valid": True, "findings": [], "checked": 1, "notOurs": []}


def test_a_definition_that_is_not_ours_is_left_alone(start_control_plane: StartControlPlane) -> None:
    """Dry run first, then a foreign one, then ours after somebody changed it."""
    plane = start_control_plane(controllers=False, scheduler=False)
    status, results, _ = _apply(plane, "--dry-run")
    assert (status, set(results.values())) == (0, {"Created"})
    assert plane.api.items(DEFINITIONS) == []
    printed = equipoise("crds", "print", "-o", "json", "rotationpolicy")
    foreign = json.loads(printed.stdout)
    del foreign["metadata"]["labels"]
    foreign["spec"]["names"]["shortNames"] = ["theirs"]
    plane.api.create(DEFINITIONS, foreign)
    path = f"{DEFINITIONS}/rotationpolicies.equipoise.dev"
    before = plane.api.get(path)["spec"]
    status, results, said = _apply(plane)
    assert status == 1
    assert results == {
        "ledgers.equipoise.dev": "Created",
        "rotationpolicies.equipoise.dev": "Foreign",
        **{kind.definition_name: "Created" for kind in KINDS if kind.group != "equipoise.dev"},
    }
    assert said.startswith("error: customresourcedefinition rotationpolicies.equipoise.dev: ")
    assert said.count("\n") == 1
    assert plane.api.get(path)["spec"] == before
    ledgers = f"{DEFINITIONS}/ledgers.equipoise.dev"
    plane.api.patch(ledgers, {"spec": {"names": {"shortNames": ["led"]}}})
    _, results, _ = _apply(plane, "ledger")
    assert results == {"ledgers.equipoise.dev": "Unchanged"}
    plane.api.patch(ledgers, {"spec": {"names": {"categories": ["all"]}}})
    _, results, _ = _apply(plane, "ledger")
    assert results == {"ledgers.equipoise.dev": "Updated"}
    assert plane.api.get(ledgers)["spec"]["names"]["categories"] == ["equipoise"]


def test_without_the_right_the_error_names_it(served: ControlPlane, namespace: str) -> None:
    """Exit status 1, one line, nothing changed."""
    served.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody", "namespace": namespace}}
    )
    config = served.kubeconfig_for("no-crds", {"token": served.token(namespace, "nobody")})
    done = equipoise("crds", "apply", "--kubeconfig", str(config))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "customresourcedefinitions" in done.stderr

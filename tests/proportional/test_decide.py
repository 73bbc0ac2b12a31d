"""Whole decisions: reason, sentence, containers, action, numbers."""

import json
from typing import Any

import msgspec
import pytest

from equipoise.core.decision import Decision, plan_document
from equipoise.core.reason import Code
from equipoise.crd.manifest import problems
from equipoise.proportional import decide as deciding
from equipoise.proportional.decide import Observation
from equipoise.proportional.functions import slots
from equipoise.proportional.parse import read_spec
from equipoise.proportional.status import SCALING_POLICY, status_of
from tests.support.crd.scaling_manifests import scaling
from tests.support.proportional.policies import CPU, TARGET, policy

TEN = {"input": "cores", "slope": "10m"}
TWO = TARGET | {
    "containers": [
        {
            "name": "kube-dns",
            "resources": {
                "requests": [
                    {"resource": "cpu", "function": TEN},
                    {"resource": "memory", "function": {"input": "nodes", "base": "64Mi", "slope": "1Mi"}},
                ],
                "limits": [{"resource": "memory", "function": {"base": "1Gi"}}],
            },
        },
        {"name": "sidecar"},
    ]
}


def decide(*given: Any) -> Decision:
    """Return the decision without its details."""
    return deciding.decide(*given).decision


def _seen(current: dict[str, str] | None = None, **inputs: Any) -> Observation:
    return Observation("dns", 1000.0, {name: str(size) for name, size in inputs.items()}, current or {})


def test_a_decision_has_everything_that_scripts_read() -> None:
    """Several containers, both sections; the action has only what changes."""
    seen = _seen({"kube-dns.requests.memory": "74Mi"}, cores=25, nodes=10)
    decision = decide(read_spec(TWO, "two"), seen)
    (document,) = plan_document("proportional", [decision])["decisions"]
    assert (document["reason"], document["held"]) == ("Set", [])
    assert document["containers"] == [
        {"name": "kube-dns", "requests": {"cpu": "250m", "memory": "74Mi"}, "limits": {"memory": "1Gi"}},
        {"name": "sidecar", "requests": {}, "limits": {}},
    ]
    changed = [{"name": "kube-dns", "requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}}]
    assert document["actions"] == [{"kind": "SetResources", "workload": "dns", "containers": changed}]
    assert document["numbers"]["reasons"] == {
        "kube-dns.requests.cpu": "Set",
        "kube-dns.requests.memory": "Unchanged",
        "kube-dns.limits.memory": "Set",
    }
    assert document["sentence"] == (
        "The cluster has 25 cores and 10 nodes. The CPU request of kube-dns is set to 0.25 cores. The memory "
        "limit of kube-dns is set to 1 GiB. The memory request of kube-dns stays at 74 MiB."
    )


def test_a_decision_survives_json() -> None:
    """The journal keeps it, actions included."""
    decision = decide(read_spec(TWO, "two"), _seen(cores=25, nodes=10))
    again = msgspec.json.decode(msgspec.json.encode(decision), type=Decision)
    assert again == decision
    assert json.loads(json.dumps(decision.memory)) == decision.memory


FAR = {"inputs": {"cores": 20}}


@pytest.mark.parametrize(
    ("smoothing", "current", "said"),
    [
        ({}, "300m", ["stays at 0.3 cores."]),
        ({}, "1", ["changes from 1 core to 0.3 cores."]),
        (
            {"delayScaleDown": FAR | {"delaySeconds": 300}},
            "400m",
            [
                (
                    "stays at 0.4 cores although the target is 0.3 cores. It is lowered when it is above 0.5 "
                    "cores"
                ),
                "(the target with 20 cores more) or when the target has been below it for 5m.",
            ],
        ),
        (
            {"delayScaleUp": FAR},
            "200m",
            [
                (
                    "stays at 0.2 cores although the target is 0.3 cores. It is raised when it is below 0.1 "
                    "cores"
                ),
                "(the target with 20 cores less).",
            ],
        ),
        (
            {"percentile": {}},
            "200m",
            ["stays at 0.2 cores until the window has 3 targets;", "the present target is 0.3 cores."],
        ),
    ],
)
def test_every_reason_has_a_sentence_with_its_numbers(
    smoothing: dict[str, Any], current: str, said: list[str]
) -> None:
    """A person can check it."""
    reason = decide(policy(TEN, smoothing=smoothing), _seen({CPU: current}, cores=30)).reason
    assert reason.sentence == f"The cluster has 30 cores. The CPU request of kube-dns {' '.join(said)}"


def test_percentile_says_its_thresholds() -> None:
    """When it holds, and when it sets."""
    asked = policy(TEN, smoothing={"percentile": {}})
    memory: dict[str, Any] = {}
    for number, cores in enumerate([30, 30, 20, 30]):
        decision = decide(asked, Observation("dns", number * 10, {"cores": str(cores)}, {}), memory)
        memory = decision.memory
    assert (
        "is set to 0.3 cores, which covers 80% of the targets in the window (thresholds: 0.3 cores to "
        "0.3 cores)" in decision.reason.sentence
    )
    held = decide(asked, Observation("dns", 50, {"cores": "20"}, {CPU: "300m"}), memory)
    assert held.reason.code is Code.HELD_BY_PERCENTILE
    assert (
        "stays at 0.3 cores although the target is 0.2 cores: it is within the thresholds of the window, "
        "0.3 cores to 0.3 cores" in held.reason.sentence
    )


def test_the_most_cautious_value_is_said() -> None:
    """After the delay: the highest target of its time, which is not the latest."""
    asked = policy(TEN, smoothing={"delayScaleDown": {"delaySeconds": 10}})
    memory = decide(asked, Observation("dns", 0, {"cores": "25"}, {CPU: "300m"})).memory
    decision = decide(asked, Observation("dns", 10, {"cores": "20"}, {CPU: "300m"}), memory)
    assert (
        "changes from 0.3 cores to 0.25 cores, as far as the delay allows; the present target is 0.2 cores"
        in decision.reason.sentence
    )


def test_a_policy_without_a_function_has_nothing_to_set() -> None:
    """It is not wrong, and says so."""
    decision = decide(read_spec(TARGET | {"containers": [{"name": "a"}]}, "x"), _seen())
    assert (decision.reason.code, decision.actions) == (Code.UNCHANGED, ())
    assert decision.reason.sentence == "The policy has no functions, so it sets no values."


@pytest.mark.parametrize(
    ("seen", "message"),
    [
        (_seen(), "cores: missing"),
        (_seen(cores="x"), "cores: expected a number or a quantity"),
        (_seen(cores="-1"), "cores: expected an amount of 0 or more"),
        (_seen(cores=1, cpus=1), "cpus: expected one of"),
        (_seen(cores=1, Cores=1), "Cores: expected each input once"),
        (_seen({"a.requests.cpu": "1"}, cores=1), "a.requests.cpu: expected one of kube-dns.requests.cpu"),
        (_seen({CPU: "1x"}, cores=1), f"{CPU}: expected a number"),
    ],
    ids=str,
)
def test_what_cannot_be_read_is_named(seen: Observation, message: str) -> None:
    """Missing is never zero."""
    with pytest.raises(ValueError, match=message):
        decide(policy(TEN), seen)


@pytest.mark.parametrize(
    "smoothing", [{}, {"percentile": {}}, {"delayScaleDown": {"delaySeconds": 60}}], ids=str
)
def test_the_status_of_a_decision_fits_its_definition(smoothing: dict[str, Any]) -> None:
    """Targets, thresholds, window, last change, why; and what is written there decides the next time."""
    document = TWO | {"smoothing": smoothing}
    asked, memory = read_spec(document, "two"), dict[str, Any]()
    for number in range(4):
        seen = Observation("dns", 1_700_000_000 + number * 10, {"cores": "25", "nodes": "10"}, {CPU: "300m"})
        decision, assessment = deciding.decide(asked, seen, memory)
        status = status_of(slots(asked), assessment, assessment.memory) | {"memory": decision.memory}
        assert problems(SCALING_POLICY, scaling(document, status=status)) == []
        memory = json.loads(json.dumps(status))["memory"]
    first = status["resources"][0]
    assert (first["name"], first["current"], first["target"]) == (CPU, "300m", "250m")
    assert ("window" in status) == bool(smoothing)
    if smoothing != {"delayScaleDown": {"delaySeconds": 60}}:
        assert first["lastChange"]["before"] == "300m"
        assert first["scaleDownAbove"] == "250m"

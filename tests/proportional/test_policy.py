"""What a user may ask, in how many spellings, and what is refused, by the path of what was written."""

import copy
from typing import Any

import pytest
import yaml

from equipoise.core.errors import BadInput
from equipoise.proportional.parse import read_policy_file, read_spec
from equipoise.proportional.policy import ScalingPolicySpec
from tests.support.proportional.policies import TARGET, spec

SEGMENTS = """
container:
  name: kube-dns
  requests:
    resource: cpu
    functions:
      input: Cores
      base: 100m
      slope: 10m # per core
      segments:
      - at: 0
        every: 1
      - at: 16
        every: 4
"""
HYSTERESIS = """
smoothing:
  delayScaleDown:
    inputs:
      cores: 20
"""
PERCENTILE = """
smoothing:
  percentile:
    target: 0.80
    lowThreshold: 0.60
    highThreshold: 0.95
"""
QUANTIZATION = """
container:
  name: kube-dns
  quantization:
    resource: cpu
    base: 100m
"""
CANONICAL = {
    "containers": [
        {
            "name": "kube-dns",
            "resources": {
                "requests": [
                    {
                        "resource": "cpu",
                        "function": {
                            "input": "cores",
                            "base": "100m",
                            "slope": "10m",
                            "segments": [{"at": 0, "every": 1}, {"at": 16, "every": 4}],
                        },
                    }
                ]
            },
        }
    ]
}


def _read(*texts: str) -> ScalingPolicySpec:
    document: dict[str, Any] = dict(TARGET)
    for text in texts:
        document |= yaml.safe_load(text)
    return read_spec(document, "seed")


@pytest.mark.parametrize("smoothing", [HYSTERESIS, PERCENTILE])
def test_the_seeds_fragments_are_read_as_they_stand(smoothing: str) -> None:
    """Inside a policy, which only adds whom it is for."""
    read = _read(SEGMENTS, smoothing)
    assert read.containers == read_spec(TARGET | CANONICAL, "canonical").containers
    assert _read(QUANTIZATION, smoothing).containers[0].quantization[0].base is not None


def test_shorthand_and_canonical_form_are_one_policy() -> None:
    """Maps for lists of one, lists under the singular, sections under the container."""
    function = {"input": "cores", "base": "1m", "segments": {"at": 0, "every": 2}, "slope": "1m"}
    rule = {"resource": "cpu", "functions": function, "min": "2m"}
    short = {"containers": {"name": "a", "limits": rule, "quantization": {"resource": "cpu", "base": "1m"}}}
    mixed = {
        "container": [
            {"name": "a", "resources": {"limits": rule}, "quantization": [{"resource": "cpu", "base": "1m"}]}
        ]
    }
    whole = {
        "containers": [
            {
                "name": "a",
                "resources": {
                    "limits": [
                        {
                            "resource": "cpu",
                            "min": "2m",
                            "function": function | {"segments": [{"at": 0, "every": 2}]},
                        }
                    ]
                },
                "quantization": [{"resource": "cpu", "base": "1m"}],
            }
        ]
    }
    assert read_spec(TARGET | short, "") == read_spec(TARGET | mixed, "") == read_spec(TARGET | whole, "")


def test_several_functions_become_several_rules_with_one_minimum() -> None:
    """They add up."""
    functions = [{"input": "cores", "slope": "1m"}, {"input": "nodes", "slope": "2m"}]
    written = {
        "container": {"name": "a", "requests": {"resource": "cpu", "min": "5m", "functions": functions}}
    }
    rules = read_spec(TARGET | written, "").containers[0].resources.requests
    assert [(rule.function.input, str(rule.min)) for rule in rules] == [("cores", "5m"), ("nodes", "None")]


def test_what_is_written_reads_back_the_same() -> None:
    """A record replays with the policy that it holds."""
    read = _read(SEGMENTS, PERCENTILE)
    assert read_spec(read.model_dump(mode="json", by_alias=True, exclude_none=True), "again") == read


def test_nulls_count_as_absent() -> None:
    """As they do for Kubernetes."""
    document = spec({"input": "cores", "slope": "1m", "per": None}, min=None) | {"smoothing": None}
    assert read_spec(document, "") == read_spec(spec({"input": "cores", "slope": "1m"}), "")


FUNCTION = "containers[0].resources.requests[0].function"


def _changed(path: str, value: Any) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(TARGET | CANONICAL)
    document["containers"][0]["quantization"] = [{"resource": "cpu", "base": "1m"}]
    document["smoothing"] = {}
    at: Any = document
    *steps, last = path.split("/")
    for part in steps:
        at = at[int(part)] if part.isdigit() else at[part]
    at[int(last) if last.isdigit() else last] = value
    return document


RULE = "containers/0/resources/requests/0"
BAD: list[tuple[str, Any, str, str]] = [
    ("scaleTargetRef/kind", "Job", "scaleTargetRef.kind", "expected 'Deployment'"),
    ("scaleTargetRef/name", "A B", "scaleTargetRef.name", "expected a name"),
    ("containers", [], "containers", "expected at least one container"),
    ("containers", "x", "containers", "expected a list"),
    ("containers/0", 3, "containers[0]", "expected a mapping"),
    ("containers/0/resources", 3, "containers[0].resources", "expected a mapping"),
    ("container", {}, "container", "expected container or containers"),
    ("containers/0/requests", [], "containers[0].requests", "expected requests or resources.requests"),
    (f"{RULE}/resource", "gpu", "containers[0].resources.requests[0].resource", "expected 'cpu' or 'memory'"),
    (f"{RULE}/function", None, "containers[0].resources.requests[0].function", "missing"),
    (f"{RULE}/function", [], "containers[0].resources.requests[0].function", "expected a mapping"),
    (
        f"{RULE}/functions",
        {},
        "containers[0].resources.requests[0].functions",
        "expected function or functions",
    ),
    (f"{RULE}/function/input", "cpus", f"{FUNCTION}.input", "expected one of cores"),
    (f"{RULE}/function/input", None, FUNCTION, "expected an input beside slope"),
    (f"{RULE}/function", {"input": "cores"}, FUNCTION, "expected base, slope, or both"),
    (f"{RULE}/function/base", "1x", f"{FUNCTION}.base", "expected a number or a quantity"),
    (f"{RULE}/function/base", True, f"{FUNCTION}.base", "got true"),
    (f"{RULE}/function/base", float("nan"), f"{FUNCTION}.base", "expected a number or a quantity"),
    (f"{RULE}/function/base", "1e30", f"{FUNCTION}.base", "expected at most 1E"),
    (f"{RULE}/function/base", 10**400, f"{FUNCTION}.base", "expected at most 1E"),
    (f"{RULE}/function/per", 0, f"{FUNCTION}.per", "expected an amount above 0"),
    (f"{RULE}/function/Slope", "1m", f"{FUNCTION}.Slope", "unknown key"),
    (f"{RULE}/function/roundTo", 1, f"{FUNCTION}.roundTo", "unknown key"),
    (f"{RULE}/function/segments/1/every", 0, f"{FUNCTION}.segments[1].every", "expected an amount above 0"),
    (
        f"{RULE}/function/segments/1/every",
        "-4",
        f"{FUNCTION}.segments[1].every",
        "expected an amount above 0",
    ),
    (f"{RULE}/function/segments/1/at", -1, f"{FUNCTION}.segments[1].at", "expected an amount of 0 or more"),
    (f"{RULE}/function/segments/1/at", 0, f"{FUNCTION}.segments", "expected a different at"),
    (f"{RULE}/min", "-1m", "containers[0].resources.requests[0].min", "expected an amount of 0 or more"),
    ("containers/0/quantization/0/base", 0, "containers[0].quantization[0]", "expected a base above 0"),
    (
        "containers/0/quantization/0/stepRatio",
        2,
        "containers[0].quantization[0]",
        "expected step beside stepRatio",
    ),
    (
        "containers/0/quantization/0/stepRatio",
        0.5,
        "containers[0].quantization[0].stepRatio",
        "expected greater",
    ),
    (
        "smoothing/percentile",
        {"target": 1.2},
        "smoothing.percentile.target",
        "expected less than or equal to 1",
    ),
    (
        "smoothing/percentile",
        {"target": 0.5},
        "smoothing.percentile",
        "expected lowThreshold at or below target",
    ),
    ("smoothing/percentile", {"target": "80%"}, "smoothing.percentile.target", "expected a number"),
    (
        "smoothing/percentile",
        {"windowSeconds": 0},
        "smoothing.percentile.windowSeconds",
        "expected greater than 0",
    ),
    ("smoothing/delayScaleDown", {}, "smoothing.delayScaleDown", "expected inputs, delaySeconds, or both"),
    (
        "smoothing/delayScaleDown",
        {"inputs": {"cpu": 1}},
        "smoothing.delayScaleDown.inputs.cpu",
        "expected one of",
    ),
    (
        "smoothing/delayScaleDown",
        {"inputs": {"cores": -1}},
        "smoothing.delayScaleDown.inputs.cores",
        "0 or more",
    ),
    (
        "smoothing/delayScaleDown",
        {"inputs": {"nodes": 1}},
        "smoothing.delayScaleDown.inputs.nodes",
        "expected an input that a function uses (cores)",
    ),
    ("smoothing/delayScaleDown", {"max": 1}, "smoothing.delayScaleDown.max", "unknown key"),
    ("updateMode", "Recreate", "updateMode", "expected 'Auto'"),
    ("mode", "Enforce", "mode", "unknown key"),
]


@pytest.mark.parametrize(("change", "value", "path", "message"), BAD, ids=lambda part: str(part)[:40])
def test_bad_input_is_refused_with_its_path(change: str, value: Any, path: str, message: str) -> None:
    """And with what was expected."""
    with pytest.raises(BadInput) as refused:
        read_spec(_changed(change, value), "policy.yaml")
    assert str(refused.value).startswith(f"policy.yaml: {path}: ")
    assert message in str(refused.value)


def test_a_mistake_in_shorthand_is_named_where_it_was_written() -> None:
    """Not where it would have been."""
    document = TARGET | yaml.safe_load(SEGMENTS.replace("every: 4", "every: 0"))
    with pytest.raises(BadInput, match=r"container\.requests\.functions\.segments\[1\]\.every: expected"):
        read_spec(document, "seed")
    with pytest.raises(BadInput, match=r"container\.quantization\.step: expected an amount above 0"):
        read_spec(TARGET | {"container": {"name": "a", "quantization": {"resource": "cpu", "step": 0}}}, "x")


@pytest.mark.parametrize(
    ("segments", "example"),
    [
        ([{"at": 0, "every": 5}, {"at": 16, "every": 4}], "15.999 rounded to 20, but 16 to 16"),
        ([{"at": 0, "every": 10}, {"at": 15, "every": 1}], "14 rounded to 20, but 15 to 15"),
        ([{"at": "4.004", "every": 4}], "rounded to 4.002000001, but 4.004 to 4"),
        ([{"at": 0, "every": "1Gi"}, {"at": "1.5Gi", "every": "512Mi"}], "rounded to 2147483648, but"),
    ],
    ids=str,
)
def test_segments_that_would_make_the_result_fall_are_refused_with_an_example(
    segments: list[dict[str, Any]], example: str
) -> None:
    """Two sizes of which the larger would get less."""
    with pytest.raises(BadInput, match="whose result does not fall") as refused:
        read_spec(spec({"input": "cores", "slope": "1m", "segments": segments}), "x")
    assert example in str(refused.value)
    levels = {"resource": "cpu", "segments": [{"at": 0, "every": 10}, {"at": 15, "every": 1}]}
    with pytest.raises(BadInput, match="whose result does not fall while the value grows"):
        read_spec(spec({"input": "cores", "slope": "1m"}, quantization=levels), "x")


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ({"step": "2m", "maxStep": "1m"}, "maxStep: expected maxStep at or above step"),
        ({"step": "2m", "stepRatio": 1.001}, "stepRatio: expected 1, or at least 1.01"),
        ({"step": "2m", "segments": {"at": 0, "every": "1m"}}, "expected segments or steps, not both"),
        ({}, "expected a base above 0, a step, or segments"),
    ],
    ids=str,
)
def test_levels_that_make_no_sense_are_refused(levels: dict[str, Any], message: str) -> None:
    """Each by its own sentence."""
    with pytest.raises(BadInput, match=r"^x: containers\[0\]\.quantization[.:]") as refused:
        read_spec(spec({"input": "cores", "slope": "1m"}, quantization={"resource": "cpu"} | levels), "x")
    assert message in str(refused.value)


def test_bounds_are_given_once_and_in_order() -> None:
    """Per resource, over all of its rules."""
    ten = {"input": "cores", "slope": "10m"}
    with pytest.raises(BadInput, match=r"requests: expected min of cpu at or below max, got 2 and 1"):
        read_spec(spec(ten, min=2, max=1), "x")
    twice = spec(ten, ten, min=1)
    twice["containers"][0]["resources"]["requests"][1]["min"] = 2
    with pytest.raises(BadInput, match="expected min once for cpu, got it in 2 rules"):
        read_spec(twice, "x")
    with pytest.raises(BadInput, match="expected a different name in each item"):
        read_spec(TARGET | {"containers": [{"name": "a"}, {"name": "a"}]}, "x")
    with pytest.raises(BadInput, match="expected percentile or the delays"):
        read_spec(spec(ten, smoothing={"percentile": {}, "delayScaleUp": {"delaySeconds": 1}}), "x")


def test_a_policy_file_is_a_whole_object_or_its_spec() -> None:
    """And a bad field of a whole object is under `spec`."""
    head = {"apiVersion": "scalingpolicy.kope.io/v1alpha1", "kind": "ScalingPolicy"}
    metadata = {"name": "dns", "namespace": "kube-system"}
    body = TARGET | CANONICAL
    whole = read_policy_file(head | {"metadata": metadata, "spec": body, "status": {"any": 1}}, "x")
    assert (whole.spec, whole.namespace, whole.name) == (
        read_policy_file(body, "x").spec,
        "kube-system",
        "dns",
    )
    for document, message in [
        (head | {"spec": {}}, r"^x: spec\.scaleTargetRef: missing"),
        (head, "^x: spec: missing"),
        (head | {"kind": "Policy"}, "^x: kind: expected ScalingPolicy, got 'Policy'"),
        ({"kind": "ScalingPolicy", "spec": body}, "^x: apiVersion: expected scalingpolicy.kope.io/v1alpha1"),
        (head | {"spec": body, "specs": {}}, "^x: specs: unknown key"),
        (head | {"spec": 3}, "^x: spec: expected a mapping"),
        ([], "^x: expected a mapping"),
        ({}, r"^x: scaleTargetRef: missing"),
    ]:
        with pytest.raises(BadInput, match=message):
            read_policy_file(document, "x")

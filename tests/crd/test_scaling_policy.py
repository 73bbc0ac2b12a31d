"""What `problems` and the schema say about scaling policies."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.crd.definition import schema_of
from equipoise.crd.manifest import problems, refusals, without_nulls
from equipoise.proportional.status import SCALING_POLICY
from tests.support.cli.running import equipoise
from tests.support.crd.manifests import Bad
from tests.support.crd.scaling_manifests import (
    CONTAINER,
    FUNCTION,
    SCALING_BAD,
    SCALING_GOOD,
    TARGET,
    scaling,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "04-scalingpolicy.yaml"
SCHEMA = schema_of(SCALING_POLICY)


def _refused_by_schema(document: dict[str, Any]) -> list[Any]:
    part = {key: value for key, value in document.items() if key != "metadata"}
    return list(refusals(SCHEMA, without_nulls(SCHEMA, part)))


@pytest.mark.parametrize("document", SCALING_GOOD.values(), ids=list(SCALING_GOOD))
def test_a_good_policy_has_no_problem(document: dict[str, Any]) -> None:
    """Neither for us nor for the schema."""
    assert problems(SCALING_POLICY, document) == []
    assert _refused_by_schema(document) == []


@pytest.mark.parametrize("bad", SCALING_BAD, ids=lambda bad: bad.name)
def test_a_bad_policy_has_one_problem_with_its_path(bad: Bad) -> None:
    """The path that was written, and what was expected."""
    (problem,) = problems(SCALING_POLICY, bad.document)
    assert problem.path == bad.path
    assert problem.message.startswith(("expected", "missing", "unknown key"))


def test_the_example_is_valid_and_fits_its_published_schema() -> None:
    """For `validate`, and for editors."""
    done = equipoise("validate", "-o", "json", str(EXAMPLE))
    assert (done.returncode, json.loads(done.stdout)["checked"]) == (0, 1)
    published = json.loads(equipoise("schema", "scalingpolicy").stdout)
    jsonschema.Draft202012Validator.check_schema(published)
    jsonschema.validate(yaml.safe_load(EXAMPLE.read_text()), published)
    wrong = scaling(TARGET | {"containers": [CONTAINER], "mode": "Enforce"})
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, published)


_ODD = st.sampled_from([None, True, "", "x", "2", 0, -1, 1.5, 10**30, [], {}, [1], {"a": 1}, "5m\n", "é"])
_AMOUNT = st.sampled_from(["100m", "1Gi", "1.5", "+2", "1e3", ".5", "5.", 3, "-1", "1e99"])


def _maybe(**parts: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    mixed = {name: st.one_of(*[part] * 9, _ODD) for name, part in parts.items()}
    return st.fixed_dictionaries({}, optional=mixed)


_FUNCTIONS = _maybe(
    input=st.sampled_from(["cores", "Nodes", "cpus"]),
    base=_AMOUNT,
    slope=_AMOUNT,
    per=_AMOUNT,
    segments=st.lists(_maybe(at=_AMOUNT, every=_AMOUNT), max_size=2),
).map(lambda part: FUNCTION | part)
_RULES = _maybe(resource=st.just("memory"), min=_AMOUNT, max=_AMOUNT).flatmap(
    lambda part: st.sampled_from(["function", "functions"]).flatmap(
        lambda name: _FUNCTIONS.map(lambda function: {"resource": "cpu"} | part | {name: function})
    )
)
_CONTAINERS = _maybe(
    resources=_maybe(requests=_RULES | st.lists(_RULES, max_size=2)),
    limits=_RULES,
    quantization=st.lists(
        _maybe(base=_AMOUNT, step=_AMOUNT, stepRatio=st.sampled_from([1, 2.5, 0])), max_size=1
    ),
).map(lambda part: {"name": "kube-dns"} | part)
_SMOOTHINGS = _maybe(
    percentile=_maybe(target=st.sampled_from([0.8, 1, 2]), windowSeconds=st.sampled_from([1, 300, 0])),
    delayScaleDown=_maybe(
        inputs=st.dictionaries(st.sampled_from(["cores", "CORES", "x"]), _AMOUNT), delaySeconds=st.just(5)
    ),
)
_SPECS = st.builds(
    lambda name, containers, smoothing: TARGET | {name: containers} | smoothing,
    st.sampled_from(["container", "containers"]),
    _CONTAINERS | st.lists(_CONTAINERS, max_size=2),
    _maybe(smoothing=_SMOOTHINGS),
)


def test_what_the_models_accept_the_schema_accepts() -> None:
    """Shorthand and odd values included; and enough of both kinds are tried."""
    accepted = []

    @settings(max_examples=400, deadline=None, derandomize=True, database=None)
    @given(_SPECS)
    def judge(spec: dict[str, Any]) -> None:
        document = scaling(spec)
        if not problems(SCALING_POLICY, document):
            accepted.append(spec)
            assert _refused_by_schema(document) == []

    judge()
    assert len(accepted) > 40

"""What `problems` says about one manifest."""

import pytest

from equipoise.cli.manifests import KINDS
from equipoise.crd.definition import DefinedKind, schema_of
from equipoise.crd.manifest import problems, refusals, without_nulls
from tests.support.crd.manifests import BAD, GOOD, TARGET, Bad, policy


def _kind(document: dict[str, object]) -> DefinedKind:
    return next(kind for kind in KINDS if kind.name == document["kind"])


@pytest.mark.parametrize("document", GOOD.values(), ids=list(GOOD))
def test_a_good_manifest_has_no_problem(document: dict[str, object]) -> None:
    """Neither for the model nor for the schema."""
    kind = _kind(document)
    assert problems(kind, document) == []
    schema = schema_of(kind)
    part = {key: value for key, value in document.items() if key != "metadata"}
    assert list(refusals(schema, without_nulls(schema, part))) == []


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_a_bad_manifest_has_one_problem_with_its_path(bad: Bad) -> None:
    """The path of the field, and what was expected."""
    (problem,) = problems(_kind(bad.document), bad.document)
    assert problem.path == bad.path
    assert problem.message.startswith(("expected", "missing", "unknown key"))


def test_every_problem_is_listed_not_only_the_first() -> None:
    """A person mends them in one go."""
    document = policy(TARGET | {"topK": 0, "mode": "Force", "topk": 1, "windows": [{"duration": "1s"}]})
    assert [problem.path for problem in problems(_kind(document), document)] == [
        "spec.topK",
        "spec.windows[0].schedule",
        "spec.windows[0].duration",
        "spec.mode",
        "spec.topk",
    ]


def test_what_the_server_writes_passes() -> None:
    """`kubectl get -o yaml` gives back more than was written."""
    document = policy(
        TARGET,
        status={"workloads": 1, "realisedImprovementPercent": -3.5, "conditions": []},
    )
    document["metadata"] |= {
        "uid": "1",
        "resourceVersion": "5",
        "creationTimestamp": None,
        "managedFields": [{}],
        "labels": {"a": "b"},
        "annotations": {"example.com/why": "any text at all"},
    }
    assert problems(_kind(document), document) == []


@pytest.mark.parametrize(
    ("metadata", "path"),
    [
        ({}, "metadata.name"),
        ({"name": "x" * 254}, "metadata.name"),
        ({"name": "a", "label": {}}, "metadata.label"),
        ({"name": "a", "labels": {"a b": "c"}}, "metadata.labels.a b"),
        ({"name": "a", "labels": {"a": 1}}, "metadata.labels.a"),
        ({"name": "a", "namespace": "A"}, "metadata.namespace"),
    ],
    ids=str,
)
def test_bad_metadata_is_named(metadata: dict[str, object], path: str) -> None:
    """Also what every kind has."""
    document = policy(TARGET) | {"metadata": metadata}
    assert [problem.path for problem in problems(_kind(document), document)] == [path]

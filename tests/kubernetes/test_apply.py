"""An apply looks first, names what is in the way, and forces nothing, whatever the server says."""

from typing import Any

import pytest

from equipoise.adapters.kubernetes.apply import FRESH_SECONDS, KubernetesApplier
from equipoise.adapters.kubernetes.errors import ApiError, BadAnswer, Unreachable
from equipoise.core.errors import BadInput
from equipoise.ports import ApplyAnswer, ApplyResult
from tests.support.contracts.applier_facts import wanted
from tests.support.kubernetes.samples import page
from tests.support.kubernetes.scripted import (
    DEPLOYMENT,
    HPAS,
    KINDS,
    LABELLED,
    OURS,
    REVIEWS,
    WEB,
    Scripted,
    there,
)
from tests.support.kubernetes.server import Time, playing, session

SCALED = "/apis/keda.sh/v1alpha1/namespaces/shop/scaledobjects"


def test_it_is_written_once_as_ours_and_never_forced() -> None:
    """With our name in the request, our label in the object and the UID that was seen."""
    server = Scripted(**{f"GET {HPAS}/web": there(LABELLED, [OURS])})
    assert server.apply(is_dry_run=True).result is ApplyResult.UNCHANGED
    (write,) = server.written
    assert write.query == {"fieldManager": "equipoise", "force": "false", "dryRun": "All"}
    assert write.headers["Content-Type"] == "application/apply-patch+yaml"
    assert b'"uid":"6a3c"' in write.body
    assert b'"app.kubernetes.io/managed-by":"equipoise"' in write.body


def made_by(manager: str, operation: str = "Update") -> dict[str, Any]:
    """Give an entry of managedFields for a spec."""
    return {"manager": manager, "operation": operation, "fieldsV1": {"f:spec": {}}}


def owned_by(kind: str, name: str) -> list[dict[str, Any]]:
    """Give the owner references of what a controller made."""
    return [{"apiVersion": "v1", "kind": kind, "name": name, "uid": "1", "controller": True}]


@pytest.mark.parametrize(
    ("found", "owner"),
    [
        (there(ownerReferences=owned_by("ScaledObject", "w")), "ScaledObject w"),
        (there({"scaledobject.keda.sh/name": "w"}), "ScaledObject w"),
        (there({"app.kubernetes.io/managed-by": "Helm"}), "Helm"),
        (there(None, [made_by("kubectl-create")]), "kubectl-create"),
        (there(LABELLED, [made_by("kubectl", "Apply")]), "kubectl"),
        (there(None, [OURS, made_by("b\nc"), made_by("a")]), "a, b c"),
        (there(LABELLED, [OURS], ownerReferences=owned_by("Thing", "t")), "Thing t"),
        (there(), "an unnamed field manager"),
    ],
)
def test_whose_an_hpa_is_comes_from_all_that_tells(found: dict[str, Any], owner: str) -> None:
    """A label that anybody can write does not make it ours; a name is one line."""
    server = Scripted(**{f"GET {HPAS}/web": found})
    detail = f"HorizontalPodAutoscaler shop/web is managed by {owner}"
    assert server.apply() == ApplyAnswer(ApplyResult.NOT_OURS, detail, owner)
    assert server.written == []


def taken(manager: str, field: str) -> dict[str, str]:
    """Give one cause of a conflict."""
    message = f'conflict with "{manager}" using autoscaling/v2 at 2026-01-01T00:00:00Z'
    return {"reason": "FieldManagerConflict", "message": message, "field": field}


TAKEN = (taken("helm", ".spec.maxReplicas"), taken("a\nb", ".spec.metrics"))
NAME = "HorizontalPodAutoscaler shop/web"
OTHER_UID = "Precondition failed: UID in precondition: 6a3c, UID in object meta: 77"


@pytest.mark.parametrize(
    ("refusal", "result", "detail"),
    [
        ((403, "Forbidden", "you may not"), "Forbidden", "you may not"),
        ((404, "NotFound", "no namespace shop"), "Gone", "no namespace shop"),
        ((422, "Invalid", "spec.maxReplicas: too few"), "Refused", "spec.maxReplicas: too few"),
        ((400, "BadRequest", "denied by a webhook"), "Refused", "denied by a webhook"),
        ((409, "Conflict", OTHER_UID), "Gone", f"{NAME} was replaced while it was read"),
        (
            (409, "Conflict", "2 conflicts", *TAKEN),
            "NotOurs",
            f".spec.maxReplicas, .spec.metrics of {NAME} was set by helm, a b",
        ),
    ],
)
def test_a_refusal_is_an_answer(refusal: Any, result: str, detail: str) -> None:
    """It is asked once, and what the server says is what is told."""
    server = Scripted(**{f"PATCH {HPAS}/web": refusal})
    owner = "helm, a b" if result == "NotOurs" else ""
    assert server.apply() == ApplyAnswer(ApplyResult(result), detail, owner)
    assert len(server.written) == 1


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ((409, "Conflict", "something else"), ApiError),
        ((501, "NotImplemented", "no"), ApiError),
        ((404, "", "an odd proxy"), ApiError),
        ("cut", Unreachable),
        (b"<html><title>Sign in</title>", BadAnswer),
    ],
)
def test_what_does_not_tell_whether_it_happened_is_no_answer(answer: Any, error: type[Exception]) -> None:
    """Nobody knows, and nobody pretends to."""
    with pytest.raises(error):
        Scripted(**{f"PATCH {HPAS}/web": answer}).apply()


def test_without_the_right_to_see_scaled_objects_nothing_is_made() -> None:
    """Whether KEDA scales it is unknown, and unknown is not no."""
    server = Scripted(**{f"GET {SCALED}": (403, "Forbidden", "no")})
    answer = server.apply()
    assert answer.result is ApplyResult.FORBIDDEN
    assert "it is unknown whether KEDA scales a workload" in answer.detail
    assert "list scaledobjects.keda.sh in namespace shop" in answer.detail
    assert server.written == []


@pytest.mark.parametrize(
    "odd",
    [
        {f"GET {SCALED}": page([{"metadata": {"name": "w", "namespace": "shop"}, "spec": 7}])},
        {f"GET {HPAS}": page([{"metadata": {"name": "w", "namespace": "shop"}, "spec": {}}])},
        {f"GET {HPAS}/web": {"metadata": {"name": "web"}, "spec": {"scaleTargetRef": 5}}},
    ],
    ids=("a ScaledObject", "another HPA", "the HPA"),
)
def test_what_cannot_be_read_is_not_overlooked(odd: dict[str, Any]) -> None:
    """It may be the one that scales the workload."""
    server = Scripted(**odd)
    with pytest.raises(BadAnswer, match="cannot be read"):
        server.apply()
    assert server.written == []


def test_who_else_scales_is_asked_once_for_many_and_again_after_a_while() -> None:
    """Four hundred workloads of a namespace are no four hundred lists of it."""
    server, time = Scripted(), Time()
    with playing(server.script) as player, session(player.url, world=time.world()) as client:
        applier = KubernetesApplier(client)
        for _ in range(5):
            applier.apply_hpa(wanted(WEB))
        assert sum(asked.path == HPAS for asked in server.asked) == 1
        time.sleep(FRESH_SECONDS)
        applier.apply_hpa(wanted(WEB))
    assert sum(asked.path == HPAS for asked in server.asked) == 2
    assert sum(asked.path == f"{HPAS}/web" and asked.method == "GET" for asked in server.asked) == 6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"kind": "Deployment"},
            "kind: expected HorizontalPodAutoscaler of autoscaling/v2, got 'Deployment'",
        ),
        ({"metadata": {"name": "web"}}, "metadata.namespace: expected text"),
        ({"spec": {"maxReplicas": 3}}, "spec.scaleTargetRef: "),
    ],
)
def test_what_is_no_hpa_is_not_sent(change: dict[str, Any], words: str) -> None:
    """The port is for HPAs."""
    server = Scripted()
    with pytest.raises(BadInput, match=words):
        server.apply(wanted(WEB) | change)
    assert server.asked == []


def workload(annotations: Any = None, managed: Any = None) -> dict[str, Any]:
    """Give the Deployment, as far as it matters."""
    meta = {"name": "web", "uid": "77", "annotations": annotations, "managedFields": managed}
    return {"metadata": meta, "spec": {"template": {"spec": {}}}}


def test_an_annotation_is_patched_alone_and_only_when_it_is_news() -> None:
    """Not applied: that would give up what else the same manager has applied."""
    server = Scripted(**{f"GET {DEPLOYMENT}": workload({"old": "1"}), f"PATCH {DEPLOYMENT}": workload()})
    assert server.annotate(old="1").result is ApplyResult.UNCHANGED
    assert server.written == []
    assert server.annotate(old="1", new="2").result is ApplyResult.CHANGED
    (write,) = server.written
    assert write.body == b'{"metadata":{"annotations":{"new":"2"},"uid":"77"}}'
    assert write.query == {"fieldManager": "equipoise"}
    assert write.headers["Content-Type"] == "application/merge-patch+json"


def test_an_annotation_that_somebody_else_set_stays_theirs() -> None:
    """By the key, not by the object: everybody annotates Deployments."""
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {"f:note": {}}}}
    managed = [{"manager": "argocd", "operation": "Update", "fieldsV1": fields}]
    server = Scripted(
        **{f"GET {DEPLOYMENT}": workload({"note": "a"}, managed), f"PATCH {DEPLOYMENT}": workload()}
    )
    answer = server.annotate(note="b", other="c")
    assert answer == ApplyAnswer(
        ApplyResult.NOT_OURS, "note of Deployment shop/web was set by argocd", "argocd"
    )
    assert server.written == []
    assert server.annotate(other="c").result is ApplyResult.CHANGED


def test_who_may_not_annotate_does_not_try() -> None:
    """It is asked once for many workloads; and a webhook's no is not taken for a right that is missing."""
    server = Scripted(**{f"POST {REVIEWS}": {"status": {"allowed": False}}})
    with playing(server.script) as player, session(player.url) as client:
        applier = KubernetesApplier(client)
        answers = [applier.annotate(WEB._replace(name=name), {"note": "a"}) for name in ("web", "api")]
    detail = "the right to patch Deployments in namespace shop is missing"
    assert answers == [ApplyAnswer(ApplyResult.FORBIDDEN, detail)] * 2
    assert [asked.path for asked in server.asked if asked.path not in KINDS] == [REVIEWS]
    assert b'"verb":"patch"' in server.asked[-1].body
    assert b'"resource":"deployments"' in server.asked[-1].body
    no = (403, "Forbidden", 'admission webhook "w" denied the request: no')
    server = Scripted(**{f"GET {DEPLOYMENT}": workload(), f"PATCH {DEPLOYMENT}": no})
    assert server.annotate(note="a") == ApplyAnswer(ApplyResult.REFUSED, no[2])


def test_where_nobody_tells_of_rights_the_request_itself_does() -> None:
    """A review that is refused is no answer."""
    closed = (403, "Forbidden", "no reviews")
    server = Scripted(
        **{f"POST {REVIEWS}": closed, f"GET {DEPLOYMENT}": workload(), f"PATCH {DEPLOYMENT}": workload()}
    )
    assert server.annotate(note="a").result is ApplyResult.CHANGED

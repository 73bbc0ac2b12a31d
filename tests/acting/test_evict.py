"""Evictions: what is sent, and what each answer of the API server means."""

import json

import pytest

from equipoise.adapters.http import Backoff
from equipoise.adapters.kubernetes import ApiError, Unreachable
from equipoise.adapters.kubernetes.actions import KubernetesActuator
from equipoise.core.cluster import PodRef
from equipoise.core.errors import WorldFailed
from equipoise.ports import EvictionAnswer, EvictionResult
from tests.support.kubernetes.server import Asked, Script, Stage, playing, session
from tests.testbed import wait_until

POD = PodRef("shop", "web-1", "uid-1")
EAGER = Backoff(attempts_max=5)


def _evict(script: Script, pod: PodRef = POD, **options: object) -> tuple[EvictionAnswer, list[Asked]]:
    with playing(script) as player, session(player.url, backoff=EAGER) as client:
        return KubernetesActuator(client).evict(pod, **options), player.asked  # type: ignore[arg-type]


def _accept(asked: Asked, stage: Stage) -> None:
    stage.answer({"kind": "Status", "status": "Success"}, 201)


def test_an_eviction_names_the_incarnation_and_leaves_the_grace_period_alone() -> None:
    """The pod's own grace period holds, so none is sent."""
    answer, (asked,) = _evict(_accept)
    assert answer.result is EvictionResult.ACCEPTED
    assert (asked.method, asked.path) == ("POST", "/api/v1/namespaces/shop/pods/web-1/eviction")
    assert asked.query == {}
    assert json.loads(asked.body) == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": "web-1", "namespace": "shop"},
        "deleteOptions": {"preconditions": {"uid": "uid-1"}},
    }


def test_a_dry_run_and_a_grace_period_are_said_where_the_server_reads_them() -> None:
    """In the query and in the options, which must agree."""
    _, (asked,) = _evict(_accept, grace_seconds=0, is_dry_run=True)
    options = json.loads(asked.body)["deleteOptions"]
    assert asked.query == {"dryRun": "All"}
    assert (options["dryRun"], options["gracePeriodSeconds"]) == (["All"], 0)


def test_without_a_uid_nothing_is_sent() -> None:
    """A name alone may mean another pod by now."""
    answer, asked = _evict(_accept, POD._replace(uid=""))
    assert answer.result is EvictionResult.REFUSED
    assert asked == []


def test_a_budget_blocks_with_its_own_words_and_its_time() -> None:
    """429 is asked once, and waits for the caller."""
    status = {
        "kind": "Status",
        "code": 429,
        "reason": "TooManyRequests",
        "message": "Cannot evict pod as it would violate the pod's disruption budget.",
        "details": {
            "causes": [
                {
                    "reason": "DisruptionBudget",
                    "message": "The disruption budget web needs 5 healthy pods and has 5 currently",
                }
            ]
        },
    }
    answer, asked = _evict(lambda _, stage: stage.answer(status, 429, {"Retry-After": "10"}))
    assert answer == EvictionAnswer(
        EvictionResult.BLOCKED, "The disruption budget web needs 5 healthy pods and has 5 currently", 10.0
    )
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("status", "reason", "message", "result"),
    [
        (404, "NotFound", 'pods "web-1" not found', EvictionResult.GONE),
        (
            409,
            "Conflict",
            "the UID in the precondition (a) does not match the UID in record (b).",
            EvictionResult.GONE,
        ),
        (
            409,
            "Conflict",
            "Precondition failed: UID in precondition: a, UID in object meta: b",
            EvictionResult.GONE,
        ),
        (
            500,
            "",
            "This pod has more than one PodDisruptionBudget, which the subresource does not support.",
            EvictionResult.REFUSED,
        ),
        (403, "Forbidden", 'cannot create resource "pods/eviction"', EvictionResult.FORBIDDEN),
        (400, "BadRequest", "name in URL does not match name in Eviction object", EvictionResult.REFUSED),
        (422, "Invalid", "invalid", EvictionResult.REFUSED),
        (429, "TooManyRequests", "too many requests, please try again later", EvictionResult.BLOCKED),
    ],
)
def test_each_refusal_has_its_meaning(status: int, reason: str, message: str, result: EvictionResult) -> None:
    """And keeps the server's words; none is asked twice."""
    answer, asked = _evict(lambda _, stage: stage.refuse(status, reason, message))
    assert answer.result is result
    assert answer.detail == message
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("status", "reason", "message"),
    [
        (500, "InternalError", "etcdserver: request timed out"),
        (504, "Timeout", "couldn't update PodDisruptionBudget due to conflicts"),
        (503, "ServiceUnavailable", "apiserver is shutting down"),
        (409, "Conflict", "the object has been modified"),
        (404, "", "page not found"),
    ],
)
def test_an_answer_that_settles_nothing_is_unknown(status: int, reason: str, message: str) -> None:
    """It may or may not have been done, so it raises; and it is not asked again."""
    asked: list[Asked] = []

    def script(request: Asked, stage: Stage) -> None:
        asked.append(request)
        stage.refuse(status, reason, message)

    with pytest.raises(ApiError):
        _evict(script)
    assert len(asked) == 1


@pytest.mark.parametrize("end", [Stage.cut, Stage.hang], ids=["cut", "silence"])
def test_silence_is_no_answer(end: object) -> None:
    """A lost answer raises, and the order is not given a second time."""
    asked: list[Asked] = []

    def script(request: Asked, stage: Stage) -> None:
        asked.append(request)
        end(stage)  # type: ignore[operator]

    from equipoise.adapters.kubernetes import Client
    from equipoise.adapters.kubernetes.client import Limits
    from tests.support.kubernetes.server import target_of

    with playing(script) as player:
        client = Client(target_of(player.url), limits=Limits(60.0, 2.0, 4.0), backoff=EAGER)
        with pytest.raises(Unreachable) as failure:
            KubernetesActuator(client).evict(POD)
        wait_until(lambda: asked, "the order, on a busy machine", 60)
        client.close()
    assert isinstance(failure.value, WorldFailed)
    assert len(asked) == 1

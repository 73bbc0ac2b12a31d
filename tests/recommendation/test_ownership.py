"""A pod's usage goes to the workload that made it, or to nobody."""

import msgspec
import pytest

from equipoise.recommendation.usage import PodOwnership
from tests.support.recommendation.clusters import pod, ref, workload

LONG = "a-service-with-a-name-that-is-longer-than-generated-names-may-be"
WEB, API, DB, ALONE, LENGTHY = (
    workload("web"),
    workload("web-api"),
    workload("db", "StatefulSet"),
    workload("alone", "ReplicaSet"),
    workload(LONG),
)


def _belonging() -> PodOwnership:
    return PodOwnership(
        [WEB, API, DB, ALONE, LENGTHY],
        [
            pod(WEB, "web-7c9f8b6d5-bcdfg"),
            pod(API, "web-api-6b8c9d7f5-hjklm", labels=(("app", "web-api"), ("pod-template-hash", "x"))),
            pod(DB, "db-0"),
            pod(ALONE, "alone-bcdfg"),
            pod(WEB, "web-5d4c8b6f9-bcdfg", labels=(("app", "another"),)),
            pod(WEB, "job-bcdfg", owner=None),
        ],
    )


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("web-7c9f8b6d5-bcdfg", ref("web")),
        ("web-7c9f8b6d5-zzzzz", ref("web")),
        ("web-9d8c7b6f5-zzzzz", ref("web")),
        ("web-api-6b8c9d7f5-hjklm", ref("web-api")),
        ("web-api-9d8c7b6f5-zzzzz", ref("web-api")),
        ("db-0", ref("db", "StatefulSet")),
        ("db-17", ref("db", "StatefulSet")),
        ("db-017", None),
        ("alone-zzzzz", ref("alone", "ReplicaSet")),
        ("web-5d4c8b6f9-bcdfg", None),
        ("web-5d4c8b6f9-zzzzz", None),
        ("job-bcdfg", None),
        ("web-9d8c7b6f5-aeiou", None),
        ("web-bcdfg", None),
        ("shop-9d8c7b6f5-zzzzz", None),
        ("web", None),
        ("", None),
    ],
)
def test_a_pod_belongs_by_its_owner_and_when_gone_by_its_name(name: str, owner: object) -> None:
    """What lives by what the API server says; letters that Kubernetes never draws are no such name."""
    assert _belonging().of("shop", name) == owner
    assert _belonging().of("elsewhere", name) is None


def test_a_replica_set_that_was_adopted_belongs_by_its_labels() -> None:
    """Its name tells nothing; where two Deployments select its pods, nobody knows."""
    adopted = pod(WEB, "old-name-bcdfg")
    belonging = PodOwnership([WEB, API], [adopted])
    assert belonging.of("shop", "old-name-bcdfg") == ref("web")
    assert belonging.of("shop", "old-name-zzzzz") == ref("web")
    assert belonging.pods == {ref("web"): [adopted]}
    with_own_connections = msgspec.structs.replace(API, selector=WEB.selector)
    assert PodOwnership([WEB, with_own_connections], [adopted]).of("shop", "old-name-bcdfg") is None


def test_where_two_may_be_meant_it_is_nobodys() -> None:
    """A ReplicaSet of one's own may be called like a Deployment's."""
    both = PodOwnership([WEB, workload("web-bcd", "ReplicaSet")], [])
    assert both.of("shop", "web-bcd-zzzzz") is None
    assert both.of("shop", "web-bcf-zzzzz") == ref("web")


def test_owners_that_are_told_win_over_names() -> None:
    """A Rollout's pods look like a Deployment's; a name that was cut tells nothing by itself."""
    belonging = _belonging()
    cut = f"{LONG}-9d8c7b6f5-"[:58] + "zzzzz"
    assert belonging.guessed(["shop"] * 2, ["web-9d8c7b6f5-zzzzz", "db-1"]) == {"shop"}
    assert belonging.guessed(["a", "b", "shop"], [cut, "db-1", "web-7c9f8b6d5-zzzzz"]) == {"a"}
    assert belonging.of("shop", cut) is None
    belonging.learn(
        {
            ("shop", "web-9d8c7b6f5"): ("Rollout", "web"),
            ("shop", f"{LONG}-9d8c7b6f5"): ("Deployment", LONG),
            ("shop", "odd"): ("Deployment", "web"),
            ("shop", "alone"): ("<none>", "<none>"),
        }
    )
    assert belonging.of("shop", "web-9d8c7b6f5-zzzzz") is None
    assert belonging.of("shop", cut) == ref(LONG)
    assert belonging.of("shop", "odd-zzzzz") == ref("web")
    assert belonging.of("shop", "alone-zzzzz") == ref("alone", "ReplicaSet")
    assert belonging.guessed(["shop"], ["web-9d8c7b6f5-zzzzz"]) == set()

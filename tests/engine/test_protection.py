"""Who is left alone: annotations in every spelling, kinds, and pods that are never evicted."""

from typing import Any

import pytest

from equipoise.core.cluster import Owner, Pod
from equipoise.core.reason import Code
from equipoise.engine.disruption import held_by_kind, opted_out_by, protection_of

ROTATE = "equipoise.dev/rotate"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"


@pytest.mark.parametrize(
    ("key", "value", "is_out"),
    [
        (ROTATE, "false", True),
        (ROTATE, " False ", True),
        (ROTATE, "true", False),
        (ROTATE, "", False),
        (ROTATE, "maybe", False),
        ("equipoise.dev/do-not-disrupt", "true", True),
        ("equipoise.dev/do-not-disrupt", "", True),
        ("equipoise.dev/do-not-disrupt", "false", False),
        ("karpenter.sh/do-not-disrupt", "true", True),
        ("karpenter.sh/do-not-disrupt", "FALSE", False),
        ("karpenter.sh/do-not-evict", "true", True),
        ("descheduler.alpha.kubernetes.io/prefer-no-eviction", "", True),
        ("descheduler.alpha.kubernetes.io/evict", "false", True),
        ("descheduler.alpha.kubernetes.io/evict", "true", False),
        ("descheduler.alpha.kubernetes.io/evict", "", False),
        (SAFE, "false", True),
        (SAFE, "true", False),
        ("example.com/do-not-disrupt", "true", False),
    ],
)
def test_every_spelling_of_leave_me_alone_is_understood(key: str, value: str, is_out: bool) -> None:
    """Ours, the descheduler's, Karpenter's and the cluster autoscaler's; the answer quotes the annotation."""
    assert opted_out_by(((key, value),)) == (f"{key}={value}" if is_out else "")


@pytest.mark.parametrize(
    "key",
    [
        "equipoise.dev/do-not-disrupt",
        "karpenter.sh/do-not-disrupt",
        "karpenter.sh/do-not-evict",
        "descheduler.alpha.kubernetes.io/prefer-no-eviction",
    ],
)
def test_our_own_annotation_says_the_last_word(key: str) -> None:
    """What was meant for other tools is overruled by `rotate: "true"`, in any case of letters."""
    assert opted_out_by(((key, "true"), (ROTATE, "True"))) == ""
    assert opted_out_by(((key, "true"), (ROTATE, "yes"))) == f"{key}=true"
    assert opted_out_by(((SAFE, "false"), (ROTATE, "true"))) == ""


def test_no_annotation_asks_for_nothing() -> None:
    """Nor do others'."""
    assert opted_out_by(()) == ""
    assert opted_out_by((("a", "b"),)) == ""


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "Rollout"])
def test_only_stateful_sets_need_to_be_asked_for(kind: str) -> None:
    """The same identity would come back with the same share of the load."""
    assert held_by_kind(kind, includes_stateful_sets=False) is None
    assert held_by_kind("StatefulSet", includes_stateful_sets=True) is None
    reason = held_by_kind("StatefulSet", includes_stateful_sets=False)
    assert reason is not None
    assert reason.code is Code.OPTED_OUT


def _pod(**changes: Any) -> Pod:
    fields: dict[str, Any] = {
        "namespace": "shop",
        "name": "web-1",
        "uid": "u",
        "resource_version": "1",
        "node": "n1",
        "phase": "Running",
        "is_ready": True,
        "ready_since": 0.0,
        "created_at": 0.0,
        "deletion_at": None,
        "owner": Owner("apps/v1", "ReplicaSet", "web", "rs"),
        "labels": (),
        "annotations": (),
        "containers": (),
        "restarts": 0,
        "restarted_at": None,
        "priority": 0,
        "priority_class": "",
        "qos_class": "Burstable",
        "has_local_storage": False,
        "is_mirror": False,
        "is_disruption_target": False,
    }
    return Pod(**(fields | changes))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"is_mirror": True}, "it is a static pod"),
        ({"owner": Owner("v1", "Node", "n1", "n")}, "it is a static pod"),
        ({"owner": None}, "no controller would replace it"),
        (
            {"owner": Owner("apps/v1", "DaemonSet", "d", "d")},
            "its DaemonSet would start it on the same node again",
        ),
        ({"priority": 2_000_000_000}, "its priority class is critical"),
        ({"priority": 1_999_999_999}, ""),
        ({"priority_class": "system-node-critical"}, "its priority class is critical"),
        ({"priority_class": "system-cluster-critical"}, "its priority class is critical"),
        ({"priority_class": "important"}, ""),
        ({"annotations": ((ROTATE, "false"),)}, "its annotation equipoise.dev/rotate=false excludes it"),
        ({"has_local_storage": True}, "it uses local storage"),
        ({"has_local_storage": True, "annotations": ((SAFE, "true"),)}, ""),
        ({"has_local_storage": True, "annotations": ((ROTATE, "true"),)}, ""),
        ({"has_local_storage": True, "annotations": ((SAFE, "yes"),)}, "it uses local storage"),
        ({"annotations": ((ROTATE, "true"),), "owner": None}, "no controller would replace it"),
        ({"annotations": ((ROTATE, "true"),), "priority": 2**31 - 1}, "its priority class is critical"),
    ],
    ids=str,
)
def test_a_pod_is_protected_for_the_first_reason_there_is(changes: dict[str, Any], why: str) -> None:
    """No annotation makes a pod evictable that nobody would replace."""
    assert protection_of(_pod(**changes), includes_local_storage=False) == why


def test_local_storage_may_be_included_and_nothing_else_with_it() -> None:
    """The policy's `includeLocalStorage` is about volumes only."""
    assert protection_of(_pod(has_local_storage=True), includes_local_storage=True) == ""
    for changes in ({"owner": None}, {"priority": 2**31 - 1}, {"annotations": ((SAFE, "false"),)}):
        assert protection_of(_pod(has_local_storage=True, **changes), includes_local_storage=True)

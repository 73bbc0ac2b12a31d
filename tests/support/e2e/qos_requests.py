"""What the operator does for the kinds of the node agents, done once as a release's account."""

from dataclasses import replace

import pytest

from equipoise.adapters.kubernetes import KubernetesCluster
from equipoise.adapters.kubernetes.policies import ListedPolicies
from equipoise.ports import StoreConflict
from equipoise.qos.status import QOS_KINDS, QosStatusLoop
from tests.support.e2e.operator_requests import Release
from tests.support.qos.worlds import EVICT, pod_qos, policy, rule
from tests.testbed.api import ApiError

CPU = rule("cpu_total_usage", 6000, "evict", "cpu")
BUSY = policy(CPU, name="busy")
LATER = BUSY | {"kind": "NodeQOS", "metadata": {"name": "later"}, "spec": {"rules": [CPU]}}
ALLOWED = pod_qos("batch", labelSelector={}, allowedActions=["evict"])


class Leader:
    """Always leads."""

    def epoch(self) -> int | None:
        return 1


def write_statuses(release: Release) -> None:
    """Ask for something of each kind, and have its status written; the specs are not the operator's."""
    release.plane.apply([BUSY, LATER, EVICT, ALLOWED])
    listed = ListedPolicies(release.client, QOS_KINDS)
    loop = QosStatusLoop(listed, KubernetesCluster(release.client), Leader())
    report = loop.cycle(release.client.world.clock())
    assert (list(report.warnings), report.failed_turns) == ([], [])
    found = listed.policies()
    assert {one.ref.kind for one in found} == {kind.name for kind in QOS_KINDS}
    for one in found:
        assert one.status["summary"]
        gone = replace(one, ref=one.ref._replace(name="gone"))
        with pytest.raises(StoreConflict):
            listed.write_status(gone, {})
        kind = next(kind for kind in QOS_KINDS if kind.name == one.ref.kind)
        path = f"/apis/{kind.api_version}/{kind.plural}/{one.ref.name}"
        with pytest.raises(ApiError, match="403"):
            release.api.patch(path, {"spec": {}})

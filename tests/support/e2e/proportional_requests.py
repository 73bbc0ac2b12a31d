"""What proportional scaling does to a cluster, done once with its own adapters, as a release's account."""

from typing import Any

import pytest

from equipoise.adapters.kubernetes import ApiError, KubernetesCluster
from equipoise.adapters.kubernetes.kinds import WORKLOADS
from equipoise.adapters.kubernetes.policies import KubernetesPolicies
from equipoise.adapters.kubernetes.reflector import Reflector
from equipoise.adapters.kubernetes.sizes import CachedSizes
from equipoise.core.cluster import ObjectRef, WorkloadRef
from equipoise.ports.actions import ResizeResult
from equipoise.proportional.status import SCALING_POLICY
from tests.support.e2e.operator_requests import SHOP, SYNC_SECONDS, Release
from tests.testbed import ControlPlane, wait_until

SCALING_POLICIES = f"/apis/scalingpolicy.kope.io/v1alpha1/namespaces/{SHOP}/scalingpolicies"
VALUES = {"app": {"requests": {"cpu": "200m"}}}


def make_scaling_policy(plane: ControlPlane, name: str) -> None:
    """Ask for the container of `web` to follow the nodes."""
    rule = {"resource": "cpu", "function": {"input": "nodes", "base": "100m", "slope": "10m"}}
    plane.apply(
        {
            "apiVersion": "scalingpolicy.kope.io/v1alpha1",
            "kind": "ScalingPolicy",
            "metadata": {"name": name, "namespace": SHOP},
            "spec": {
                "scaleTargetRef": {"kind": "Deployment", "name": "web"},
                "containers": [{"name": "app", "resources": {"requests": [rule]}}],
            },
        }
    )


def is_scaled(release: Release, name: str) -> bool:
    """Whether the policy was answered."""
    return "conditions" in release.plane.api.get(f"{SCALING_POLICIES}/{name}").get("status", {})


def scale(release: Release, namespace: str | None = None) -> None:
    """See policies, DaemonSets and VPAs, and answer a policy twice against the same version."""
    name, kind = f"{release.name}-scaling", SCALING_POLICY
    make_scaling_policy(release.plane, name)
    policies = KubernetesPolicies(release.client, kind)
    places = [namespace] if namespace else []
    sizes = CachedSizes(release.client, KubernetesCluster(release.client), places)
    reflectors: list[Reflector[Any]] = [policies.reflector, *sizes.reflectors.values()]
    for reflector in reflectors:
        reflector.start()
    try:
        wait_until(
            lambda: all(one.synced.is_set() and one.counters.watches for one in reflectors),
            "policies and DaemonSets watched",
            SYNC_SECONDS,
        )
        assert sizes.workload(WorkloadRef("apps/v1", "DaemonSet", SHOP, "absent")) is None
        (policy,) = [one for one in policies.policies() if one.ref.name == name]
    finally:
        for reflector in reflectors:
            reflector.stop()
    assert sizes.advised() == {}
    assert sizes.offers_resize()
    for _ in range(2):  # as after a lost answer: it reads what is there
        policies.write_status(policy, {"observedGeneration": 1})


def resize(release: Release) -> None:
    """Change a pod in place that no node has yet, and every kind of template, of which one is there."""
    scale(release)
    sizes = CachedSizes(release.client, KubernetesCluster(release.client))
    pod = release.pod()
    assert sizes.resize(pod, VALUES, is_dry_run=True).result is ResizeResult.ACCEPTED
    assert sizes.setter_of(ObjectRef("v1", "Pod", SHOP, pod.name), "app", "requests", "cpu")
    web = release.plane.api.get(f"/apis/apps/v1/namespaces/{SHOP}/deployments/web")["metadata"]
    for kind in WORKLOADS:
        about = ObjectRef("apps/v1", kind, SHOP, "web", web["uid"])
        answer = sizes.set_template(about, VALUES, is_dry_run=True)
        assert answer.result is (ResizeResult.ACCEPTED if kind == "Deployment" else ResizeResult.GONE)
        if kind == "Deployment":
            assert sizes.setter_of(about, "app", "requests", "cpu")
        else:
            with pytest.raises(ApiError, match="404"):
                sizes.setter_of(about, "app", "requests", "cpu")

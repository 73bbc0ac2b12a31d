"""Pauses by KEDA's annotations on a real API server: with the kind, without it, and without rights."""

from collections.abc import Iterator

import pytest

from equipoise.adapters.kubernetes import Client, KubernetesCluster, connect
from equipoise.adapters.kubernetes.errors import RightMissing
from equipoise.core.cluster import WorkloadRef
from tests.support.contracts.keda import install_scaled_objects, remove_scaled_objects, scaled_object
from tests.support.contracts.real import session_of
from tests.support.e2e.accounts import account_with
from tests.testbed import ControlPlane

PAUSED = {"autoscaling.keda.sh/paused": "true"}


@pytest.fixture
def client(control_plane: ControlPlane) -> Iterator[Client]:
    """A session with all rights."""
    client = session_of(control_plane)
    yield client
    client.close()


@pytest.fixture
def stranger(control_plane: ControlPlane, namespace: str) -> Iterator[Client]:
    """A session without any right."""
    with account_with(control_plane, namespace, "stranger", []) as token:
        client = connect(str(control_plane.kubeconfig_for("stranger", {"token": token})), environment={})
        yield client
        client.close()


def test_without_the_kind_nothing_is_paused_and_no_right_is_missed(
    control_plane: ControlPlane, client: Client, stranger: Client, namespace: str
) -> None:
    """Most clusters have no KEDA, and most people no right to a kind that is not there."""
    remove_scaled_objects(control_plane)
    for someone in (client, stranger):
        assert KubernetesCluster(someone).autoscaler_pauses() == {}
        assert KubernetesCluster(someone).autoscaler_pauses(namespace) == {}


def test_with_the_kind_the_missing_right_is_named(
    control_plane: ControlPlane, client: Client, stranger: Client, namespace: str
) -> None:
    """Unknown is not unpaused."""
    install_scaled_objects(control_plane)
    assert KubernetesCluster(client).autoscaler_pauses(namespace) == {}
    with pytest.raises(RightMissing, match=rf"list scaledobjects\.keda\.sh in namespace {namespace}"):
        KubernetesCluster(stranger).autoscaler_pauses(namespace)


def test_an_odd_scaled_object_hides_nobodys_pause(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    """It is a warning; the rest is told, by the names that lists give."""
    install_scaled_objects(control_plane)
    web = WorkloadRef("apps/v1", "Deployment", namespace, "web")
    odd = scaled_object(web._replace(name="odd"), PAUSED) | {"spec": {"scaleTargetRef": {"name": 7}}}
    stateful = scaled_object(web._replace(name="db"), {"autoscaling.keda.sh/paused-replicas": "2"})
    stateful["spec"]["scaleTargetRef"] |= {"apiVersion": "apps/v1beta1", "kind": "StatefulSet"}
    active = scaled_object(web._replace(name="active"), {"autoscaling.keda.sh/paused": "false"})
    control_plane.apply([odd, scaled_object(web, PAUSED), stateful, active])
    cluster = KubernetesCluster(client)
    assert cluster.autoscaler_pauses(namespace) == {
        web: f"ScaledObject {namespace}/web is paused by autoscaling.keda.sh/paused",
        web._replace(kind="StatefulSet", name="db"): (
            f"ScaledObject {namespace}/db is paused by autoscaling.keda.sh/paused-replicas"
        ),
    }
    assert cluster.warnings == (f"a ScaledObject that cannot be read: 1 times, first in {namespace}/odd",)

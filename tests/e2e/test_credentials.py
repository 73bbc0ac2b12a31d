"""Every way to be somebody to a real API server: a pod's own account, plugins, tokens."""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest

from equipoise.adapters.kubernetes import ApiError, Client, KubernetesCluster
from equipoise.adapters.kubernetes.kubeconfig import find_target
from equipoise.adapters.metrics_server import ResourceMetrics, ResourceMetricsAbsent
from equipoise.ports import CpuUsage
from equipoise.rotation.policy import RotationPolicy
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.accounts import account_with, credential, signed_token, write_plugin
from tests.support.e2e.read_only import READ_ONLY
from tests.support.rotation.tenants import plan_alone
from tests.testbed import ControlPlane, Kwok, wait_until
from tests.testbed.scenes import SIX_LOADS, six_pods


class Loads:
    """A source that knows the six loads, so that only the cluster's side is under test."""

    def __init__(self, loads: dict[str, float]) -> None:
        self._loads = loads

    def cpu_usage(
        self, pods_by_namespace: Mapping[str, Sequence[str]], at: float, window_seconds: float
    ) -> CpuUsage:
        (namespace,) = pods_by_namespace
        count = len(self._loads)
        return CpuUsage(
            namespaces=[namespace] * count,
            pods=list(self._loads),
            containers=["app"] * count,
            cores=np.array(list(self._loads.values())),
            sampled_at=np.full(count, at),
            window_seconds=window_seconds,
            source="the test",
        )

    def scalar(self, query: str, at: float) -> float | None:
        del query, at
        return None


@pytest.fixture
def account_folder(control_plane: ControlPlane, namespace: str, tmp_path: Path) -> Iterator[Path]:
    """What a pod finds in its service account's folder, with rights to read only."""
    with account_with(control_plane, namespace, "reader", READ_ONLY) as token:
        (tmp_path / "token").write_text(token)
        (tmp_path / "ca.crt").write_bytes(control_plane.ca.read_bytes())
        (tmp_path / "namespace").write_text(namespace)
        yield tmp_path


def _in_a_pod(control_plane: ControlPlane, folder: Path) -> Client:
    address = urlsplit(control_plane.server)
    environment = {
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT": str(address.port),
    }
    return Client(find_target(environment=environment, service_account_folder=folder))


def test_a_pods_own_account_with_read_only_rights_is_enough_for_a_plan(
    control_plane: ControlPlane, kwok: Kwok, namespace: str, account_folder: Path
) -> None:
    """The rights that the doctor names, and no more, give the whole plan."""
    six = six_pods(control_plane, kwok, namespace=namespace)
    source = Loads(dict(zip(six.values(), SIX_LOADS, strict=True)))
    policy = RotationPolicy.model_validate({"minPodAge": "0s"})
    with closing(_in_a_pod(control_plane, account_folder)) as client:
        assert client.namespace == namespace
        (decision,) = plan_alone(policy, KubernetesCluster(client), source, time.time(), client.namespace)
        assert [action.pod for action in decision.actions] == [six["A"]]
        assert [held.action.pod for held in decision.held] == [six[letter] for letter in "BFE"]
        with pytest.raises(ApiError, match="403 Forbidden"):
            client.delete(f"/api/v1/namespaces/{namespace}/pods/{six['A']}")
        with pytest.raises((ApiError, ResourceMetricsAbsent)):
            ResourceMetrics(client).cpu_usage({namespace: list(six.values())}, time.time(), 60)


def test_a_rotated_token_is_taken_up_by_the_running_session(
    control_plane: ControlPlane, namespace: str, account_folder: Path
) -> None:
    """An expired token in the file is refused; the file is rewritten; the same session works again."""
    good = (account_folder / "token").read_text()
    old = signed_token(control_plane, namespace, "reader", lives_seconds=-60)
    (account_folder / "token").write_text(old)
    with closing(_in_a_pod(control_plane, account_folder)) as client:
        cluster = KubernetesCluster(client)
        with pytest.raises(ApiError, match="401"):
            cluster.pods(namespace)
        (account_folder / "token").write_text(good)
        assert list(cluster.pods(namespace)) == []


def test_a_token_that_we_sign_is_good_until_it_expires(
    control_plane: ControlPlane, namespace: str, account_folder: Path
) -> None:
    """The instrument: the same signature, with time left, is accepted."""
    (account_folder / "token").write_text(signed_token(control_plane, namespace, "reader", lives_seconds=600))
    with closing(_in_a_pod(control_plane, account_folder)) as client:
        assert list(KubernetesCluster(client).pods(namespace)) == []


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
@pytest.mark.parametrize("kind", ["token", "certificate"])
def test_a_plugin_gives_a_credential_that_the_server_takes(
    control_plane: ControlPlane, namespace: str, tmp_path: Path, version: str, kind: str
) -> None:
    """Both versions of the protocol, both kinds of credential, through the command."""
    if kind == "certificate":
        pair = control_plane.admin
        status = {
            "clientCertificateData": pair.certificate.read_text(),
            "clientKeyData": pair.key.read_text(),
        }
        rules = []
    else:
        status, rules = {}, READ_ONLY
    with account_with(control_plane, namespace, "plugged", rules) as token:
        said = credential(version, **(status or {"token": token}))
        config = control_plane.kubeconfig_for(
            f"{namespace}-plugged", {"exec": write_plugin(tmp_path, said, version)}
        )
        done = equipoise(
            *("rotation", "plan", "-n", namespace, "-o", "json", "--metrics-from", "metrics-server"),
            *("--kubeconfig", str(config)),
        )
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("warning: no workload with an HPA was found")
    assert json.loads(done.stdout) == {"balancer": "rotation", "decisions": []}


def test_a_plugin_is_asked_again_when_its_token_is_refused(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    """The first token has expired on the server's side; the second call of the plugin mends it."""
    with account_with(control_plane, namespace, "renewed", READ_ONLY) as token:
        old = signed_token(control_plane, namespace, "renewed", lives_seconds=-60)
        entry = write_plugin(tmp_path, credential("v1", token=old), "v1")
        config = control_plane.kubeconfig_for(f"{namespace}-renewed", {"exec": entry})
        with closing(Client(find_target(str(config)))) as client:
            cluster = KubernetesCluster(client)
            with pytest.raises(ApiError, match="401"):
                cluster.pods(namespace)
            write_plugin(tmp_path, credential("v1", token=token), "v1")
            wait_until(lambda: cluster.pods(namespace) == [], "the plugin's new token to be used", 60)

"""The chart with pools, by the real Helm: what is rendered is accepted, understood and allowed."""

import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

from equipoise.adapters.kubernetes import ApiError, connect
from equipoise.adapters.kubernetes.cluster import KubernetesSelectedPods
from equipoise.cli.main import main
from equipoise.runtime.layers import effective
from tests.support.e2e.charts import CHART, Helm, Values, rights_given
from tests.testbed import ControlPlane, wait_until
from tests.testbed.parts import KUBERNETES

VALUES: Values = {
    "config": {"namespaces": ["kube-public"], "pools": {"lossMax": 0.5}},
    "pools": {
        "enabled": True,
        "mode": "Enforce",
        "namespace": "default",
        "selector": "app=voice-agent",
        "redis": {"secret": "redis"},
        "acceptEviction": True,
        "serve": {"tokenSecret": "callers"},
    },
}
LACKING = {
    "pools.selector": {"pools": {"enabled": True, "redis": {"secret": "r"}, "serve": {"tokenSecret": "t"}}},
    "pools.redis.secret": {"pools": {"enabled": True, "selector": "a=b", "serve": {"tokenSecret": "t"}}},
    "pools.serve.tokenSecret": {"pools": {"enabled": True, "selector": "a=b", "redis": {"secret": "r"}}},
    "servee": {"pools": {"servee": {}}},
    "redisUrl": {"config": {"pools": {"redisUrl": "redis://:secret@tiers"}}},
}


def test_what_is_rendered_is_accepted_and_understood(
    helm: Helm,
    control_plane: ControlPlane,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """By Helm, by the API server, by the operator's settings and by the command that serves."""
    linted = helm.lint(VALUES)
    assert linted.returncode == 0, linted.stdout + linted.stderr
    objects = helm.template(namespace, VALUES)
    said = control_plane.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-",
        stdin=yaml.safe_dump_all(objects),
    )  # fmt: skip
    assert len(said.splitlines()) == len(objects)
    file = tmp_path / "config.yaml"
    config = next(each for each in objects if each["kind"] == "ConfigMap")
    file.write_text(config["data"]["config.yaml"])
    settings = effective(str(file), {}, {}).settings
    assert "pools" in settings.balancers
    asked = settings.pools
    assert (asked.mode.value, asked.namespace, asked.selector) == ("Enforce", "default", "app=voice-agent")
    assert (asked.redis_url_file, asked.loss_max) == ("/etc/equipoise-redis/url", 0.5)
    assert asked.accept_eviction
    container = _serving(objects)
    assert "--accept-eviction" in container["args"]
    assert "secret" not in yaml.safe_dump(config)
    # Its flags are known: the first thing that is missing is the file of the tokens.
    monkeypatch.setattr(sys, "argv", [*container["command"], *container["args"]])
    monkeypatch.setattr("equipoise.runtime.runner.end_on_signals", lambda: None)
    with pytest.raises(SystemExit):
        main()
    assert "--token-file /etc/equipoise-token/token: No such file" in capsys.readouterr().err


def _serving(objects: list[dict[str, Any]]) -> dict[str, Any]:
    deployment = next(
        each
        for each in objects
        if each["kind"] == "Deployment" and each["metadata"]["name"].endswith("-pools")
    )
    spec = deployment["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    container: dict[str, Any] = spec["containers"][0]
    return container


def test_an_operator_for_pools_alone_may_see_no_workload(helm: Helm) -> None:
    """Pauses everywhere, the pods of the tiers, its Lease; no other balancer is there to need more."""
    others = ("rotation", "recommendation", "proportional")
    objects = helm.template("balance", {**VALUES, **{name: {"enabled": False} for name in others}})
    given = {right[1:] for right in rights_given(objects, "equipoise")}
    assert given == {("", "namespaces"), ("", "pods"), ("coordination.k8s.io", "leases")}
    (pods,) = [one for one in objects if any("pods" in rule["resources"] for rule in one.get("rules", ()))]
    assert (pods["kind"], pods["metadata"]["namespace"]) == ("Role", "default")


@pytest.mark.parametrize(("named", "values"), LACKING.items(), ids=LACKING)
def test_what_is_missing_or_misspelt_is_named(helm: Helm, named: str, values: Values) -> None:
    """Nothing is rendered."""
    done = helm.run("template", "equipoise", str(CHART), f"--kube-version={KUBERNETES}", values=values)
    assert (done.returncode != 0, done.stdout) == (True, "")
    assert named in done.stderr


def test_pods_are_read_where_the_tiers_are_and_nowhere_else(
    helm: Helm, control_plane: ControlPlane, namespace: str
) -> None:
    """List, watch and get in one namespace: all of these are used, and there are no others."""
    release = f"r{namespace.removeprefix('test-')}"
    values = {**VALUES, "pools": {**VALUES["pools"], "namespace": namespace}}
    helm.install(control_plane, release, namespace, values)
    try:
        token = control_plane.token(namespace, f"{release}-equipoise")
        kubeconfig = control_plane.kubeconfig_for(release, {"token": token})
        with closing(connect(str(kubeconfig))) as client:
            wait_until(lambda: client.can_i("get", "", "pods", namespace=namespace), "the roles in force", 60)
            pods = KubernetesSelectedPods(client, namespace, "app=voice-agent")
            pods.reflector.start()
            try:
                wait_until(lambda: pods.reflector.counters.watches, "the pods watched", 60)
                assert pods.pods() == []
                assert pods.is_gone("agent-0", "u")
            finally:
                assert pods.reflector.stop(60)
            with pytest.raises(ApiError, match="403"):
                client.get("/api/v1/namespaces/default/pods")
    finally:
        helm.uninstall(control_plane, release, namespace)

"""A split release under exactly the chart's roles: each operator runs, with its own account and Lease."""

import json
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import yaml

from equipoise.runtime.layers import effective
from equipoise.runtime.operator.wiring import prometheus_options
from tests.support.e2e.charts import Helm, Right, Values, rights_given, rights_used, wait_for_rights
from tests.testbed import ControlPlane, StartPrometheus, free_port, wait_until
from tests.testbed.processes import is_answering
from tests.testbed.scenes import namespaced

RENEWAL: Right = ("update", "coordination.k8s.io", "leases")
SPLIT: Values = {
    "split": True,
    "rotation": {"evict": True},
    "recommendation": {"annotate": True, "apply": True},
    "proportional": {"resize": True, "rollout": True},
    "agent": {"enabled": True},
}


def test_each_operator_of_a_split_release_runs_under_its_own_rights(
    audited: ControlPlane, helm: Helm, start_prometheus: StartPrometheus, tmp_path: Path
) -> None:
    """Three processes, three accounts, three Leases: each gets ready, and is refused nothing."""
    namespace, url = "apart-system", start_prometheus().url
    audited.apply(namespaced(namespace))
    helm.install(audited, "apart", namespace, SPLIT)
    objects = helm.template(namespace, SPLIT, release="apart")
    with ExitStack() as stack:
        started = {}
        for balancer in ("rotation", "recommendation", "proportional"):
            account = f"apart-equipoise-{balancer}-operator"
            (config,) = [
                one["data"]["config.yaml"]
                for one in objects
                if (one["kind"], one["metadata"]["name"]) == ("ConfigMap", account)
            ]
            file = tmp_path / f"{balancer}.yaml"
            file.write_text(config)
            wait_for_rights(audited, namespace, account, objects)
            token = audited.token(namespace, account)
            flags = {
                "config": file,
                "kubeconfig": audited.kubeconfig_for(account, {"token": token}),
                "http-address": f"127.0.0.1:{free_port()}",
                "metrics-from": "prometheus",
                "prometheus-url": url,
                "set": f"journal.path={tmp_path / balancer}.db",
            }
            words = [f"--{name}={value}" for name, value in flags.items()]
            words.append("--set=lease.retrySeconds=0.5")  # so that it is soon renewed
            log = stack.enter_context((tmp_path / f"{balancer}.log").open("w"))
            program = [sys.executable, "-c", "from equipoise.cli.main import main; main()", "operator"]
            process = subprocess.Popen([*program, *words], stdout=log, stderr=log)
            stack.callback(process.wait, 60)
            stack.callback(process.terminate)
            started[account] = (flags["http-address"], log.name)
        for account, (address, log_name) in started.items():
            wait_until(partial(is_answering, f"http://{address}/readyz"), f"readiness: {log_name}", 300)
            wait_until(partial(_is_renewed, audited, namespace, account), f"the Lease of {account}", 60)
    for account, (_, log_name) in started.items():
        assert rights_used(audited.folder, namespace, account) <= rights_given(objects, account)
        assert rights_used(audited.folder, namespace, account, "forbid") == set(), Path(log_name).read_text()


def _is_renewed(plane: ControlPlane, namespace: str, account: str) -> bool:
    """Whether an account has its own Lease, and has renewed it."""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{account}"
    return plane.api.answers(path) and RENEWAL in rights_used(plane.folder, namespace, account)


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize(
    ("named", "namespaces"),
    [({}, {"monitoring", "balance"}), ({"namespaces": ["observability"]}, {"observability"})],
)
def test_services_are_asked_only_where_a_prometheus_is_looked_for(
    helm: Helm, tmp_path: Path, named: Values, namespaces: set[str], is_split: bool
) -> None:
    """The roles are in the namespaces that the operator itself looks into, and no other role lets it ask."""
    values = {"prometheus": {"discover": True}, "config": {"prometheus": named}, "split": is_split}
    objects = helm.template("balance", values)
    asking = [role for role in objects if "services/proxy" in json.dumps(role.get("rules", []))]
    assert {role["kind"] for role in asking} == {"Role"}
    for balancer in ("rotation-operator", "recommendation-operator") if is_split else ("runtime",):
        found = [role for role in asking if balancer in role["metadata"]["name"]]
        assert {role["metadata"]["namespace"] for role in found} == namespaces
    file = tmp_path / "config.yaml"
    file.write_text(
        next(one["data"]["config.yaml"] for one in objects if "config.yaml" in one.get("data", ()))
    )
    settings = effective(str(file), {}, {}).settings
    assert settings.lease.namespace == "balance"
    assert set(prometheus_options(settings.prometheus, "balance").namespaces) == namespaces


@pytest.mark.parametrize(
    ("values", "role"),
    [
        ({}, None),
        ({"agent": {"enabled": True}}, "equipoise-runtime"),
        ({"agent": {"enabled": True}, "split": True}, "equipoise-rotation-operator"),
        (
            {"agent": {"enabled": True}, "split": True, "rotation": {"enabled": False}},
            "equipoise-recommendation-operator",
        ),
    ],
)
def test_one_operator_writes_the_status_of_the_agents_kinds(
    helm: Helm, values: Values, role: str | None
) -> None:
    """The one that has the right to; without agents, none."""
    objects = helm.template("balance", values)
    roles = [
        each["metadata"]["name"]
        for each in objects
        for rule in each.get("rules", ())
        if "podqoss/status" in rule["resources"]
    ]
    configs = [
        yaml.safe_load(each["data"]["config.yaml"])
        for each in objects
        if each["kind"] == "ConfigMap" and "config.yaml" in each["data"]
    ]
    writers = [config["balancers"][0] for config in configs if config["qos"]["statuses"]]
    assert roles == ([] if role is None else [role])
    assert len(writers) == len(roles)
    assert all(
        f"-{writer}-" in name or name.endswith("-runtime")
        for writer, name in zip(writers, roles, strict=True)
    )

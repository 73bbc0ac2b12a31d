"""The chart by the real Helm: it renders, mistakes are refused, and the real API server accepts it."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from equipoise.runtime.layers import effective
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.charts import CHART, MONITORING, Helm, Values, rights_given
from tests.testbed import ControlPlane, wait_until
from tests.testbed.parts import KUBERNETES
from tests.testbed.scenes import namespaced

DEFAULT: Values = {}
ALL_ON: Values = {
    "replicaCount": 3,
    "image": {"repository": "example.test/equipoise", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
    "imagePullSecrets": [{"name": "pull"}],
    "config": {
        "lease": {"durationSeconds": 30, "renewSeconds": 20, "retrySeconds": 5},
        "logs": {"level": "debug", "format": "json"},
        "journal": {"ageMax": "3d", "bytesMax": "128Mi"},
        "disruption": {"clusterMax": 4},
        "intervals": {"rotation": "1m"},
        "stopSeconds": 44.5,
    },
    "rotation": {"evict": True},
    "prometheus": {"discover": True},
    "scalableKinds": [{"apiGroup": "", "resource": "replicationcontrollers"}],
    "serviceAccount": {"annotations": {"example.test/role": "reader"}},
    "service": {"annotations": {"prometheus.io/scrape": "true"}},
    "port": 9091,
    "podAnnotations": {"example.test/note": "yes"},
    "podLabels": {"team": "platform"},
    "nodeSelector": {"kubernetes.io/os": "linux"},
    "tolerations": [{"key": "infra", "operator": "Exists"}],
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {
                        "matchExpressions": [
                            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
                        ]
                    }
                ]
            }
        }
    },
    "topologySpreadConstraints": [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app.kubernetes.io/name": "equipoise"}},
        }
    ],
    "priorityClassName": "system-cluster-critical",
    "extraEnv": [{"name": "EQUIPOISE_LOGS_LEVEL", "value": "info"}],
    "extraArgs": ["--set=stopSeconds=44"],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "prometheus-ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/prometheus-ca", "readOnly": True}],
}
NARROW: Values = {
    "replicaCount": 1,
    "config": {"namespaces": ["default", "kube-public"], "prometheus": {"url": "http://prometheus:9090"}},
    "rotation": {"evict": True},
    "journal": {"enabled": False},
}
BARE: Values = {
    "rotation": {"enabled": False},
    "rbac": {"create": False},
    "serviceAccount": {"create": False, "name": "somebody"},
    "service": {"enabled": False},
    "podDisruptionBudget": {"enabled": False},
}
POOLS: Values = {
    "enabled": True,
    "selector": "app=voice-agent",
    "redis": {"secret": "redis"},
    "serve": {"tokenSecret": "callers"},
}
WATCHED: Values = {
    "config": {"prometheus": {"url": "https://prometheus.monitoring"}},
    "networkPolicy": {
        "enabled": True,
        "apiServer": {"cidrs": ["10.0.0.1/32"], "ports": [6443]},
        "prometheus": {"to": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}]},
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}}],
        "callersFrom": [{"podSelector": {"matchLabels": {"app": "caller"}}}],
        "extraEgress": [{"to": [{"ipBlock": {"cidr": "10.9.0.0/16"}}]}],
    },
    "serviceMonitor": {"enabled": True, "interval": "15s", "labels": {"release": "prometheus"}},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "grafanaDashboard": {"enabled": True, "annotations": {"grafana_folder": "Equipoise"}},
    "pools": POOLS,
    "agent": {"enabled": True, "evict": True, "taint": True},
}
SPLIT: Values = {**WATCHED, "split": True, "rotation": {"evict": True}, "proportional": {"rollout": True}}
SPLIT_NARROW: Values = {
    "split": True,
    "config": {"namespaces": ["default"]},
    "networkPolicy": {"enabled": True},
    "recommendation": {"enabled": False},
    "pools": POOLS,
    "replicaCount": 1,
    "serviceAccount": {"name": "balance"},
    "dashboard": {"enabled": True, "tokenSecret": "viewers"},
}
ONE = {"default": DEFAULT, "all-on": ALL_ON, "narrow": NARROW, "bare": BARE}
CASES = {**ONE, "watched": WATCHED, "split": SPLIT, "split-narrow": SPLIT_NARROW}
PARTS = ("rotation", "recommendation", "proportional", "pools")
TYPOS = {
    "replicas": ({"replicas": 3}, "replicas"),
    "nested": ({"rotation": {"evicts": True}}, "evicts"),
    "setting": ({"config": {"prometheus": {"adress": "http://prometheus"}}}, "adress"),
    "the chart's own": ({"config": {"http": {"address": ":9"}}}, "http"),
    "type": ({"rotation": {"evict": "yes"}}, "evict"),
    "wildcard": ({"scalableKinds": [{"apiGroup": "*", "resource": "*"}]}, "scalableKinds"),
    "password": ({"config": {"prometheus": {"url": "http://me:secret@prometheus"}}}, "url"),
    "no source": ({"config": {"metricsFrom": "prometheus"}}, "prometheus.discover"),
    "no account": ({"serviceAccount": {"create": False}}, "serviceAccount.name"),
    "no accounts": (
        {"split": True, "serviceAccount": {"create": False, "name": "a"}},
        "serviceAccount.create",
    ),
    "network": ({"networkPolicy": {"enable": True}}, "enable"),
    "monitor": ({"serviceMonitor": {"interval": "often"}}, "interval"),
    "no viewers": ({"dashboard": {"enabled": True}}, "dashboard.tokenSecret"),
    "nothing to view": ({"dashboard": {"enabled": True}, "journal": {"enabled": False}}, "journal.enabled"),
    "same port": (
        {"dashboard": {"enabled": True, "tokenSecret": "t", "port": 9000}, "port": 9000},
        "dashboard.port",
    ),
    "nothing to do": ({part: {"enabled": False} for part in PARTS}, "rotation.enabled"),
    "span of a text": ({"config": {"intervals": {"rotation": "1d1s"}}}, "config.intervals.rotation"),
    "span of a number": ({"config": {"journal": {"ageMax": 0}}}, "config.journal.ageMax"),
    "span of the agent": ({"agent": {"interval": "999ms"}}, "agent.interval"),
    "short lease": ({"config": {"lease": {"durationSeconds": 10}}}, "config.lease"),
    "no quantity": ({"journal": {"sizeLimit": "512MB"}}, "sizeLimit"),
    "no network": ({"networkPolicy": {"apiServer": {"cidrs": ["10.0.0.1/33"]}}}, "cidrs"),
}


@pytest.fixture(scope="module")
def defined(control_plane: ControlPlane) -> ControlPlane:
    """The shared control plane, with our definitions and those of Prometheus' own operator."""
    done = equipoise("crds", "apply", "--kubeconfig", str(control_plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    control_plane.apply([*MONITORING, namespaced("monitoring")])
    return control_plane


def _only(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = [document for document in objects if document["kind"] == kind]
    return found


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_helm_finds_nothing_to_complain_about(helm: Helm, values: Values) -> None:
    """A warning is a failure too."""
    done = helm.lint(values)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_every_object_is_accepted_by_the_api_server(
    helm: Helm, defined: ControlPlane, namespace: str, values: Values
) -> None:
    """By a dry run on the server, with strict validation, of everything that is rendered."""
    objects = helm.template(namespace, values)
    said = defined.kubectl(
        "apply", "--server-side", "--dry-run=server", "--validate=strict", "--filename=-",
        stdin=yaml.safe_dump_all(objects),
    )  # fmt: skip
    assert len(said.splitlines()) == len(objects)


def test_a_release_may_be_called_by_a_number(helm: Helm) -> None:
    """Its name stays a text wherever it is a label."""
    for one in helm.template("balance", WATCHED, release="2024"):
        assert one["metadata"]["labels"]["app.kubernetes.io/instance"] == "2024"


@pytest.mark.parametrize(("values", "named"), TYPOS.values(), ids=TYPOS)
def test_a_mistake_in_the_values_is_refused_by_name(helm: Helm, values: Values, named: str) -> None:
    """Nothing is rendered, and the message says where to look."""
    done = helm.run("template", "equipoise", str(CHART), f"--kube-version={KUBERNETES}", values=values)
    assert done.returncode != 0
    assert done.stdout == ""
    assert named in done.stderr


@pytest.mark.parametrize("values", ONE.values(), ids=ONE)
def test_the_operator_takes_the_settings_that_the_chart_writes(
    helm: Helm, tmp_path: Path, values: Values
) -> None:
    """As its own validation reads them; and what the chart alone knows is in them."""
    objects = helm.template("balance", values, release="blue")
    file = tmp_path / "config.yaml"
    file.write_text(_only(objects, "ConfigMap")["data"]["config.yaml"])
    settings = effective(str(file), {}, {}).settings
    assert (settings.lease.namespace, settings.lease.name) == ("balance", "blue-equipoise")
    assert settings.http.address == f":{values.get('port', 8080)}"
    wanted = ("rotation", "recommendation", "proportional")
    assert settings.balancers == tuple(name for name in wanted if values.get(name, {}).get("enabled", True))
    assert (settings.journal.path is not None) == values.get("journal", {}).get("enabled", True)
    given = copy.deepcopy(dict(values.get("config", {})))
    if "stopSeconds" in given:
        assert settings.stop_seconds == given["stopSeconds"]
    deployment = _only(objects, "Deployment")["spec"]["template"]["spec"]
    assert deployment["terminationGracePeriodSeconds"] >= settings.stop_seconds + 10


def test_each_operator_of_a_split_release_has_its_own_of_everything(helm: Helm, tmp_path: Path) -> None:
    """Deployment, account, Lease, settings, Service and budget; and no two may do the same."""
    objects = helm.template("balance", SPLIT, release="blue")
    leases = set()
    for balancer in ("rotation", "recommendation", "proportional", "pools"):
        name = f"blue-equipoise-{balancer}-operator"
        own = {one["kind"]: one for one in objects if one["metadata"]["name"] == name}
        kinds = {"Deployment", "ServiceAccount", "ConfigMap", "Service", "PodDisruptionBudget", "ClusterRole"}
        assert kinds | {"NetworkPolicy", "ServiceMonitor"} <= set(own)
        file = tmp_path / f"{balancer}.yaml"
        file.write_text(own["ConfigMap"]["data"]["config.yaml"])
        settings = effective(str(file), {}, {}).settings
        assert settings.balancers == (balancer,)
        leases.add(settings.lease.name)
        (lease,) = [one for one in objects if one["metadata"]["name"] == f"{name}-lease"][:1]
        assert lease["rules"][0]["resourceNames"] == [settings.lease.name]
        pod = own["Deployment"]["spec"]["template"]
        assert pod["spec"]["serviceAccountName"] == name
        for kind in ("Service", "PodDisruptionBudget", "Deployment"):
            chosen = own[kind]["spec"]["selector"]
            assert (chosen if kind == "Service" else chosen["matchLabels"]).items() <= (
                pod["metadata"]["labels"].items()
            )
        secrets = [one for one in pod["spec"]["volumes"] if "secret" in one]
        assert bool(secrets) == (balancer == "pools")
    assert len(leases) == 4
    given = {name: rights_given(objects, f"blue-equipoise-{name}-operator") for name in PARTS}
    assert {group for _, group, _ in given["pools"]} == {"", "coordination.k8s.io"}
    assert ("create", "", "pods/eviction") in given["rotation"]
    assert [name for name in PARTS if ("create", "", "pods/eviction") in given[name]] == ["rotation"]
    assert [name for name in PARTS if ("patch", "apps", "deployments") in given[name]] == ["proportional"]
    for name, group in (("recommendation", "analysis.crane.io"), ("proportional", "scalingpolicy.kope.io")):
        assert [one for one in PARTS if group in {right[1] for right in given[one]}] == [name]


def test_the_pods_run_without_root_and_what_they_need_is_named(helm: Helm) -> None:
    """Operators and `pools serve`: no root, no capability, nothing writable. The agent is root, no more."""
    for values in (WATCHED, SPLIT, SPLIT_NARROW):
        for one in helm.template("balance", values):
            if one["kind"] not in {"Deployment", "DaemonSet"}:
                continue
            pod = one["spec"]["template"]["spec"]
            for container in pod["containers"]:
                assert container["securityContext"] == pod["containers"][0]["securityContext"]
            (container, *_) = pod["containers"]
            allowed = container["securityContext"]
            assert allowed["readOnlyRootFilesystem"]
            assert not allowed["allowPrivilegeEscalation"]
            assert allowed["capabilities"] == {"drop": ["ALL"]}
            assert "privileged" not in allowed
            assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
            seccomp = (pod.get("securityContext", {}) | allowed)["seccompProfile"]
            assert seccomp == {"type": "RuntimeDefault"}
            if one["kind"] == "Deployment":
                assert pod["securityContext"]["runAsNonRoot"]
                assert not any("hostPath" in volume for volume in pod["volumes"])


def test_usage_is_read_from_where_rights_allow(helm: Helm, tmp_path: Path) -> None:
    """Setting and rights follow from the same values, so that neither lacks the other."""
    url = {"prometheus": {"url": "http://prometheus:9090"}}
    secret = {"name": "EQUIPOISE_PROMETHEUS_URL", "valueFrom": {"secretKeyRef": {"name": "p", "key": "url"}}}
    for values, source, resources in (
        ({}, "metrics-server", {"pods.metrics.k8s.io"}),
        ({"config": url}, "prometheus", set()),
        ({"extraEnv": [secret]}, "prometheus", set()),
        ({"prometheus": {"discover": True}, "config": url}, "prometheus", set()),
        (
            {"prometheus": {"discover": True}},
            "auto",
            {"pods.metrics.k8s.io", "prometheuses.monitoring.coreos.com", "services", "services/proxy"},
        ),
        (
            {"prometheus": {"discover": True}, "config": {"metricsFrom": "metrics-server"}},
            "metrics-server",
            {"pods.metrics.k8s.io"},
        ),
    ):
        objects = helm.template("balance", values)
        config = yaml.safe_load(_only(objects, "ConfigMap")["data"]["config.yaml"])
        roles = [o for o in objects if "runtime" in o["metadata"]["name"] and "rules" in o]
        rules = [rule for role in roles for rule in role["rules"]]
        given = {
            ".".join(filter(None, (r, g))) for u in rules for g in u["apiGroups"] for r in u["resources"]
        }
        optional = {"pods.metrics.k8s.io", "prometheuses.monitoring.coreos.com", "services", "services/proxy"}
        assert (config["metricsFrom"], given & optional) == (source, resources), json.dumps(values)


def test_other_settings_are_other_pods(helm: Helm) -> None:
    """The template's checksum changes with the settings, and with nothing else."""

    def checksum(values: Values) -> str:
        template = _only(helm.template("balance", values), "Deployment")["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    assert checksum({}) == checksum({"replicaCount": 3})
    assert checksum({}) != checksum({"config": {"logs": {"level": "debug"}}})


def test_no_budget_protects_a_single_operator(helm: Helm) -> None:
    """It would keep its node from being drained for ever."""
    kinds = [document["kind"] for document in helm.template("balance", {"replicaCount": 1})]
    assert "PodDisruptionBudget" not in kinds
    assert "PodDisruptionBudget" in [document["kind"] for document in helm.template("balance", {})]


def test_no_role_has_a_wildcard_a_secret_or_a_way_up(helm: Helm) -> None:
    """Whatever the values."""
    for values in CASES.values():
        for role in helm.template("balance", values):
            for rule in role.get("rules", ()):
                words = {word for key in ("apiGroups", "resources", "verbs") for word in rule[key]}
                assert not words & {"*", "secrets", "escalate", "bind", "impersonate", "pods/exec"}
                assert not any("serviceaccounts" in word for word in words)
                assert "nonResourceURLs" not in rule


@pytest.fixture
def restricted(control_plane: ControlPlane, namespace: str) -> str:
    """A namespace that lets in only what Pod Security calls restricted."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    control_plane.apply(
        {"apiVersion": "v1", "kind": "Namespace"} | {"metadata": {"name": namespace, "labels": labels}}
    )
    return namespace


def test_a_release_is_installed_upgraded_and_removed_in_a_restricted_namespace(
    helm: Helm, defined: ControlPlane, restricted: str
) -> None:
    """Its pods are let in; nothing of it stays behind but the definitions."""
    release = f"r{restricted.removeprefix('test-')}"
    said = helm.install(defined, release, restricted, DEFAULT)
    assert "the operator has no right to evict pods" in said
    pods = f"/api/v1/namespaces/{restricted}/pods"
    wait_until(lambda: len(defined.api.items(pods)) == 2, "both pods of the operator", 60)
    said = helm.install(defined, release, restricted, {"rotation": {"evict": True}, "replicaCount": 1})
    assert "the operator has the right to evict pods" in said
    path = f"/apis/apps/v1/namespaces/{restricted}/deployments"
    for values, parts in (({"split": True}, PARTS[:3]), ({"split": False}, ("",))):
        helm.install(defined, release, restricted, values)
        wanted = {
            f"{release}-equipoise-{part}-operator" if part else f"{release}-equipoise" for part in parts
        }
        assert {one["metadata"]["name"] for one in defined.api.items(path)} == wanted
    helm.uninstall(defined, release, restricted)
    label = f"app.kubernetes.io/instance={release}"
    for kind in ("clusterroles", "clusterrolebindings"):
        assert defined.api.items(f"/apis/rbac.authorization.k8s.io/v1/{kind}", labelSelector=label) == []

    def kept() -> list[str]:
        found = defined.api.items(f"/api/v1/namespaces/{restricted}/configmaps")
        return [one["metadata"]["name"] for one in found]

    # The controllers' own, which comes some time after the namespace.
    wait_until(lambda: kept() == ["kube-root-ca.crt"], "one ConfigMap, and it is not ours", 60)
    assert defined.api.get("/apis/equipoise.dev/v1alpha1")["resources"]

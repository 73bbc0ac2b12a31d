"""A small shop on a real node for a whole installation: something to do for each of the five balancers."""

import base64
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import urllib3
from prometheus_client.parser import text_string_to_metric_families

from equipoise.adapters.redis import RedisPools
from equipoise.pools.policy import tiers_for_scripts
from tests.support.e2e.charts import Helm
from tests.support.qos.worlds import action, pod_qos, policy, rule
from tests.testbed import Prometheus, RealNode, RedisServer, wait_until
from tests.testbed.real_pods import BURN, PACED, pod_spec, real_deployment, real_pod, resize
from tests.testbed.scenes import hpa, pdb

T = TypeVar("T")

RELEASE = "equipoise"
TOKEN = "a-token-of-a-caller"
BALANCERS = ("rotation", "recommendation", "proportional", "pools")
ENSURANCE = "/apis/ensurance.crane.io/v1alpha1"
LABELS = "app.kubernetes.io"
DAYS = 2
TAINT = "ensurance.equipoise.dev/waterline"


@dataclass
class Shop:
    """What users have, where Equipoise is installed, and the neighbours of both."""

    node: RealNode
    helm: Helm
    home: str
    """The release's namespace."""
    namespace: str
    """The users' own."""
    redis: RedisServer
    folder: Path

    @property
    def pods_path(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def open(self) -> None:
        """Make the workloads: one for each balancer."""
        small = {"requests": {"cpu": "50m"}, "limits": {"cpu": "50m"}}
        limited = {"requests": {"cpu": "50m"}, "limits": {"cpu": "100m"}}
        scaled = hpa(self.namespace, "web", 200, 3, 6)
        # The hot one alone lifts their mean to 167 % of the target, and what is about to be scaled is held.
        scaled["spec"]["behavior"] = {"scaleUp": {"tolerance": "1"}}
        self.node.control_plane.apply(
            [
                real_deployment(self.namespace, "web", replicas=3, command=BURN, grace_seconds=1, **small),
                *(scaled, pdb(self.namespace, "web", 1)),
                real_deployment(self.namespace, "dns", replicas=1, **limited),
                real_deployment(self.namespace, "advised", replicas=2, requests={"cpu": "100m"}),
                real_pod(self.namespace, "free", command=PACED),
                _stateful_set(self.namespace, "voice", 2),
            ]
        )

    def heat(self) -> str:
        """Let one of the three pods use eight times as much; who comes in its place will not.

        It is hot from 150m on: a machine that stalls gives it much less for a while.
        """
        hot = self.names("web")[0]
        resize(self.node, self.namespace, hot, limits={"cpu": "400m"})
        return hot

    def past(self) -> str:
        """Tell two days of minutes of the pods that are to be advised, busy by day."""
        until = time.time() // 60 * 60
        times = until - 60.0 * np.arange(DAYS * 1440)[::-1]
        used = np.cumsum(60.0 * 0.1 * (1.0 + 0.5 * np.sin(2 * np.pi * times / 86400))).round(6)
        lines = ["# TYPE container_cpu_usage_seconds counter\n"]
        for pod in self.names("advised"):
            labels = f'container="app",namespace="{self.namespace}",pod="{pod}"'
            head = f"container_cpu_usage_seconds_total{{{labels}}} "
            rows = zip(used.tolist(), times.tolist(), strict=True)
            lines += [f"{head}{value!r} {at:.3f}\n" for value, at in rows]
        return "".join([*lines, "# EOF\n"])

    def prepare(self) -> None:
        """Make what the chart needs: two Secrets, and the tiers."""
        url = f"redis://{self.node.address}:{self.redis.port}"
        for name, key, text in (("redis", "url", url), ("callers", "token", TOKEN)):
            secret = {"apiVersion": "v1", "kind": "Secret", **_named(name, self.home)}
            self.node.control_plane.apply(secret | {"stringData": {key: text}})
        self.set_tiers(gold=1, silver=1)

    def ask(self) -> None:
        """Ask each balancer for something."""
        self.node.control_plane.apply(
            [
                _rotation(self.namespace),
                _scaling(self.namespace, self.node.name),
                _analytics(self.namespace),
                action("step", coolDownSeconds=3600, throttle={"cpuThrottle": {"stepCPURatio": 60}}),
                pod_qos(
                    "only", labelSelector={"matchLabels": {"app": "free"}}, allowedActions=["step", "close"]
                ),
                policy(rule("cpu_total_usage", 20, "step"), name="busy"),
            ]
        )

    def values(self, image: str, prometheus: Prometheus, **more: Any) -> dict[str, Any]:
        """Say what is wanted of the chart: every balancer, at the pace of a test, with its rights."""
        repository, _, tag = image.rpartition(":")
        here = [{"name": "KUBERNETES_SERVICE_HOST", "value": self.node.address}]
        return {
            "image": {"repository": repository, "tag": tag, "pullPolicy": "Never"},
            "config": {
                "prometheus": {"url": prometheus.url},
                "compat": {"mode": "Enforce"},
                "intervals": dict.fromkeys(BALANCERS, "1s"),
                "proportional": {"change": "0s"},
                "logs": {"format": "json"},
            },
            "rotation": {"evict": True},
            "recommendation": {"apply": True},
            "proportional": {"resize": True},
            "pools": {
                "enabled": True,
                "mode": "Enforce",
                "namespace": self.namespace,
                "selector": "pool=voice",
                "redis": {"secret": "redis"},
                "serve": {"tokenSecret": "callers"},
            },
            "agent": {
                "enabled": True,
                "mode": "Enforce",
                "interval": "1s",
                "taint": True,
                "stateFolder": str(self.folder / "state"),
                "extraArgs": ["--usage-of=pods"],
                "extraEnv": here,
            },
            "extraEnv": here,
            **more,
        }

    def names(self, app: str) -> list[str]:
        """Name the pods of one workload of the shop that are there to stay."""
        found = self.node.control_plane.api.items(self.pods_path, labelSelector=f"app={app}")
        return sorted(one["metadata"]["name"] for one in found if "deletionTimestamp" not in one["metadata"])

    def quota(self, pod: str) -> int:
        """Give a pod's CPU quota in microseconds, as the kernel has it."""
        return self.node.quota(self.node.container(self.namespace, pod))[0]

    def ours(self, component: str) -> list[dict[str, Any]]:
        """Give the pods of one component of the release that are there to stay."""
        chosen = f"{LABELS}/instance={RELEASE},{LABELS}/component={component}"
        found = self.node.control_plane.api.items(
            f"/api/v1/namespaces/{self.home}/pods", labelSelector=chosen
        )
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def leaders(self) -> dict[str, dict[str, Any]]:
        """Give the operators that lead, by their Leases."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.home}/leases"
        pods = {one["metadata"]["name"]: one for one in self.ours("operator")}
        held = {
            one["metadata"]["name"]: one["spec"].get("holderIdentity") or ""
            for one in self.node.control_plane.api.items(path)
        }
        return {lease: pod for lease, holder in held.items() for name, pod in pods.items() if name in holder}

    def metrics(self) -> dict[tuple[str, str], float]:
        """Count the good cycles and the deeds of those who lead, by balancer."""
        found: dict[tuple[str, str], float] = {}
        for pod in self.leaders().values():
            for family in text_string_to_metric_families(self.http(pod, 8080, "GET", "/metrics")[1]):
                for sample in family.samples:
                    is_good = sample.labels.get("result") == "done"
                    if sample.name == "equipoise_cycles_total" and is_good:
                        found["cycles", sample.labels["balancer"]] = sample.value
                    elif sample.name == "equipoise_actions_total":
                        key = ("actions", sample.labels["balancer"])
                        found[key] = found.get(key, 0.0) + sample.value
        return found

    def http(
        self, pod: Mapping[str, Any], port: int, method: str, path: str, body: Any = None, token: str = ""
    ) -> tuple[int, str]:
        """Ask a pod of ours something; give status and text."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with urllib3.PoolManager(timeout=30.0, retries=False) as pool:
            answer = pool.request(
                method, f"http://{pod['status']['podIP']}:{port}{path}", json=body, headers=headers
            )
        return answer.status, answer.data.decode()

    def wait_for(self, condition: Callable[[], T | None], what: str, seconds: float = 180) -> T:
        """Wait for something that the product does, and give it; its pods' last words are in the error."""
        try:
            return wait_until(condition, what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.last_words()}") from error

    def last_words(self) -> str:
        """Give what the pods of the release said last, and what became of them."""
        kubectl = self.node.control_plane.kubectl
        chosen = ("-n", self.home, "-l", f"{LABELS}/instance={RELEASE}")
        said = kubectl("logs", *chosen, "--tail=15", "--prefix", "--ignore-errors")
        return f"{kubectl('get', 'pods', *chosen, '-o', 'wide')}\n{said[-9000:]}"

    def tiers(self) -> dict[str, list[str]]:
        """Give the pods of each tier, as Redis has them."""
        with self.redis.client() as client:
            seen = RedisPools(client, "voice", self.redis.url, read_tiers=tiers_for_scripts).snapshot()
        return {pool.tier: sorted(pool.assigned) for pool in seen.pools}

    def set_tiers(self, **pods: int) -> None:
        """Say how many pods each tier should have."""
        with self.redis.client() as client:
            pools = RedisPools(client, "voice", self.redis.url, read_tiers=tiers_for_scripts)
            done = pools.set_config(json.dumps(pods), pools.snapshot(is_thorough=True).version)
        assert done.code == "Stored", done

    def close_node(self) -> None:
        """Ask the agent to let no new pod come, whatever the node does."""
        close = rule("cpu_total_usage", 1, "close", name="close")
        self.node.control_plane.apply([action("close", coolDownSeconds=3600), policy(close, name="closed")])

    def is_tainted(self) -> bool:
        """Whether our own taint is on the node."""
        taints = self.node.control_plane.api.get(f"/api/v1/nodes/{self.node.name}")["spec"].get("taints")
        return any(one["key"] == TAINT for one in taints or [])

    def remove_qos(self) -> None:
        """Remove what is not in a namespace."""
        api = self.node.control_plane.api
        if not api.answers(ENSURANCE):
            return  # the kinds were never installed
        for plural in ("nodeqosensurancepolicies", "avoidanceactions", "podqoss"):
            for one in api.items(f"{ENSURANCE}/{plural}"):
                api.delete(f"{ENSURANCE}/{plural}/{one['metadata']['name']}")


def claims(token: str) -> dict[str, Any]:
    """Read what a service account's token says of itself."""
    inner = token.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(inner + "=" * (-len(inner) % 4)))
    return found


def _named(name: str, namespace: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": namespace}}


def _stateful_set(namespace: str, name: str, replicas: int) -> dict[str, Any]:
    labels = {"app": name, "pool": "voice"}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        **_named(name, namespace),
        "spec": {
            "replicas": replicas,
            "serviceName": name,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec()},
        },
    }


def _rotation(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "equipoise.dev/v1alpha1",
        "kind": "RotationPolicy",
        **_named("web", namespace),
        "spec": {
            "targetRef": {"kind": "Deployment", "name": "web"},
            "mode": "Enforce",
            "metricsWindow": "10s",
            "minPodAge": "0s",
            "cooldown": "1s",
            "syncPeriod": "1s",
        },
    }


def _scaling(namespace: str, node: str) -> dict[str, Any]:
    """So much CPU for each node of this name."""
    asked = {"limits": [{"resource": "cpu", "function": {"input": "nodes", "slope": "300m"}}]}
    return {
        "apiVersion": "scalingpolicy.kope.io/v1alpha1",
        "kind": "ScalingPolicy",
        **_named("dns", namespace),
        "spec": {
            "scaleTargetRef": {"kind": "Deployment", "name": "dns"},
            "updateMode": "InPlace",
            "nodeSelector": {"matchLabels": {"kubernetes.io/hostname": node}},
            "containers": [{"name": "app", "resources": asked}],
        },
    }


def _analytics(namespace: str) -> dict[str, Any]:
    return {
        "apiVersion": "analysis.crane.io/v1alpha1",
        "kind": "Analytics",
        **_named("advice", namespace),
        "spec": {
            "type": "HPA",
            "completionStrategy": {"completionStrategyType": "Once"},
            "adoptionType": "Auto",
            "resourceSelectors": [{"kind": "Deployment", "apiVersion": "apps/v1", "name": "advised"}],
            "config": {
                "ehpa.deployment-min-replicas": "1",
                "ehpa.pod-min-ready-seconds": "0",
                "ehpa.fluctuation-threshold": "0",
                "ehpa.min-cpu-usage-threshold": "0",
            },
        },
    }

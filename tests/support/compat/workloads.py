"""Twenty workloads with four days of usage, for servers to be compared on."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from equipoise.adapters.kubernetes import KubernetesCluster
from equipoise.adapters.prometheus.history import HistorySource
from equipoise.cli.checks import NOBODY_YET, Check, examine
from equipoise.cli.journal import CommandJournal
from equipoise.cli.recommendation_live import RecommendationRequest, apply_recommendation, plan_recommendation
from equipoise.cli.rotation_live import RotationRequest, apply_rotation
from equipoise.cli.session import ClusterRequest
from equipoise.core.decision import Decision
from equipoise.core.reason import Code
from equipoise.engine.policies import condition_of
from equipoise.recommendation.adopt import Adopted
from equipoise.recommendation.advisor import AdviceScope
from equipoise.recommendation.analytics import READY
from equipoise.recommendation.policy import GROUP, VERSION
from equipoise.recommendation.settings import AdviceType, read_policy
from equipoise.rotation.command import WorkloadResult
from equipoise.rotation.policy import RotationPolicy
from equipoise.runtime.metrics_source import PrometheusOptions
from tests.support.contracts.real import install_kinds, session_of
from tests.support.e2e.replicas import Operator
from tests.support.rotation.tenants import plan_alone
from tests.testbed import ControlPlane, Prometheus, wait_until
from tests.testbed.scenes import deployment, hpa, running_pods

WORKLOADS = 20
NAMES = [f"app-{number:02}" for number in range(WORKLOADS)]
PODS = 6
DAYS = 4
UNSCALED = 4
"""So many have no HPA, and may be given one."""
KEYS = {"ehpa.deployment-min-replicas": "2", "ehpa.min-cpu-usage-threshold": "0.1"}
METRIC = "container_cpu_usage_seconds_total"
ANALYTICS = {
    "apiVersion": f"{GROUP}/{VERSION}",
    "kind": "Analytics",
    "spec": {
        "type": "HPA",
        "completionStrategy": {"completionStrategyType": "Once"},
        "adoptionType": "Auto",
        "resourceSelectors": [{"kind": "Deployment"}],
        "config": KEYS,
    },
}
POLICY = {
    "apiVersion": "equipoise.dev/v1alpha1",
    "kind": "RotationPolicy",
    "spec": {
        "mode": "Enforce",
        "syncPeriod": "1s",
        "targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAMES[-2]},
    },
}


@dataclass(frozen=True)
class Twenty:
    """The workloads, their pods, and until when usage is known: later than now, so that pods are old."""

    control_plane: ControlPlane
    namespace: str
    pods: Mapping[str, str]
    """The workload of each."""
    until: float

    def cluster(self, url: str) -> ClusterRequest:
        config = str(self.control_plane.kubeconfig)
        return ClusterRequest(config, namespace=self.namespace, prometheus=PrometheusOptions(url=url))

    def advice(self, url: str, about: AdviceType = AdviceType.HPA) -> dict[str, Decision]:
        """Advise as the command does."""
        asked = AdviceScope(read_policy(KEYS, ""), self.namespace, about=about)
        found = plan_recommendation(
            RecommendationRequest(self.cluster(url), asked, HistorySource.AUTO), self.until
        )
        return {one.subject.rpartition("/")[2]: one for one in found}

    def applied(self, url: str, *, is_dry_run: bool = False) -> dict[str, Adopted]:
        """Apply as the command does, from the past alone, which is quick."""
        asked = AdviceScope(read_policy(KEYS, ""), self.namespace, algorithm=None)
        request = RecommendationRequest(self.cluster(url), asked)
        found = apply_recommendation(request, CommandJournal(), self.until, is_dry_run=is_dry_run)
        return {one.decision.subject.rpartition("/")[2]: one for one in found}

    def rotations(self, url: str) -> dict[str, Decision]:
        """Plan rotations as the command does."""
        client = session_of(self.control_plane)
        try:
            metrics = self.cluster(url).metrics(client)
            where = (self.until, self.namespace)
            found = plan_alone(RotationPolicy(), KubernetesCluster(client), metrics, *where)
        finally:
            client.close()
        return {one.subject.rpartition("/")[2]: one for one in found}

    def rotated(self, url: str) -> Sequence[WorkloadResult]:
        """Rotate as the command does, by its own clock."""
        request = RotationRequest(self.cluster(url), RotationPolicy())
        done, _ = apply_rotation(request, 1.0, 60.0, CommandJournal())
        return done

    @contextmanager
    def operator(self, url: str, folder: Path) -> Iterator[Operator]:
        """Run the operator, which may act, with an Analytics for all workloads and a policy for a hot one."""
        meta = {"metadata": {"name": folder.name, "namespace": self.namespace}}
        self.control_plane.apply([ANALYTICS | meta, POLICY | meta])
        settings = {
            "balancers": ["recommendation", "rotation"],
            "intervals": {"recommendation": "1s", "rotation": "1s"},
            "compat": {"mode": "Enforce"},
        }
        operator = Operator(self.control_plane, url, self.namespace, folder, settings)
        try:
            yield operator  # whether it is ready or not: without a past that can be read it is not
        finally:
            operator.end()
            for kind in ("analytics", "rotationpolicies"):
                self.control_plane.kubectl("-n", self.namespace, "delete", kind, folder.name)

    def said(self, kind: str, name: str) -> dict[str, Any]:
        """Return the status of an object."""
        found: dict[str, Any] = json.loads(
            self.control_plane.kubectl("-n", self.namespace, "get", kind, name, "-o", "json")
        )
        status: dict[str, Any] = found.get("status", {})
        return status

    def advised(self, name: str) -> list[tuple[str, str]]:
        """Return the reason and the message of each Recommendation of an Analytics."""
        label = f"{GROUP}/analytics-name={name}"
        words = ("-n", self.namespace, "get", "recommend", "-l", label, "-o", "json")
        items = json.loads(self.control_plane.kubectl(*words))["items"]
        ready = [condition_of(one.get("status", {}), READY) for one in items]
        return [(one.get("reason", ""), one.get("message", "")) for one in ready]

    def checks(self, url: str) -> dict[str, Check]:
        """Examine as the doctor does, which says nothing of pods that are too young to be measured."""

        def found() -> dict[str, Check]:
            checks = {check.name: check for check in examine(self.cluster(url))}
            return {} if checks["prometheus"].remedy == NOBODY_YET else checks

        return wait_until(found, "pods that are old enough", 180)

    @contextmanager
    def all_scaled(self) -> Iterator[None]:
        """Give those an HPA that have none, for a while."""
        mine = [hpa(self.namespace, name, 60, PODS, 20) for name in NAMES[:UNSCALED]]
        self.control_plane.apply(mine)
        yield
        for one in mine:
            self.control_plane.api.delete(self.control_plane.api.path_of(one))

    def hpas(self) -> set[str]:
        """Return the names of the HPAs that there are."""
        path = f"/apis/autoscaling/v2/namespaces/{self.namespace}/horizontalpodautoscalers"
        return {one["metadata"]["name"] for one in self.control_plane.api.items(path)}


def make(control_plane: ControlPlane, namespace: str, until: float) -> Twenty:
    """Make the workloads by the real controllers; most have an HPA."""
    install_kinds(control_plane)
    control_plane.apply(
        [deployment(namespace, name, replicas=PODS, request="500m") for name in NAMES]
        + [hpa(namespace, name, 60, PODS, 20) for name in NAMES[UNSCALED:]]
    )
    pods = {pod: name for name in NAMES for pod in running_pods(control_plane, namespace, name, PODS)}
    for pod in pods:
        _ready_for_long(control_plane, f"/api/v1/namespaces/{namespace}/pods/{pod}")
    return Twenty(control_plane, namespace, pods, until)


def _ready_for_long(control_plane: ControlPlane, path: str) -> None:
    """Have a pod say that it has been ready for an hour, as the operator asks by its own clock."""
    since = datetime.fromtimestamp(time.time() - 3600, UTC).isoformat(timespec="seconds")
    conditions = control_plane.api.get(path)["status"]["conditions"]
    for one in conditions:
        one["lastTransitionTime"] = since.replace("+00:00", "Z")
    control_plane.api.patch(f"{path}/status", {"status": {"conditions": conditions}})


def past(twenty: Twenty, interval_seconds: int = 30) -> str:
    """Tell days of samples that come a little late, of counters that were reset once in a while.

    Every workload has a day of its own; of some, two pods are far busier than the others.
    """
    chance = np.random.default_rng(19)
    count = DAYS * 86400 // interval_seconds
    lines = ["# TYPE container_cpu_usage_seconds counter\n"]
    for place, (pod, name) in enumerate(sorted(twenty.pods.items())):
        number = int(name[-2:])
        phase = chance.uniform(0.0, 1.0)
        times = twenty.until - interval_seconds * (np.arange(count)[::-1] + phase)
        times = (times + chance.uniform(-0.05, 0.05, count) * interval_seconds).round(3)
        height = 0.15 + 0.05 * number
        hot = 3.0 if number % 3 == 0 and place % PODS < 2 else 1.0
        day = 1.0 + (0.2 + 0.035 * number) * np.sin(2 * math.pi * (times / 86400 + number / 20))
        cores = np.maximum(height * hot * day * chance.gamma(20, 0.05, count), 0.0)
        used = np.cumsum(np.diff(times, prepend=times[0]) * cores)
        for at in sorted(chance.integers(1, count, number % 4)):
            used[at:] -= used[at] - chance.uniform(0, 1) * (used[at] - used[at - 1])
        head = f'{METRIC}{{container="app",namespace="{twenty.namespace}",pod="{pod}"}} '
        rows = zip(used.round(6).tolist(), times.tolist(), strict=True)
        lines.append("".join(f"{head}{value!r} {at:.3f}\n" for value, at in rows))
    return "".join([*lines, "# EOF\n"])


def brief(decision: Decision) -> str:
    """Say a piece of advice, or why there is none, in a few letters."""
    if decision.reason.code is not Code.RECOMMEND:
        return decision.reason.code.value
    wanted = decision.extra["recommended"]
    if "containers" in wanted:
        return ", ".join(" ".join(each["requests"].values()) for each in wanted["containers"])
    return f"{wanted['minReplicas']}-{wanted['maxReplicas']} at {wanted['targetUtilization']} %"


def moves(decision: Decision) -> str:
    """Say a rotation, or why there is none, with how many pods are to go."""
    planned = [action.pod for action in decision.actions] + [held.action.pod for held in decision.held]
    return f"{decision.reason.code.value} {len(planned)}" if planned else decision.reason.code.value


def difference(first: Decision, second: Decision) -> float:
    """Return by how much the numbers behind two decisions differ, as a share of the first."""
    shares = [
        abs(second.reason.numbers[name] - value) / abs(value)
        for name, value in first.reason.numbers.items()
        if name.endswith(("_cores", "fluctuation", "_percent")) and _is_number(value)
        if _is_number(second.reason.numbers.get(name))
    ]
    return max(shares, default=0.0)


def _is_number(value: Any) -> bool:
    return isinstance(value, float) and value != 0


def prometheus_with(folder: Any, text: str, command: str = "prometheus", **options: Any) -> Prometheus:
    """Return a Prometheus, not started yet, that has this history."""
    server = Prometheus(folder, command=command, **options)
    server.backfill(text)
    return server

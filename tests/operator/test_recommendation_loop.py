"""The recommendation's loop as it is wired: kinds may be missing, a week nowhere; batches go elsewhere."""

import re
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from equipoise.core.cluster import HpaSpec
from equipoise.ports import NoHistory
from equipoise.recommendation.decide import examine_all
from equipoise.recommendation.observe import Observation
from equipoise.recommendation.settings import AdviceRequest, RecommendationPolicy
from equipoise.runtime.layers import effective
from equipoise.runtime.operator import process as shell_module
from equipoise.runtime.operator.wiring import OperatorWiring, SpecsOfNamespaces, make_operator
from equipoise.runtime.operator.worker import Batches
from equipoise.runtime.settings import Settings
from tests.support.kubernetes.server import Asked, Stage, playing
from tests.support.operator.empty_cluster import EmptyCluster
from tests.support.operator.worlds import WAIT_SECONDS, eventually, get, logged
from tests.support.recommendation.clusters import ref

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: a
users: [{name: a, user: {}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
clusters: [{name: a, cluster: {server: "URL"}}]
"""


class WithoutKinds(EmptyCluster):
    """A cluster that nobody has brought our kinds to."""

    def __call__(self, asked: Asked, stage: Stage) -> None:
        if "customresourcedefinitions" in asked.path:
            stage.refuse(404, "NotFound", "not found")
        else:
            super().__call__(asked, stage)


@pytest.mark.parametrize(
    ("crane", "warnings"),
    [("auto", ["Analytics and Recommendations are not installed"]), ("off", [])],
)
def test_an_operator_without_the_kinds_lives_and_says_it_once(
    tmp_path: Path, crane: str, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ready and well; nothing of another balancer would wait for kinds that may never come."""
    monkeypatch.setattr(shell_module, "RESERVE_SECONDS", 2 * WAIT_SECONDS)
    log, lines = logged("info")
    with playing(WithoutKinds()) as player:
        config = tmp_path / "config"
        config.write_text(KUBECONFIG.replace("URL", player.url))
        sets = [
            f"kubernetes.kubeconfig={config}",
            "http.address=127.0.0.1:0",
            "lease.namespace=ops",
            "balancers=recommendation",
            "intervals.recommendation=1s",
            f"compat.crane={crane}",
            f"stopSeconds={2 * WAIT_SECONDS:g}",
        ]
        shell = make_operator(effective(None, {}, {}, sets).settings, log, threading.Event())
        shell.start()
        try:
            address = f"http://127.0.0.1:{shell.server.port}"
            led = "this process is the leader"
            eventually(lambda: any(line["message"].startswith(led) for line in lines()))
            eventually(lambda: _cycles_done(get(f"{address}/metrics")[1]) >= 4)
            eventually(lambda: get(f"{address}/readyz") == (200, "ok\n"))
        finally:
            assert shell.stop()
    said = [line["message"].partition(",")[0] for line in lines() if line["level"] == "warning"]
    assert said == warnings


def _cycles_done(metrics: str) -> float:
    found = re.search(r'equipoise_cycles_total\{balancer="recommendation",result="done"\} (\S+)', metrics)
    return float(found[1]) if found else 0.0


def test_a_batch_is_decided_in_the_worker_as_it_is_here() -> None:
    """The question, what was seen and the facts travel."""
    chance = np.random.default_rng(5)
    count = 20
    seen = Observation(
        subjects=[f"shop/web-{number}" for number in range(count)],
        kinds=["Deployment"] * count,
        replicas=np.full(count, 3),
        pods=np.full(count, 3),
        available=np.full(count, 3),
        request_cores=np.full(count, 2.0),
        history=chance.gamma(50, 0.3, (count, 1440)),
        interval_seconds=60.0,
        at=1_789_603_200.0,
    )
    batch = [(AdviceRequest(RecommendationPolicy()), seen)]
    batches = Batches()
    try:
        assert batches.submit(examine_all, batch) == examine_all(batch)
    finally:
        batches.stop()


def test_hpas_are_listed_where_rights_allow() -> None:
    """Everywhere at once, or in each namespace that is watched."""
    asked: list[str | None] = []

    class Specs:
        def specs(self, namespace: str | None = None) -> list[HpaSpec]:
            asked.append(namespace)
            return [HpaSpec(f"of {namespace}", ref("web"))]

    assert len(SpecsOfNamespaces(Specs(), ()).specs()) == 1
    assert len(SpecsOfNamespaces(Specs(), ("shop", "mail", "shop")).specs()) == 2
    assert asked == [None, "shop", "mail"]


def test_metrics_server_has_no_history() -> None:
    """Which is said, and is no failure of anybody."""
    settings = Settings.model_validate({"metricsFrom": "metrics-server"})
    with pytest.raises(NoHistory, match="the setting metricsFrom is metrics-server"):
        OperatorWiring.history(SimpleNamespace(settings=settings))  # type: ignore[arg-type]

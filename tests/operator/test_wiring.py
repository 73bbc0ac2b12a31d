"""The wiring, against a server that plays an empty cluster with Leases."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

from equipoise.core.errors import BadInput
from equipoise.engine.balancer import balancer
from equipoise.ports import CycleReport
from equipoise.ports.wiring import LoopSettings, Wiring
from equipoise.runtime.layers import effective
from equipoise.runtime.operator import process as shell_module
from equipoise.runtime.operator.wiring import make_operator, prometheus_options
from equipoise.runtime.settings import Settings
from tests.support.kubernetes.server import Asked, Player, Stage, playing
from tests.support.operator.empty_cluster import EmptyCluster
from tests.support.operator.worlds import WAIT_SECONDS, ScriptedLoop, eventually, get, logged, report


@pytest.fixture
def cluster() -> Iterator[tuple[EmptyCluster, Player]]:
    script = EmptyCluster()
    with playing(script) as player:
        yield script, player


def _settings(folder: Path, url: str, balancers: str = "rotation") -> Settings:
    kubeconfig = folder / "config"
    kubeconfig.write_text(
        "{apiVersion: v1, kind: Config, current-context: a, users: [{name: a, user: {}}],"
        " contexts: [{name: a, context: {cluster: a, user: a}}],"
        f" clusters: [{{name: a, cluster: {{server: '{url}'}}}}]}}"
    )
    given = [
        f"kubernetes.kubeconfig={kubeconfig}",
        "http.address=127.0.0.1:0",
        f"journal.path={folder / 'j.db'}",
    ]
    given += ["lease.namespace=ops", f"balancers={balancers}", f"stopSeconds={2 * WAIT_SECONDS:g}"]
    return effective(None, {}, {}, given).settings


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave every part as long as it needs on a machine that stands still amid the stop."""
    monkeypatch.setattr(shell_module, "RESERVE_SECONDS", 2 * WAIT_SECONDS)


def test_a_shell_leads_sees_and_lets_go(tmp_path: Path, cluster: tuple[EmptyCluster, Player]) -> None:
    """All adapters together: caches sync, the lease is taken, a loop sees through its wiring, all ends."""
    script, player = cluster
    wirings: list[Wiring] = []
    seen: list[tuple[int, int | None]] = []

    def factory(wiring: Wiring, settings: LoopSettings) -> ScriptedLoop:
        def cycle(at: float) -> CycleReport:
            seen.append((len(wiring.cluster.pods()), wiring.leadership.epoch()))
            return report()

        wirings.append(wiring)
        return ScriptedLoop(cycle)

    log, lines = logged("info")
    stopping = threading.Event()
    shell = make_operator(_settings(tmp_path, player.url), log, stopping, {"rotation": factory})
    shell.start()
    try:
        eventually(lambda: seen and seen[-1][1] is not None)
        address = f"http://127.0.0.1:{shell.server.port}"
        assert get(f"{address}/healthz") == (200, "ok\n")
        eventually(lambda: get(f"{address}/readyz") == (200, "ok\n"))  # when the cycle has ended, too
        eventually(lambda: "equipoise_leader 1.0" in get(f"{address}/metrics")[1])  # a stall costs the seat
        metrics = get(f"{address}/metrics")[1]
    finally:
        assert shell.stop()
    for line in (
        'equipoise_reflector_lists_total{resource="pods"} 1.0',
        'equipoise_reflector_objects{resource="namespaces"} 0.0',
        "equipoise_journal_records_lost 0.0",
        'equipoise_cycles_total{balancer="rotation",result="done"}',
    ):
        assert line in metrics
    assert not script.holder()
    assert wirings[0].operator_namespace == "ops"
    assert wirings[0].leadership.epoch() is None
    messages = [line["message"] for line in lines()]
    epoch = next(epoch for _, epoch in seen if epoch is not None)
    assert f"this process is the leader, in epoch {epoch}" in messages
    assert {pods for pods, _ in seen} == {0}
    assert messages[-1] == "stopped"
    # A machine that stands still for a moment is warned of; nothing may have gone wrong.
    assert [line for line in lines() if line["level"] == "error"] == []


class WithoutScalingPolicies(EmptyCluster):
    """A cluster on which one kind has not been installed."""

    def __call__(self, asked: Asked, stage: Stage) -> None:
        if "/scalingpolicies" in asked.path:
            stage.refuse(404, "NotFound", "the server could not find the requested resource")
        else:
            super().__call__(asked, stage)


def test_a_kind_that_is_not_installed_stops_only_the_loop_that_works_with_it(tmp_path: Path) -> None:
    """The others take their turns, and readiness says what is missing."""
    with playing(WithoutScalingPolicies()) as player:
        settings = _settings(tmp_path, player.url, "rotation,proportional")
        log, _ = logged("info")
        shell = make_operator(settings, log, threading.Event())
        shell.start()
        try:
            address = f"http://127.0.0.1:{shell.server.port}"
            cycle = 'equipoise_cycles_total{balancer="rotation",result="done"}'
            eventually(lambda: cycle in get(f"{address}/metrics")[1])
            status, said = get(f"{address}/readyz")
            metrics = get(f"{address}/metrics")[1]
        finally:
            shell.stop()
    assert status == 503
    assert "the scalingpolicies have not been listed yet" in said
    assert 'equipoise_cycles_total{balancer="proportional"' not in metrics


def test_a_kubeconfig_that_is_missing_is_refused_at_the_start() -> None:
    """Before anything has begun."""
    settings = effective(None, {}, {}, ["kubernetes.kubeconfig=/no/such/config"]).settings
    log, lines = logged()
    with pytest.raises(BadInput, match="/no/such/config"):
        make_operator(settings, log, threading.Event())
    assert lines() == []


def test_a_balancer_without_a_loop_is_refused() -> None:
    """A setting that nothing would follow is a mistake."""
    assert balancer("qos").make_loop is None
    with pytest.raises(ValidationError, match="'rotation', 'recommendation', 'pools' or 'proportional'"):
        Settings(balancers=("qos",))


def test_prometheus_is_reached_as_the_one_shot_commands_reach_it() -> None:
    """The same options, from the settings."""
    sets = ["prometheus.url=http://p:9", "prometheus.headers=A=1,B=2", "prometheus.timeout=90"]
    sets.append("prometheus.labels=pod=pod_name")
    options = prometheus_options(effective(None, {}, {}, sets).settings.prometheus, "ops")
    assert options.url == "http://p:9"
    assert options.headers == ("A=1", "B=2")
    assert options.timeout == "1m30s"
    assert options.labels == ("pod=pod_name",)


@pytest.mark.parametrize(
    ("sets", "namespaces"),
    [
        ([], ("monitoring", "ops")),
        (["prometheus.namespaces=observability"], ("observability",)),
        (["prometheus.namespaces=a,b"], ("a", "b")),
    ],
)
def test_prometheus_is_looked_for_beside_the_operator_and_where_it_was_named(
    sets: list[str], namespaces: tuple[str, ...]
) -> None:
    """What is named replaces the usual namespaces, the operator's own among them."""
    settings = effective(None, {}, {}, sets).settings.prometheus
    assert prometheus_options(settings, "ops").namespaces == namespaces

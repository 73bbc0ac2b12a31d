"""The chart's alerts and dashboard by Prometheus' own tool: understood, and ringing when they should."""

import json
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.support.e2e.charts import CHART, Helm, Values
from tests.testbed import binary

VALUES: Values = {"prometheusRule": {"enabled": True}, "grafanaDashboard": {"enabled": True}}
HERE = 'namespace="balance",job="equipoise"'
WHERE = {"namespace": "balance", "job": "equipoise"}
LEADER, OTHER = f'{HERE},instance="a"', f'{HERE},instance="b"'
LED = {f"equipoise_leader{{{LEADER}}}": "1x60", f"equipoise_leader{{{OTHER}}}": "0x60"}
SUCCESS, CYCLES = "equipoise_last_success_timestamp_seconds", "equipoise_cycles_total"
ROTATION = 'balancer="rotation"'
RINGING: tuple[tuple[str, dict[str, str], int, int, dict[str, str]], ...] = (
    (
        "EquipoiseNoLeader",
        {f'equipoise_leader{{{HERE},pod="a"}}': "1x5 0x20", f'equipoise_leader{{{HERE},pod="b"}}': "0x25"},
        6,
        9,
        WHERE | {"severity": "critical"},
    ),
    (
        "EquipoiseLoopStalled",
        {
            **LED,
            f"{SUCCESS}{{{LEADER},{ROTATION}}}": "0+60x5 300x40",
            f"{SUCCESS}{{{OTHER},{ROTATION}}}": "0+60x45",
        },
        20,
        30,
        WHERE | {"severity": "warning", "balancer": "rotation"},
    ),
    (
        "EquipoiseCyclesFail",
        {
            **LED,
            f'{CYCLES}{{{LEADER},{ROTATION},result="done"}}': "0+2x20 40x40",
            f'{CYCLES}{{{LEADER},{ROTATION},result="failed"}}': "0x20 0+2x40",
            f'{CYCLES}{{{OTHER},{ROTATION},result="done"}}': "0+2x60",
        },
        30,
        55,
        WHERE | {"severity": "warning", "balancer": "rotation"},
    ),
    (
        "EquipoisePoolsViolated",
        {'equipoise_pool_violations{prefix="voice"}': "0x5 2x20"},
        12,
        20,
        {"severity": "warning", "prefix": "voice"},
    ),
    (
        "EquipoiseAgentStalled",
        {
            'equipoise_agent_rounds_total{namespace="balance",pod="a",reason="Restore"}': "0+6x20 120x40",
            'equipoise_agent_rounds_total{namespace="balance",pod="b",reason="Restore"}': "0+6x60",
        },
        30,
        45,
        {"severity": "warning", "namespace": "balance", "pod": "a"},
    ),
)
"""An alert, what is scraped each minute, a minute at which it is quiet, one at which it rings, its labels."""


def test_alerts_and_queries_are_understood_by_prometheus(helm: Helm, tmp_path: Path) -> None:
    """Its own tool checks the rules as the chart renders them, and every query of the dashboard as a rule."""
    objects = helm.template("balance", VALUES)
    (alerts,) = [one["spec"] for one in objects if one["kind"] == "PrometheusRule"]
    (dashboard,) = [one for one in objects if "equipoise.json" in one.get("data", {})]
    queries = [
        target["expr"].replace("$__rate_interval", "5m").replace("$namespace", ".*")
        for panel in json.loads(dashboard["data"]["equipoise.json"])["panels"]
        for target in panel.get("targets", ())
    ]
    rules = [{"record": f"query:{number}", "expr": query} for number, query in enumerate(queries)]
    for name, content in (("alerts", alerts), ("queries", {"groups": [{"name": "q", "rules": rules}]})):
        file = tmp_path / f"{name}.yaml"
        file.write_text(yaml.safe_dump(content))
        done = _promtool("check", "rules", str(file))
        assert done.returncode == 0, done.stdout + done.stderr
    assert len(queries) > 30


def test_alerts_ring_when_they_should_and_not_before(tmp_path: Path) -> None:
    """Replayed minute by minute by Prometheus' own tool; the words beside them are left out."""
    content = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())
    for rule in (rule for group in content["groups"] for rule in group["rules"]):
        assert set(rule.pop("annotations")) == {"summary", "description"}
    rules, tests = tmp_path / "rules.yaml", tmp_path / "tests.yaml"
    rules.write_text(yaml.safe_dump(content))
    replays = [_replay(*ringing) for ringing in RINGING]
    tests.write_text(yaml.safe_dump({"rule_files": [str(rules)], "tests": replays}))
    done = _promtool("test", "rules", str(tests))
    assert done.returncode == 0, done.stdout + done.stderr


def _replay(
    name: str, series: dict[str, str], quiet_minutes: int, ringing_minutes: int, labels: dict[str, str]
) -> dict[str, Any]:
    checked = [(quiet_minutes, []), (ringing_minutes, [{"exp_labels": labels}])]
    return {
        "interval": "1m",
        "input_series": [{"series": one, "values": values} for one, values in series.items()],
        "alert_rule_test": [
            {"eval_time": f"{minute}m", "alertname": name, "exp_alerts": alerts} for minute, alerts in checked
        ],
    }


def _promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    words = [str(binary("promtool")), *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)

"""The examples for nodes and tiers do what their pages say."""

import json
from pathlib import Path

import yaml

from tests.support.cli.running import equipoise
from tests.support.docs.pages import ROOT
from tests.support.pools.servers import server

EXAMPLES: Path = ROOT / "examples"


def test_the_policies_for_nodes_touch_batch_pods_only() -> None:
    """On the busy node of the example before: who the PodQOS allows, and nobody else."""
    world = yaml.safe_load((EXAMPLES / "06-qos-plan.yaml").read_text())
    world["policies"] = list(yaml.safe_load_all((EXAMPLES / "07-qos-policies.yaml").read_text()))
    world["node"]["labels"] = {"node-role": "worker"}
    world["node"]["usage"] = {"cpu_total_usage": 15000, "memory_total_usage": "56Gi"}
    done = equipoise("qos", "plan", "--from", "-", "-o", "json", stdin=yaml.safe_dump(world))
    assert (done.returncode, done.stderr) == (0, "")
    (decision,) = json.loads(done.stdout)["decisions"]
    assert decision["reason"] == "ThrottleAndEvict"
    assert [(one["kind"], one["pod"]) for one in decision["actions"]] == [
        ("EvictPod", "batch/report"),
        ("ThrottlePod", "batch/thumbnails"),
    ]


def test_the_tiers_are_a_config_that_a_server_takes() -> None:
    """And gives back as it was."""
    example = EXAMPLES / "08-pools-tiers.json"
    with server() as url:
        done = equipoise("pools", "config", "set", "--from", str(example), "--redis", url)
        assert done.returncode == 0, done.stderr
        said = equipoise("pools", "config", "get", "--redis", url, "-o", "json")
    assert json.loads(said.stdout) == json.loads(example.read_text())

"""A sixth balancer, added to a copy of the program as `docs/how-to/add-a-balancer.md` says."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.docs.pages import ROOT

EXAMPLE = ROOT / "examples" / "sixth-balancer"
PAGE = ROOT / "docs" / "how-to" / "add-a-balancer.md"
CYCLES = """
import json
from types import SimpleNamespace
from equipoise.core.decision import Record
from equipoise.core.ledger import Ledger
from equipoise.engine.balancer import balancer
from equipoise.sim.world import World

world = World(7)
nodes = [world.add_node("node-1"), world.add_node("node-2")]
workload = world.add_workload("shop", "web", replicas=5)
world.advance(600)
spread = balancer("spread")
records = []
policy = SimpleNamespace(
    ref=SimpleNamespace(namespace="shop"), spec={"podsPerNodeMax": 3, "mode": "Enforce"}
)
wiring = SimpleNamespace(
    cluster=world.cluster,
    policies=lambda kind: SimpleNamespace(policies=lambda: [policy]),
    pauses=world.pauses,
    leadership=SimpleNamespace(epoch=lambda: 1),
    store=world.store,
    actuator=world.actuator,
    journal=SimpleNamespace(append=lambda *new, is_whole=False: records.extend(new)),
    new_id=lambda at: f"id-{len(records)}-{at}",
)
loop = spread.make_loop(wiring, SimpleNamespace(interval_seconds=lambda name: 30.0))
world.kubelet.kill_node(nodes[1])
world.advance(900)
world.kubelet.revive_node(nodes[1])
world.advance(60)
results = []
for _ in range(40):
    results += [outcome.result for outcome in loop.cycle(world.now).outcomes]
    world.advance(30)
copies = [Record.from_json(one.to_json()) for one in records]
print(json.dumps({
    "results": results,
    "entries": [entry.balancer for entry in Ledger.from_data(world.store.read(workload.ref).data).entries],
    "reasons": sorted({one.decision.reason.code for one in records}),
    "replayed": all(spread.redecide(one) == one.decision for one in copies),
}))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs Python in a copy of the program that has the sixth balancer."""
    source = tmp_path_factory.mktemp("sixth") / "src"
    package = source / "equipoise"
    shutil.copytree(ROOT / "src" / "equipoise", package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(EXAMPLE / "spread", package / "spread")
    shutil.copy(EXAMPLE / "spread_commands.py", package / "cli" / "spread.py")
    blocks = re.findall(r"```diff\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for name, block in zip(("engine/balancer.py", "cli/commands.py"), blocks, strict=True):
        _insert(package / name, block)

    def python(*words: str) -> str:
        environment = {**os.environ, "PYTHONPATH": str(source), "COLUMNS": "100"}
        done = subprocess.run(
            [sys.executable, *words],
            capture_output=True,
            text=True,
            env=environment,
            cwd=ROOT,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return python


def _insert(path: Path, block: str) -> None:
    """Insert each added line of a diff after the line before it."""
    text, before = path.read_text(), ""
    for line in block.splitlines():
        if line.startswith("+"):
            assert text.count(f"\n{before}\n") == 1, f"{path.name} has not exactly one line {before!r}"
            text = text.replace(f"\n{before}\n", f"\n{before}\n{line[1:]}\n")
        before = line[1:]
    path.write_text(text)


def _equipoise(run: Callable[..., str], *words: str) -> str:
    return run("-c", "from equipoise.cli.main import main; main()", *words)


def test_its_command_plans(run: Callable[..., str]) -> None:
    """In the shape of all plans."""
    document = json.loads(
        _equipoise(run, "spread", "plan", "--from", str(EXAMPLE / "pods.yaml"), "-o", "json")
    )
    (decision,) = document["decisions"]
    assert (document["balancer"], decision["reason"]) == ("spread", "Rebalance")
    assert decision["actions"] == [{"kind": "EvictPod", "pod": "web-b", "namespace": "shop"}]
    assert decision["numbers"] == {
        "pods_per_node_max": 2,
        "pods_on_fullest_node": 3,
        "fullest_node": "node-1",
    }


def test_the_program_knows_it_from_the_table(run: Callable[..., str]) -> None:
    """Help, its definition, the operator's settings; nothing of it is loaded before it is asked for."""
    assert "spread" in _equipoise(run, "--help")
    assert "spreadpolicies.equipoise.dev" in _equipoise(run, "crds", "print")
    settings = "from equipoise.runtime.settings import Settings; print(Settings().interval_seconds('spread'))"
    assert run("-c", settings).strip() == "30.0"
    loaded = "import sys, equipoise.engine.balancer; print([n for n in sys.modules if 'spread' in n])"
    assert run("-c", loaded).strip() == "[]"


def test_its_loop_runs_in_the_simulator_and_its_records_replay(run: Callable[..., str]) -> None:
    """A node died and came back: its pods are on the other one, and go back one by one, by the ledger."""
    came = json.loads(run("-c", CYCLES))
    assert came["results"] == ["Accepted", "Accepted"]
    assert came["entries"] == ["spread", "spread"]
    assert came["reasons"] == ["Balanced", "HeldByCooldown", "Rebalance"]
    assert came["replayed"] is True

"""The reference names every setting and every metric."""

from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from equipoise.core.reason import Code
from equipoise.runtime.layers import leaf_paths
from tests.support.operator.worlds import ScriptedLoop, decision, eventually, report, standing

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
PAGE = (REFERENCE / "operator.md").read_text()
METRICS = (REFERENCE / "metrics.md").read_text()


def test_every_setting_is_explained() -> None:
    """By its path in the file."""
    assert [path for path in leaf_paths() if f"`{'.'.join(path)}`" not in PAGE] == []


def test_every_metric_is_explained() -> None:
    """By the name that Prometheus shows."""
    acted = report(decision("shop/web", Code.ROTATE, "a", threshold_cores=1.0), done="Accepted")
    with standing(ScriptedLoop(lambda _: acted)) as shell:
        eventually(lambda: shell.get("/readyz")[0] == 200)
        families = list(text_string_to_metric_families(shell.get("/metrics")[1]))
    names = {f"{one.name}_total" if one.type == "counter" else one.name for one in families}
    ours = {name for name in names if not name.startswith("process_")}
    assert len(ours) > 10
    assert sorted(name for name in ours if f"`{name}`" not in METRICS) == []

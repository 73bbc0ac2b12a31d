"""What is generated is up to date."""

import runpy
from pathlib import Path

import pytest
import yaml

from equipoise.cli.manifests import KINDS
from tests.support.cli.running import equipoise

ROOT = Path(__file__).parents[2]
OUTPUTS: dict[Path, str] = runpy.run_path(str(ROOT / "docs" / "reference" / "make.py"))["outputs"]()


@pytest.mark.parametrize("path", OUTPUTS, ids=lambda path: path.name)
def test_a_generated_file_is_what_would_be_generated_now(path: Path) -> None:
    """Else: `.venv/bin/python docs/reference/make.py`."""
    assert path.read_text() == OUTPUTS[path]


def test_the_chart_has_what_the_command_prints_and_nothing_else() -> None:
    """One file for each kind."""
    folder = ROOT / "charts" / "equipoise" / "crds"
    files = {path.stem: yaml.safe_load(path.read_text()) for path in folder.glob("*.yaml")}
    printed = {one["metadata"]["name"]: one for one in yaml.safe_load_all(equipoise("crds", "print").stdout)}
    assert files == printed
    assert set(files) == {kind.definition_name for kind in KINDS}

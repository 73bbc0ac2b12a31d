"""Plans that are written to a journal: each is found, explained in values, and decided again."""

import re
from pathlib import Path

import pytest

from tests.support.cli.running import equipoise

EXAMPLES = Path(__file__).parents[2] / "examples"
PLANS = {
    "rotation": ("--from", "01-rotation-plan.yaml"),
    "qos": ("--from", "06-qos-plan.yaml"),
    "proportional": ("--policy", "04-scalingpolicy.yaml", "--input", "cores=18", "--input", "nodes=5"),
    "recommendation": ("--from", "03-recommendation-usage.csv", "--request", "1", "--replicas", "12"),
}


@pytest.mark.parametrize("balancer", PLANS)
def test_every_plan_is_written_to_a_journal_and_decided_again_from_it(balancer: str, tmp_path: Path) -> None:
    """In the same way; and its explanation has values, not Python."""
    option, name, *more = PLANS[balancer]
    file = str(tmp_path / "journal.db")
    done = equipoise(balancer, "plan", option, str(EXAMPLES / name), *more, "--journal", file)
    assert done.returncode == 0, done.stderr
    assert equipoise("journal", "replay", "--all", "--file", file).stdout == "1 replayed, 1 the same.\n"
    header, row = equipoise("journal", "list", "--file", file).stdout.splitlines()
    assert header.split() == ["ID", "TIME", "TIMES", "BALANCER", "SUBJECT", "REASON", "SENTENCE"]
    assert row.split()[4] == balancer
    text = equipoise("journal", "explain", row.split()[0], "--file", file).stdout
    assert not re.search(r"\{'|\['|None|True|False|\de\+\d", text)
    assert all(line == line.rstrip() for line in text.splitlines())


def test_a_journal_that_does_not_exist_names_what_creates_it(tmp_path: Path) -> None:
    """The default one as well as one that is named; the command that is named does create it."""
    state = {"XDG_STATE_HOME": str(tmp_path)}
    done = equipoise("journal", "list", environment=state)
    assert (done.returncode, done.stdout) == (2, "")
    path = tmp_path / "equipoise" / "journal.db"
    assert done.stderr.startswith(f"error: journal {path}: it does not exist yet; ")
    (command,) = re.findall(r"`equipoise (rotation plan) -A --journal ([^`]+)`", done.stderr)
    assert command[1] == str(path)
    example = str(EXAMPLES / "01-rotation-plan.yaml")
    assert equipoise(*command[0].split(), "--from", example, "--journal", command[1]).returncode == 0
    assert len(equipoise("journal", "list", "--no-headers", environment=state).stdout.splitlines()) == 1

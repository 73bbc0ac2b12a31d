"""What the journal keeps of a rotation: each wave, and the verdict with what it was measured from."""

from pathlib import Path

from equipoise.cli.replay import compare
from tests.support.journal.worlds import all_of, journal
from tests.support.rotation.running import run_in
from tests.support.sim.scenes import six_pods


def test_a_verdict_is_kept_whole_also_where_the_reason_stays(tmp_path: Path) -> None:
    """Who asks where the realised improvement comes from finds the pods that were measured."""
    path = tmp_path / "journal.db"
    with journal(path) as diary:
        run = run_in(six_pods(0), journal=diary)
        for _ in range(120):
            run.cycle()
            run.rest()
            if run.verdicts:
                break
    (verdict,) = run.verdicts
    (ended,) = [one for one in all_of(path) if "course" in one.memory and "course" not in one.decision.memory]
    assert ended.has_inputs
    assert ended.decision.memory["last"] == verdict
    assert ended.at == verdict["endedAt"]
    assert compare(ended) is None

"""The applier's contract has teeth: appliers that are wrong on purpose, and the fact that finds each out."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from equipoise.core.cluster import WorkloadRef
from equipoise.ports import ApplyAnswer, ApplyResult
from tests.support.contracts import applier_facts
from tests.support.contracts.simulated import SimulatedWorld


class Wrong:
    """An applier that is right but for what a mutation changes."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._state = world.sim.state
        self._right = world.sim.applier

    def apply_hpa(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> ApplyAnswer:
        return self._right.apply_hpa(manifest, is_dry_run=is_dry_run)

    def annotate(
        self, workload: WorkloadRef, annotations: Mapping[str, str], *, is_dry_run: bool = False
    ) -> ApplyAnswer:
        return self._right.annotate(workload, annotations, is_dry_run=is_dry_run)


class DryRunActs(Wrong):
    """Forgets that it was only asked what if."""

    def apply_hpa(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> ApplyAnswer:
        return self._right.apply_hpa(manifest)


class TakesOver(Wrong):
    """Makes everybody's HPA its own first."""

    def apply_hpa(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> ApplyAnswer:
        for hpa in self._state.hpas:
            hpa.manager = "equipoise"
        return self._right.apply_hpa(manifest, is_dry_run=is_dry_run)


class Forces(Wrong):
    """Overwrites what somebody has set since."""

    def apply_hpa(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> ApplyAnswer:
        for hpa in self._state.hpas:
            hpa.edited_by = ""
        return self._right.apply_hpa(manifest, is_dry_run=is_dry_run)


class BlindToKeda(Wrong):
    """Knows only HPAs."""

    def apply_hpa(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> ApplyAnswer:
        self._state.autoscaler_pauses.clear()
        return self._right.apply_hpa(manifest, is_dry_run=is_dry_run)


class AlwaysChanges(Wrong):
    """Says that it did something when it did not."""

    def apply_hpa(self, manifest: Mapping[str, Any], *, is_dry_run: bool = False) -> ApplyAnswer:
        answer = self._right.apply_hpa(manifest, is_dry_run=is_dry_run)
        return ApplyAnswer(ApplyResult.CHANGED) if answer.result is ApplyResult.UNCHANGED else answer


class RollsOut(Wrong):
    """Touches the template beside the annotation."""

    def annotate(
        self, workload: WorkloadRef, annotations: Mapping[str, str], *, is_dry_run: bool = False
    ) -> ApplyAnswer:
        answer = self._right.annotate(workload, annotations, is_dry_run=is_dry_run)
        found = self._state.workloads.get(workload)
        if found is not None:
            found.generation += 1
            found.revision = "another"
            found.owner_uids["another"] = "1"
            self._state.workload_changed(found)
        return answer


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        (DryRunActs, applier_facts.an_hpa_is_created_kept_and_changed),
        (AlwaysChanges, applier_facts.an_hpa_is_created_kept_and_changed),
        (TakesOver, applier_facts.what_somebody_else_made_is_left_alone),
        (Forces, applier_facts.a_field_that_somebody_else_has_set_stays_theirs),
        (BlindToKeda, applier_facts.what_keda_scales_is_left_alone),
        (RollsOut, applier_facts.an_annotation_is_all_that_changes),
    ],
    ids=lambda part: part.__name__,
)
def test_a_wrong_applier_is_found_out(wrong: type[Wrong], fact: Callable[[SimulatedWorld], None]) -> None:
    """One that takes what is not ours is worse than none."""
    world = SimulatedWorld()
    world.applier = wrong(world)
    with pytest.raises(AssertionError):
        fact(world)

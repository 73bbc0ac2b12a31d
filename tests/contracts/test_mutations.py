"""The contracts have teeth: worlds that are wrong on purpose, and the fact that finds each out."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from equipoise.adapters.kubernetes.lease import LeaseElection, LeaseRecord
from equipoise.core.cluster import ObjectRef, Pod, PodRef, WorkloadRef
from equipoise.core.ledger import BYTES_MAX
from equipoise.ports import Actuator, EvictionAnswer, EvictionResult, PolicyObject, Store, Stored
from equipoise.sim import World
from equipoise.sim.state import SimSettings
from equipoise.sim.store import SimPauses, SimPolicies, SimStore
from tests.support.contracts import (
    actuator_facts,
    cluster_facts,
    leadership_facts,
    operator_facts,
    store_facts,
)
from tests.support.contracts.servers import elections
from tests.support.contracts.simulated import SimulatedElections, SimulatedOperator, SimulatedWorld
from tests.support.sim.election import SimCandidate


class Wrong:
    """An actuator that is right but for what a mutation changes."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._world = world
        self._right: Actuator = world.sim.actuator

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        return self._right.evict(pod, grace_seconds=grace_seconds, is_dry_run=is_dry_run)

    def record_event(self, about: ObjectRef, reason: str, sentence: str, *, is_warning: bool = False) -> None:
        self._right.record_event(about, reason, sentence, is_warning=is_warning)

    def _delete(self, ref: PodRef) -> EvictionAnswer:
        found = self._world.sim.state.pods.get((ref.namespace, ref.name))
        if found is not None:
            self._world.sim.kubelet.end(found)
        return EvictionAnswer(EvictionResult.ACCEPTED)


class IgnoresBudgets(Wrong):
    """Deletes where it should evict."""

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        answer = super().evict(pod, grace_seconds=grace_seconds, is_dry_run=is_dry_run)
        return self._delete(pod) if answer.result is EvictionResult.BLOCKED and not is_dry_run else answer


class IgnoresUids(Wrong):
    """Goes by the name alone."""

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        found = self._world.sim.state.pods.get((pod.namespace, pod.name))
        return super().evict(found.ref if found else pod, grace_seconds=grace_seconds, is_dry_run=is_dry_run)


class DryRunActs(Wrong):
    """Forgets that it was only asked what if."""

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        return super().evict(pod, grace_seconds=grace_seconds, is_dry_run=False)


class PicksOneOfSeveralBudgets(Wrong):
    """Is more lenient than the server."""

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        answer = super().evict(pod, grace_seconds=grace_seconds, is_dry_run=is_dry_run)
        return self._delete(pod) if answer.result is EvictionResult.REFUSED else answer


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        (IgnoresBudgets, actuator_facts.a_budget_of_one_blocks_the_second_until_the_first_is_replaced),
        (IgnoresBudgets, actuator_facts.our_arithmetic_says_what_the_server_will_say),
        (IgnoresUids, actuator_facts.a_wrong_uid_changes_nothing),
        (DryRunActs, actuator_facts.a_dry_run_changes_nothing),
        (DryRunActs, actuator_facts.a_dry_run_does_not_count_down),
        (PicksOneOfSeveralBudgets, actuator_facts.a_pod_under_several_budgets_is_refused),
    ],
    ids=lambda part: part.__name__,
)
def test_a_wrong_actuator_is_found_out(wrong: type[Wrong], fact: Callable[[SimulatedWorld], None]) -> None:
    """A simulator that evicts what a server would not is worse than none."""
    world = SimulatedWorld()
    world.actuator = wrong(world)
    with pytest.raises(AssertionError):
        fact(world)


class HidesTerminating:
    """Shows pods that are on their way out as if they were staying."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._right = world.sim.cluster

    def pods(self, namespace: str | None = None) -> list[Pod]:
        return [_staying(pod) for pod in self._right.pods(namespace)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._right, name)


def _staying(pod: Pod) -> Pod:
    import msgspec

    return msgspec.structs.replace(pod, deletion_at=None)


def test_a_cluster_that_hides_what_is_ending_is_found_out() -> None:
    """A pod on its way out does not count as there."""
    world = SimulatedWorld()
    world.cluster = HidesTerminating(world)
    with pytest.raises(AssertionError):
        cluster_facts.a_terminating_pod_is_shown_as_such_until_it_is_gone(world)


class DeafToKeda:
    """Knows of no pause."""

    def __init__(self, world: SimulatedWorld) -> None:
        self._right = world.sim.cluster

    def autoscaler_pauses(self, namespace: str | None = None) -> Mapping[WorkloadRef, str]:
        del namespace
        return {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._right, name)


def test_a_cluster_that_is_deaf_to_pauses_is_found_out() -> None:
    """Who holds the replicas does not want the pods moved."""
    world = SimulatedWorld()
    world.cluster = DeafToKeda(world)
    with pytest.raises(AssertionError):
        cluster_facts.a_paused_autoscaler_is_told_with_what_paused_it_until_it_goes_on(world)


class ComparesFirst(Wrong):
    """Spares the budget where the server does not."""

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        found = self._world.sim.state.pods.get((pod.namespace, pod.name))
        if found is None or found.uid != pod.uid:
            return EvictionAnswer(EvictionResult.GONE)
        return super().evict(pod, grace_seconds=grace_seconds, is_dry_run=is_dry_run)


def test_an_actuator_that_compares_before_it_counts_is_found_out() -> None:
    """A loop that asks with old UIDs would go through in the simulator and be blocked in a cluster."""
    world = SimulatedWorld()
    world.actuator = ComparesFirst(world)
    with pytest.raises(AssertionError):
        actuator_facts.an_order_for_another_incarnation_still_costs_its_budget(world)


class LastWriteWins:
    """Reads the newest version in the last moment, and calls that a comparison."""

    def __init__(self, store: Store) -> None:
        self._right = store

    def read(self, key: WorkloadRef) -> Stored:
        return self._right.read(key)

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        return self._right.read_all(namespace)

    def write(self, key: WorkloadRef, data: Mapping[str, Any], version: str) -> Stored:
        del version
        return self._right.write(key, data, self._right.read(key).version)


class Merges(LastWriteWins):
    """Keeps what the writer wanted forgotten."""

    def write(self, key: WorkloadRef, data: Mapping[str, Any], version: str) -> Stored:
        before = self._right.read(key).data.get("memory", {}).get("rotation", {})
        memory = {"rotation": before | data["memory"]["rotation"]}
        return self._right.write(key, {**data, "memory": memory}, version)


class ReadsEverywhere(LastWriteWins):
    """Does not care which namespace was asked for."""

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        del namespace
        return self._right.read_all()


class ForgetsVersions(LastWriteWins):
    """Reads many, and not against what they could be written."""

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        return {ref: Stored(each.data) for ref, each in self._right.read_all(namespace).items()}

    def write(self, key: WorkloadRef, data: Mapping[str, Any], version: str) -> Stored:
        return self._right.write(key, data, version)


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        (LastWriteWins, store_facts.a_write_with_an_old_version_conflicts_and_changes_nothing),
        (LastWriteWins, store_facts.an_entry_is_made_only_once),
        (LastWriteWins, store_facts.an_entry_that_is_absent_has_no_version_to_match),
        (Merges, store_facts.a_write_replaces_the_whole_document),
        (ReadsEverywhere, store_facts.a_namespace_narrows_what_is_read_at_once),
        (ForgetsVersions, store_facts.all_entries_read_as_each_does_by_itself),
    ],
    ids=lambda part: part.__name__,
)
def test_a_wrong_store_is_found_out(
    wrong: type[LastWriteWins], fact: Callable[[SimulatedWorld], None]
) -> None:
    """A lost compare-and-swap is two leaders' intents in one ledger."""
    world = SimulatedWorld()
    world.store = wrong(world.store)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        fact(world)


def test_a_bound_that_is_another_is_found_out() -> None:
    """What fits in the simulator must fit in a cluster."""
    world = SimulatedWorld()
    world.store = SimStore(World(7, settings=SimSettings(store_bytes_max=BYTES_MAX + 1)).state)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        store_facts.an_entry_holds_what_it_may_and_not_a_byte_more(world)


class KeepsItsEpoch(LeaseElection):
    """Takes the lease over and leaves the transitions as they were."""

    def _acquire(self, seen: LeaseRecord) -> None:
        super()._acquire(
            LeaseRecord(seen.holder, max(seen.transitions - 1, 0), 0, seen.version, seen.metadata)
        )


class BelievesForEver(LeaseElection):
    """Asks no clock whether its renewal is recent."""

    def epoch(self) -> int | None:
        belief = self._belief
        return belief.epoch if belief is not None else None


class TakesOverAtOnce(LeaseElection):
    """Does not wait until a lease is over."""

    def _is_expired(self, seen: LeaseRecord) -> bool:
        del seen
        return True


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        (KeepsItsEpoch, leadership_facts.a_dead_leader_is_succeeded_in_the_next_epoch),
        (KeepsItsEpoch, leadership_facts.a_polite_leader_hands_over_at_once),
        (KeepsItsEpoch, leadership_facts.a_lapse_of_our_own_begins_a_new_epoch),
        (
            BelievesForEver,
            leadership_facts.a_leader_that_was_stopped_for_long_has_no_epoch_from_the_first_moment,
        ),
        (BelievesForEver, leadership_facts.two_never_lead_at_one_moment_and_epochs_only_grow),
        (TakesOverAtOnce, leadership_facts.the_first_leads_and_the_second_does_not),
    ],
    ids=lambda part: part.__name__,
)
def test_a_wrong_election_is_found_out(wrong: type[LeaseElection], fact: Callable[[Any], None]) -> None:
    """An epoch that does not grow fences nobody off."""
    with elections(wrong) as world, pytest.raises(AssertionError):
        fact(world)


class LastWriterWins(SimPolicies):
    """Takes a status against any version."""

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        there = next((each for each in self.policies() if each.ref == policy.ref), policy)
        super().write_status(there, status)


class Deaf(SimPauses):
    """Hears what is said of a namespace, and not what is said of everything."""

    def pause(self, namespace: str | None, who: str) -> None:
        if namespace is not None:
            super().pause(namespace, who)


class SameEpoch(SimCandidate):
    """Takes over without a transition."""

    def _write(self, at: float, epoch: int) -> None:
        super()._write(at, max(1, self.lease.epoch))
        del epoch


def test_policies_that_take_any_version_are_found_out() -> None:
    """A status of an old question must not stand."""
    world = SimulatedOperator()
    world.sim.policies = LastWriterWins(world.sim.state)
    world.policies = world.sim.policies
    with pytest.raises(pytest.fail.Exception):
        operator_facts.a_status_against_an_old_version_is_a_conflict_and_changes_nothing(world)


def test_pauses_that_miss_a_stop_of_everything_are_found_out() -> None:
    """Stop means stop."""
    world = SimulatedOperator()
    world.sim.pauses = Deaf(world.sim.state)
    world.pauses = world.sim.pauses
    with pytest.raises(AssertionError):
        operator_facts.a_pause_of_everything_holds_everywhere(world)


def test_a_simulated_lease_without_transitions_is_found_out() -> None:
    """The epoch is what fences an old leader."""
    with pytest.raises(AssertionError):
        leadership_facts.a_dead_leader_is_succeeded_in_the_next_epoch(SimulatedElections(SameEpoch))

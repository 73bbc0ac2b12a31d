"""The fence: every prefix of an action is safe."""

import threading
from collections.abc import Mapping
from typing import Any

import pytest

from equipoise.guard.fence import Fence
from equipoise.model.decision import EvictPod
from equipoise.model.errors import WorldFailed
from equipoise.model.ledger import AGE_MAX_SECONDS, ENTRIES_MAX, Entry, EntryState, Fenced, Ledger
from equipoise.model.references import ObjectRef, PodRef, StoreKey, WorkloadRef
from equipoise.ports import EvictionAnswer, EvictionResult, StoreConflict, Stored

KEY = StoreKey("ledger", WorkloadRef("apps/v1", "Deployment", "shop", "web"))
ACTION = EvictPod("a", "shop", "uid-a")
NOW = 1_800_000_000.0


def _entry(epoch: int = 1, number: int = 0, at: float = NOW) -> Entry:
    return Entry(f"id-{number}", f"round-{number}", "rotation", "EvictPod", "a", "uid-a", at, epoch)


class Memory:
    """A store in memory."""

    def __init__(self) -> None:
        self.data: Mapping[str, Any] = {}
        self.version = 0
        self.lock = threading.Lock()

    def read(self, key: StoreKey) -> Stored:
        assert key == KEY
        return Stored(self.data, str(self.version) if self.version else "")

    def write(self, key: StoreKey, data: Mapping[str, Any], version: str) -> Stored:
        with self.lock:
            if version != (str(self.version) if self.version else ""):
                raise StoreConflict
            self.data, self.version = data, self.version + 1
            return Stored(data, str(self.version))

    @property
    def ledger(self) -> Ledger:
        return Ledger.from_data(self.data)


class Cluster:
    """Counts evictions, and answers as told."""

    def __init__(self, answer: EvictionResult | WorldFailed = EvictionResult.ACCEPTED) -> None:
        self.answer = answer
        self.evicted: list[PodRef] = []

    def evict(
        self, pod: PodRef, *, grace_seconds: int | None = None, is_dry_run: bool = False
    ) -> EvictionAnswer:
        assert grace_seconds is None
        assert not is_dry_run
        self.evicted.append(pod)
        if isinstance(self.answer, WorldFailed):
            raise self.answer
        return EvictionAnswer(self.answer)

    def record_event(self, about: ObjectRef, reason: str, sentence: str, *, is_warning: bool = False) -> None:
        raise AssertionError((about, reason, sentence, is_warning))


def _harmless(action: EvictPod) -> str | None:
    """Nothing has changed since the pod was chosen."""
    del action
    return None


class Leads:
    """Leads in an epoch, until told otherwise."""

    def __init__(self, epoch: int | None = 1) -> None:
        self.now: int | None = epoch

    def epoch(self) -> int | None:
        return self.now


def test_the_intent_is_written_before_the_deed_and_the_outcome_after() -> None:
    """The ledger's states at each step."""
    memory, cluster, steps = Memory(), Cluster(), []
    fence = Fence(
        memory,
        Leads(),
        cluster,
        _harmless,
        lambda step: steps.append((step, memory.ledger.entries[0].state, len(cluster.evicted))),
    )
    outcome = fence.evict(ACTION, KEY, _entry())
    assert outcome.result == "Accepted"
    assert steps == [
        ("intent", EntryState.INTENT, 0),
        ("deed", EntryState.INTENT, 1),
        ("outcome", EntryState.DONE, 1),
    ]
    assert cluster.evicted == [PodRef("shop", "a", "uid-a")]


def test_a_lease_lost_after_the_intent_means_no_deed() -> None:
    """Stopped between guard and action for longer than the lease: the intent stays, nothing is sent."""
    memory, cluster, leads = Memory(), Cluster(), Leads()

    def stop(step: str) -> None:
        if step == "intent":
            leads.now = None

    assert Fence(memory, leads, cluster, _harmless, stop).evict(ACTION, KEY, _entry()).result == "Fenced"
    assert cluster.evicted == []
    assert memory.ledger.entries[0].state is EntryState.INTENT


def test_a_newer_epoch_in_the_ledger_fences_an_old_leader() -> None:
    """Even one that still believes in itself."""
    memory, cluster = Memory(), Cluster()
    Fence(memory, Leads(2), cluster, _harmless).evict(ACTION, KEY, _entry(2))
    assert Fence(memory, Leads(1), cluster, _harmless).evict(ACTION, KEY, _entry(1, 1)).result == "Fenced"
    assert len(cluster.evicted) == 1


def test_a_conflict_on_the_intent_means_no_deed() -> None:
    """Somebody else wrote between our reading and our writing."""

    class Raced(Memory):
        def read(self, key: StoreKey) -> Stored:
            return Stored(super().read(key).data, "stale")

    cluster = Cluster()
    assert Fence(Raced(), Leads(), cluster, _harmless).evict(ACTION, KEY, _entry()).result == "Fenced"
    assert cluster.evicted == []


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (EvictionResult.ACCEPTED, EntryState.DONE),
        (EvictionResult.BLOCKED, EntryState.FAILED),
        (EvictionResult.GONE, EntryState.FAILED),
        (EvictionResult.REFUSED, EntryState.FAILED),
    ],
)
def test_the_outcome_is_what_the_server_said(answer: EvictionResult, state: EntryState) -> None:
    """Only what was accepted uses the budget."""
    memory = Memory()
    assert (
        Fence(memory, Leads(), Cluster(answer), _harmless).evict(ACTION, KEY, _entry()).result == answer.value
    )
    assert memory.ledger.entries[0].state is state


def test_an_unknown_answer_leaves_the_intent_which_counts() -> None:
    """The connection died: it may have happened, so the budget is used."""
    memory = Memory()
    with pytest.raises(WorldFailed):
        Fence(memory, Leads(), Cluster(WorldFailed("cut")), _harmless).evict(ACTION, KEY, _entry())
    assert memory.ledger.rounds_since(0, "rotation") == 1


def test_an_old_intent_gets_the_outcome_that_the_world_shows() -> None:
    """Gone: done. Still there after two minutes: it never happened. Still there and young: wait."""
    ledger = Ledger(1, (_entry(),))
    assert ledger.reconciled([], NOW + 1).entries[0].state is EntryState.DONE
    assert ledger.reconciled(["uid-a"], NOW + 121).entries[0].state is EntryState.FAILED
    assert ledger.reconciled(["uid-a"], NOW + 1) is ledger


def test_the_ledger_is_bounded_by_age_and_number() -> None:
    """A thousand entries later it still fits."""
    ledger = Ledger()
    for number in range(1000):
        ledger = ledger.with_intent(_entry(1, number, NOW + number))
    assert len(ledger.entries) == ENTRIES_MAX
    assert ledger.entries[-1].id == "id-999"
    later = ledger.with_intent(_entry(1, 1000, NOW + 2 * AGE_MAX_SECONDS))
    assert len(later.entries) == 1
    with pytest.raises(Fenced):
        Ledger(5).with_intent(_entry(4))


def test_a_ledger_survives_its_store() -> None:
    """Out and back."""
    ledger = Ledger(3, (_entry(3), _entry(3, 1)))
    assert Ledger.from_data(ledger.to_data()) == ledger
    assert Ledger.from_data({}) == Ledger()


def test_a_world_that_has_changed_since_the_choice_means_no_deed() -> None:
    """The last look says why; the intent is given back, and the outcome tells."""
    memory, cluster = Memory(), Cluster()
    fence = Fence(memory, Leads(), cluster, lambda action: f"{action.pod} is on its way")
    outcome = fence.evict(ACTION, KEY, _entry())
    assert (outcome.result, outcome.detail) == ("Outdated", "a is on its way")
    assert cluster.evicted == []
    assert memory.ledger.entries[0].state is EntryState.FAILED

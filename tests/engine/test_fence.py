"""The fence: every prefix of an action is safe."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from equipoise.core.cluster import ObjectRef, PodRef, WorkloadRef
from equipoise.core.decision import Action, EvictPod, Outcome
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import AGE_MAX_SECONDS, ENTRIES_MAX, Entry, EntryState, Fenced, Ledger
from equipoise.engine.executor import Executed, FencedExecutor, Intent, evict, execute_isolated
from equipoise.engine.isolation import Isolation, ignore
from equipoise.ports import Actuator, EvictionAnswer, EvictionResult, Leadership, Store, StoreConflict, Stored

KEY = WorkloadRef("apps/v1", "Deployment", "shop", "web")
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

    def read(self, key: WorkloadRef) -> Stored:
        assert key == KEY
        return Stored(self.data, str(self.version) if self.version else "")

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        raise AssertionError(namespace)

    def write(self, key: WorkloadRef, data: Mapping[str, Any], version: str) -> Stored:
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


def _harmless(action: Action) -> str | None:
    """Nothing has changed since the pod was chosen."""
    del action
    return None


class _Fence:
    """Evicts through the executor."""

    def __init__(
        self,
        store: Store,
        leadership: Leadership,
        cluster: Actuator,
        recheck: Callable[[Action], str | None] = _harmless,
        on_step: Callable[[str], object] = ignore,
    ) -> None:
        self._executor = FencedExecutor("rotation", store, leadership, recheck, on_step)
        self._cluster = cluster

    def evict(self, intent: Intent, based_on: Stored, memory: Mapping[str, Any] | None = None) -> Executed:
        pod = PodRef("shop", intent.pod, intent.uid)
        return self._executor.execute(ACTION, lambda: evict(self._cluster, pod), intent, based_on, memory)


def _intent(epoch: int = 1, number: int = 0) -> Intent:
    return Intent(f"id-{number}", KEY, "a", "uid-a", NOW, epoch, f"round-{number}")


class Leads:
    """Leads in an epoch, until told otherwise."""

    def __init__(self, epoch: int | None = 1) -> None:
        self.now: int | None = epoch

    def epoch(self) -> int | None:
        return self.now


def test_the_intent_is_written_before_the_deed_and_the_outcome_after() -> None:
    """The ledger's states at each step."""
    memory, cluster, steps = Memory(), Cluster(), []
    fence = _Fence(
        memory,
        Leads(),
        cluster,
        _harmless,
        lambda step: steps.append((step, memory.ledger.entries[0].state, len(cluster.evicted))),
    )
    outcome, stored = fence.evict(_intent(), memory.read(KEY))
    assert outcome.result == "Accepted"
    assert stored == memory.read(KEY)
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

    fence = _Fence(memory, leads, cluster, on_step=stop)
    outcome, stored = fence.evict(_intent(), Stored({}))
    assert (outcome.result, stored) == ("Fenced", None)
    assert cluster.evicted == []
    assert memory.ledger.entries[0].state is EntryState.INTENT


def test_a_newer_epoch_in_the_ledger_fences_an_old_leader() -> None:
    """Even one that still believes in itself."""
    memory, cluster = Memory(), Cluster()
    _Fence(memory, Leads(2), cluster).evict(_intent(2), Stored({}))
    old = _Fence(memory, Leads(1), cluster)
    assert old.evict(_intent(1, 1), memory.read(KEY)).outcome.result == "Fenced"
    assert len(cluster.evicted) == 1


def test_a_conflict_on_the_intent_means_no_deed() -> None:
    """Somebody else wrote between the guards' look and ours: they would have to be asked again."""
    memory, cluster = Memory(), Cluster()
    seen = memory.read(KEY)
    written = memory.write(KEY, Ledger().with_intent(_entry(0)).to_data(), seen.version)
    outcome, stored = _Fence(memory, Leads(), cluster).evict(_intent(1, 1), seen)
    assert (outcome.result, stored) == ("Fenced", None)
    assert cluster.evicted == []
    assert memory.read(KEY) == written


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (EvictionResult.ACCEPTED, EntryState.DONE),
        (EvictionResult.BLOCKED, EntryState.FAILED),
        (EvictionResult.GONE, EntryState.FAILED),
        (EvictionResult.REFUSED, EntryState.FAILED),
        (EvictionResult.FORBIDDEN, EntryState.FAILED),
    ],
)
def test_the_outcome_is_what_the_server_said(answer: EvictionResult, state: EntryState) -> None:
    """Only what was accepted uses the budget."""
    memory = Memory()
    fence = _Fence(memory, Leads(), Cluster(answer))
    assert fence.evict(_intent(), Stored({})).outcome.result == answer.value
    assert memory.ledger.entries[0].state is state


def test_an_unknown_answer_leaves_the_intent_which_counts() -> None:
    """The connection died: it may have happened, so the budget is used."""
    memory = Memory()
    with pytest.raises(WorldFailed):
        _Fence(memory, Leads(), Cluster(WorldFailed("cut"))).evict(_intent(), Stored({}))
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
    fence = _Fence(memory, Leads(), cluster, lambda action: f"{action.pod} is on its way")
    outcome, stored = fence.evict(_intent(), Stored({}))
    assert (outcome.result, outcome.detail) == ("Outdated", "a is on its way")
    assert stored == memory.read(KEY)
    assert cluster.evicted == []
    assert memory.ledger.entries[0].state is EntryState.FAILED


def test_the_intent_and_the_memory_are_one_write() -> None:
    """There is no moment in which a pod has gone and nobody knows to which rotation it belongs."""
    memory, seen = Memory(), []
    fence = _Fence(memory, Leads(), Cluster(), _harmless, lambda step: seen.append(memory.ledger.memory))
    fence.evict(_intent(), Stored({}), {"course": {"round": "r"}})
    assert seen == [{"rotation": {"course": {"round": "r"}}}] * 3
    assert memory.ledger.entries_total == 1


def test_one_balancers_memory_leaves_the_others_alone() -> None:
    """Each replaces its own; an intent without one keeps what was there."""
    ledger = Ledger(memory={"qos": {"n": 1}, "rotation": {"n": 2}})
    assert ledger.with_intent(_entry()).memory == ledger.memory
    assert ledger.with_intent(_entry(), {"n": 3}).memory == {"qos": {"n": 1}, "rotation": {"n": 3}}
    assert ledger.remembering("rotation", {}).memory == {"qos": {"n": 1}, "rotation": {}}
    assert Ledger.from_data(ledger.to_data()) == ledger


def test_a_guest_is_fenced_by_nobody_and_fences_nobody() -> None:
    """Epoch 0 writes over any leader's ledger, and leaves the leader's epoch in it."""
    led = Ledger().with_intent(_entry(7))
    after = led.with_intent(_entry(0, 1))
    assert after.epoch == 7
    assert after.with_intent(_entry(7, 2)).epoch == 7
    with pytest.raises(Fenced):
        after.with_intent(_entry(6, 3))


def test_a_guest_whose_turn_ends_after_the_intent_does_nothing() -> None:
    """As a leader that lost its lease."""
    memory, cluster, leads = Memory(), Cluster(), Leads(0)

    def stop(step: str) -> None:
        leads.now = None

    fence = _Fence(memory, leads, cluster, on_step=stop)
    assert fence.evict(_intent(0), Stored({})).outcome.result == "Fenced"
    assert cluster.evicted == []


def test_an_outcome_is_written_over_whoever_wrote_in_between() -> None:
    """After the deed somebody else writes; the outcome is added to theirs, and nothing else follows it."""
    memory, cluster = Memory(), Cluster()

    def interfere(step: str) -> None:
        if step == "deed":
            now = memory.read(KEY)
            memory.write(KEY, memory.ledger.remembering("qos", {"n": 1}).to_data(), now.version)

    fence = _Fence(memory, Leads(), cluster, on_step=interfere)
    outcome, stored = fence.evict(_intent(), Stored({}))
    assert outcome.result == "Accepted"
    assert stored is None
    assert memory.ledger.memory == {"qos": {"n": 1}}
    assert memory.ledger.entries[0].state is EntryState.DONE


def test_an_outcome_that_cannot_be_written_leaves_the_ledger_unknown() -> None:
    """The deed was accepted, and what follows has nothing to be based on."""

    class Breaking(Memory):
        def write(self, key: WorkloadRef, data: Mapping[str, Any], version: str) -> Stored:
            if self.version:
                raise WorldFailed("gone")
            return super().write(key, data, version)

    memory = Breaking()
    outcome, stored = _Fence(memory, Leads(), Cluster()).evict(_intent(), Stored({}))
    assert (outcome.result, stored) == ("Accepted", None)
    assert memory.ledger.entries[0].state is EntryState.INTENT


@pytest.mark.parametrize("data", [{"entries": [{"at": "soon"}]}, {"epoch": "x"}, {"entries": 3}], ids=str)
def test_a_ledger_that_makes_no_sense_is_no_basis(data: dict[str, Any]) -> None:
    """It is not overwritten, and nothing is sent."""
    memory, cluster = Memory(), Cluster()
    outcome, stored = _Fence(memory, Leads(), cluster).evict(_intent(), Stored(data, "1"))
    assert (outcome.result, stored) == ("Fenced", None)
    assert (cluster.evicted, memory.version) == ([], 0)


def test_an_intent_says_what_is_done_by_whom_and_when() -> None:
    """The kind of the action, the balancer, and a moment to the millisecond; alone it is its own round."""
    memory = Memory()
    intent = Intent("id-7", KEY, "a", "uid-a", NOW + 0.12345, 3)
    _Fence(memory, Leads(3), Cluster()).evict(intent, Stored({}))
    (entry,) = memory.ledger.entries
    assert entry == Entry(
        "id-7", "id-7", "rotation", "EvictPod", "a", "uid-a", NOW + 0.123, 3, EntryState.DONE
    )


def test_an_error_while_an_action_is_sent_leaves_it_unknown() -> None:
    """An error of ours is also recorded as the subject's own; the intent counts either way."""

    def cut() -> Executed:
        raise WorldFailed("the connection was cut")

    def broken() -> Executed:
        raise ZeroDivisionError("division by zero")

    isolation = Isolation()
    assert execute_isolated(isolation, "shop/web", ACTION, cut).outcome == Outcome(
        ACTION, "Unknown", "the connection was cut"
    )
    assert isolation.failed == []
    unknown, stored = execute_isolated(isolation, "shop/web", ACTION, broken)
    assert (unknown.result, unknown.detail) == ("Unknown", "ZeroDivisionError: division by zero")
    assert stored is None
    assert [failed.subject for failed in isolation.failed] == ["shop/web"]

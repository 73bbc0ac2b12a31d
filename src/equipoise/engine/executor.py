"""One action at a time through the ledger: intent, re-check, leadership, send, outcome.

A process may crash, be suspended or lose its Lease between any two steps, and two replicas may both act as
leader for a moment; still no budget may be used twice. So before anything is sent, the intent is written by
compare-and-swap to the ledger version that the guards have read, with the epoch of our Lease. Every prefix of
the steps is safe: a crash after the intent or after the action leaves an entry that counts as done; a process
that was suspended in between finds that it is no longer the leader, and sends nothing.

A command and a node agent act without a Lease: the compare-and-swap of each ledger excludes concurrent
actions. A process that was asked to stop is no longer the leader, so it finishes the present action and
begins none.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from equipoise.core.cluster import PodRef, WorkloadRef
from equipoise.core.decision import Action, Outcome
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import GUEST_EPOCH, Entry, EntryState, Fenced, Ledger
from equipoise.engine.isolation import Isolation, ignore
from equipoise.ports import Actuator, EvictionResult, Leadership, Store, StoreConflict, Stored

SETTLE_TRIES = 5
"""Attempts to write an outcome when another writer is faster."""


class ActionResult(NamedTuple):
    """The result of an action that was sent, and the state of its intent."""

    result: str
    detail: str
    state: EntryState


def evict(actuator: Actuator, pod: PodRef, grace_seconds: int | None = None) -> ActionResult:
    """Send an eviction of this incarnation of a pod."""
    answer = actuator.evict(pod, grace_seconds=grace_seconds)
    state = EntryState.DONE if answer.result is EvictionResult.ACCEPTED else EntryState.FAILED
    return ActionResult(answer.result.value, answer.detail, state)


class Intent(NamedTuple):
    """The ledger's entry about an action before it is sent."""

    id: str
    workload: WorkloadRef
    """The workload whose ledger has the entry."""
    pod: str
    uid: str
    at: float
    epoch: int
    """The epoch in which the action was decided; it is sent in no other."""
    round: str = ""
    """The id that the actions of one decision share; by default the intent's own."""


class Executed(NamedTuple):
    """The outcome of an action, and the ledger after it; None where that is unknown."""

    outcome: Outcome
    stored: Stored | None = None


@dataclass(frozen=True, slots=True)
class FencedExecutor:
    """Executes the actions of one balancer."""

    balancer: str
    store: Store
    leadership: Leadership
    recheck: Callable[[Action], str | None]
    """Reads the target again, right before the action; returns why it must not be sent, or None."""
    on_step: Callable[[str], object] = ignore
    """Called after each step; tests stop the process there."""

    def execute(
        self,
        action: Action,
        send: Callable[[], ActionResult],
        intent: Intent,
        based_on: Stored,
        memory: Mapping[str, Any] | None = None,
    ) -> Executed:
        """Send an action if we are still the leader in the epoch of its intent, and its target is unchanged.

        `based_on` is the ledger that the guards have read: if it has changed since, their answers no longer
        hold, so nothing is sent. `memory` replaces the balancer's memory in the ledger, together with the
        intent.
        """
        entry = self._entry(action, intent)
        key = intent.workload
        try:
            ledger = Ledger.from_data(based_on.data).with_intent(entry, memory)
            stored = self.store.write(key, ledger.to_data(), based_on.version)
        except (StoreConflict, Fenced, WorldFailed) as error:
            # Nothing is sent without a written intent, so it is certain that nothing was changed.
            return Executed(Outcome(action, "Fenced", str(error)))
        self.on_step("intent")
        fenced = Executed(
            Outcome(action, "Fenced", "this process stopped being the leader before the action was sent")
        )
        if self.leadership.epoch() != entry.epoch:  # the present leader settles the intent
            return fenced
        outdated = self.recheck(action)
        if outdated is not None:
            settled = self._settle(key, entry.id, EntryState.FAILED, stored)
            return Executed(Outcome(action, "Outdated", outdated), settled)
        if self.leadership.epoch() != entry.epoch:  # the re-check took time
            return fenced
        sent = send()
        assert sent.state is not EntryState.INTENT, "an answer settles the intent; without one `send` raises"
        self.on_step("deed")
        settled = self._settle(key, entry.id, sent.state, stored)
        self.on_step("outcome")
        return Executed(Outcome(action, sent.result, sent.detail), settled)

    def _entry(self, action: Action, intent: Intent) -> Entry:
        assert intent.id, "an intent without an id can't be settled"
        assert intent.epoch >= 0, f"{intent.epoch} is the epoch of nobody"
        return Entry(
            id=intent.id,
            round=intent.round or intent.id,
            balancer=self.balancer,
            action=str(action.__struct_config__.tag),
            pod=intent.pod,
            uid=intent.uid,
            at=round(intent.at, 3),
            epoch=intent.epoch,
        )

    def _settle(self, key: WorkloadRef, entry_id: str, state: EntryState, stored: Stored) -> Stored | None:
        """Write the outcome, and return the ledger on which the next action may be based.

        When another writer was faster, the outcome is written into the newest version; then None is returned,
        since the guards have not read that version. If that fails the intent stays, and counts as done.
        """
        for attempt in range(1 + SETTLE_TRIES):
            try:
                stored = self.store.read(key) if attempt else stored
                ledger = Ledger.from_data(stored.data).settled(entry_id, state)
                written = self.store.write(key, ledger.to_data(), stored.version)
            except StoreConflict:
                continue
            except WorldFailed:
                break
            return None if attempt else written
        return None


def execute_isolated(
    isolation: Isolation, subject: str, action: Action, work: Callable[[], Executed]
) -> Executed:
    """Return the outcome of an action; after an error it is `Unknown`, since the action may have been sent.

    The intent stays in the ledger and counts as done. An unexpected exception is recorded as a failed turn.
    """
    try:
        return work()
    except WorldFailed as error:
        return Executed(Outcome(action, "Unknown", str(error)))
    except Exception as error:  # noqa: BLE001 - as unknown as a lost answer
        return Executed(Outcome(action, "Unknown", isolation.take(subject, error).error))


class LeaselessLeadership:
    """Is the leader for a limited time after a snapshot, in the epoch of processes without a Lease.

    A process that was suspended between its snapshot and an action is no longer the leader, like one that
    lost its Lease.
    """

    def __init__(self, monotonic: Callable[[], float], valid_seconds: float = 120.0) -> None:
        self._monotonic = monotonic
        self._valid_seconds = valid_seconds
        self._renewed_at = monotonic()

    def renew(self) -> None:
        """Start the time anew; call it right before the cluster is observed."""
        self._renewed_at = self._monotonic()

    def epoch(self) -> int | None:
        return GUEST_EPOCH if self._monotonic() - self._renewed_at < self._valid_seconds else None


@dataclass(frozen=True, slots=True)
class StoppingLeadership:
    """Is the leader while `inner` is, until this process is asked to stop."""

    inner: Leadership
    stopping: threading.Event

    def epoch(self) -> int | None:
        return None if self.stopping.is_set() else self.inner.epoch()

"""One change at a time: intent, a last look at the world and at ourselves, the deed, the outcome.

Every prefix of this is safe. A crash after the intent leaves an entry that counts as done; a crash after the
deed leaves the same. A process that was stopped in between finds that it leads no more, and does nothing.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from equipoise.core.cluster import PodRef, WorkloadRef
from equipoise.core.decision import Action, EvictPod, Outcome
from equipoise.core.errors import WorldFailed
from equipoise.core.ledger import Entry, EntryState, Fenced, Ledger
from equipoise.ports import Actuator, EvictionResult, Leadership, Store, StoreConflict, Stored

SETTLE_TRIES = 5
"""How often an outcome is written again when somebody else wrote in between."""

STATES = {
    EvictionResult.ACCEPTED: EntryState.DONE,
    EvictionResult.BLOCKED: EntryState.FAILED,
    EvictionResult.GONE: EntryState.FAILED,
    EvictionResult.REFUSED: EntryState.FAILED,
    EvictionResult.FORBIDDEN: EntryState.FAILED,
}
"""What each answer to an eviction means for its intent."""


def _nothing(step: str) -> None:
    del step


class ActionResult(NamedTuple):
    """What the world said to an action, and what that means for its intent."""

    result: str
    detail: str
    state: EntryState


class Executed(NamedTuple):
    """What came of an action, and the ledger after it; None where that is not known."""

    outcome: Outcome
    stored: Stored | None = None


@dataclass(frozen=True, slots=True)
class FencedExecutor:
    """What an action passes through on its way to the cluster."""

    store: Store
    leadership: Leadership
    actuator: Actuator
    recheck: Callable[[Action], str | None]
    """Looks at the world once more, right before the deed, and says why it is not to be done, or None."""
    passed: Callable[[str], object] = _nothing
    """Told after each step; tests stop the process there."""

    def evict(
        self,
        action: EvictPod,
        key: WorkloadRef,
        entry: Entry,
        based_on: Stored,
        memory: Mapping[str, Any] | None = None,
    ) -> Executed:
        """Evict one pod, if it is still our turn; `entry` is the intent that is written first.

        `based_on` is the ledger that the guards have seen: when it has changed since, they would have to be
        asked again, so nothing is done. `memory` is what our balancer remembers from the intent on.
        """

        def deed() -> ActionResult:
            answer = self.actuator.evict(PodRef(action.namespace, action.pod, action.uid))
            return ActionResult(answer.result.value, answer.detail, STATES[answer.result])

        return self.through(action, deed, key, entry, based_on, memory)

    def through(
        self,
        action: Action,
        deed: Callable[[], ActionResult],
        key: WorkloadRef,
        entry: Entry,
        based_on: Stored,
        memory: Mapping[str, Any] | None = None,
    ) -> Executed:
        """Do anything else the same way: intent, last look, deed, outcome."""
        try:
            ledger = Ledger.from_data(based_on.data).with_intent(entry, memory)
            stored = self.store.write(key, ledger.to_data(), based_on.version)
        except (StoreConflict, Fenced, WorldFailed) as error:
            # Without a written intent nothing is sent, so this is certain: it did not happen.
            return Executed(Outcome(action, "Fenced", str(error)))
        self.passed("intent")
        over = Executed(Outcome(action, "Fenced", "our turn was over after the intent"))
        if self.leadership.epoch() != entry.epoch:  # whoever leads now settles it, and asks for what it needs
            return over
        outdated = self.recheck(action)
        if outdated is not None:
            settled = self._settle(key, entry.id, EntryState.FAILED, stored)
            return Executed(Outcome(action, "Outdated", outdated), settled)
        if self.leadership.epoch() != entry.epoch:  # the look took time
            return over
        done = deed()
        self.passed("deed")
        settled = self._settle(key, entry.id, done.state, stored)
        self.passed("outcome")
        return Executed(Outcome(action, done.result, done.detail), settled)

    def _settle(self, key: WorkloadRef, entry_id: str, state: EntryState, stored: Stored) -> Stored | None:
        """Write the outcome down, and give the ledger on which the next action may be based.

        There is none when somebody else wrote meanwhile, since the guards have not seen that.
        """
        try:
            ledger = Ledger.from_data(stored.data).settled(entry_id, state)
            return self.store.write(key, ledger.to_data(), stored.version)
        except StoreConflict:
            self._settle_anew(key, entry_id, state)
        except WorldFailed:
            return None
        return None

    def _settle_anew(self, key: WorkloadRef, entry_id: str, state: EntryState) -> None:
        """Try again over what others wrote. When that fails the intent stays, and counts as done."""
        for _ in range(SETTLE_TRIES):
            try:
                stored = self.store.read(key)
                ledger = Ledger.from_data(stored.data).settled(entry_id, state)
                self.store.write(key, ledger.to_data(), stored.version)
            except StoreConflict:
                continue
            except WorldFailed:
                return
            else:
                return

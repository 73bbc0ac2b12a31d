"""Pods in tiers, in a store that several processes write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from equipoise.core.errors import WorldFailed

if TYPE_CHECKING:
    from equipoise.core.decision import MovePod, RegistrationAction
    from equipoise.core.pools import PoolAnswer, PoolsSnapshot


class Unanswered(WorldFailed):
    """The request was sent, and whether it took effect is unknown."""


class PoolsUpkeep(Protocol):
    """What the operator's loop needs of the tiers."""

    def snapshot(self, *, is_thorough: bool = False, also: Sequence[str] = ()) -> PoolsSnapshot:
        """Read every pod, each atomically; with `is_thorough` also keys that no set refers to.

        The pods in `also` are read whether a tier has them or not.
        """
        ...

    def reconcile(self, actions: Sequence[RegistrationAction], epoch: int | None) -> Sequence[PoolAnswer]:
        """Register, unregister, suspend and resume pods in this order; return one answer for each."""
        ...

    def move(
        self, moves: Sequence[MovePod], version: str, epoch: int | None, *, marks_busy: bool = False
    ) -> Sequence[PoolAnswer]:
        """Move idle pods, planned from this version of the config; `marks_busy` marks busy ones instead."""
        ...

    def recover(self, pods: Sequence[str], epoch: int | None) -> Sequence[PoolAnswer]:
        """Free pods that no call holds, once two reads a lease apart agree."""
        ...


class Pools(PoolsUpkeep, Protocol):
    """Pods in tiers. Each write is atomic and idempotent.

    An epoch of None is a caller without leader election. WorldFailed means that nothing was changed,
    Unanswered that the outcome is unknown. A refusal means that nothing was changed, too: it is returned only
    when all that was sent for it was answered.
    """

    def register(self, pod: str, uid: str, epoch: int | None, metadata: str = "") -> PoolAnswer:
        """Add a pod to a tier."""
        ...

    def unregister(self, pod: str, uid: str, epoch: int | None) -> PoolAnswer:
        """Remove a pod that no longer exists, with its calls."""
        ...

    def allocate(self, call: str, tier: str = "") -> PoolAnswer:
        """Assign a free pod to a call; a repeated request returns the same pod."""
        ...

    def release(self, call: str, pod: str = "") -> PoolAnswer:
        """End a call; with `pod`, only when that pod has it."""
        ...

    def heartbeat(self, call: str) -> PoolAnswer:
        """Renew the lease of a call."""
        ...

    def drain(self, pod: str, uid: str = "") -> PoolAnswer:
        """Assign no more calls to the pod."""
        ...

    def undrain(self, pod: str, uid: str = "") -> PoolAnswer:
        """Assign calls to the pod again."""
        ...

    def set_config(self, text: str, version: str, tiers_to_empty: Sequence[str] = ()) -> PoolAnswer:
        """Replace the tiers if the config still has this version; tiers that are removed must be empty."""
        ...

    def repair(self, pod: str, epoch: int | None) -> PoolAnswer:
        """Repair contradictory keys of a pod, where only one repair is possible."""
        ...

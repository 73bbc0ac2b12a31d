"""Pods in tiers, in a store that others write too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from equipoise.core.errors import WorldFailed

if TYPE_CHECKING:
    from equipoise.core.decision import Attendance, MovePod
    from equipoise.core.pools import PoolAnswer, PoolsSnapshot


class Unanswered(WorldFailed):
    """It was asked for, and nobody knows whether it happened: the third value beside yes and no."""


class PoolsUpkeep(Protocol):
    """What keeping the tiers in order needs of them."""

    def snapshot(self, *, is_thorough: bool = False, also: Sequence[str] = ()) -> PoolsSnapshot:
        """Read every pod, each at one moment; thoroughly also looks for keys that no set leads to.

        `also` are pods that are looked at too, whether a tier has them or not.
        """
        ...

    def reconcile(self, actions: Sequence[Attendance], epoch: int | None) -> Sequence[PoolAnswer]:
        """Register, unregister, suspend and resume pods, in this order; each answers for itself."""
        ...

    def move(
        self, moves: Sequence[MovePod], version: str, epoch: int | None, *, marks_busy: bool = False
    ) -> Sequence[PoolAnswer]:
        """Move idle pods, planned from this version of the config; busy ones can be marked instead."""
        ...

    def recover(self, pods: Sequence[str], epoch: int | None) -> Sequence[PoolAnswer]:
        """Put back pods that nobody holds, once two looks a lease apart saw them so."""
        ...


class Pools(PoolsUpkeep, Protocol):
    """Pods in tiers. Each writer is one step: all of it happens, or nothing.

    Every one may be asked again: what has happened already is answered, not done twice. An epoch of None
    is a caller without a leader. WorldFailed means that nothing was changed, Unanswered that nobody knows. So
    does an answer that is a *no*: it is only given when everything that was sent for it was answered.
    """

    def register(self, pod: str, uid: str, epoch: int | None, metadata: str = "") -> PoolAnswer:
        """Take a pod into a tier."""
        ...

    def unregister(self, pod: str, uid: str, epoch: int | None) -> PoolAnswer:
        """Forget a pod that is gone, its calls with it."""
        ...

    def allocate(self, call: str, tier: str = "") -> PoolAnswer:
        """Assign a free pod to a call; the same call gets the same pod."""
        ...

    def release(self, call: str, pod: str = "") -> PoolAnswer:
        """End a call; with a pod, only when it is the one that has it."""
        ...

    def heartbeat(self, call: str) -> PoolAnswer:
        """Renew the lease of a call."""
        ...

    def drain(self, pod: str, uid: str = "") -> PoolAnswer:
        """Return the pod no more calls."""
        ...

    def undrain(self, pod: str, uid: str = "") -> PoolAnswer:
        """Return it calls again."""
        ...

    def set_config(self, text: str, version: str, tiers_to_empty: Sequence[str] = ()) -> PoolAnswer:
        """Write the tiers over this version; those that are taken away must be empty."""
        ...

    def mend(self, pod: str, epoch: int | None) -> PoolAnswer:
        """Repair what the keys of a pod contradict, where only one end is right."""
        ...

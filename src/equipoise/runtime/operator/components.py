"""The parts that run beside the loops: the election, the caches, the journal."""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from equipoise.adapters.journal import SqliteJournal
from equipoise.adapters.kubernetes import CachedCluster, Reflector
from equipoise.adapters.kubernetes.lease import LeaseElection
from equipoise.adapters.kubernetes.pauses import NamespacePauses

QUIET_SECONDS = 30.0
"""A reflector that heard from the server so recently has only stumbled."""
UNREADABLE_MAX = 20
"""Of so many objects of a kind that cannot be read it is logged which they are."""


class LeasePart:
    """The election on its thread."""

    def __init__(self, election: LeaseElection) -> None:
        self._election = election
        self._is_started = False

    def start(self) -> None:
        """Begin to stand for election."""
        self._election.start()
        self._is_started = True

    def stop(self, timeout_seconds: float) -> bool:
        """Return the lease up, so that a successor need not wait."""
        self._is_started = False
        return self._election.stop(timeout_seconds)

    def liveness_errors(self) -> list[str]:
        """Say that the thread has died, without which this process can never lead again."""
        is_there = any(thread.name == "lease" for thread in threading.enumerate())
        return ["the lease thread has died"] if self._is_started and not is_there else []

    def readiness_errors(self) -> list[str]:
        """Say nothing: who does not lead is ready too."""
        return []

    def errors(self) -> Mapping[str, str]:
        """Return why the last turn of the election failed."""
        error = self._election.last_error
        return {} if error is None else {"lease": str(error)}


class Caches:
    """Everything that lists and watches: the cluster, the pauses, and what the loops bring."""

    def __init__(
        self,
        clusters: Sequence[CachedCluster],
        pauses: NamespacePauses,
        monotonic: Callable[[], float],
    ) -> None:
        self._reflectors: list[Reflector[Any]] = [r for cluster in clusters for r in cluster.reflectors]
        self._reflectors.append(pauses.reflector)
        self._loops: dict[int, str] = {}
        """For whom a reflector was made, by its position."""
        self._monotonic = monotonic
        self._is_started = False

    @property
    def reflectors(self) -> Sequence[Reflector[Any]]:
        """All of them."""
        return tuple(self._reflectors)

    def watch(self, loop: str, reflector: Reflector[Any]) -> None:
        """Take one more that only this loop asks, and start it when the others run."""
        self._loops[len(self._reflectors)] = loop
        self._reflectors.append(reflector)
        if self._is_started:
            reflector.start()

    def start(self) -> None:
        """Begin to list and watch."""
        self._is_started = True
        for reflector in self.reflectors:
            reflector.start()

    def stop(self, timeout_seconds: float) -> bool:
        """End all at once, then wait for each."""
        until = self._monotonic() + timeout_seconds
        for reflector in self.reflectors:
            reflector.stop(0.0)
        ended = [reflector.stop(max(0.0, until - self._monotonic())) for reflector in self.reflectors]
        return all(ended)

    def liveness_errors(self) -> list[str]:
        """Say nothing: a reflector mends itself, and one without rights is not mended by a restart."""
        return []

    def readiness_errors(self) -> list[str]:
        """Return what has not been listed yet, and why."""
        return [_unlisted(each) for each in self.reflectors if not each.synced.is_set()]

    def awaited_by(self, loop: str) -> list[str]:
        """Return what of that this loop needs: a kind that is not installed stops only who works with it."""
        return [
            _unlisted(each)
            for position, each in enumerate(self.reflectors)
            if self._loops.get(position, loop) == loop and not each.synced.is_set()
        ]

    def errors(self) -> Mapping[str, str]:
        """Return which reflectors have failed for a while, and which objects they can't read."""
        now = self._monotonic()
        failing = {
            f"watch of {reflector.kind.plural}": str(reflector.last_error)
            for reflector in self.reflectors
            if reflector.last_error is not None and reflector.last_contact_age_seconds(now) > QUIET_SECONDS
        }
        unreadable = {
            f"{reflector.kind.name} {outline.place}": f"the object cannot be read: {outline.why}"
            for reflector in self.reflectors
            for outline in list(reflector.unreadable.values())[:UNREADABLE_MAX]
        }
        return failing | unreadable


class JournalPart:
    """The diary: never in anybody's way, and closed at the end so that nothing is lost."""

    def __init__(self, journal: SqliteJournal) -> None:
        self._journal = journal

    def start(self) -> None:
        """Do nothing: it was opened when it was made."""

    def stop(self, timeout_seconds: float) -> bool:
        """Write down what is left; on a disk that hangs, give up in time."""
        closing = threading.Thread(target=self._journal.close, name="journal-close", daemon=True)
        closing.start()
        closing.join(timeout_seconds)
        return not closing.is_alive()

    def liveness_errors(self) -> list[str]:
        """Say nothing: losing the diary changes no decision."""
        return []

    def readiness_errors(self) -> list[str]:
        """Say nothing, for the same reason."""
        return []

    def errors(self) -> Mapping[str, str]:
        """Return why it could not write."""
        found = {"journal": self._journal.unwell, "journal's file": self._journal.damage}
        return {who: what for who, what in found.items() if what}

    def size_bytes(self) -> float:
        """Measure the file, its log and the log's index together."""
        path = self._journal.path
        return float(sum(_size(path.with_name(path.name + suffix)) for suffix in ("", "-wal", "-shm")))

    def lost(self) -> float:
        """Count the records that could not be kept."""
        return float(self._journal.lost)


class NoJournal:
    """What loops write to when no journal is kept."""

    def append(self, *records: object, is_whole: bool = False) -> None:
        """Forget them."""


def _unlisted(reflector: Reflector[Any]) -> str:
    error = reflector.last_error
    return f"the {reflector.kind.plural} have not been listed yet" + (f": {error}" if error else "")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0

"""The agent's diary: its decisions on the host's disk, bounded, to be looked at and replayed."""

import contextlib
import secrets
import time
from pathlib import Path
from typing import Any

from equipoise.adapters.journal import RecordIds, SqliteJournal
from equipoise.adapters.journal.ids import CHANCE_BITS
from equipoise.qos.loop import Round
from equipoise.qos.policy import QosPolicy
from equipoise.qos.record import as_asked, record

BYTES_MAX = 32 * 1024 * 1024
AGE_MAX_SECONDS = 7 * 86400.0


class SystemClock:
    """The time."""

    def now(self) -> float:
        """Give the Unix time in seconds."""
        return time.time()


class Diary:
    """Keeps rounds; without a file it keeps none. Losing it changes no decision."""

    def __init__(self, file: str) -> None:
        self._journal: SqliteJournal | None = None
        if file:
            with contextlib.suppress(OSError):  # the journal itself says what is wrong
                Path(file).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._journal = SqliteJournal(
                file, age_max_seconds=AGE_MAX_SECONDS, bytes_max=BYTES_MAX, clock=SystemClock()
            )
        self._ids = RecordIds(secrets.randbits(CHANCE_BITS))
        self._asked: tuple[QosPolicy | None, dict[str, Any]] = (None, {})

    def keep(self, done: Round) -> None:
        """Write a round down: whole where something was done or its reason is new."""
        if self._journal is None:
            return
        if self._asked[0] is not done.policy:
            self._asked = (done.policy, as_asked(done.policy))
        seen = done.seen
        name = self._ids.next(seen.at)
        self._journal.append(
            record(self._asked[1], seen, done.memory, done.decision, name, tuple(done.outcomes))
        )

    @property
    def trouble(self) -> str:
        """Say why nothing can be kept, or nothing."""
        return "" if self._journal is None else self._journal.unwell

    def close(self) -> None:
        """Write down what is left."""
        if self._journal is not None:
            self._journal.close()

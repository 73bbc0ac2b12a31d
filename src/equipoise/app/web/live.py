"""One look at the journals for all viewers, and one read for those who see the same."""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from equipoise.app.web.journals import Journals

LOOK_SECONDS = 1.0
PATIENCE = 5.0
"""A journal that takes long to read is looked at after this many times as long: reading is not all we do."""
KEPT_MAX = 16
"""As many readings as are kept for the next viewer."""

T = TypeVar("T")
_LOG = logging.getLogger(__name__)


class Live:
    """Counts the generations of what the journals say, and reads each wish once in each."""

    def __init__(self, journals: Journals) -> None:
        self.journals = journals
        self.generation = 0
        """Rises whenever there may be something new."""
        self._read_seconds = 0.0
        self._readings: dict[tuple[int, Hashable], asyncio.Task[Any]] = {}

    async def watch(self) -> None:
        """Look for news until cancelled; a look that fails is made again."""
        while True:
            try:
                has_news = await asyncio.to_thread(self.journals.has_news)
            except Exception:  # noqa: BLE001 - whatever it is, the pages stay, and the next look may do better
                _LOG.exception("a look at the journals failed")
                has_news = True
            self.generation += has_news
            await asyncio.sleep(max(LOOK_SECONDS, PATIENCE * self._read_seconds))

    async def read(self, wish: Hashable, how: Callable[[Journals], T]) -> T:
        """Read, or give what somebody else has just read."""
        key = (self.generation, wish)
        task = self._readings.get(key)
        if task is None:
            self._forget()
            task = self._readings[key] = asyncio.create_task(self._timed(how))
        made: T = await asyncio.shield(task)
        return made

    def _forget(self) -> None:
        """Drop what is out of date, and the oldest where there is too much."""
        for old in [key for key in self._readings if key[0] != self.generation]:
            del self._readings[old]
        while len(self._readings) >= KEPT_MAX:
            del self._readings[next(iter(self._readings))]

    async def _timed(self, how: Callable[[Journals], T]) -> T:
        began = time.monotonic()
        try:
            return await asyncio.to_thread(how, self.journals)
        finally:
            self._read_seconds = time.monotonic() - began

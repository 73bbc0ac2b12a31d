"""Says once what goes wrong in the background, and once that it is over."""

import time
from collections.abc import Callable, Mapping

from equipoise.app.operator.logs import Log

AGAIN_SECONDS = 60.0
"""A complaint that changes its words is told again after so long, not before."""


class Complaints:
    """Looks at the parts that never raise: the election, the reflectors, the journal."""

    def __init__(
        self,
        log: Log,
        sources: Callable[[], Mapping[str, str]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Take `sources`, which gives what is wrong now, by who complains."""
        self._log = log
        self._sources = sources
        self._monotonic = monotonic
        self._told: dict[str, tuple[str, float]] = {}

    def look(self) -> None:
        """Tell what is new since the last look."""
        now, found = self._monotonic(), self._sources()
        for who, what in found.items():
            before, at = self._told.get(who, ("", -AGAIN_SECONDS))
            if who not in self._told or (what != before and now - at >= AGAIN_SECONDS):
                self._log.warning(f"{who}: {what}", part=who)
                self._told[who] = (what, now)
        for who in self._told.keys() - found.keys():
            del self._told[who]
            self._log.info(f"{who}: well again", part=who)

"""The production journal, and beside it what the demo itself shows of the decisions."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from equipoise.adapters.journal import SqliteJournal
from equipoise.model.decision import Record

QUIET_SECONDS = 900.0
KEPT_MAX = 2000
"""Records of each balancer that are kept to be drawn: more than a whole day of the demo has."""


class Notes:
    """A journal that also remembers: every record goes to the file first."""

    def __init__(self, journal: SqliteJournal) -> None:
        self.journal = journal
        self.on_news: Callable[[Record], object] = id
        """Told of every deed, and of every reason that has not been told of its subject for a while."""
        self._records: dict[str, deque[Record]] = defaultdict(lambda: deque(maxlen=KEPT_MAX))
        self._told_at: dict[tuple[str, str, str], float] = {}
        self.counts: dict[str, Counts] = defaultdict(Counts)

    def append(self, *records: Record, is_whole: bool = False) -> None:
        """Keep these."""
        self.journal.append(*records, is_whole=is_whole)
        for record in records:
            self._records[record.balancer].append(record)
            self.counts[record.balancer].add(record)
            if self._is_news(record):
                self.on_news(record)

    def _is_news(self, record: Record) -> bool:
        """Tell deeds and new reasons apart from a reason that comes and goes."""
        key = (record.balancer, record.decision.subject, record.decision.reason.code.value)
        last, self._told_at[key] = self._told_at.get(key), record.at
        return bool(record.outcomes) or last is None or record.at - last >= QUIET_SECONDS

    def of(self, balancer: str, subject: str = "") -> list[Record]:
        """Give the records of a balancer, oldest first."""
        found: Iterable[Record] = self._records[balancer]
        return [record for record in found if subject in {"", record.decision.subject}]


class Counts:
    """How much one balancer decided, did and held."""

    def __init__(self) -> None:
        self.decisions = self.actions = self.held = 0

    def add(self, record: Record) -> None:
        """Count one more."""
        self.decisions += 1
        self.actions += len(record.outcomes)
        self.held += bool(record.decision.held)

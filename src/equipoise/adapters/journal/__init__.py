"""The journal: a log of decisions on a scratch disk. Losing it changes no decision."""

from equipoise.adapters.journal.reading import open_reader
from equipoise.adapters.journal.records import JournalReader, JsonLines, Query, RecordIds, exactly, record_id
from equipoise.adapters.journal.sqlite import SqliteJournal

__all__ = [
    "JournalReader",
    "JsonLines",
    "Query",
    "RecordIds",
    "SqliteJournal",
    "exactly",
    "open_reader",
    "record_id",
]

"""Journals to be damaged, and what reading and starting on one takes."""

from pathlib import Path

from equipoise.adapters.journal import JsonLines, Query, open_reader
from equipoise.core.decision import Record
from equipoise.core.errors import BadInput
from tests.support.journal.worlds import MIB, NOON, calm, hot, journal

KEPT = 12


def sqlite_file(folder: Path) -> bytes:
    """Return a sound SQLite journal."""
    path = folder / "sound.db"
    with journal(path) as kept:
        kept.append(*(hot(number, NOON + number, f"shop/{number}") for number in range(KEPT)))
        kept.append(*(calm(100 + number, NOON + number, "shop/calm") for number in range(3)))
    return path.read_bytes()


def lines_file(folder: Path) -> bytes:
    """Return a sound journal of JSON lines."""
    path = folder / "sound.jsonl"
    with JsonLines(path, bytes_max=MIB) as kept:
        kept.append(*(hot(number, NOON + number, f"shop/{number}") for number in range(KEPT)))
        kept.append(*(calm(100 + number, NOON + number, "shop/calm") for number in range(3)))
    return path.read_bytes()


def remove(path: Path) -> None:
    """Remove a journal and all that was put beside it."""
    for part in path.parent.glob(f"{path.name}*"):
        part.unlink()


def read(path: Path) -> tuple[list[Record], tuple[str, ...]]:
    """Read a journal whole in every way that there is; trouble with all of it is one line."""
    try:
        reader = open_reader(path)
    except BadInput as error:
        return [], (str(error),)
    try:
        found = list(reader.records(Query(), is_whole=True))
        for record in found:
            assert record.to_json()
        list(reader.records(Query(before="~", limit=5)))
        list(reader.records(Query(subject="shop/*", limit=3)))
        reader.subjects("rotation", 10)
        reader.starting(hot(3).id[:4])
        return found, reader.damages.lines
    finally:
        reader.close()


def start_sqlite(path: Path, data: bytes) -> None:
    """Start a writer on a damaged file: it writes, and says what it did about the damage."""
    remove(path)
    path.write_bytes(data)
    _, said = read(path)
    new = hot(500, NOON + 50, "shop/new")
    with journal(path) as kept:
        kept.append(new)
        kept.append(hot(501, NOON + 51, "shop/0"))
        is_foreign = "a newer Equipoise wrote it" in kept.failure
        assert is_foreign or (kept.failure, kept.lost) == ("", 0)
        is_aside = path.with_name(f"{path.name}.corrupt").exists()
        assert is_aside == ("was renamed to journal.db.corrupt, and a new journal was created" in kept.damage)
    if not is_foreign:
        found, after = read(path)
        is_named = bool(after) or " was damaged (" in kept.damage
        assert new in found or is_named, "what was written can be read, or the damage is named"
    assert all(str(path) in line or line.startswith("and ") for line in said)


def start_lines(path: Path, data: bytes) -> None:
    """Start a writer on damaged lines: it writes, and the new record can be read."""
    remove(path)
    path.write_bytes(data)
    read(path)
    new = hot(500, NOON + 50, "shop/new")
    with JsonLines(path, bytes_max=MIB) as kept:
        kept.append(new)
        assert (kept.failure, kept.lost) == ("", 0)
        assert bool(kept.damage) == bool(data and not data.endswith(b"\n"))
    found, _ = read(path)
    assert new in found

"""Records, clocks and journals for the tests."""

import random
from dataclasses import dataclass
from pathlib import Path

import msgspec

from equipoise.adapters.journal import Query, SqliteJournal, open_reader, record_id
from equipoise.core.decision import Decision, EvictPod, Record
from equipoise.core.reason import Code, Reason
from equipoise.engine.recording import record
from equipoise.rotation.policy import RotationPolicy, policy_json
from equipoise.rotation.preconditions import Observation
from equipoise.rotation.progress import BALANCER
from tests.support.rotation.worlds import decision_of, pod, seed_pods, world

NOON = 1_767_268_800.0
"""2026-01-01 12:00:00Z."""

MIB = 1 << 20


@dataclass
class Clock:
    """A time that stands still until it is set."""

    at: float = NOON

    def now(self) -> float:
        return self.at


def journal(path: Path, clock: Clock | None = None, **settings: float) -> SqliteJournal:
    """Open a journal with room enough, unless said otherwise."""
    return SqliteJournal(
        path,
        age_max_seconds=settings.get("age_max_seconds", 86400.0),
        bytes_max=int(settings.get("bytes_max", 16 * MIB)),
        clock=clock or Clock(),
        settle_seconds=settings.get("settle_seconds", 60.0),
    )


def decided(
    policy: RotationPolicy, seen: Observation, count: int = 1, at: float = NOON, subject: str = "shop/web"
) -> Record:
    """Decide, and record it."""
    seen = msgspec.structs.replace(seen, subject=subject)
    made = record(
        BALANCER, policy_json(policy), seen, {}, decision_of(policy, seen), at, record_id(at, 7, count)
    )
    return msgspec.structs.replace(made, version="1.2.3")


def hot(count: int = 1, at: float = NOON, subject: str = "shop/web") -> Record:
    """The seed's example: two hot pods, four evictions."""
    return decided(RotationPolicy(), world(*seed_pods()), count, at, subject)


def calm(count: int = 1, at: float = NOON, subject: str = "shop/web", cores: float = 0.5) -> Record:
    """Nothing to do."""
    pods = [pod(name, cores + turn / 100) for turn, name in enumerate("abcdef")]
    return decided(RotationPolicy(), world(*pods), count, at, subject)


def dense(chance: random.Random, count: int, size_bytes: int) -> Record:
    """A record whose inputs zlib cannot shrink."""
    text = chance.randbytes(size_bytes).decode("latin-1")
    decision = Decision(f"shop/{count}", Reason(Code.ROTATE, "Because.", {"n": count}), (EvictPod("a"),))
    return Record(
        record_id(NOON, 7, count), "rotation", NOON + count / 1000, {}, {"text": text}, {}, decision
    )


def all_of(path: Path, query: Query | None = None, *, is_whole: bool = True) -> list[Record]:
    """Read everything, the newest first."""
    reader = open_reader(path)
    try:
        return list(reader.records(query or Query(), is_whole=is_whole))
    finally:
        reader.close()


def files_bytes(path: Path) -> int:
    """Measure the file, its log and the log's index."""
    return sum(
        part.stat().st_size for suffix in ("", "-wal", "-shm") if (part := Path(f"{path}{suffix}")).exists()
    )

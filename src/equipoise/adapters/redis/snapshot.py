"""Reads the pools: a small fleet atomically, a large one page by page.

A script that reads 100,000 pods would block the server for seconds. So it reads a page at a time, and each
pod atomically: its tiers, its keys and its calls are of one state. That is enough (docs/decisions/0009),
since the script of an action checks the pod again.
"""

import hashlib
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
from redis import Redis, RedisCluster

from equipoise.adapters.http import one_line
from equipoise.adapters.redis.scripts import Scripts, explained
from equipoise.core.errors import DECODE_ERRORS, WorldFailed
from equipoise.core.pools import EPOCH_MAX, PodKeys, PoolsSnapshot, TierKeys

EPOCH = re.compile(r"[0-9]{1,10}")
"""A valid epoch, as in the scripts."""


class SnapshotPage(NamedTuple):
    """An answer of the script `snapshot`: some pods at one time, column by column."""

    config: str | None
    epoch: str | None
    pools: list[list[Any]]
    """Each tier: its name, the types of its two keys, how many pods it has, which of these are in the two."""
    is_whole: int
    """Whether every pod is on this page; otherwise there were too many."""
    wrong: list[int | str]
    """Keys of a wrong type: the number of the pod from 1 on, or 0; the key; its type."""
    pods: list[str]
    columns: Sequence[list[str | None]] = ()
    """Tier, draining, lease, UID, why suspended, metadata, pending tier."""
    calls: Sequence[int | str] = ()
    """Live calls: the number of the pod, and the call."""


class _SnapshotColumns:
    """Collects the pods of all pages; for a pod on two pages, the last one counts."""

    def __init__(self) -> None:
        self.pods: dict[str, PodKeys] = {}
        self.metadata: dict[str, str] = {}
        self.pending: dict[str, str] = {}
        self.assigned: dict[str, dict[str, int]] = defaultdict(dict)
        self.available: dict[str, dict[str, float]] = defaultdict(dict)

    def read(self, prefix: str, page: SnapshotPage) -> None:
        """Add a page, which replaces earlier data of its pods."""
        wrong: dict[int, dict[str, str]] = defaultdict(dict)
        for number, key, kind in _in_groups(page.wrong, 3):
            wrong[number][key] = kind
        calls: dict[int, list[str]] = defaultdict(list)
        for number, call in _in_groups(page.calls, 2):
            calls[number].append(call)
        columns = [column or [None] * len(page.pods) for column in page.columns]
        rows = zip(page.pods, *columns, strict=True) if columns else ()
        for number, (pod, tier, mark, lease, uid, why, metadata, pending) in enumerate(rows, 1):
            odd = wrong.get(number, {})
            self.pods[pod] = PodKeys(
                tier=tier,
                is_draining=mark is not None or f"{prefix}:pod:draining:{pod}" in odd,
                lease="" if f"{prefix}:lease:{pod}" in odd else lease,
                calls=tuple(calls.get(number, ())),
                uid=uid or "",
                wrong=odd,
                suspended=why or "",
            )
            _keep(self.metadata, pod, metadata)
            _keep(self.pending, pod, pending)
        for tier, _, _, _, assigned, available in page.pools if columns else ():
            for pod, is_in in zip(page.pods, assigned, strict=False):
                _keep(self.assigned[tier], pod, 0 if is_in else None)
            for pod, score in zip(page.pods, available, strict=False):
                _keep(self.available[tier], pod, _calls_of(score))


def decode_pages(prefix: str, pages: Sequence[SnapshotPage]) -> PoolsSnapshot:
    """Return the snapshot of the script's pages."""
    seen = _SnapshotColumns()
    for page in pages:
        seen.read(prefix, page)
    config, epoch, pools = pages[-1][:3]
    if not all(isinstance(word, str) for tier in pools for word in tier[:3]):
        raise TypeError("the name of a tier, or the type of a key, is no text")
    is_epoch = isinstance(epoch, str) and EPOCH.fullmatch(epoch) is not None and int(epoch) <= EPOCH_MAX
    return PoolsSnapshot(
        prefix=prefix,
        config=config,
        version=version_of(config),
        epoch=int(epoch) if is_epoch and epoch else None,
        pools=tuple(
            TierKeys(tier, kind, free, tuple(seen.assigned[tier]), seen.available[tier])
            for tier, kind, free, *_ in pools
        ),
        pods=seen.pods,
        metadata=seen.metadata,
        pending=seen.pending,
        wrong={key: kind for number, key, kind in _in_groups(pages[-1].wrong, 3) if number == 0},
        unreadable_epoch=None if is_epoch else epoch,
    )


def version_of(config: str | None) -> str:
    """Return the version of the tiers, by which a change of them is noticed; empty without tiers."""
    return hashlib.sha1(config.encode(), usedforsecurity=False).hexdigest() if config else ""


def _calls_of(score: str | int | None) -> float | None:
    """Return the calls of a free pod: a sorted set has them as a text, a set says 1 for who is in it."""
    if isinstance(score, str):
        return float(score)
    return 0.0 if score else None


def _keep(found: dict[str, Any], pod: str, value: Any) -> None:
    if value is None:
        found.pop(pod, None)
    else:
        found[pod] = value


def _in_groups(flat: Sequence[Any], size: int) -> list[tuple[Any, ...]]:
    return list(zip(*(flat[at::size] for at in range(size)), strict=True))


PAGE = 500
"""How many pods are read at once: that blocks the server for a few milliseconds."""
READS_MAX = 3
"""How often the tiers are listed again for pods that moved between them meanwhile."""
SCAN_COUNT = 1000
INVALID_ANSWER_ERRORS = (*DECODE_ERRORS, LookupError, AttributeError)
"""The exceptions of decoding an invalid answer, such as a proxy's."""


class PoolsReader:
    """Reads the pools of one prefix."""

    def __init__(self, client: "Redis | RedisCluster", prefix: str, scripts: Scripts, address: str) -> None:
        self._client: Any = client
        self._prefix = prefix
        self._scripts = scripts
        self._address = address

    def read(
        self, current: tuple[str, str], tiers: Sequence[str], pods: Sequence[str]
    ) -> PoolsSnapshot | None:
        """Read all pods of the tiers, and these pods; None when the config changed meanwhile."""
        try:
            return self._read(current, tiers, pods)
        except INVALID_ANSWER_ERRORS as error:
            raise WorldFailed(f"{self._address}: invalid snapshot: {one_line(str(error))}") from error

    def _read(
        self, current: tuple[str, str], tiers: Sequence[str], pods: Sequence[str]
    ) -> PoolsSnapshot | None:
        def page(most: int, names: Sequence[str]) -> SnapshotPage:
            words = [*current, str(most), str(len(tiers)), *tiers, *names]
            return msgspec.convert(self._scripts.read("snapshot", words), SnapshotPage)

        is_short = len(pods) <= PAGE
        pages = [page(PAGE if is_short else 0, pods if is_short else ())]
        seen = decode_pages(self._prefix, pages)
        if not (is_short and pages[0].is_whole):
            found: dict[str, None] = dict.fromkeys(pods)
            for _ in range(READS_MAX):
                before = len(found) if len(pages) > 1 else 0
                found.update(dict.fromkeys(self._names(pages[0])))
                names = list(found)[before:]
                pages += [page(0, names[at : at + PAGE]) for at in range(0, len(names), PAGE)]
                seen = decode_pages(self._prefix, pages)
                # A pod that moved from a tier not listed yet to one listed already is in neither list.
                if not names or _is_complete(seen, pages[-1]):
                    break
        return seen if len({page.config for page in pages}) == 1 else None

    def scan(self) -> tuple[list[str], list[str]]:
        """Find tiers and pods by their keys alone; keys written meanwhile are found by the next snapshot."""
        tiers: set[str] = set()
        pods: set[str] = set()
        pool, pod = f"{self._prefix}:pool:", f"{self._prefix}:pod:tier:"
        with explained(self._address):
            for key in self._client.scan_iter(match=f"{self._prefix}:po*", count=SCAN_COUNT):
                if key.startswith(pod):
                    pods.add(key.removeprefix(pod))
                elif key.startswith(pool):
                    tiers.add(key.removeprefix(pool).rpartition(":")[0])
        return sorted(tiers - {""}), sorted(pods)

    def _names(self, page: SnapshotPage) -> Iterator[str]:
        """Yield the pods of the tiers and of the metadata, a page at a time."""
        with explained(self._address):
            for tier, assigned, available, *_ in page.pools:
                for part, kind in (("assigned", assigned), ("available", available)):
                    key = f"{self._prefix}:pool:{tier}:{part}"
                    if kind == "set":
                        yield from self._client.sscan_iter(key, count=SCAN_COUNT)
                    elif kind == "zset":
                        yield from (pod for pod, _ in self._client.zscan_iter(key, count=SCAN_COUNT))
            metadata = f"{self._prefix}:pod:metadata"
            if metadata not in page.wrong:
                yield from (pod for pod, _ in self._client.hscan_iter(metadata, count=SCAN_COUNT))


def _is_complete(seen: PoolsSnapshot, last: SnapshotPage) -> bool:
    """Return whether as many pods were read as the tiers had at the end."""
    return all(
        len(pool.assigned) == count for pool, (_, _, _, count, *_) in zip(seen.pools, last.pools, strict=True)
    )

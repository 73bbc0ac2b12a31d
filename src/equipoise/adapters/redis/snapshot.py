"""Reads the pools: a small fleet at one moment, a large one page by page.

A script that reads 100,000 pods keeps the server from everybody else for seconds. So it reads some at a time,
and each pod at one moment: its tiers, its keys and its calls never contradict each other because something
happened in between. Nobody needs more (docs/decisions/0009): who acts on what was seen is checked again by
the script that acts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from redis import Redis, RedisCluster

from equipoise.adapters.http import one_line
from equipoise.adapters.redis.decode import Page, decode_pages
from equipoise.adapters.redis.errors import explained
from equipoise.adapters.redis.scripts import Scripts
from equipoise.model.errors import DECODE_ERRORS, WorldFailed
from equipoise.model.pools import PoolsSeen

PAGE = 500
"""How many pods are read at one moment: a few milliseconds in which the server answers nobody else."""
LOOKS = 3
"""How often pods are looked for that moved from tier to tier meanwhile."""
SCAN_COUNT = 1000
NONSENSE = (*DECODE_ERRORS, LookupError, AttributeError)
"""What comes of reading an answer that our script never gives, such as a proxy's."""


class Reader:
    """Reads the pools of one prefix."""

    def __init__(self, client: "Redis | RedisCluster", prefix: str, scripts: Scripts, address: str) -> None:
        self._client: Any = client
        self._prefix = prefix
        self._scripts = scripts
        self._address = address

    def read(self, known: tuple[str, str], tiers: Sequence[str], pods: Sequence[str]) -> PoolsSeen | None:
        """Read all that the tiers have, and these pods; None when the config changed meanwhile."""
        try:
            return self._read(known, tiers, pods)
        except NONSENSE as error:
            raise WorldFailed(
                f"{self._address}: a snapshot that makes no sense: {one_line(str(error))}"
            ) from error

    def _read(self, known: tuple[str, str], tiers: Sequence[str], pods: Sequence[str]) -> PoolsSeen | None:
        def page(most: int, names: Sequence[str]) -> Page:
            words = [*known, str(most), str(len(tiers)), *tiers, *names]
            return msgspec.convert(self._scripts.read("snapshot", words), Page)

        is_short = len(pods) <= PAGE
        pages = [page(PAGE if is_short else 0, pods if is_short else ())]
        seen = decode_pages(self._prefix, pages)
        if not (is_short and pages[0].is_whole):
            found: dict[str, None] = dict.fromkeys(pods)
            for _ in range(LOOKS):
                before = len(found) if len(pages) > 1 else 0
                found.update(dict.fromkeys(self._names(pages[0])))
                names = list(found)[before:]
                pages += [page(0, names[at : at + PAGE]) for at in range(0, len(names), PAGE)]
                seen = decode_pages(self._prefix, pages)
                # Who moved from a tier that was not listed yet to one that was listed already is in neither.
                if not names or _is_complete(seen, pages[-1]):
                    break
        return seen if len({page.config for page in pages}) == 1 else None

    def scan(self) -> tuple[list[str], list[str]]:
        """Find tiers and pods by their keys alone; what appears meanwhile is found by the next look."""
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

    def _names(self, page: Page) -> Iterator[str]:
        """List the pods that the tiers and the metadata have, some at a time."""
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


def _is_complete(seen: PoolsSeen, last: Page) -> bool:
    """Return whether as many pods were read as the tiers had in the end."""
    return all(
        len(pool.assigned) == count for pool, (_, _, _, count, *_) in zip(seen.pools, last.pools, strict=True)
    )

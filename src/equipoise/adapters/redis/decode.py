"""Turns the snapshot's answer into plain, frozen data."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

from equipoise.model.pools import EPOCH_MAX, PodSeen, PoolSeen, PoolsSeen

EPOCH = re.compile(r"[0-9]{1,10}")
"""As the scripts read it; what else stands there is nobody's."""


class Page(NamedTuple):
    """What the script `snapshot` read at one moment: some pods, column by column."""

    config: str | None
    epoch: str | None
    pools: list[list[Any]]
    """Each tier: its name, the types of its two keys, how many pods it has, which of these are in the two."""
    is_whole: int
    """Whether every pod is on this page; else there were too many to look for."""
    wrong: list[int | str]
    """Keys of a wrong type: the number of the pod from 1 on, or 0; the key; its type."""
    pods: list[str]
    columns: Sequence[list[str | None]] = ()
    """Tier, draining, lease, UID, why suspended, metadata, pending tier."""
    calls: Sequence[int | str] = ()
    """Calls that are alive: the number of the pod, and the call."""


class _Seen:
    """The pods of all pages; of one that is on two pages, the last one holds."""

    def __init__(self) -> None:
        self.pods: dict[str, PodSeen] = {}
        self.metadata: dict[str, str] = {}
        self.pending: dict[str, str] = {}
        self.assigned: dict[str, dict[str, int]] = defaultdict(dict)
        self.available: dict[str, dict[str, float]] = defaultdict(dict)

    def read(self, prefix: str, page: Page) -> None:
        """Add what a page says; what an earlier one said of the same pods is forgotten."""
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
            self.pods[pod] = PodSeen(
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


def decode_pages(prefix: str, pages: Sequence[Page]) -> PoolsSeen:
    """Read what the script `snapshot` gave, page by page."""
    seen = _Seen()
    for page in pages:
        seen.read(prefix, page)
    config, epoch, pools = pages[-1][:3]
    for tier, kind, free, *_ in pools:
        _expect_text(tier, kind, free)
    is_epoch = isinstance(epoch, str) and EPOCH.fullmatch(epoch) is not None and int(epoch) <= EPOCH_MAX
    return PoolsSeen(
        prefix=prefix,
        config=config,
        version="" if not config else hashlib.sha1(config.encode(), usedforsecurity=False).hexdigest(),
        epoch=int(epoch) if is_epoch and epoch else None,
        pools=tuple(
            PoolSeen(tier, kind, free, tuple(seen.assigned[tier]), seen.available[tier])
            for tier, kind, free, *_ in pools
        ),
        pods=seen.pods,
        metadata=seen.metadata,
        pending=seen.pending,
        wrong={key: kind for number, key, kind in _in_groups(pages[-1].wrong, 3) if number == 0},
        odd_epoch=None if is_epoch else epoch,
    )


def _expect_text(*words: object) -> None:
    if not all(isinstance(word, str) for word in words):
        raise TypeError("the name of a tier, or the type of a key, is no text")


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

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
    """What the script `snapshot` read at one moment."""

    config: str | None
    epoch: str | None
    pools: list[list[Any]]
    """Each tier's name, the types of its two keys, and how many they have."""
    rows: list[list[Any]]
    wrong: list[str]
    is_whole: int
    """Whether every pod is among the rows; else there were too many to look for."""


def decode_snapshot(prefix: str, answers: Sequence[list[Any]]) -> PoolsSeen:
    """Read what the script `snapshot` gave, page by page; of a pod on two pages, the last one holds."""
    pages = [Page(*answer) for answer in answers]
    config, epoch = pages[-1].config, pages[-1].epoch
    rows = {row[0]: row[1:] for page in pages for row in page.rows}
    is_epoch = isinstance(epoch, str) and EPOCH.fullmatch(epoch) is not None and int(epoch) <= EPOCH_MAX
    assigned: dict[str, list[str]] = defaultdict(list)
    available: dict[str, dict[str, float]] = defaultdict(dict)
    for pod, row in rows.items():
        for tier in row[7]:
            assigned[tier].append(pod)
        for tier, score in _pairs(row[8]).items():
            available[tier][pod] = float(score)
    return PoolsSeen(
        prefix=prefix,
        config=config,
        version="" if not config else hashlib.sha1(config.encode(), usedforsecurity=False).hexdigest(),
        epoch=int(epoch) if is_epoch and epoch else None,
        pools=tuple(
            PoolSeen(tier, kind, free, tuple(assigned[tier]), available[tier])
            for tier, kind, free, *_ in pages[-1].pools
        ),
        pods={pod: _pod(*row[:7]) for pod, row in rows.items()},
        metadata={pod: row[9] for pod, row in rows.items() if row[9] is not None},
        pending={pod: row[10] for pod, row in rows.items() if row[10] is not None},
        wrong=_pairs(pages[-1].wrong),
        odd_epoch=None if is_epoch else epoch,
    )


def _pod(
    tier: str | None,
    draining: int,
    lease: str | None,
    calls: list[str],
    uid: str,
    wrong: list[str],
    suspended: str,
) -> PodSeen:
    return PodSeen(tier, bool(draining), lease, tuple(calls), uid, _pairs(wrong), suspended)


def _pairs(flat: list[str]) -> dict[str, str]:
    return dict(zip(flat[::2], flat[1::2], strict=True))

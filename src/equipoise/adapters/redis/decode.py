"""Turns the snapshot's answer into plain, frozen data."""

import hashlib
import re
from typing import Any

from equipoise.model.pools import EPOCH_MAX, PodSeen, PoolSeen, PoolsSeen

EPOCH = re.compile(r"[0-9]{1,10}")
"""As the scripts read it; what else stands there is nobody's."""


def decode_snapshot(prefix: str, answer: list[Any]) -> PoolsSeen:
    """Read what the script `snapshot` gave."""
    config, epoch, pools, pods, metadata, pending, wrong = answer
    is_epoch = isinstance(epoch, str) and EPOCH.fullmatch(epoch) is not None and int(epoch) <= EPOCH_MAX
    return PoolsSeen(
        prefix=prefix,
        config=config,
        version="" if not config else hashlib.sha1(config.encode(), usedforsecurity=False).hexdigest(),
        epoch=int(epoch) if is_epoch else None,
        pools=tuple(_pool(*row) for row in pools),
        pods={row[0]: _pod(*row[1:]) for row in pods},
        metadata=_pairs(metadata),
        pending=_pairs(pending),
        wrong=_pairs(wrong),
        odd_epoch=None if is_epoch else epoch,
    )


def _pool(
    tier: str, assigned_type: str, available_type: str, assigned: list[str], available: list[str]
) -> PoolSeen:
    scores = {pod: float(calls) for pod, calls in _pairs(available).items()}
    return PoolSeen(tier, assigned_type, available_type, tuple(assigned), scores)


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

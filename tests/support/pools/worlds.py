"""The seed's worlds, written into Redis as the seed's own programs write them."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

WALK_THROUGH: dict[str, Sequence[str]] = {
    "gold": ("agent-0", "agent-3", "agent-8"),
    "standard": ("agent-1", "agent-4", "agent-5"),
    "basic": ("agent-2", "agent-6", "agent-7"),
}


def config(**targets: int) -> dict[str, Any]:
    """Give a config: tiers whose name begins as a shared one does are shared."""
    tiers = {
        name: {"type": "shared" if name in {"basic", "economy"} else "exclusive", "target": target}
        for name, target in targets.items()
    }
    return {"tiers": tiers, "default_chain": list(targets)}


def write(
    client: Any,
    pools: Mapping[str, Sequence[str]],
    targets: Mapping[str, int] | None = None,
    prefix: str = "voice",
    calls: Mapping[str, int] | None = None,
) -> None:
    """Write pools of idle pods, key by key; `calls` gives shared pods a score. Targets fit by default."""
    document = config(**({tier: len(pods) for tier, pods in pools.items()} if targets is None else targets))
    client.set(f"{prefix}:tier:config", json.dumps(document))
    for tier, pods in pools.items():
        for pod in pods:
            client.set(f"{prefix}:pod:tier:{pod}", tier)
            client.sadd(f"{prefix}:pool:{tier}:assigned", pod)
            client.hset(f"{prefix}:pod:metadata", pod, json.dumps({"tier": tier, "name": pod}))
            if document["tiers"][tier]["type"] == "shared":
                client.zadd(f"{prefix}:pool:{tier}:available", {pod: (calls or {}).get(pod, 0)})
            else:
                client.sadd(f"{prefix}:pool:{tier}:available", pod)


def dump(client: Any) -> dict[str, Any]:
    """Read every key with its value, so that two states can be compared."""
    found: dict[str, Any] = {}
    for key in sorted(client.keys("*")):
        match client.type(key):
            case "string":
                found[key] = client.get(key)
            case "set":
                found[key] = set(client.smembers(key))
            case "zset":
                found[key] = dict(client.zrange(key, 0, -1, withscores=True))
            case "hash":
                found[key] = client.hgetall(key)
            case other:
                found[key] = other
    return found

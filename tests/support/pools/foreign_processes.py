"""Foreign allocators in other processes beside our rebalancer, our callers and our sweeps."""

import json
import random
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from redis import Redis

from equipoise.adapters.redis import RedisPools
from equipoise.pools.invariants import violations
from equipoise.pools.policy import read_policy, tiers_for_scripts
from equipoise.pools.rebalance import rebalance
from tests.support.pools.worlds import write

PODS = 24
LEASE_SECONDS = 15.0
"""Longer than a busy machine lets a foreign process wait between its SPOP and its SET lease."""
TARGETS = (
    {"gold": 10, "silver": 8, "basic": 6},
    {"gold": 6, "silver": 10, "basic": 8},
    {"gold": 8, "silver": 6, "basic": 10},
)


@dataclass
class Report:
    """What came of it."""

    served: int
    """Calls of the foreign processes that came to their end; each is an allocation and a release."""
    moves: int
    own: int
    kills: int
    recovered: int
    given_twice: list[str]
    broken: list[str]
    lost: list[str]


def run_beside(
    url: str, seconds: float, seed: int = 1, *, calls: int = 0, exclusive: int = 2, shared: int = 1
) -> Report:
    """Work side by side for so long, or for so many calls; then stop everybody, and look at what is left."""
    chance = random.Random(seed)
    names = [f"a-{number}" for number in range(PODS)]
    with Redis.from_url(url, decode_responses=True) as client:
        client.flushall()
        write(client, {"gold": names[:10], "silver": names[10:18], "basic": names[18:]}, TARGETS[0])
        pools = RedisPools(
            client,
            "voice",
            lease_seconds=LEASE_SECONDS,
            record_seconds=LEASE_SECONDS,
            read_tiers=tiers_for_scripts,
        )
        report = Report(0, 0, 0, 0, 0, [], [], [])
        processes = [_start(url, "exclusive") for _ in range(exclusive)]
        processes += [_start(url, "shared") for _ in range(shared)]
        end = time.monotonic() + seconds
        try:
            while time.monotonic() < end and not 0 < calls <= int(client.get("witness:served") or 0):
                _turn(client, pools, chance, names, report)
                if chance.random() < 0.01:
                    victim = chance.randrange(exclusive)
                    processes[victim].kill()
                    processes[victim].wait()
                    processes[victim] = _start(url, "exclusive")
                    report.kills += 1
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(timeout=120)
        _settle(client, pools, names, report)
    return report


def _start(url: str, kind: str) -> "subprocess.Popen[bytes]":
    tiers = "basic" if kind == "shared" else "gold,silver"
    return subprocess.Popen([sys.executable, "-m", "tests.support.pools.foreign_allocator", url, kind, tiers])


def _turn(client: Any, pools: RedisPools, chance: random.Random, names: list[str], report: Report) -> None:
    """Change the targets now and then, rebalance, serve some calls of our own, sweep."""
    if chance.random() < 0.2:
        seen = pools.snapshot()
        text = client.get("voice:tier:config")
        for tier, target in chance.choice(TARGETS).items():
            text = _with_target(text, tier, target)
        pools.set_config(text, seen.version)
    done = rebalance(pools, marks_busy=True)
    assert not done.failure, done.failure
    report.moves += len(done.decision.actions)
    call = f"own-{report.own}"
    if pools.allocate(call).code == "Allocated":
        pools.heartbeat(call)
        pools.release(call)
        report.own += 1
    answers = pools.recover(names, None)
    report.recovered += sum(answer.code == "Recovered" for answer in answers)
    time.sleep(0.01)


def _with_target(text: str, tier: str, target: int) -> str:
    document = json.loads(text)
    document["tiers"][tier]["target"] = target
    return json.dumps(document)


def _settle(client: Any, pools: RedisPools, names: list[str], report: Report) -> None:
    for _ in range(int(LEASE_SECONDS * 2 / 0.5) + 4):
        time.sleep(0.5)
        report.recovered += sum(answer.code == "Recovered" for answer in pools.recover(names, None))
    seen = pools.snapshot(is_thorough=True)
    report.served = int(client.get("witness:served") or 0)
    report.given_twice = client.lrange("witness", 0, -1)
    report.broken = [each.detail for each in violations(read_policy(seen.config, "config"), seen)]
    free = {pod for pool in seen.pools for pod, calls in pool.available.items() if calls == 0}
    report.lost = sorted(set(names) - free)

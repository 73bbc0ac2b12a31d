"""A foreign allocator by the seed's flow: `python -m tests.support.pools.foreign_allocator URL KIND TIERS`.

It takes and gives back pods as fast as it can until it is told to stop, and bears witness: whoever gets an
exclusive pod that a living process still has, writes it down.
"""

import os
import random
import signal
import sys
import time
from typing import Any

from redis import Redis

LEASE_MS = 2000
TOLD = 20
"""After so many calls they are counted, so that a kill loses few of them."""
LEAST_LOADED = """
local pod = redis.call('ZRANGEBYSCORE', KEYS[1], 0, '(5', 'LIMIT', 0, 1)[1]
if pod then redis.call('ZINCRBY', KEYS[1], 1, pod) end
return pod
"""
GIVE_BACK = "if redis.call('ZSCORE', KEYS[1], ARGV[1]) then redis.call('ZINCRBY', KEYS[1], -1, ARGV[1]) end"


class Allocator:
    """One process of it."""

    def __init__(self, client: Any, tiers: list[str]) -> None:
        self.client = client
        self.tiers = tiers
        self.me = str(os.getpid())
        self.chance = random.Random(os.getpid())

    def exclusive(self) -> bool:
        """Serve one call on an exclusive pod: SPOP, SET lease; GET tier, DEL lease, SADD."""
        client = self.client
        pod = client.spop(f"voice:pool:{self.chance.choice(self.tiers)}:available")
        if pod is None:
            return False
        client.set(f"voice:lease:{pod}", self.me, px=LEASE_MS)
        self.witness(pod)
        time.sleep(self.chance.random() * 0.002)
        client.delete(f"witness:{pod}")
        tier = client.get(f"voice:pod:tier:{pod}")
        client.delete(f"voice:lease:{pod}")
        client.sadd(f"voice:pool:{tier}:available", pod)
        return True

    def shared(self) -> bool:
        """Serve one call on a shared pod: ZINCRBY 1, SET lease; ZINCRBY -1."""
        client = self.client
        key = f"voice:pool:{self.chance.choice(self.tiers)}:available"
        pod = client.eval(LEAST_LOADED, 1, key)
        if pod is None:
            return False
        client.set(f"voice:lease:{pod}", self.me, px=LEASE_MS)
        time.sleep(self.chance.random() * 0.002)
        client.eval(GIVE_BACK, 1, key, pod)
        return True

    def witness(self, pod: str) -> None:
        """Say who has the pod now; a process that was killed has it no more."""
        other = self.client.set(f"witness:{pod}", self.me, get=True)
        if other and other != self.me and _is_alive(int(other)):
            self.client.rpush("witness", f"{pod} was given to {self.me} while {other} had it")


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def main() -> None:
    """Work until SIGTERM, and leave everything as it should be."""
    url, kind, tiers = sys.argv[1:]
    stopped: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopped.append(number))
    with Redis.from_url(url, decode_responses=True) as client:
        allocator = Allocator(client, tiers.split(","))
        serve = allocator.shared if kind == "shared" else allocator.exclusive
        served = 0
        while not stopped:
            if not serve():
                time.sleep(0.001)
                continue
            served += 1
            if served == TOLD:
                client.incrby("witness:served", served)
                served = 0
        client.incrby("witness:served", served)


if __name__ == "__main__":
    main()

"""Programs that follow the seed's own command sequences, command by command."""

from typing import Any

from tests.support.explorer.machine import PREFIX, Local

Command = tuple[str, ...]


class _Foreign:
    can_lose_answers = False

    def __init__(self, name: str, *start: Any) -> None:
        self.name = name
        self.start: Local = start

    def unheard(self, local: Local) -> Local:
        return local

    def needs_rest(self, local: Local) -> bool:
        del local
        return False

    def is_hurrying(self, local: Local) -> bool:
        del local
        return False

    def serving(self, local: Local) -> tuple[str, str] | None:
        del local
        return None


def _available(tier: str) -> str:
    return f"{PREFIX}:pool:{tier}:available"


def _assigned(tier: str) -> str:
    return f"{PREFIX}:pool:{tier}:assigned"


class ForeignCaller(_Foreign):
    """SPOP, SET lease; later GET tier, DEL lease, SADD. Its origin gave the pod back before the lease."""

    def __init__(self, name: str, tier: str, *, releases_first: bool = False) -> None:
        super().__init__(name, "SPOP")
        self.tier = tier
        self.order = ("SADD", "DEL lease") if releases_first else ("DEL lease", "SADD")

    def step(self, local: Local, client: Any) -> Local:
        match local:
            case ("SPOP",):
                pod = client.spop(_available(self.tier))
                return () if pod is None else ("SET lease", pod)
            case ("SET lease", pod):
                client.set(f"{PREFIX}:lease:{pod}", self.name)
                return ("GET tier", pod)
            case ("GET tier", pod):
                return (self.order[0], pod, client.get(f"{PREFIX}:pod:tier:{pod}"))
            case (("SADD" | "DEL lease") as word, pod, tier):
                if word == "SADD":
                    client.sadd(_available(tier), pod)
                else:
                    client.delete(f"{PREFIX}:lease:{pod}")
                return (self.order[1], pod, tier) if word == self.order[0] else ()
        raise AssertionError(local)

    def is_hurrying(self, local: Local) -> bool:
        return local[0] not in {"SPOP", "GET tier"}

    def serving(self, local: Local) -> tuple[str, str] | None:
        # From its SPOP on it believes that the pod is its own, until it begins to give it back.
        return (local[1], self.name) if local[:1] in {("SET lease",), ("GET tier",)} else None


class SharedForeignCaller(_Foreign):
    """ZINCRBY 1, SET lease; later DEL lease, ZINCRBY -1 where the pod still is."""

    def __init__(self, name: str, tier: str, pod: str) -> None:
        super().__init__(name, "ZINCRBY")
        self.tier, self.pod = tier, pod

    def step(self, local: Local, client: Any) -> Local:
        key, lease = _available(self.tier), f"{PREFIX}:lease:{self.pod}"
        match local:
            case ("ZINCRBY",):
                # The least loaded by one script, as the origin has it: it never brings a pod back.
                least = "if redis.call('ZSCORE', KEYS[1], ARGV[1]) then"
                least += " redis.call('ZINCRBY', KEYS[1], 1, ARGV[1]) return 1 end return 0"
                return ("SET lease",) if client.eval(least, 1, key, self.pod) else ()
            case ("SET lease",):
                client.set(lease, self.name)
                return ("DEL lease",)
            case ("DEL lease",):
                client.delete(lease)
                return ("ZINCRBY -1",)
            case ("ZINCRBY -1",):
                guarded = "if redis.call('ZSCORE', KEYS[1], ARGV[1]) then"
                guarded += " redis.call('ZINCRBY', KEYS[1], -1, ARGV[1]) end"
                client.eval(guarded, 1, key, self.pod)
                return ()
        raise AssertionError(local)


class SeedRebalancer(_Foreign):
    """The seed's move of one pod between exclusive tiers, command by command, after counting once."""

    def __init__(
        self, name: str, source: str, destination: str, targets: tuple[int, int], *pods: str
    ) -> None:
        super().__init__(name, "SCARD")
        self.source, self.destination = source, destination
        self.targets = targets
        self.pods = pods

    def step(self, local: Local, client: Any) -> Local:
        match local:
            case ("SCARD",):
                over = client.scard(_assigned(self.source)) - self.targets[0]
                under = self.targets[1] - client.scard(_assigned(self.destination))
                return ("EXISTS", self.pods, min(over, under)) if over > 0 and under > 0 else ()
            case ("EXISTS", pods, left):
                keys = (f"{PREFIX}:pod:draining:{pods[0]}", f"{PREFIX}:lease:{pods[0]}")
                is_held = client.exists(*keys)
                return self._next(pods, left) if is_held else ("SREM available", pods, left)
            case ("SREM available", pods, left):
                is_ours = client.srem(_available(self.source), pods[0])
                return ("SREM assigned", pods, left) if is_ours else self._next(pods, left)
        return self._move(local, client)

    def _move(self, local: Local, client: Any) -> Local:
        word, pods, left = local
        key = f"{PREFIX}:pod:tier:{pods[0]}"
        match word:
            case "SREM assigned":
                client.srem(_assigned(self.source), pods[0])
                return ("DEL tier", pods, left)
            case "DEL tier":
                client.delete(key)
                return ("SET tier", pods, left)
            case "SET tier":
                client.set(key, self.destination)
                return ("SADD assigned", pods, left)
            case "SADD assigned":
                client.sadd(_assigned(self.destination), pods[0])
                return ("SADD available", pods, left)
        client.sadd(_available(self.destination), pods[0])
        return self._next(pods, left - 1)

    def _next(self, pods: tuple[str, ...], left: int) -> Local:
        return ("EXISTS", pods[1:], left) if left and pods[1:] else ()


class SeedDrain(_Foreign):
    """GET tier, SREM available, SET draining."""

    def __init__(self, name: str, pod: str) -> None:
        super().__init__(name, "GET tier")
        self.pod = pod

    def step(self, local: Local, client: Any) -> Local:
        match local:
            case ("GET tier",):
                tier = client.get(f"{PREFIX}:pod:tier:{self.pod}")
                return ("SREM", tier) if tier else ()
            case ("SREM", tier):
                client.srem(_available(tier), self.pod)
                return ("SET draining",)
        client.set(f"{PREFIX}:pod:draining:{self.pod}", "1")
        return ()


class SeedZombieSweep(_Foreign):
    """What is assigned, and neither draining nor leased nor available, is given back at once."""

    def __init__(self, name: str, tier: str, pod: str) -> None:
        super().__init__(name, "SMEMBERS")
        self.tier, self.pod = tier, pod

    def step(self, local: Local, client: Any) -> Local:
        match local:
            case ("SMEMBERS",):
                return ("EXISTS",) if self.pod in client.smembers(_assigned(self.tier)) else ()
            case ("EXISTS",):
                keys = (f"{PREFIX}:pod:draining:{self.pod}", f"{PREFIX}:lease:{self.pod}")
                return () if client.exists(*keys) else ("SISMEMBER",)
            case ("SISMEMBER",):
                return () if client.sismember(_available(self.tier), self.pod) else ("SADD",)
        client.sadd(_available(self.tier), self.pod)
        return ()

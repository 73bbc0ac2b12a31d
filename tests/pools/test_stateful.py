"""Random operations on the real scripts and on a plain model of what they mean, side by side."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from redis import Redis

from equipoise.adapters.redis import RedisPools
from equipoise.core.decision import MovePod
from equipoise.pools.invariants import violations
from equipoise.pools.policy import read_policy, tiers_for_scripts
from tests.support.pools.worlds import write

PODS = [f"a-{number}" for number in range(6)]
CALLS = [f"c{number}" for number in range(6)]
TIERS = ["gold", "silver", "basic"]
TARGETS = {"gold": 2, "silver": 2, "basic": 1}
MOST = 5


class Model:
    """Pods, their tiers, their calls, who drains: nothing else is true of the pools."""

    def __init__(self) -> None:
        self.tier: dict[str, str] = {}
        self.calls: dict[str, set[str]] = {}
        self.draining: set[str] = set()
        self.owner: dict[str, str] = {}

    def free(self, tier: str) -> set[str]:
        """Give the pods that could take a call."""
        most = MOST if tier == "basic" else 1
        return {
            pod
            for pod, home in self.tier.items()
            if home == tier and pod not in self.draining and len(self.calls[pod]) < most
        }

    def count(self, tier: str) -> int:
        """Give how many pods a tier has."""
        return list(self.tier.values()).count(tier)


class Pools(RuleBasedStateMachine):
    """Every rule does the same to both, and compares the answers."""

    client: Any
    """Set by the test: the server is started once."""

    @initialize()
    def empty(self) -> None:
        self.client.flushall()
        write(self.client, {tier: [] for tier in TIERS}, TARGETS)
        self.pools = RedisPools(self.client, "voice", read_tiers=tiers_for_scripts)
        self.model = Model()

    @rule(pod=st.sampled_from(PODS))
    def register(self, pod: str) -> None:
        is_known = pod in self.model.tier
        answer = self.pools.register(pod, f"u-{pod}", None)
        assert answer.code == ("Known" if is_known else "Registered")
        if not is_known:
            under = [tier for tier in TIERS if self.model.count(tier) < TARGETS[tier]]
            self.model.tier[pod] = (under or TIERS[-1:])[0]
            self.model.calls[pod] = set()
        assert answer.tier == self.model.tier[pod]

    @rule(pod=st.sampled_from(PODS))
    def unregister(self, pod: str) -> None:
        is_known = pod in self.model.tier
        assert self.pools.unregister(pod, "", None).code == ("Unregistered" if is_known else "NotThere")
        if is_known:
            del self.model.tier[pod]
            for call in self.model.calls.pop(pod):
                del self.model.owner[call]
            self.model.draining.discard(pod)

    @rule(call=st.sampled_from(CALLS), tier=st.sampled_from(["", *TIERS]))
    def allocate(self, call: str, tier: str) -> None:
        answer = self.pools.allocate(call, tier)
        if call in self.model.owner:
            assert (answer.pod, answer.detail) == (self.model.owner[call], "again")
            return
        first = next((name for name in TIERS if tier in {"", name} and self.model.free(name)), None)
        if first is None:
            assert answer.code == "NoneFree"
            return
        assert answer.tier == first
        assert answer.pod in self.model.free(first)
        least = min(len(self.model.calls[pod]) for pod in self.model.free(first))
        assert len(self.model.calls[answer.pod]) == least
        self.model.calls[answer.pod].add(call)
        self.model.owner[call] = answer.pod

    @rule(call=st.sampled_from(CALLS))
    def release(self, call: str) -> None:
        answer = self.pools.release(call)
        pod = self.model.owner.pop(call, None)
        assert answer.code == ("UnknownCall" if pod is None else "Released")
        if pod is not None:
            self.model.calls[pod].discard(call)

    @rule(call=st.sampled_from(CALLS))
    def heartbeat(self, call: str) -> None:
        code = self.pools.heartbeat(call).code
        assert code == ("Renewed" if call in self.model.owner else "UnknownCall")

    @rule(pod=st.sampled_from(PODS))
    def drain(self, pod: str) -> None:
        assert self.pools.drain(pod).code == ("Drained" if pod in self.model.tier else "NotThere")
        if pod in self.model.tier:
            self.model.draining.add(pod)

    @rule(pod=st.sampled_from(PODS))
    def undrain(self, pod: str) -> None:
        is_draining = pod in self.model.draining
        word = "Undrained" if is_draining else "NotDraining"
        assert self.pools.undrain(pod).code == (word if pod in self.model.tier else "NotThere")
        self.model.draining.discard(pod)

    @rule(pod=st.sampled_from(PODS), source=st.sampled_from(TIERS), to=st.sampled_from(TIERS))
    def move(self, pod: str, source: str, to: str) -> None:
        version = self.pools.snapshot().version
        code = self.pools.move([MovePod(pod, source, to)], version, None)[0].code
        home = self.model.tier.get(pod)
        if source == to:
            assert code == "NoTier"
        elif home != source:
            assert code == ("AlreadyThere" if home == to else "NotThere")
        elif pod in self.model.draining:
            assert code == "Draining"
        elif self.model.count(source) <= TARGETS[source]:
            assert code == "SourceNotOver"
        elif self.model.count(to) >= TARGETS[to]:
            assert code == "DestinationFull"
        elif self.model.calls[pod]:
            assert code in {"Leased", "Busy"}
        else:
            assert code == "Moved"
            self.model.tier[pod] = to

    @rule()
    def sweep(self) -> None:
        answers = self.pools.recover(sorted(self.model.tier), None)
        assert {answer.code for answer in answers} <= {"Healthy"}

    @invariant()
    def same(self) -> None:
        if not hasattr(self, "model"):
            return
        seen = self.pools.snapshot(is_thorough=True)
        assert violations(read_policy(seen.config, "config"), seen) == []
        for pool in seen.pools:
            homes = {pod for pod, tier in self.model.tier.items() if tier == pool.tier}
            assert set(pool.assigned) == homes
            if pool.tier == "basic":
                counts = {pod: len(self.model.calls[pod]) for pod in homes - self.model.draining}
                assert pool.available == counts
            else:
                assert set(pool.available) == self.model.free(pool.tier)
        for pod, calls in self.model.calls.items():
            assert set(seen.pods[pod].calls) == calls


def test_the_scripts_mean_what_the_model_says(url: str) -> None:
    """Thousands of random steps, compared after each."""
    with Redis.from_url(url, decode_responses=True) as client:
        Pools.client = client
        machine: Any = Pools.TestCase
        machine.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
        machine().runTest()

"""The pools' loop as the operator wires it: what it needs to be told, and a Redis that comes and goes."""

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from redis import Redis

from equipoise.core.decision import Decision, MovePod, Outcome, RecoverPod
from equipoise.core.errors import BadInput, SetUpWrong, WorldFailed
from equipoise.core.pools import PoolsSnapshot, TierKeys
from equipoise.core.reason import Code, Reason
from equipoise.engine.isolation import Isolation
from equipoise.pools.balancer import BALANCER, log_lines, make_loop
from equipoise.pools.observe import observe
from equipoise.pools.policy import policy_from
from equipoise.ports import CycleReport
from equipoise.runtime.layers import effective
from equipoise.runtime.metrics import DecisionMetrics
from equipoise.runtime.operator.wiring import OperatorWiring
from equipoise.runtime.redis import RemotePools, remote_pools, url_source
from equipoise.runtime.settings import Settings
from tests.support.operator.worlds import ScriptedLoop, eventually, report, standing
from tests.support.pools.servers import server

WHOLE = {
    "balancers": "pools",
    "pools.redisUrl": "redis://tiers",
    "pools.namespace": "calls",
    "pools.selector": "app=voice",
}


def _settings(**changes: str | None) -> Settings:
    given = WHOLE | {f"pools.{name}": value for name, value in changes.items()}
    return effective(None, {}, {}, [f"{name}={value}" for name, value in given.items() if value]).settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"redisUrl": None},
            "pools.redisUrl: expected the address of a Redis because balancers includes pools",
        ),
        ({"redisUrlFile": "/x"}, "pools.redisUrl: expected one of pools.redisUrl and pools.redisUrlFile"),
        ({"redisUrl": "http://tiers"}, "expected redis://HOST:PORT"),
        ({"namespace": None}, "pools.namespace: expected the namespace of the tiers' pods"),
        (
            {"selector": None},
            "pools.selector: expected the labels of the tiers' pods, such as app=voice-agent",
        ),
        ({"selector": "app in (voice"}, "pools.selector: "),
    ],
)
def test_what_is_missing_is_refused_at_the_start(changes: dict[str, str | None], message: str) -> None:
    """One line, with the path of the setting, before anything is done."""
    settings = _settings(**changes)
    operator: Any = SimpleNamespace(settings=settings)
    wiring: Any = SimpleNamespace(
        pools=partial(OperatorWiring.pools, operator),
        selected_pods=partial(OperatorWiring.selected_pods, operator),
    )
    with pytest.raises(BadInput) as refused:
        make_loop(wiring, settings)
    assert message in str(refused.value)


def test_a_password_that_changes_is_read_again(tmp_path: Path) -> None:
    """A file of a Secret; a wrong one fails the cycle only, and so does a file that is missing."""
    file = tmp_path / "url"
    asked = _settings(redisUrl=None, redisUrlFile=str(file)).pools
    now = [0.0]

    def later() -> float:
        now[0] += 2.0
        return now[0]

    pools = RemotePools(url_source(asked), "voice", monotonic=later)
    with pytest.raises(WorldFailed, match="No such file"):
        pools.snapshot()
    file.write_text("nonsense")
    with pytest.raises(WorldFailed, match="expected redis://"):
        pools.snapshot()
    with server() as url, Redis.from_url(url) as person:
        person.config_set("requirepass", "new")
        file.write_text(url.replace("unix://", "unix://:old@"))
        with pytest.raises(WorldFailed) as refused:
            pools.snapshot()
        assert "old" not in str(refused.value)
        file.write_text(url.replace("unix://", "unix://:new@") + "\n")
        with Redis.from_url(file.read_text().strip()) as client:
            client.set("voice:tier:config", '{"gold": 1}')
        assert pools.snapshot().config == '{"gold": 1}'
    with pytest.raises(WorldFailed):
        pools.snapshot()


def test_a_loop_that_is_woken_does_not_wait_for_its_interval() -> None:
    """And one that is not waits."""
    woken = ScriptedLoop(lambda _: report(), interval_seconds=3600.0)
    woken.is_woken = lambda: True  # type: ignore[attr-defined]
    asleep = ScriptedLoop(lambda _: report(), name="other", interval_seconds=3600.0)
    with standing(woken, asleep):
        eventually(lambda: woken.cycles >= 3)
        assert asleep.cycles <= 1


TIERS = {"gold": {"target": 2, "calls": 3, "idle": 1, "busy": 1, "draining": 0}}


def _report(tiers: dict[str, Any], *outcomes: Outcome) -> CycleReport:
    seen = Decision("voice/pods", Reason(Code.IN_STEP, "", {"missing": 1}))
    moved = Decision("voice", Reason(Code.BALANCED, ""), extra={"tiers": tiers, "pending": 4, "epoch": 1})
    return CycleReport([seen, moved], outcomes)


def test_the_tiers_are_metered_and_one_that_is_gone_has_no_series() -> None:
    """By prefix and tier."""
    registry = CollectorRegistry()
    meters = DecisionMetrics(BALANCER, registry)
    done = Outcome(MovePod("a-1", "basic", "gold"), "Moved"), Outcome(RecoverPod("a-2"), "Recovered")
    meters.observe(_report(TIERS | {"former": TIERS["gold"]}, *done), Isolation())
    meters.observe(_report(TIERS), Isolation())
    text = generate_latest(registry).decode()
    for line in (
        'equipoise_pool_pods{prefix="voice",state="busy",tier="gold"} 1.0',
        'equipoise_pool_target{prefix="voice",tier="gold"} 2.0',
        'equipoise_pool_calls{prefix="voice",tier="gold"} 3.0',
        'equipoise_pool_pending_moves{prefix="voice"} 4.0',
        'equipoise_pool_missing_pods{prefix="voice"} 1.0',
        'equipoise_pool_moves_total{from="basic",prefix="voice",to="gold"} 1.0',
        'equipoise_pool_recovered_total{prefix="voice"} 1.0',
    ):
        assert line in text
    assert "former" not in text


def test_the_log_has_the_lines_that_people_look_for() -> None:
    """Word for word, and none when nothing was moved."""
    assert not list(log_lines(_report(TIERS)))
    report = _report(
        TIERS,
        Outcome(MovePod("voice-agent-2", "basic", "gold"), "Moved"),
        Outcome(MovePod("voice-agent-3", "basic", "gold"), "Unanswered", "gone"),
    )
    assert [{"message": line.event, **line.fields} for line in log_lines(report)] == [
        {"message": "Rebalanced pod", "pod": "voice-agent-2", "from_tier": "basic", "to_tier": "gold"},
        {"message": "rebalance: Lua script failed", "pod": "voice-agent-3", "error": "gone"},
        {"message": "Rebalancing complete", "pods_moved": 1},
    ]


def test_a_tier_that_cannot_be_counted_is_told_in_the_same_words() -> None:
    """Beside the cycle that failed for it; other failures are no tier's."""
    assert not list(log_lines(WorldFailed("gone")))
    seen = PoolsSnapshot("voice", None, "", None, (TierKeys("gold", "list", "none"),))
    with pytest.raises(WorldFailed) as failed:
        observe(policy_from({"gold": 1}, "test"), seen)
    (line,) = log_lines(failed.value)
    assert (line.level, line.event) == ("warning", "rebalance: failed to get assigned count")
    assert line.fields["tier"] == "gold"
    assert str(line.fields["error"]).startswith("voice:pool:gold:assigned: expected a set, got a list")


def test_a_redis_that_evicts_keys_fails_the_cycle_until_it_is_accepted() -> None:
    """The setting, or its variable, says that somebody knows."""
    environment = {"EQUIPOISE_POOLS_ACCEPT_EVICTION": "true"}
    accepted = effective(None, environment, {}, [f"{name}={value}" for name, value in WHOLE.items()]).settings
    assert accepted.pools.accept_eviction
    with server(settings=("--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lfu")) as url:
        refusing, accepting = (
            remote_pools(lambda: url, asked) for asked in (_settings().pools, accepted.pools)
        )
        with pytest.raises(SetUpWrong) as refused:
            refusing.snapshot()
        assert "maxmemory-policy is allkeys-lfu" in str(refused.value)
        assert "or accept the risk with pools.acceptEviction" in str(refused.value)
        with pytest.raises(BadInput, match="voice:tier:config"):
            accepting.snapshot()
        accepting.close()

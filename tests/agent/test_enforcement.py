"""Whether anything may be changed is asked again and again: kinds change hands while an agent runs."""

import json
from pathlib import Path

import pytest

from equipoise.adapters.kubernetes.reflector import AGE_MAX_SECONDS
from equipoise.core.errors import WorldFailed
from equipoise.qos.state import AgentState, ThrottledContainer
from equipoise.runtime.agent import node_api as surroundings
from equipoise.runtime.agent.node_api import CHECK_SECONDS, FOREIGN, RETRY_SECONDS, EnforcementGate
from equipoise.runtime.agent.run import Agent
from equipoise.runtime.agent.state import StateFile
from tests.support.agent.api import ID, PODS, UID, Api, agent_of, machine, running_pod
from tests.support.kubernetes.server import Time, playing, session
from tests.support.qos.worlds import EVICT, policy, rule
from tests.testbed import wait_until

ASKED = policy(rule("cpu_total_usage", 6000, "evict"))


def _gate(api: Api, url: str, time: Time, **how: bool) -> EnforcementGate:
    with session(url) as client:
        return EnforcementGate(
            client, **({"is_enforced": True, "takes_over": False} | how), monotonic=time.read
        )


def test_whose_the_kinds_are_is_looked_at_again_after_a_while() -> None:
    """Not in every round; and a look that fails changes nothing."""
    api, time = Api(), Time()
    with playing(api.script) as player:
        gate = _gate(api, player.url, time)
        assert [gate.denial("", lambda: True) for _ in range(3)] == [""] * 3
        assert api.looks == 1
        api.owner = None
        time.sleep(CHECK_SECONDS)
        assert (gate.denial("", lambda: True), api.looks) == ("", 2)
        api.owner = "crane"
        time.sleep(CHECK_SECONDS - 1)
        assert (gate.denial("", lambda: True), api.looks) == ("", 2)
        time.sleep(1)
        assert (gate.denial("", lambda: True), gate.is_unknown) == (FOREIGN, False)


def test_the_first_policy_is_not_obeyed_before_its_kind_is_known_to_be_ours() -> None:
    """Kinds that were absent a moment ago may be anybody's now."""
    api, time = Api(), Time()
    with playing(api.script) as player:
        gate = _gate(api, player.url, time)
        assert gate.denial("", lambda: False) == ""
        api.owner = "crane"
        assert gate.denial("", lambda: True) == FOREIGN
        gate.denial("", lambda: False)
        api.owner = None
        assert gate.denial("", lambda: True).startswith("the controller that manages the definitions of")
        assert gate.is_unknown
        time.sleep(RETRY_SECONDS)
        api.owner = "equipoise"
        assert gate.denial("", lambda: True) == ""


def test_a_preview_and_a_take_over_ask_nobody_and_another_hand_stops_both() -> None:
    """Crane's own agent may come to the node at any time."""
    api = Api(owner="crane")
    with playing(api.script) as player:
        assert _gate(api, player.url, Time(), takes_over=True).denial("", lambda: True) == ""
        assert "Preview" in _gate(api, player.url, Time(), is_enforced=False).denial("", lambda: True)
        for takes_over in (True, False):
            gate = _gate(api, player.url, Time(), takes_over=takes_over)
            assert "pod d/x is Crane's agent" in gate.denial("d/x", lambda: True)
    assert api.looks == 0


def _throttled(folder: Path, agent: Agent) -> Path:
    """Leave a throttled container behind, as an agent that was killed does."""
    quota = machine(folder / "cgroup")
    quota.write_text("5000 100000")
    part = ThrottledContainer(UID, "d", "a", "c", 5000)
    StateFile(agent.settings.state_file, agent.file.boot_id).save(AgentState(agent.file.boot_id, {ID: part}))
    return quota


def test_an_agent_gives_back_when_the_kinds_are_somebody_elses(tmp_path: Path) -> None:
    """And says so on the node; not before it knows, since not knowing is no reason to give back."""
    api = Api(owner=None)
    api.add(PODS, running_pod())
    api.ask(EVICT)
    api.ask(policy(rule("cpu_total_usage", 10**6, "evict")))
    with agent_of(api, tmp_path, is_enforced=True) as agent:
        quota = _throttled(tmp_path, agent)
        assert agent.start()
        wait_until(lambda: _is_listed(agent), "the policies to be listed", 60)
        agent.runner.run_once()
        assert quota.read_text() == "5000 100000"
        api.owner = "crane"
        agent.gate._check_at = 0.0
        agent.runner.run_once()
        assert quota.read_text() == "max 100000"
        assert json.loads((tmp_path / "state.json").read_text()).get("throttled", {}) == {}
        assert "NothingIsChanged" in api.reasons("Node")
        assert api.patches == 1  # the second time it is counted up
        assert "equipoise_agent_enforcing 0.0" in _metrics(agent)


def _is_listed(agent: Agent) -> bool:
    return all(one.synced.is_set() for one in agent.node_api._reflectors)


def _metrics(agent: Agent) -> str:
    from prometheus_client import generate_latest

    return generate_latest(agent.registry).decode()


def test_a_policy_that_does_not_fit_is_said_on_the_node_once(tmp_path: Path) -> None:
    """Nobody writes its status; the metric stays until it is mended."""
    api = Api()
    api.ask(policy(rule("cpu_total_usage", 6000, "none"), name="odd"))
    with agent_of(api, tmp_path) as agent:
        assert agent.start()
        wait_until(lambda: _is_listed(agent), "the policies to be listed", 60)
        for _ in range(3):
            agent.runner.run_once()
        (said,) = [one for one in api.events if one["reason"] == "PolicyLeftOut"]
        assert "NodeQOSEnsurancePolicy odd: spec.objectiveEnsurances[0].actionName" in said["message"]
        assert "equipoise_agent_policies_left_out 1.0" in _metrics(agent)


def test_what_nobody_has_told_of_for_minutes_is_not_acted_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One watch that fails is enough; a kind that was removed is none; giving back needs no fresh list."""
    api = Api()
    api.add(PODS, running_pod())
    api.ask(EVICT)
    with agent_of(api, tmp_path, is_enforced=True) as agent:
        quota = _throttled(tmp_path, agent)
        assert agent.start()
        wait_until(lambda: _is_listed(agent), "the policies to be listed", 60)
        for reflector in agent.node_api._reflectors:
            assert agent.node_api.policy().actions
            with monkeypatch.context() as silent:
                silent.setattr(reflector, "last_contact_age_seconds", lambda _: AGE_MAX_SECONDS + 1)
                with pytest.raises(WorldFailed, match=f"the {reflector.kind.plural} of n1 are unknown: "):
                    agent.node_api.policy()
                silent.setattr(surroundings, "_is_absent", lambda _: True)
                assert reflector.cache.records() or agent.node_api.policy().actions
        monkeypatch.setattr(agent.node_api._pods, "last_contact_age_seconds", lambda _: AGE_MAX_SECONDS + 1)
        agent.runner.run_once()
        assert "equipoise_agent_round_failures_total 1.0" in _metrics(agent)
        assert quota.read_text() == "5000 100000"
        assert [one.result for one in agent.restore("the agent ends")] == ["Done"]
        assert quota.read_text() == "max 100000"

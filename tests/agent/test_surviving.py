"""A bug costs a round, never the agent; and whatever ends the agent, it gives quotas back on its way out."""

import json
import threading
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import generate_latest

from equipoise.core.errors import WorldFailed
from equipoise.ports.node import ContainerRef
from equipoise.qos.state import AgentState, ThrottledContainer
from equipoise.runtime.agent.reporting import AGAIN_SECONDS, EventReporter
from equipoise.runtime.agent.run import FAILURES_MAX, Agent
from equipoise.runtime.agent.state import StateFile
from equipoise.runtime.logs import make_log
from equipoise.runtime.settings import Logs
from tests.support.agent.api import ID, PODS, UID, Api, agent_of, running_pod
from tests.support.agent.machines import Machine, Scene, policies, told
from tests.support.agent.trees import write
from tests.support.kubernetes.server import Time
from tests.support.qos.worlds import action, policy, rule
from tests.testbed import wait_until

OTHER_UID, OTHER_ID = "uid-b", "cd" * 32
QUICK = action("quick", coolDownSeconds=30, throttle={"cpuThrottle": {"stepCPURatio": 50}})


def _left(folder: Path, agent: Agent, *others: str) -> Path:
    """Leave a container throttled, known to the state file; return its quota."""
    pods = folder / "cgroup" / "kubepods" / "besteffort"
    parts = {ID: ThrottledContainer(UID, "d", "a", "c", 5000)}
    for uid in others:
        write(pods / f"pod{uid}" / OTHER_ID, cpu_stat="usage_usec 1000\n", cpu_max="6000 100000\n")
        write(pods / f"pod{uid}" / OTHER_ID, memory_current="1\n", memory_stat="inactive_file 0\n")
        parts = {OTHER_ID: ThrottledContainer(uid, "d", "b", "c", 6000)} | parts
    quota = pods / f"pod{UID}" / ID / "cpu.max"
    quota.write_text("5000 100000")
    boot = agent.file.boot_id
    StateFile(agent.settings.state_file, boot).save(AgentState(boot, parts))
    return quota


def _bug(*_: Any, **__: Any) -> Any:
    raise ZeroDivisionError("a bug about one pod")


PLACES: dict[str, Callable[[Agent], tuple[object, str]]] = {
    "asking whether anything may be changed": lambda agent: (agent.gate, "denial"),
    "reading the pods": lambda agent: (agent.node_api, "pods"),
    "deciding": lambda agent: (type(agent.loop), "cycle"),
    "keeping the decision": lambda agent: (agent.journal, "append"),
    "counting": lambda agent: (agent.metrics, "observe_cycle"),
    "telling": lambda agent: (agent.reporter, "report"),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_bug_costs_a_round_and_not_the_agent(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is counted as one, and makes the agent unready when it stays; the next sound round is well."""
    with agent_of(Api(), tmp_path) as agent:
        assert agent.start()
        with monkeypatch.context() as broken:
            broken.setattr(*PLACES[place](agent), _bug)
            for _ in range(FAILURES_MAX):
                agent.runner.run_once()
            (said,) = agent.readiness_errors()
            assert said == "the last 5 cycles failed: unexpected ZeroDivisionError: a bug about one pod"
        metrics = generate_latest(agent.registry).decode()
        bugs = 10.0 if place == "reading the pods" else 5.0  # the search for what is throttled reads them too
        assert f"equipoise_agent_round_bugs_total {bugs}" in metrics
        assert "equipoise_agent_round_failures_total 5.0" in metrics
        assert agent.liveness_errors() == []
        agent.runner.run_once()
        assert agent.readiness_errors() == []


def test_where_a_bug_is_is_logged_once_in_ten_minutes(tmp_path: Path) -> None:
    """Each round says that it failed; a failure of the world has no traceback."""
    said, time = StringIO(), Time()
    with agent_of(Api(), tmp_path) as agent:
        teller = EventReporter(make_log(Logs(format="json"), said), agent.actuator, agent.node_api, time.read)
        bug = ZeroDivisionError("one")
        for error in (bug, bug, ValueError("two"), bug, WorldFailed("no answer")):
            teller.report_failure(error)
        time.sleep(AGAIN_SECONDS)
        teller.report_failure(bug)
    lines = [json.loads(line) for line in said.getvalue().splitlines()]
    assert ["traceback" in line for line in lines] == [True, False, True, False, False, True]
    assert [line["level"] for line in lines] == ["error"] * 4 + ["warning", "error"]
    assert all(line["message"].startswith("the cycle failed") for line in lines)


def test_a_failure_of_which_no_encoder_takes_the_words_is_logged(tmp_path: Path) -> None:
    """A line that can't be written would end the agent in the midst of telling that a round failed."""
    said = StringIO()
    log = make_log(Logs(format="json"), said)
    with agent_of(Api(), tmp_path) as agent:
        EventReporter(log, agent.actuator, agent.node_api).report_failure(ValueError("\udcff"))
        log.warning("odd", error="\ud800")
    assert ["udcff" in said.getvalue(), "ud800" in said.getvalue()] == [True, True]
    assert all(json.loads(line) for line in said.getvalue().splitlines())


def _run(agent: Agent) -> tuple[threading.Thread, list[BaseException]]:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            agent.run()
        except BaseException as error:  # noqa: BLE001 - the test asks which
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, errors


def _end(*_: Any) -> Any:
    raise SystemExit(3)


ENDS: dict[str, Callable[[Agent, pytest.MonkeyPatch], object]] = {
    "a bug outside of a round": lambda agent, broken: broken.setattr(agent.runner, "run_once", _bug),
    "the end of the process": lambda agent, broken: broken.setattr(type(agent.loop), "cycle", _end),
    "a start that fails": lambda agent, broken: broken.setattr(agent.pauses.reflector, "start", _bug),
    "a stop during the start": lambda agent, broken: broken.setattr(
        agent.pauses.reflector, "start", agent.stopping.set
    ),
}


@pytest.mark.parametrize("case", ENDS)
def test_quotas_are_given_back_whatever_ends_the_agent(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, as on SIGTERM; and the error is not lost."""
    api = Api()
    api.add(PODS, running_pod())
    with agent_of(api, tmp_path, is_enforced=True, interval_seconds=1.0) as agent:
        quota = _left(tmp_path, agent)
        ENDS[case](agent, monkeypatch)
        thread, errors = _run(agent)
        thread.join(60)
        assert not thread.is_alive()
        assert quota.read_text() == "max 100000"
        assert bool(errors) is (case != "a stop during the start")


def test_an_agent_that_refuses_to_start_beside_cranes_gives_back_what_it_left(tmp_path: Path) -> None:
    """Crane's agent came while ours was away; what ours is known to have throttled is nobody else's."""
    api = Api()
    api.add(PODS, running_pod())
    document = running_pod("crane-agent-x", labels={"app": "crane-agent"}, uid="uid-crane")
    document["status"]["containerStatuses"] = []
    api.add(PODS, document)
    with agent_of(api, tmp_path, is_enforced=True) as agent:
        quota = _left(tmp_path, agent)
        with pytest.raises(WorldFailed, match="is Crane's agent"):
            agent.run()
        assert quota.read_text() == "max 100000"


def test_a_stop_while_nothing_is_listed_leaves_the_file_to_the_next_agent(tmp_path: Path) -> None:
    """Nobody tells what the container may use now."""
    api = Api()
    api.are_open.clear()
    with agent_of(api, tmp_path, is_enforced=True) as agent:
        quota = _left(tmp_path, agent)
        thread, errors = _run(agent)
        wait_until(lambda: bool(api.looks or thread.is_alive()), "the start", 60)
        agent.stopping.set()
        thread.join(60)
        api.are_open.set()
        assert (thread.is_alive(), errors, quota.read_text()) == (False, [], "5000 100000")
        assert set(StateFile(agent.settings.state_file, agent.file.boot_id).load().throttled) == {ID}


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), OSError(5, "Input/output error")])
def test_one_container_that_fails_keeps_no_other_throttled(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the way out; it is said, and stays in the file."""
    api = Api()
    api.add(PODS, running_pod())
    other = running_pod("b", uid=OTHER_UID)
    other["status"]["containerStatuses"][0]["containerID"] = f"containerd://{OTHER_ID}"
    api.add(PODS, other)
    with agent_of(api, tmp_path, is_enforced=True) as agent:
        quota = _left(tmp_path, agent, OTHER_UID)
        real = type(agent.host).set_quota

        def set_quota(host: Any, container: ContainerRef, quota_us: int) -> bool:
            if container.id == OTHER_ID:
                raise error
            return real(host, container, quota_us)

        monkeypatch.setattr(type(agent.host), "set_quota", set_quota)
        assert agent.start()
        results = [(one.action.pod, one.result) for one in agent.restore("the agent ends")]
        assert results == [("d/b", "Failed"), ("d/a", "Done")]
        assert quota.read_text() == "max 100000"
        assert set(agent.loop.state.throttled) == {OTHER_ID}


@pytest.mark.parametrize("error", [WorldFailed("cpu.max: Input/output error"), ZeroDivisionError()], ids=repr)
def test_quotas_that_cannot_be_read_are_given_back_all_the_same(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a container may use is known without them."""

    def read(*_: object, **__: object) -> object:
        raise error

    api = Api()
    api.add(PODS, running_pod())
    with agent_of(api, tmp_path, is_enforced=True) as agent:
        quota = _left(tmp_path, agent)
        assert agent.start()
        monkeypatch.setattr(type(agent.host), "read", read)
        assert [one.result for one in agent.restore("the agent ends")] == ["Done"]
        assert quota.read_text() == "max 100000"


def test_a_bug_in_the_search_costs_no_round(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is counted and tried again; the node is kept below its waterlines meanwhile."""
    with agent_of(Api(), tmp_path, is_enforced=True) as agent:
        assert agent.start()
        monkeypatch.setattr(agent.recovery, "search", _bug)
        agent.runner.run_once()
        assert agent.readiness_errors() == []
        assert "equipoise_agent_round_bugs_total 1.0" in generate_latest(agent.registry).decode()
        monkeypatch.undo()
        agent.runner.run_once()
        assert agent.recovery.is_over


class Breaking(Machine):
    """The second quota that is written meets a bug."""

    written = 0

    def set_quota(self, container: ContainerRef, quota_us: int) -> bool:
        self.written += 1
        if self.written == 2:
            raise ZeroDivisionError
        return super().set_quota(container, quota_us)


def test_a_bug_in_one_throttle_leaves_the_other_known() -> None:
    """On the disk and in the next round, which goes on from there; and all of it is given back."""
    scene = Scene(Breaking())
    scene.around.asked = policies(QUICK, policy(rule("cpu_total_usage", 1000, "quick")))
    scene.add(told("a", limit=5), 4)
    scene.add(told("b"), 3)
    scene.rounds(1)
    (done,) = scene.rounds(1)
    assert [outcome.result for outcome in done.outcomes] == ["Done", "Failed"]
    assert [turn.subject for turn in done.failed_turns] == ["d/b"]
    assert scene.machine.quotas == {"a00000000": 250000, "b00000000": -1}
    assert set(scene.disk.content.throttled) == {"a00000000", "b00000000"}
    scene.pass_time()
    scene.rounds(1)
    assert scene.machine.quotas["b00000000"] == 150000
    scene.loop.restore_all()
    assert scene.machine.quotas == {"a00000000": 500000, "b00000000": -1}

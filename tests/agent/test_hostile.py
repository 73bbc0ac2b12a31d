"""Wrong flags, damaged files, machines that can't be read: one clear message, and nothing changed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from equipoise.adapters.cgroups import connect_host
from equipoise.cli.agent import AgentOptions
from equipoise.cli.options import KubernetesOptions
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.ports.node import ContainerRef
from equipoise.qos.loop import FAILURES_MAX
from equipoise.qos.state import AgentState, ThrottledContainer
from equipoise.runtime.agent.reporting import AGAIN_SECONDS, EventReporter
from equipoise.runtime.agent.state import StateFile
from tests.support.agent.api import ID, PODS, UID, Api, agent_of, machine, running_pod
from tests.support.agent.machines import Machine, Scene, policies, told
from tests.support.cli.running import equipoise
from tests.support.kubernetes.server import Time
from tests.support.qos.worlds import policy, rule

OPTIONS = AgentOptions(node="n1", state="/tmp/x/state.json", kubernetes=KubernetesOptions())
BAD = {
    "node": ["", "a,spec.nodeName!=b", "A", "a b", "a\n", "x" * 300],
    "interval": ["0.5s", "nan", "inf", "-1", "2h", "soon", ""],
    "state": ["", "/", ".", "/tmp", "a\0b"],
    "http_address": ["", "8081", ":", ":²", ":99999", ":-1", "host:"],
    "journal": ["/tmp/x/state.json", "/tmp", "/"],
}


@pytest.mark.parametrize("field", BAD)
def test_a_wrong_flag_is_refused_by_its_name(field: str) -> None:
    """Before anything is opened."""
    assert OPTIONS.settings().node == "n1"
    for value in BAD[field]:
        with pytest.raises(BadInput, match=f"^--{field.replace('_', '-')}: expected") as refused:
            replace(OPTIONS, **{field: value}).settings()  # type: ignore[arg-type]
        assert "\n" not in str(refused.value)


def test_the_command_line_says_it_in_one_line() -> None:
    """And leaves with 2."""
    for words, said in (
        (["--node", "n1", "--mode", "enforce"], "'enforce' is not one of"),
        (["--state", "/"], "Missing option '--node'"),
        (["--node", "n1", "--state", "/"], "error: --state: expected a file, got '/'"),
    ):
        done = equipoise("agent", *words, environment={"NODE_NAME": ""})
        assert (done.returncode, done.stdout) == (2, ""), words
        assert said in done.stderr, words
        assert done.stderr.count("\n") == 1, done.stderr


DAMAGED = {
    "no JSON": "{",
    "empty": "",
    "another shape": "[]",
    "a wrong field": '{"throttled": 1}',
    "a container without its pod": '{"throttled": {"x": {}}}',
    "times that are none": '{"memory": {"lastTrigger": {"evict": "soon"}}}',
    "a memory of another kind": '{"memory": {"lastTrigger": 5}}',
    "refusals that are none": '{"refused": {"u": 5}}',
    "bytes": "\x00\x01",
}


@pytest.mark.parametrize("case", DAMAGED)
def test_a_damaged_state_file_is_put_aside_once(case: str, tmp_path: Path) -> None:
    """It is said, kept for a person to look at, and the agent goes on without it."""
    path = tmp_path / "state.json"
    path.write_text(DAMAGED[case])
    file = StateFile(path, "boot")
    with pytest.raises(
        WorldFailed, match=r"state\.json: the state file is damaged .* the file was renamed to"
    ):
        file.load()
    assert path.with_suffix(".damaged").read_text() == DAMAGED[case]
    assert file.load() == AgentState("boot")


def test_hostile_names_in_a_state_file_reach_no_path(tmp_path: Path) -> None:
    """Only letters, digits and dashes are taken; everything else has vanished."""
    machine(tmp_path)
    host = connect_host(str(tmp_path))
    for uid, id_ in (
        ("../..", ID),
        (UID, "../../../etc"),
        ("", ID),
        (UID, ""),
        ("a" * 300, ID),
        (UID, "x\n"),
    ):
        ref = ContainerRef(uid, id_)
        assert host.read([ref], is_deep=True) == {}
        assert host.set_quota(ref, 1000) is False
        assert host.reclaim(ref, 1) is None


def test_a_machine_that_cannot_be_read_is_the_worlds_failure(tmp_path: Path) -> None:
    """Whatever the kernel answers: a loop of links, a name too long, a folder for a file."""
    machine(tmp_path)
    host = connect_host(str(tmp_path))
    (tmp_path / "kubepods" / "besteffort" / "podloop").symlink_to("podloop")
    looped = ContainerRef("loop", ID, "BestEffort")
    for fails in (
        lambda: host.set_quota(looped, 1000),
        lambda: host.reclaim(looped, 1),
        lambda: host.read([looped], is_deep=True),
        lambda: connect_host(f"/{'x' * 5000}"),
        lambda: connect_host(str(tmp_path / "none")),
        lambda: connect_host(str(tmp_path), str(tmp_path)).boot_id(),
    ):
        with pytest.raises(WorldFailed):
            fails()
    (tmp_path / "sys" / "kernel" / "random" / "boot_id").mkdir(parents=True)
    with pytest.raises(WorldFailed, match="boot_id: Is a directory"):
        connect_host(str(tmp_path), str(tmp_path)).boot_id()


def test_cleanup_fails_until_everything_is_given_back_and_then_finds_nothing(tmp_path: Path) -> None:
    """What nobody tells the limit of stays, and is no success; beside a running agent it refuses."""
    api = Api()
    with agent_of(api, tmp_path) as agent:
        quota = machine(tmp_path / "cgroup")
        quota.write_text("5000 100000")
        part = ThrottledContainer(UID, "d", "a", "c", 5000)
        agent.file.save(AgentState(agent.file.boot_id, {ID: part}))
        said = agent.settings
        where = ("--node", "n1", "--state", said.state_file, "--cgroups", said.cgroups)
        words = ("agent", *where, "--kubeconfig", said.kubeconfig or "", "--journal", "", "--cleanup")
        done = equipoise(*words)
        assert (done.returncode, quota.read_text()) == (1, "5000 100000")
        why = "the CPU limit of container c is unknown: its pod was not found"
        assert f"d/a: Unknown: {why}\n0 given back on n1.\n" in done.stdout
        assert done.stderr == "error: node n1: 1 could not be given back; --cleanup tries again\n"
        api.add(PODS, running_pod())
        done = equipoise(*words)
        assert (done.returncode, done.stdout) == (0, "d/a: Done\n1 given back on n1.\n")
        assert quota.read_text() == "max 100000"
        assert equipoise(*words).stdout == "0 given back on n1.\n"
        agent.file.hold()
        done = equipoise(*words)
        assert (done.returncode, done.stdout) == (1, "")
        assert "another agent of this node is running" in done.stderr


def test_two_agents_do_not_write_one_machine_whatever_file_each_keeps(tmp_path: Path) -> None:
    """The cgroups themselves are held, as long as the first lives."""
    machine(tmp_path)
    first, second = (connect_host(str(tmp_path)) for _ in range(2))
    first.hold()
    with pytest.raises(WorldFailed, match="kubepods: another agent of this node is running"):
        second.hold()


class Unwritable(Machine):
    """A mount of cgroups that is read-only."""

    def set_quota(self, container: ContainerRef, quota_us: int) -> bool:
        raise WorldFailed("cpu.cfs_quota_us: Read-only file system")


def test_a_machine_whose_quotas_cannot_be_written_is_not_tried_for_every_pod(tmp_path: Path) -> None:
    """And it is told once in ten minutes, not in every round."""
    scene = Scene(Unwritable())
    scene.around.asked = policies(policy(rule("cpu_total_usage", 6000, "throttle")))
    for number in range(40):
        scene.add(told(f"{number:02}"), 1)
    first, *later = scene.rounds(4)
    assert [len(done.outcomes) for done in (first, *later)] == [0, FAILURES_MAX, FAILURES_MAX, FAILURES_MAX]
    assert scene.machine.quotas == dict.fromkeys(scene.machine.quotas, -1)
    api, time = Api(), Time()
    with agent_of(api, tmp_path) as agent:
        teller = EventReporter(agent.log, agent.actuator, agent.node_api, time.read)
        for done in later:
            teller.report(done)
        assert (api.reasons("Node"), len(api.reasons("Pod"))) == (["Throttle"], FAILURES_MAX)
        time.sleep(AGAIN_SECONDS)
        teller.report(later[-1])
        assert api.patches == FAILURES_MAX + 1  # each counted up, and the node's too


def test_the_state_on_the_disk_is_what_another_version_reads(tmp_path: Path) -> None:
    """Fields that this one does not know are left alone; those it has not are not needed."""
    path = tmp_path / "state.json"
    path.write_text(json.dumps({"bootId": "b", "later": {"x": 1}}))
    assert StateFile(path, "b").load() == AgentState("b")

"""A state file that is damaged or gone costs no container its CPU, and ends no start."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import generate_latest

from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.node import PODS_OF_NODE
from equipoise.core.errors import WorldFailed
from equipoise.ports.node import NodePod
from equipoise.qos.state import AgentState, ThrottledContainer
from equipoise.runtime.agent.run import Agent
from equipoise.runtime.agent.state import SIZE_MAX, StateFile
from tests.support.agent.api import ID, PODS, UID, Api, agent_of, running_pod
from tests.support.agent.damaging import Node, journal, keep_in_each, quick_folder, rounds, start_with_each
from tests.support.agent.real import wait_until
from tests.support.cli.running import equipoise
from tests.support.damage import damages
from tests.support.qos.worlds import Document

PART = ThrottledContainer(UID, "d", "a", "c", 5000, 9000)
THROTTLED, FREE = "5000 100000", "max 100000"
DAMAGES, JOURNAL_DAMAGES = 100, 60


def _byte(path: Path) -> None:
    content = path.read_bytes()
    assert b'"pod":"a"' in content
    path.write_bytes(content.replace(b'"pod":"a"', b'"pod":"\xff"'))


def _digit(path: Path) -> None:
    """One bit of a quota: what is left is a sound document of somebody else's quota."""
    content = path.read_bytes()
    assert b"5000" in content
    path.write_bytes(content.replace(b"5000", b"4000"))


def _boot(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"bootId":"', b'"bootId":"x'))


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("none")


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _large(path: Path) -> None:
    os.truncate(path, 2**30)


def _aside_in_the_way(path: Path) -> None:
    path.write_bytes(b"\xff")
    (path.with_suffix(".damaged") / "x").mkdir(parents=True)


LOSSES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "one byte that is not UTF-8": (_byte, True),
    "one digit of a quota": (_digit, True),
    "cut off": (lambda path: os.truncate(path, 100), True),
    "empty": (lambda path: os.truncate(path, 0), True),
    "nested too deeply": (lambda path: path.write_text('{"bootId":' + "[" * 10**5), True),
    "absurd values": (
        lambda path: path.write_text('{"bootId":"BOOT","changedAt":1e308}'.replace("BOOT", _boot_id())),
        True,
    ),
    "a gigabyte": (_large, True),
    "an empty folder": (_folder, True),
    "a link to itself": (_loop, True),
    "a pipe": (_pipe, True),
    "one that can't be set aside": (_aside_in_the_way, True),
    "deleted": (Path.unlink, False),
    "a link to nowhere": (_dangling, False),
    "of another boot": (_boot, True),
}
"""How a file is lost, and whether its checksum or its shape shows it."""


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _left(folder: Path, agent: Agent) -> tuple[Path, Path]:
    """Leave a throttled container as an agent that was killed does; return its quota and the state file."""
    quota = folder / "cgroup" / "kubepods" / "besteffort" / f"pod{UID}" / ID / "cpu.max"
    quota.write_text(THROTTLED)
    path = Path(agent.settings.state_file)
    StateFile(path, agent.file.boot_id).save(AgentState(agent.file.boot_id, {ID: PART}))
    return quota, path


def _do_two_rounds(agent: Agent) -> None:
    """Do rounds until two have gone well: at the first, the policies may not be listed yet."""
    rounds: list[int] = []

    def is_done() -> bool:
        agent.runner.run_once()
        rounds.append(agent.runner.failures)
        return rounds.count(0) >= 2

    wait_until(is_done)


def _metrics(agent: Agent) -> str:
    return generate_latest(agent.registry).decode()


@pytest.mark.parametrize("case", LOSSES)
def test_an_agent_starts_without_its_state_and_gives_back_what_it_finds(case: str, tmp_path: Path) -> None:
    """In the first round of the same process; what was damaged is said once, on the node too."""
    lose, is_damaged = LOSSES[case]
    api = Api()
    api.add(PODS, running_pod())
    with agent_of(api, tmp_path, is_enforced=True) as agent:
        quota, path = _left(tmp_path, agent)
        lose(path)
        assert agent.start()
        _do_two_rounds(agent)
        assert quota.read_text() == FREE
        assert agent.readiness_errors() == []
        assert api.reasons("Node").count("StateFileDamaged") == is_damaged
        assert api.reasons("Pod")[0] == "ThrottleFound"
        assert f"equipoise_agent_state_file_damaged {float(is_damaged)}" in _metrics(agent)
        assert StateFile(path, agent.file.boot_id).load().throttled == {}


@pytest.mark.parametrize("case", ["one byte that is not UTF-8", "deleted", "one digit of a quota"])
def test_cleanup_finds_what_is_throttled_too(case: str, tmp_path: Path) -> None:
    """In one call, that ends well."""
    api = Api()
    api.add(PODS, running_pod())
    with agent_of(api, tmp_path) as agent:
        quota, path = _left(tmp_path, agent)
        LOSSES[case][0](path)
        said = agent.settings
        where = ("--node", "n1", "--state", said.state_file, "--cgroups", said.cgroups)
        done = equipoise("agent", *where, "--kubeconfig", said.kubeconfig or "", "--journal", "", "--cleanup")
        assert (done.returncode, done.stdout) == (0, "d/a: Done\n1 given back on n1.\n"), done.stderr
        assert quota.read_text() == FREE


def test_every_start_works_whatever_the_damage() -> None:
    """Random damages of a state file: no error, and every start gives every container its CPU back."""
    with quick_folder() as folder:
        node = Node(folder)
        damaged = (each.data for each in damages(node.sound, DAMAGES, seed=19))
        assert start_with_each(node, damaged) == DAMAGES
        assert node.teller.said["unclear"] == 0
        assert start_with_each(node, [node.sound]) == 1
        assert node.teller.said["sound"] == 1


def test_an_agent_keeps_its_journal_or_says_why_not_whatever_the_damage() -> None:
    """Random damages of a journal end no start and no round."""
    with quick_folder() as folder:
        done = rounds()
        damaged = (each.data for each in damages(journal(folder, done), JOURNAL_DAMAGES, seed=19))
        found = keep_in_each(folder, damaged, done)
    assert found.total() == JOURNAL_DAMAGES
    assert found["kept"] > found["not kept"]


def _limited(**parts: object) -> Document:
    """Return a pod whose container has a limit of 400m, in spec and status."""
    pod = running_pod()
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "400m"}}
    pod["status"]["containerStatuses"][0]["resources"] = {"limits": {"cpu": "400m"}}
    pod["status"] |= parts.pop("status", {})
    pod["spec"] |= parts.pop("spec", {})
    return pod


def _asking(milli: int) -> Document:
    """Return that pod after a resize that its node has not carried out."""
    pod = _limited()
    pod["spec"]["containers"][0]["resources"] = {"limits": {"cpu": f"{milli}m"}}
    return pod


def _unknown() -> Document:
    pod = _limited()
    pod["spec"]["containers"][0]["name"] = "other"
    pod["status"]["containerStatuses"][0]["resources"] = None
    return pod


RESIZE = "a resize of its pod is in progress"
UNCLEAR = {
    "a resize is pending": (
        _limited(status={"conditions": [{"type": "PodResizePending", "status": "True"}]}),
        RESIZE,
    ),
    "a resize is in progress": (
        _limited(status={"conditions": [{"type": "PodResizeInProgress", "status": "True"}]}),
        RESIZE,
    ),
    "a resize, as Kubernetes said before 1.33": (_limited(status={"resize": "InProgress"}), RESIZE),
    "spec and status differ": (_asking(600), RESIZE),
    "resources of the pod as a whole": (
        _limited(spec={"resources": {"limits": {"cpu": "1"}}}),
        "its pod has resources as a whole",
    ),
    "no spec is seen": (_unknown(), "its spec is not known"),
}


@pytest.mark.parametrize("case", UNCLEAR)
def test_what_cannot_be_told_is_said_and_left(case: str, tmp_path: Path) -> None:
    """Once, on the pod; it is looked at again, and given back when it can be told."""
    document, why = UNCLEAR[case]
    api = Api()
    api.add(PODS, document)
    with agent_of(api, tmp_path, is_enforced=True) as agent:
        quota, path = _left(tmp_path, agent)
        path.unlink()
        assert agent.start()
        _do_two_rounds(agent)
        assert quota.read_text() == THROTTLED
        (said,) = [one for one in api.events if one["involvedObject"]["kind"] == "Pod"]
        assert (said["reason"], said["type"]) == ("QuotaUnclear", "Warning")
        assert said["message"].startswith("container c has a CPU quota of 5 ms per period, but it")
        assert said["message"].endswith(f"The quota is not changed: {why}")
        assert "equipoise_agent_unclear_quotas 1.0" in _metrics(agent)
        (outcome,) = agent.clean_up()
        assert (outcome.result, outcome.detail) == ("Unknown", said["message"])
        agent.node_api._pods.cache.replace([_told(_limited())])
        agent.restore("the agent ends")
        assert quota.read_text() == "40000 100000"


def _told(document: Document) -> NodePod:
    found = PODS_OF_NODE.decode(Decoder(), PODS_OF_NODE.decode_object(json.dumps(document).encode()))
    assert found is not None
    return found


ALONE = {
    "its own limit": ("40000 100000", "400m"),
    "a little less than its limit": ("39600 100000", "400m"),
    "its limit by its own period": ("4000 10000", "400m"),
    "more than its limit": ("50000 100000", "400m"),
    "no quota where there is a limit": ("max 100000", "400m"),
    "the least that the kubelet writes": ("1000 100000", "5m"),
    "one that can't be read": ("\n", "400m"),
}


@pytest.mark.parametrize("case", ALONE)
def test_a_quota_that_is_no_lower_than_what_is_asked_for_is_left_alone(case: str, tmp_path: Path) -> None:
    """Neither written nor said."""
    text, limit = ALONE[case]
    document = _limited()
    for part in (document["spec"]["containers"][0], document["status"]["containerStatuses"][0]):
        part["resources"] = {"limits": {"cpu": limit}}
    api = Api()
    api.add(PODS, document)
    with agent_of(api, tmp_path, is_enforced=True) as agent:
        quota, path = _left(tmp_path, agent)
        quota.write_text(text)
        path.write_bytes(b"\xff")
        assert agent.start()
        agent.runner.run_once()
        assert (quota.read_text(), api.reasons("Pod")) == (text, [])
        assert agent.recovery.is_over is (text != "\n")


def test_another_agents_quotas_are_not_taken_for_ours(tmp_path: Path) -> None:
    """Where the kinds are somebody else's, and where Crane's own agent is on the node."""
    for owner, name in (("crane", "a"), ("equipoise", "crane-agent-x")):
        api = Api(owner=owner)
        api.add(PODS, running_pod(name, labels={"app": "crane-agent"} if name != "a" else {}))
        folder = tmp_path / owner
        folder.mkdir()
        with agent_of(api, folder, is_enforced=True) as agent:
            quota, path = _left(folder, agent)
            path.unlink()
            agent.node_api.start()
            agent.runner.run_once()
            agent.restore("the agent ends")
            assert quota.read_text() == THROTTLED
            (said,) = [one for one in api.events if one["involvedObject"]["kind"] == "Pod"]
            why = "managed by another controller" if owner == "crane" else "is Crane's agent"
            assert why in said["message"]


@pytest.mark.parametrize("is_damaged", [True, False])
def test_preview_gives_back_only_what_an_agent_is_known_to_have_kept(
    is_damaged: bool, tmp_path: Path
) -> None:
    """A damaged file shows that an agent throttled here; without one, a first look changes nothing."""
    api = Api()
    api.add(PODS, running_pod())
    with agent_of(api, tmp_path) as agent:
        quota, path = _left(tmp_path, agent)
        path.write_bytes(b"\xff") if is_damaged else path.unlink()
        assert agent.start()
        agent.runner.run_once()
        assert quota.read_text() == (FREE if is_damaged else THROTTLED)
        assert api.reasons("Pod")[0] == ("ThrottleFound" if is_damaged else "QuotaUnclear")
        assert [one.result for one in agent.clean_up()] == ([] if is_damaged else ["Done"])
        assert quota.read_text() == FREE


def test_once_everything_is_judged_a_later_start_searches_no_more(tmp_path: Path) -> None:
    """What somebody lowers after that is theirs, as it was before; a search that is not over goes on."""
    api = Api()
    api.add(PODS, running_pod())
    with agent_of(api, tmp_path, is_enforced=True) as agent:
        quota, path = _left(tmp_path, agent)
        path.unlink()
        quota.write_text(FREE)
        assert agent.start()
        agent.runner.run_once()
        assert agent.recovery.is_over
        quota.write_text(THROTTLED)
        agent.runner.run_once()
        assert StateFile(path, agent.file.boot_id).load() == AgentState(agent.file.boot_id)
    api = Api()
    api.add(PODS, UNCLEAR["a resize is pending"][0])
    with agent_of(api, tmp_path, is_enforced=True) as agent:
        _, path = _left(tmp_path, agent)
        path.unlink()
        assert agent.start()
        agent.runner.run_once()
        again = StateFile(path, agent.file.boot_id)
        assert again.load().lost
        assert again.lost == again.load().lost


def test_a_folder_that_can_be_neither_locked_nor_written_ends_no_start(tmp_path: Path) -> None:
    """A person's folder in the file's place stays; what was found is given back on the way out."""
    api = Api()
    api.add(PODS, running_pod())
    with agent_of(api, tmp_path, is_enforced=True) as agent:
        quota, path = _left(tmp_path, agent)
        path.unlink()
        for used in (path, path.with_suffix(".lock")):
            used.mkdir()
            (used / "kept").write_text("a person's")
        agent.hold()
        assert agent.file.unlocked.endswith("state.lock: Is a directory")
        assert agent.start()
        agent.runner.run_once()
        assert agent.readiness_errors() == []
        assert quota.read_text() == THROTTLED  # nothing that can't be written down first is done in a round
        agent.restore("the agent ends")
        assert (quota.read_text(), (path / "kept").read_text()) == (FREE, "a person's")


def test_one_container_that_cannot_be_read_costs_no_other_its_round(tmp_path: Path) -> None:
    """It is unknown, not gone, and the others are given back."""
    node = Node(tmp_path)
    node.put(node.sound)
    broken = node.quota_file("free")
    broken.unlink()
    broken.mkdir()
    assert [one.result for one in node.start()] == ["Done"]
    assert node.quota_file("limited").read_text() == "40000 100000"
    assert set(node.kept().throttled) == {"free00000000"}


def test_a_large_file_is_not_read_whole(tmp_path: Path) -> None:
    """Sixteen MiB are more than any node needs."""
    path = tmp_path / "state.json"
    path.write_bytes(b"{" + b" " * SIZE_MAX)
    with pytest.raises(WorldFailed, match="larger than"):
        StateFile(path, "b").load()

"""The pools under the operator: a real API server, kwok's pods, a real Redis, two replicas, many faults."""

import json
import secrets
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from equipoise.adapters.redis import RedisPools, connect
from equipoise.pools.policy import tiers_for_scripts
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.replicas import Replica
from tests.support.pools.fleet import World, make_loop, pod
from tests.support.pools.server_faults import failed_over_to_a_replica, killed_with_everything_written
from tests.support.pools.worlds import dump
from tests.testbed import (
    ControlPlane,
    Kwok,
    RedisServer,
    StartRedis,
    StartRedisCluster,
    free_port,
    wait_until,
)
from tests.testbed.scenes import namespaced

PROGRAM = "from equipoise.cli.main import main; main()"
NAME = "agent"


def _stateful_set(namespace: str, replicas: int) -> dict[str, Any]:
    """Pods agent-0, agent-1, ... with a label of the pools beside the controller's own."""
    labels = {"app": NAME}
    containers = [{"name": "app", "image": "example/app:1"}]
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": NAME, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "serviceName": NAME,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels | {"pool": "voice"}},
                "spec": {"nodeSelector": {"type": "kwok"}, "containers": containers},
            },
        },
    }


class Scene:
    """A fleet, its Redis, and two operators of which one acts."""

    def __init__(self, plane: ControlPlane, namespace: str, redis: RedisServer, folder: Path) -> None:
        self.plane = plane
        self.namespace = namespace
        self.redis = redis
        self.folder = folder
        self.home = f"operator-{secrets.token_hex(4)}"
        self.client = redis.client()
        self.pools = RedisPools(self.client, "voice", redis.url, read_tiers=tiers_for_scripts)
        self.pods = f"/api/v1/namespaces/{namespace}/pods"
        self.replicas: list[Replica] = []
        plane.apply([namespaced(self.home), _stateful_set(namespace, 6)])
        (folder / "redis-url").write_text(redis.url)

    def start(self) -> Replica:
        """Start one more operator."""
        number = len(self.replicas)
        config = {
            "balancers": ["pools"],
            "kubernetes": {"kubeconfig": str(self.plane.kubeconfig)},
            "namespaces": [self.namespace],
            "lease": {
                "namespace": self.home,
                "durationSeconds": 10,
                "renewSeconds": 8,
                "retrySeconds": 0.5,
            },
            "http": {"address": f"127.0.0.1:{free_port()}"},
            "journal": {"path": str(self.folder / f"journal-{number}.db")},
            "intervals": {"pools": "2s"},
            "logs": {"format": "json"},
            "pools": {
                "mode": "Enforce",
                "redisUrlFile": str(self.folder / "redis-url"),
                "namespace": self.namespace,
                "selector": "pool=voice",
                "missing": "2s",
            },
        }
        file = self.folder / f"operator-{number}.yaml"
        file.write_text(json.dumps(config))
        replica = Replica(self.folder, ["-c", PROGRAM, "operator", "--config", str(file)])
        self.replicas.append(replica)
        return replica

    def leader(self) -> Replica:
        """Give the one that leads now."""

        def leading() -> Replica | None:
            alive = [replica for replica in self.replicas if replica.process.poll() is None]
            return next((one for one in alive if _turn(one) == "leads"), None)

        return wait_until(leading, "a leader", 120)

    def uids(self) -> dict[str, str]:
        """Give the ready pods of the API server."""
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in self.plane.api.items(self.pods)
            if "deletionTimestamp" not in pod["metadata"]
            and any(
                c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ())
            )
        }

    def registered(self) -> dict[str, str]:
        """Give the pods of the tiers."""
        seen = self.pools.snapshot()
        return {name: seen.pods[name].uid for pool in seen.pools for name in pool.assigned}

    def in_step(self, count: int) -> bool:
        """Whether both have the same pods, and so many."""
        found = self.uids()
        return len(found) == count and self.registered() == found

    def wait_for(self, condition: Any, what: str, seconds: float = 300) -> None:
        """Wait for something that an operator does; its words are in the error."""
        self.replicas[-1].wait_for(condition, what, seconds)

    def label(self, value: str | None) -> None:
        """Take the pools' label from every pod, or give it back."""
        for name in self.uids():
            self.plane.api.patch(f"{self.pods}/{name}", {"metadata": {"labels": {"pool": value}}})

    def end(self) -> None:
        for replica in self.replicas:
            replica.end()
        self.client.close()
        self.plane.api.delete(f"/api/v1/namespaces/{self.home}")


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _turn(replica: Replica) -> str:
    """Say whether a replica leads, by its own words."""
    said = [line["message"] for line in replica.lines() if line["message"].startswith("this process is")]
    return "" if not said else "follows" if "no longer" in said[-1] else "leads"


def _deeds(replica: Replica) -> list[str]:
    return [outcome["result"] for line in replica.lines() for outcome in line.get("outcomes", ())]


@pytest.fixture
def scene(
    control_plane: ControlPlane, kwok: Kwok, namespace: str, start_redis: StartRedis, tmp_path: Path
) -> Iterator[Scene]:
    """Six pods, no operator yet."""
    del kwok
    made = Scene(control_plane, namespace, start_redis(append_only=True, fsync="always"), tmp_path)
    try:
        yield made
    finally:
        made.end()


def test_the_tiers_follow_kubernetes_through_everything(scene: Scene) -> None:
    """Two replicas, one acts; names are reused, lists are empty, the leader dies, Redis dies: all is well."""
    scene.client.set("voice:tier:config", '{"gold": 3, "silver": 3}')
    for _ in range(2):
        scene.start()
    scene.wait_for(lambda: scene.in_step(6), "six pods registered")
    scene.leader()
    told = scene.replicas
    scene.wait_for(lambda: sum(_deeds(one).count("Registered") for one in told) == 6, "the six told")
    # Only who leads acts: the other one too, if a machine that stood still let it take over.
    assert all(_turn(one) for one in told if _deeds(one))
    _reuse_a_name(scene)
    _empty_list(scene)
    epoch = int(scene.client.get("voice:epoch"))  # first: whoever leads then is of this one, or of a later
    first = scene.leader()
    (second,) = [replica for replica in scene.replicas if replica is not first]
    first.process.send_signal(signal.SIGKILL)
    scene.client.set("voice:tier:config", '{"gold": 4, "silver": 2}')
    scene.wait_for(lambda: scene.client.scard("voice:pool:gold:assigned") == 4, "the successor's move")
    assert int(scene.client.get("voice:epoch")) > epoch
    words = {"Rebalanced pod", "Rebalancing complete"}
    second.wait_for(lambda: words <= {line["message"] for line in second.lines()}, "the move told")
    _server_away(scene, second)
    second.process.send_signal(signal.SIGTERM)
    assert second.process.wait(60) == 0, second.log.read_text()[-2000:]
    checked = equipoise("pools", "fsck", "--redis", scene.redis.url)
    assert (checked.returncode, checked.stdout) == (0, "The pools are clean.\n"), checked.stderr
    for number in range(2):
        journal = scene.folder / f"journal-{number}.db"
        replayed = equipoise("journal", "replay", "--all", "--file", str(journal))
        assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def _reuse_a_name(scene: Scene) -> None:
    """A pod with a call is deleted, and made anew under its name: the call is over, the new pod is free."""
    held = scene.pools.allocate("old-call")
    before = scene.uids()[held.pod]
    scene.plane.api.delete(f"{scene.pods}/{held.pod}")
    scene.wait_for(
        lambda: scene.in_step(6) and scene.registered()[held.pod] != before, "the name to be reused"
    )
    assert scene.pools.heartbeat("old-call").code == "UnknownCall"
    assert scene.pools.allocate("new-call", held.tier).code == "Allocated"
    assert scene.pools.release("old-call").code == "UnknownCall"
    assert scene.pools.release("new-call").code == "Released"


def _empty_list(scene: Scene) -> None:
    """A selector that suddenly matches nobody empties nothing, for as long as it stays so."""
    before, held = _tiers(scene), _held_by_health(scene)
    with ExitStack() as stack:
        # They see all of it at once: of a list that shrinks slowly, those who are missing go.
        for replica in scene.replicas:
            stack.enter_context(replica.halted())
        scene.label(None)
    scene.wait_for(lambda: _held_by_health(scene) > held, "the empty list noticed")
    assert _tiers(scene) == before
    scene.label("voice")
    scene.wait_for(lambda: scene.in_step(6), "the list as before")


def _tiers(scene: Scene) -> dict[str, Any]:
    """Give all that Redis has, except in whose time it was written."""
    return {key: value for key, value in dump(scene.client).items() if key != "voice:epoch"}


def _held_by_health(scene: Scene) -> int:
    lines = [line for replica in scene.replicas for line in replica.lines()]
    return sum(line.get("reason") == "HeldByHealth" for line in lines)


def _server_away(scene: Scene, leader: Replica) -> None:
    """Redis is killed, a pod goes meanwhile; the loop says so, and goes on by itself when it is back."""
    scene.redis.kill()
    scene.plane.apply(_stateful_set(scene.namespace, 5))
    leader.wait_for(
        lambda: any("the cycle failed" in line["message"] for line in leader.lines()), "a failed cycle told"
    )
    scene.redis.restart()
    scene.wait_for(lambda: scene.in_step(5), "the fleet without the pod that went")
    assert scene.client.get("voice:tier:config") == '{"gold": 4, "silver": 2}'


def test_crashes_of_redis_keep_what_was_written_down(offered: Any, tmp_path: Path) -> None:
    """With an append-only file every promise holds; a replica that was cut off forgets, yet all is sound."""
    with offered():
        kept = killed_with_everything_written(tmp_path / "aof")
    assert (kept.lost, kept.given_twice, kept.broken, kept.denied) == ([], [], [], [])
    over = failed_over_to_a_replica(tmp_path / "behind", is_behind=True)
    assert len(over.lost) > 0
    assert (over.given_twice, over.broken, over.denied) == ([], [], [])


def test_a_cluster_of_redis_serves_a_fleet_in_one_slot(start_redis_cluster: StartRedisCluster) -> None:
    """Three masters: without a hash tag the command refuses; with one the loop and the callers work."""
    url = start_redis_cluster().url
    refused = equipoise("pools", "status", "--redis", url)
    assert (refused.returncode, "expected a hash tag such as {voice}" in refused.stderr) == (2, True)
    client: Any = connect(url, "{voice}")
    pools = RedisPools(client, "{voice}", url, read_tiers=tiers_for_scripts)
    assert pools.set_config('{"gold": 1, "silver": 1}', "").code == "Stored"
    loop = make_loop(World([pod("agent-0"), pod("agent-1")]), pools)
    assert [outcome.result for outcome in loop.cycle(0.0).outcomes] == ["Registered"] * 2
    assert pools.allocate("c1", "gold").code == "Allocated"
    assert pools.set_config('{"gold": 0, "silver": 2}', pools.snapshot().version).code == "Stored"
    assert [outcome.result for outcome in loop.cycle(60.0).outcomes] == ["Pending"]
    assert pools.release("c1").tier == "silver"
    checked = equipoise("pools", "fsck", "--redis", url, "--prefix", "{voice}")
    assert (checked.returncode, checked.stdout) == (0, "The pools are clean.\n"), checked.stderr
    pools.close()

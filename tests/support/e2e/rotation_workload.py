"""An unbalanced Deployment with scraped load, and an eye on its pods while somebody rotates it."""

import json
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Self, TypeVar

import pytest

from tests.support.cli.running import clean, command
from tests.support.cli.running import equipoise_anew as equipoise
from tests.testbed import ControlPlane, Kwok, NotInTime, Prometheus, wait_until
from tests.testbed.scenes import SIX_LOADS, deployment, hpa, pdb, running_pods, wait_for_budget

T = TypeVar("T")

WINDOW_SECONDS = 6
"""Of usage: twelve scrapes."""
TOLERANCE = 1.35
"""What is hot is far from what is not: usage over seconds is off by some percent when a scrape is late."""
SETTINGS: dict[str, str | float] = {
    "metricsWindow": f"{WINDOW_SECONDS}s",
    "toleranceMultiplier": TOLERANCE,
    "minPodAge": "0s",
    "cooldown": "1s",
    "syncPeriod": "1s",
}
"""A rotation at the pace of a test."""
AFTER_CORES = 0.7
"""What a pod uses that nobody said anything about: all that come later."""
HPA_PERCENT = 70
WAVES_SECONDS = 240.0
"""More than two waves take on a busy machine."""
COMMAND_SECONDS = 180.0
DECISION_SECONDS = 90.0
REALISED_PERCENT = pytest.approx(34.5, abs=7)
"""From 1.2 cores, A's, to 0.8, C's: 33.3, and as much noise as the neighbours leave on either side.

From B's 1.1 it would be 27.3, to the others' 0.7 it would be 41.7.
"""


@dataclass
class Scene:
    """A Deployment whose first pods are busier than others, and whose later pods all use the same."""

    control_plane: ControlPlane
    kwok: Kwok
    prometheus: Prometheus
    namespace: str
    name: str
    pods: dict[str, str]
    """By letter: the first is the hottest."""

    @property
    def deployment_path(self) -> str:
        return f"/apis/apps/v1/namespaces/{self.namespace}/deployments/{self.name}"

    @property
    def pdb_path(self) -> str:
        return f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets/{self.name}"

    @property
    def hpa_path(self) -> str:
        root = f"/apis/autoscaling/v2/namespaces/{self.namespace}"
        return f"{root}/horizontalpodautoscalers/keda-hpa-{self.name}"

    @property
    def policy_path(self) -> str:
        return f"/apis/equipoise.dev/v1alpha1/namespaces/{self.namespace}/rotationpolicies/{self.name}"

    def list_pods(self) -> list[dict[str, Any]]:
        """All pods of the workload."""
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        return self.control_plane.api.items(path, labelSelector=f"app={self.name}")

    def uids(self) -> dict[str, str]:
        """The pods that stay, by name."""
        return {
            pod["metadata"]["name"]: pod["metadata"]["uid"]
            for pod in self.list_pods()
            if "deletionTimestamp" not in pod["metadata"]
        }

    def names(self, letters: str) -> list[str]:
        """The pods of these letters."""
        return [self.pods[letter] for letter in letters]

    def letters(self, names: Sequence[str]) -> str:
        """The letters of these pods; a later one has none, and shows as `?`."""
        known = {name: letter for letter, name in self.pods.items()}
        return "".join(known.get(name, "?") for name in names)

    def policy(self, **changes: Any) -> dict[str, Any]:
        """Have the operator rotate it."""
        target = {"kind": "Deployment", "name": self.name}
        return {
            "apiVersion": "equipoise.dev/v1alpha1",
            "kind": "RotationPolicy",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": {"targetRef": target, "mode": "Enforce", **SETTINGS, **changes},
        }

    def status(self) -> dict[str, Any]:
        """What the operator says about it."""
        return dict(self.control_plane.api.get(self.policy_path).get("status", {}))

    def reason(self) -> str:
        """The last decision's reason, in the status."""
        return str(self.last_decision().get("reason"))

    def last_decision(self) -> dict[str, Any]:
        """The last decision, in the status."""
        return dict(self.status().get("lastDecision", {}))

    def sentences(self) -> list[str]:
        """What the events about it say now; one that is told again under its reason replaces the last."""
        path = f"/api/v1/namespaces/{self.namespace}/events"
        about = f"involvedObject.kind=Deployment,involvedObject.name={self.name}"
        return [event["message"] for event in self.control_plane.api.items(path, fieldSelector=about)]

    def ledger(self) -> dict[str, Any]:
        """All that is remembered of it."""
        found = self.control_plane.api.items(
            f"/apis/equipoise.dev/v1alpha1/namespaces/{self.namespace}/ledgers"
        )
        return dict(found[0]["data"]) if found else {"entries": [], "memory": {}}

    def sent(self) -> list[tuple[str, str]]:
        """Letters and states of all that was meant to go, in order."""
        return [(self.letters([entry["pod"]]), entry["state"]) for entry in self.ledger()["entries"]]

    def verdict(self) -> dict[str, Any]:
        """How the last rotation ended; empty before one did."""
        return dict(self.ledger()["memory"].get("rotation", {}).get("last", {}))

    def run(
        self, verb: str, *arguments: str, kubeconfig: str = "", settings: Mapping[str, str | float] = SETTINGS
    ) -> subprocess.CompletedProcess[str]:
        """Run `equipoise rotation VERB` for the workload, as a person does.

        A busy machine scrapes late: while usage is unknown for that, nothing was done, and it is asked again.
        """
        words = self._words(verb, *arguments, kubeconfig=kubeconfig, settings=settings)

        def answered() -> subprocess.CompletedProcess[str] | None:
            done = equipoise(*words, environment={"COLUMNS": "160"}, seconds=COMMAND_SECONDS)
            return None if "MetricsIncomplete" in done.stdout else done

        return wait_until(answered, f"an answer from usage that is whole to {verb}", 90)

    def decided(self, verb: str, *arguments: str, **options: Any) -> tuple[dict[str, Any], str]:
        """Run the command; give its one decision, and what it said beside."""
        done = self.run(verb, *arguments, "-o", "json", **options)
        assert done.returncode == 0, done.stderr
        (decision,) = json.loads(done.stdout)["decisions"]
        return dict(decision), done.stderr

    def stop(self, verb: str, *arguments: str, said: str, folder: Path) -> tuple[int, str]:
        """Press Ctrl-C as soon as `equipoise rotation VERB` has said this; give its status and words."""
        # Whoever starts the tests in the background has them, and what they start, ignore Ctrl-C.
        words = ["env", "--default-signal=INT", *command(*self._words(verb, *arguments))]
        log = folder / "stopped.log"
        with log.open("w") as file, subprocess.Popen(words, stderr=file, env=clean()) as process:
            try:
                wait_until(lambda: said in log.read_text(), said, WAVES_SECONDS)
                process.send_signal(signal.SIGINT)
                return process.wait(COMMAND_SECONDS), log.read_text()
            finally:
                process.kill()

    def _words(
        self, verb: str, *arguments: str, kubeconfig: str = "", settings: Mapping[str, str | float] = SETTINGS
    ) -> list[str]:
        config = kubeconfig or str(self.control_plane.kubeconfig)
        return [
            *("rotation", verb, self.name, "-n", self.namespace, "--prometheus-url", self.prometheus.url),
            *("--kubeconfig", config, *arguments),
            *(text for key, value in settings.items() for text in ("--set", f"{key}={value}")),
        ]

    def watched(self) -> "Watched":
        """Keep an eye on its pods."""
        return Watched(self)

    def set_budget(self, max_unavailable: int) -> None:
        """Change the PodDisruptionBudget, and wait until it is worked out."""
        api = self.control_plane.api
        changed = api.patch(self.pdb_path, {"spec": {"maxUnavailable": max_unavailable}})
        generation = changed["metadata"]["generation"]

        def is_worked_out() -> bool:
            status = api.get(self.pdb_path).get("status", {})
            is_current = status.get("observedGeneration") == generation
            return bool(is_current and status["disruptionsAllowed"] == max_unavailable)

        wait_until(is_worked_out, f"a budget of {max_unavailable}", 60)

    @contextmanager
    def annotated(self, path: str, key: str, value: str) -> Iterator[None]:
        """Annotate an object for a while."""
        api = self.control_plane.api
        api.patch(path, {"metadata": {"annotations": {key: value}}})
        try:
            yield
        finally:
            api.patch(path, {"metadata": {"annotations": {key: None}}})


@dataclass
class Watched:
    """Sees every change of a workload's pods from the beginning of the block to its end."""

    scene: Scene
    evicted: list[str] = field(default_factory=list)
    """The pods that went through the Eviction API, in that order."""
    ready_min: int = 0
    _pods: dict[str, bool] = field(default_factory=dict)
    _sent: set[str] = field(default_factory=set)
    _version: str = ""
    _ended: threading.Event = field(default_factory=threading.Event)
    _trouble: list[BaseException] = field(default_factory=list)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        scene = self.scene
        found = scene.control_plane.api.get(self._path, labelSelector=f"app={scene.name}")
        for pod in found["items"]:
            self._take("ADDED", pod)
        self.ready_min = sum(self._pods.values())
        self._version = found["metadata"]["resourceVersion"]
        self._thread = threading.Thread(target=self._run, name="watched", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._thread is not None
        self._ended.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), "the watch did not end"
        assert not self._trouble, f"the watch broke: {self._trouble}"

    @property
    def letters(self) -> str:
        """The letters of the evicted."""
        return self.scene.letters(self.evicted)

    @property
    def _path(self) -> str:
        return f"/api/v1/namespaces/{self.scene.namespace}/pods"

    def _run(self) -> None:
        try:
            is_last = False
            while not is_last:
                is_last = self._ended.is_set()  # one whole watch more: it tells all that was before
                self._watch()
        except BaseException as error:  # noqa: BLE001 - told when the block ends
            self._trouble.append(error)

    def _watch(self) -> None:
        query = {"labelSelector": f"app={self.scene.name}", "resourceVersion": self._version}
        for event in self.scene.control_plane.api.watch(self._path, seconds=1, **query):
            assert event["type"] != "ERROR", str(event["object"])
            self._version = event["object"]["metadata"]["resourceVersion"]
            self._take(event["type"], event["object"])
            self.ready_min = min(self.ready_min, sum(self._pods.values()))

    def _take(self, kind: str, pod: dict[str, Any]) -> None:
        meta, conditions = pod["metadata"], pod.get("status", {}).get("conditions", [])
        is_evicted = any(
            each["type"] == "DisruptionTarget" and each.get("reason") == "EvictionByEvictionAPI"
            for each in conditions
        )
        if is_evicted and meta["uid"] not in self._sent:
            self._sent.add(meta["uid"])
            self.evicted.append(meta["name"])
        if kind == "DELETED":
            self._pods.pop(meta["name"], None)
            return
        is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
        self._pods[meta["name"]] = is_ready and "deletionTimestamp" not in meta


def make_scene(
    control_plane: ControlPlane,
    kwok: Kwok,
    prometheus: Prometheus,
    namespace: str,
    *,
    name: str = "web",
    loads: Sequence[float] = SIX_LOADS,
    max_unavailable: int | None = 1,
) -> Scene:
    """Make a Deployment with one pod per load, its HPA and its PDB."""
    wanted = deployment(namespace, name, replicas=len(loads), request="1")
    usage = {"kwok.x-k8s.io/usage-cpu": f"{round(AFTER_CORES * 1000)}m"}
    wanted["spec"]["template"]["metadata"]["annotations"] = usage
    control_plane.apply(wanted)
    if max_unavailable is not None:
        control_plane.apply(pdb(namespace, name, max_unavailable))
    pods = running_pods(control_plane, namespace, name, len(loads))
    if max_unavailable is not None:
        wait_for_budget(control_plane, namespace, name, len(loads))
    for pod, load in zip(pods, loads, strict=True):
        kwok.set_load(namespace, pod, cpu=f"{round(load * 1000)}m")
    control_plane.apply(hpa(namespace, name, HPA_PERCENT, len(loads), 2 * len(loads)))
    letters = dict(zip(ascii_uppercase, pods, strict=False))
    return Scene(control_plane, kwok, prometheus, namespace, name, letters)


def bare_pod(namespace: str) -> dict[str, Any]:
    """Nobody would replace it, and the HPA counts it with the others, by its label."""
    requests = {"cpu": "1", "memory": "256Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "bare",
            "namespace": namespace,
            "labels": {"app": "web"},
            "annotations": {"kwok.x-k8s.io/usage-cpu": "1200m"},
        },
        "spec": {
            "nodeSelector": {"type": "kwok"},
            "containers": [{"name": "app", "image": "example/app:1", "resources": {"requests": requests}}],
        },
    }


def wait_for_decision(ask: Callable[[], T], is_right: Callable[[T], bool]) -> T:
    """Ask until it is decided so, within a bound: a scrape that came late shows in a few seconds of usage."""
    asked: list[T] = []

    def decided() -> list[T]:
        asked.append(ask())
        return asked[-1:] if is_right(asked[-1]) else []

    try:
        return wait_until(decided, "the decision", DECISION_SECONDS)[0]
    except NotInTime as late:
        raise AssertionError(f"{late}; it was {asked[-1]}") from late


def wait_for_loads(scene: Scene, loads: Mapping[str, float]) -> None:
    """Wait until a whole window of usage shows these loads, by pod."""
    query = f'rate(container_cpu_usage_seconds_total{{namespace="{scene.namespace}"}}[{WINDOW_SECONDS}s])'

    def is_settled() -> bool:
        found = scene.prometheus.values(query, "pod")
        return {pod: found.get(pod) for pod in loads} == pytest.approx(dict(loads), rel=0.02)

    wait_until(is_settled, f"{scene.namespace}/{scene.name} to be measured", 180)


def settle(scene: Scene, loads: Sequence[float] = SIX_LOADS) -> Scene:
    """Wait until it is measured."""
    wait_for_loads(scene, dict(zip(scene.pods.values(), loads, strict=True)))
    return scene

"""Rotation from scraped load to a verified outcome, on a real control plane: waves, budgets, holds."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from equipoise.core.cluster import WorkloadRef
from tests.e2e.conftest import new_namespace
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.contracts.keda import install_scaled_objects, remove_scaled_objects, scaled_object
from tests.support.e2e.accounts import account_with
from tests.support.e2e.read_only import READ_ONLY
from tests.support.e2e.replicas import Operator
from tests.support.e2e.rotation_workload import (
    HPA_PERCENT,
    REALISED_PERCENT,
    SETTINGS,
    TOLERANCE,
    WAVES_SECONDS,
    WINDOW_SECONDS,
    Scene,
    bare_pod,
    make_scene,
    settle,
    wait_for_decision,
    wait_for_loads,
)
from tests.testbed import ControlPlane, Kwok, MetricsServer, Prometheus

Operate = Callable[[Scene], Operator]

PREDICTED_PERCENT = pytest.approx(34.8, abs=6)
"""Of A and B with F and E; with E and D it would be 28.3, of A alone 47."""
OVER = "The rotation of 2 pods in 2 waves ended because no pod needs to be rotated any more"


@pytest.fixture(scope="module", autouse=True)
def crds(control_plane: ControlPlane) -> None:
    """Our kinds, installed by our own command."""
    done = equipoise("crds", "apply", "--kubeconfig", str(control_plane.kubeconfig))
    assert done.returncode == 0, done.stderr


@pytest.fixture
def scene(control_plane: ControlPlane, kwok: Kwok, prometheus: Prometheus, namespace: str) -> Scene:
    """Six pods, two of them hot."""
    return settle(make_scene(control_plane, kwok, prometheus, namespace))


@pytest.fixture
def operate(tmp_path: Path) -> Iterator[Operate]:
    """Starts the operator for a scene."""
    with ExitStack() as stack:
        yield lambda scene: stack.enter_context(
            Operator(scene.control_plane, scene.prometheus.url, scene.namespace, tmp_path)
        )


def test_the_operator_rotates_in_waves_until_no_pod_is_hot(scene: Scene, operate: Operate) -> None:
    """Hottest first, never fewer than 5 of 6 ready; verified, told and counted; then it rests."""
    place = {"namespace": scene.namespace, "workload": "web"}
    operator = operate(scene)
    with scene.watched() as watched:
        scene.control_plane.apply(scene.policy())
        # Looked for from the beginning: whenever it rests anew, the sentence of that takes its place.
        operator.wait_for(
            lambda: any(OVER in told for told in scene.sentences()), "a rotation that is over", WAVES_SECONDS
        )
        operator.wait_for(lambda: "realisedImprovementPercent" in scene.status(), "a verified rotation")
        rested = operator.decisions(scene.namespace, "NoHotPods")
        operator.wait_for(
            lambda: operator.decisions(scene.namespace, "NoHotPods") >= rested + 4, "four looks more"
        )
    assert watched.letters == "AB"
    assert watched.ready_min == 5
    assert scene.sent() == [("A", "Done"), ("B", "Done")]
    status = operator.wait_for(
        lambda: (s := scene.status())["lastDecision"]["reason"] == "NoHotPods" and s,
        "a look at usage that is whole",
    )
    assert isinstance(status, dict)
    assert status["realisedImprovementPercent"] == REALISED_PERCENT
    assert status["predictedImprovementPercent"] == PREDICTED_PERCENT
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", status["rotatedAt"])
    assert scene.verdict()["ending"] == "NothingLeft"
    assert scene.verdict()["waves"] == 2
    assert operator.metric("rebalancer_evictions_total", result="Accepted", **place) == 2
    assert operator.metric("rebalancer_evictions_total", **place) == 2
    assert operator.metric("rebalancer_waves_total", **place) == 2
    assert operator.metric("rebalancer_improvement_realised", **place) == REALISED_PERCENT
    threshold = HPA_PERCENT / 100 * TOLERANCE
    assert operator.metric("rebalancer_safety_threshold_current", **place) == pytest.approx(threshold)
    assert operator.metric("rebalancer_futile", **place) == 0
    _assert_told(scene)
    replayed = equipoise("journal", "replay", "--all", "--file", str(operator.journal))
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def _assert_told(scene: Scene) -> None:
    """The workload and the evicted pod carry the events, as kubectl shows them."""
    kubectl = scene.control_plane.kubectl
    described = " ".join(kubectl("describe", "deployment", "web", "-n", scene.namespace).split())
    assert f"Evicted {scene.pods['B']}." in described  # A's was counted up
    for letter in "AB":
        about = kubectl("events", "--for", f"pod/{scene.pods[letter]}", "-n", scene.namespace)
        assert f"Evicted {scene.pods[letter]}." in about


def test_apply_rotates_in_waves_and_says_each(scene: Scene, tmp_path: Path) -> None:
    """The same by a person's command, without an operator: a line per wave, and the verdict at the end.

    Ctrl-C after the first wave says what was done, and another `apply` goes on with it.
    """
    with scene.watched() as watched:
        status, first = scene.stop("apply", "--interval", "1s", said=": wave 1: ", folder=tmp_path)
        assert status == 130
        done = scene.run("apply", "--interval", "1s", "--timeout", "2m", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert watched.letters == "AB"
    assert watched.ready_min == 5
    stopped = (
        f"stopped: {scene.namespace}/web: {scene.pods['A']} went, not verified yet; nothing more is evicted"
    )
    assert first.splitlines()[-1].startswith(stopped)
    assert "Traceback" not in first
    (decision,) = json.loads(done.stdout)["decisions"]
    assert [(outcome["pod"], outcome["result"]) for outcome in decision["outcomes"]] == [
        (scene.pods["B"], "Accepted")
    ]
    assert decision["reason"] == "Rotate"
    assert decision["numbers"]["realised_improvement_percent"] == REALISED_PERCENT
    said = re.sub(r"^\d\d:\d\d:\d\d ", "", first + done.stderr, flags=re.MULTILINE)
    waves = [line for line in said.splitlines() if ": wave " in line]
    assert [line.partition(";")[0] for line in waves] == [
        f"{scene.namespace}/web: wave {number}: {scene.pods[letter]} Accepted"
        for number, letter in ((1, "A"), (2, "B"))
    ]
    assert "The usage of the hottest pod decreased by" in said.splitlines()[-1]
    assert scene.verdict()["ending"] == "NothingLeft"
    _assert_told(scene)
    assert OVER in " ".join(
        scene.control_plane.kubectl("describe", "deploy/web", "-n", scene.namespace).split()
    )


def test_a_rollout_in_the_middle_stops_the_rotation(scene: Scene, operate: Operate) -> None:
    """A rollout that hangs, with a pod that is hot still: nothing more is evicted for as long as it lasts."""
    operator = operate(scene)
    with scene.watched() as watched:
        scene.control_plane.apply(scene.policy())
        operator.wait_for(lambda: watched.letters == "A", "the first wave", WAVES_SECONDS)
        hangs = {"template": {"spec": {"nodeSelector": {"type": "nowhere"}}}}
        gently = {"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}}
        scene.control_plane.api.patch(scene.deployment_path, {"spec": {**hangs, **gently}})
        operator.wait_for(lambda: scene.reason() == "HeldByRollout", "the rollout to be seen")
        looks = WINDOW_SECONDS + 4
        operator.wait_for(
            lambda: operator.decisions(scene.namespace, "HeldByRollout") >= looks, f"{looks} looks"
        )
        assert scene.pods["B"] in scene.uids()
    assert watched.letters == "A"
    assert watched.ready_min == 5
    assert scene.verdict()["ending"] == "Interrupted"
    assert "realisedImprovementPercent" not in scene.status()


def test_the_real_hpa_scales_in_the_middle_and_rotation_is_held(
    scene: Scene, operate: Operate, metrics_server: MetricsServer
) -> None:
    """Load comes after the first wave: held while the HPA is about to scale, scales, and has just scaled."""
    metrics_server.wait_for_pods(scene.namespace, 6)
    operator = operate(scene)
    api = scene.control_plane.api
    with scene.watched() as watched:
        scene.control_plane.apply(scene.policy(cooldown="15m"))
        operator.wait_for(lambda: watched.letters == "A", "the first wave", WAVES_SECONDS)
        for letter in "CDEF":
            scene.kwok.set_load(scene.namespace, scene.pods[letter], cpu="850m")
        operator.wait_for(lambda: scene.reason() == "HeldByScaling", "the load to be seen", WAVES_SECONDS)
        operator.wait_for(
            lambda: api.get(scene.deployment_path)["spec"]["replicas"] > 6, "the HPA to scale", WAVES_SECONDS
        )
        operator.wait_for(scene.verdict, "the rotation to end", WAVES_SECONDS)
        held = operator.decisions(scene.namespace, "HeldByScaling")
        operator.wait_for(
            lambda: operator.decisions(scene.namespace, "HeldByScaling") >= held + 3, "three looks more"
        )
        assert scene.pods["B"] in scene.uids()
    assert watched.letters == "A"
    assert watched.ready_min == 5
    assert "lastScaleTime" in api.get(scene.hpa_path)["status"]
    assert scene.verdict()["ending"] == "Interrupted"


def test_a_pause_in_the_middle_stops_it_and_resume_lets_it_end(scene: Scene, operate: Operate) -> None:
    """By the command: no second wave while it lasts, and the same rotation goes on afterwards."""
    operator = operate(scene)
    where = ("-n", scene.namespace, "--kubeconfig", str(scene.control_plane.kubeconfig))
    with scene.watched() as watched:
        scene.control_plane.apply(scene.policy())
        operator.wait_for(lambda: watched.letters == "A", "the first wave", WAVES_SECONDS)
        with operator.replica.halted():  # or the second wave may come before a slow machine has paused it
            paused = equipoise("pause", *where, "--reason", "lunch")
        assert paused.returncode == 0, paused.stderr
        operator.wait_for(lambda: operator.decisions(scene.namespace, "HeldByPause") >= 3, "three looks")
        assert watched.letters == "A"
        operator.wait_for(lambda: "lunch" in scene.last_decision()["sentence"], "the reason to be told")
        assert equipoise("resume", *where).returncode == 0
        operator.wait_for(scene.verdict, "the rotation to end", WAVES_SECONDS)
    assert watched.letters == "AB"
    assert watched.ready_min == 5
    assert scene.verdict()["waves"] == 2
    assert scene.verdict()["realisedPercent"] == REALISED_PERCENT


class Stills:
    """Workloads of which no pod is ever evicted, whatever the tests below try."""

    def __init__(self, web: Scene, system: Scene, bare: Scene) -> None:
        self.web, self.system, self.bare = web, system, bare


@pytest.fixture(scope="module")
def stills(control_plane: ControlPlane, kwok: Kwok, prometheus: Prometheus) -> Iterator[Stills]:
    """Six pods with two hot ones; three in kube-system with one; three cool ones beside a hot bare pod."""
    with ExitStack() as stack:
        common = (control_plane, kwok, prometheus)
        places = [stack.enter_context(new_namespace(control_plane)) for _ in range(2)]
        web = make_scene(*common, places[0])
        system = make_scene(*common, "kube-system", name="rotated", loads=HOT_AND_COOL)
        for path in (system.hpa_path, system.pdb_path, system.deployment_path):
            stack.callback(control_plane.api.delete, path)
        bare = make_scene(*common, places[1], loads=(0.5, 0.5, 0.5), max_unavailable=None)
        control_plane.apply(bare_pod(places[1]))
        settle(web)
        settle(system, HOT_AND_COOL)
        wait_for_loads(bare, {"bare": 1.2})
        yield Stills(web, system, bare)


HOT_AND_COOL = (1.2, 0.5, 0.4)
LOOKS = 4
"""One more than a pod must be hot before it goes."""


def _assert_command_holds(scene: Scene, reason: str, says: str) -> None:
    """Whatever it is asked, it does nothing; and this is why."""

    def ask() -> dict[str, Any]:
        decision, _ = scene.decided("apply")
        assert (decision["actions"], decision["outcomes"]) == ([], [])
        return decision

    wait_for_decision(ask, lambda it: it["reason"] == reason and bool(re.search(says, it["sentence"])))


def _assert_held(scene: Scene, operate: Operate, reason: str, says: str, **changes: Any) -> None:
    """The operator looks four times and more, and then the command: both say this, and nothing goes."""
    before = scene.uids()
    with scene.watched() as watched:
        operator = operate(scene)
        scene.control_plane.apply(scene.policy(**changes))
        try:
            operator.wait_for(
                lambda: operator.decisions(scene.namespace, reason) >= LOOKS, f"{LOOKS} times {reason}"
            )
            wait_for_decision(
                scene.last_decision,
                lambda it: it.get("reason") == reason and bool(re.search(says, it["sentence"])),
            )
            assert operator.metric("rebalancer_evictions_total") is None
        finally:
            operator.end()
            scene.control_plane.api.delete(scene.policy_path)
        if not changes:
            _assert_command_holds(scene, reason, says)
    assert watched.evicted == []
    assert scene.uids() == before


def test_a_budget_that_forbids_blocks(stills: Stills, operate: Operate) -> None:
    """With maxUnavailable 0: PdbBlocked, and no eviction is even tried."""
    stills.web.set_budget(0)
    try:
        _assert_held(stills.web, operate, "PdbBlocked", "The PodDisruptionBudget web allows no eviction now")
    finally:
        stills.web.set_budget(1)


@pytest.mark.parametrize("may_evict", [True, False], ids=["may evict", "may only read"])
def test_four_pods_under_a_budget_of_one_are_one_now_and_three_waiting(
    stills: Stills, may_evict: bool
) -> None:
    """The server's dry run is asked for the first, and the rest is counted; without the right, all of it."""
    scene, unasked = stills.web, "only the status of the PodDisruptionBudgets was used"
    before, settings = scene.uids(), SETTINGS | {"maxUnavailable": "4"}
    with (
        scene.watched() as watched,
        account_with(scene.control_plane, scene.namespace, "reader", READ_ONLY) as token,
    ):
        user = {"token": token}
        config = "" if may_evict else str(scene.control_plane.kubeconfig_for(f"{scene.namespace}-r", user))
        for words in (("plan",), ("apply", "--dry-run")):
            decision, said = wait_for_decision(
                partial(settle(scene).decided, *words, kubeconfig=config, settings=settings),
                lambda it: (
                    scene.letters([each["pod"] for each in it[0]["actions"] + it[0]["held"]]) == "ABFE"
                ),
            )
            assert decision["reason"] == "Rotate"
            assert [action["pod"] for action in decision["actions"]] == scene.names("A")
            assert {held["reason"] for held in decision["held"]} == {"PdbBlocked"}
            assert (unasked in said) is not may_evict, said
        wait_for_decision(
            lambda: settle(scene).run("plan", kubeconfig=config, settings=settings).stdout,
            lambda shown: "1 decided, 1 pod to evict now, 3 held. Nothing was changed." in shown,
        )
    assert watched.evicted == []
    assert scene.uids() == before
    assert scene.ledger()["entries"] == []


def test_a_workload_that_opted_out_is_left_alone(stills: Stills, operate: Operate) -> None:
    """By our own annotation on the live Deployment, also for an operator that enforces."""
    with stills.web.annotated(stills.web.deployment_path, "equipoise.dev/rotate", "false"):
        _assert_held(stills.web, operate, "OptedOut", r"equipoise\.dev/rotate=false excludes the workload")


def test_pods_and_workloads_opt_out_in_the_words_of_other_tools(stills: Stills) -> None:
    """Those of cluster-autoscaler, Karpenter and descheduler; the next hottest goes in a pod's place."""
    scene = stills.web
    pods = f"/api/v1/namespaces/{scene.namespace}/pods"
    hottest, second = f"{pods}/{scene.pods['A']}", f"{pods}/{scene.pods['B']}"

    def planned() -> tuple[str, str, str]:
        decision, _ = scene.decided("plan")
        wanted = [*decision["actions"], *decision["held"]]
        return decision["reason"], scene.letters([each["pod"] for each in wanted]), decision["sentence"]

    with scene.annotated(hottest, "cluster-autoscaler.kubernetes.io/safe-to-evict", "false"):
        wait_for_decision(planned, lambda it: it[:2] == ("Rotate", "BFE"))
        with scene.annotated(second, "karpenter.sh/do-not-disrupt", "true"):
            *_, sentence = wait_for_decision(planned, lambda it: it[:2] == ("OptedOut", ""))
            assert "safe-to-evict=false" in sentence
    with scene.annotated(scene.deployment_path, "descheduler.alpha.kubernetes.io/prefer-no-eviction", ""):
        *_, sentence = wait_for_decision(planned, lambda it: it[:2] == ("OptedOut", "ABFE"))
        assert "prefer-no-eviction" in sentence


def test_kube_system_is_never_touched(stills: Stills, operate: Operate) -> None:
    """Not even for a policy there that says Enforce."""
    _assert_held(stills.system, operate, "OptedOut", "Pods in namespace kube-system are never evicted")


def test_a_bare_pod_is_never_touched(stills: Stills, operate: Operate) -> None:
    """It is the only hot one, and nobody would replace it."""
    _assert_held(stills.bare, operate, "OptedOut", r"bare is hot with 1\.\d+ cores, but it is never evicted")


def test_a_paused_scaled_object_holds(stills: Stills, operate: Operate) -> None:
    """By KEDA's annotation."""
    plane, web = stills.web.control_plane, stills.web
    install_scaled_objects(plane)
    try:
        ref = WorkloadRef("apps/v1", "Deployment", web.namespace, "web")
        plane.apply(scaled_object(ref, {"autoscaling.keda.sh/paused": "true"}))
        _assert_held(web, operate, "HeldByPause", r"autoscaling\.keda\.sh/paused")
    finally:
        remove_scaled_objects(plane)


def test_outside_its_window_nothing_goes(stills: Stills, operate: Operate) -> None:
    """One that opens in twelve hours."""
    hour = (datetime.now(ZoneInfo("Europe/Berlin")) + timedelta(hours=12)).hour
    window = {"schedule": f"0 {hour} * * *", "duration": "1h", "timeZone": "Europe/Berlin"}
    _assert_held(stills.web, operate, "HeldByWindow", "window", windows=[window])


def test_apply_is_held_by_a_pause(stills: Stills) -> None:
    """A pause is for people's commands too."""
    scene = stills.web
    where = ("-n", scene.namespace, "--kubeconfig", str(scene.control_plane.kubeconfig))
    before = scene.uids()
    assert equipoise("pause", *where, "--reason", "audit").returncode == 0
    try:
        _assert_command_holds(scene, "HeldByPause", "audit")
    finally:
        assert equipoise("resume", *where).returncode == 0
    assert scene.uids() == before

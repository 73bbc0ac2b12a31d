"""`equipoise rotation plan` and `apply` on a cluster: what is refused before anything is asked."""

import json
import os
import re
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import msgspec
import pytest

from equipoise.cli.main import main
from equipoise.cli.rotation_live import WaveProgress, left_behind
from equipoise.core.cluster import Selector, Workload, WorkloadRef
from equipoise.core.decision import Decision, EvictPod, Outcome
from equipoise.core.reason import Code, Reason
from equipoise.crd.targets import Mode
from equipoise.rotation.command import COMMAND_REF, RotateCommand, WorkloadResult
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.progress import RotationDetails, RotationMemory
from equipoise.rotation.status import CycleItem, Target
from equipoise.runtime.output import Format, plan_table, print_plan
from tests.support.kubernetes.server import playing
from tests.support.rotation.runs import COURSE

NO_CLUSTER = "no cluster: --kubeconfig and KUBECONFIG are not set"
NOWHERE = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "http://127.0.0.1:9"}}]
users: [{name: u, user: {}}]
"""
FOREIGN = (
    "KUBE",
    "REBALANCE_",
    "TOLERANCE_",
    "MINIMUM_",
    "HPA_",
    "KAFKA_",
    "METRICS_",
    "PROMETHEUS_",
    "DEPLOY",
)

Ran = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ran:
    """Run the command in this process; `FILE` is a kubeconfig of a cluster that is not there."""
    for name in [key for key in os.environ if key.startswith(FOREIGN)]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/nonexistent")
    config = tmp_path / "config"
    config.write_text(NOWHERE)

    def once(*words: str) -> tuple[int, str, str]:
        spoken = [str(config) if word == "FILE" else word for word in words]
        monkeypatch.setattr(sys, "argv", ["equipoise", *spoken])
        with pytest.raises(SystemExit) as left:
            main()
        return int(left.value.code or 0), *capsys.readouterr()

    return once


@pytest.mark.parametrize("words", [["rotation", "plan"], ["recommendation", "plan"]], ids=" ".join)
@pytest.mark.parametrize(
    ("reach", "where"), [([], "; -n NAMESPACE or -A look elsewhere"), (["-A"], " in any namespace")]
)
def test_who_finds_nothing_is_told_of_an_elsewhere_only_where_there_is_one(
    run: Ran, tmp_path: Path, words: list[str], reach: list[str], where: str
) -> None:
    """On a server that has nothing at all."""
    with playing(lambda asked, stage: stage.answer({"metadata": {}, "items": []})) as player:
        (tmp_path / "empty").write_text(NOWHERE.replace("http://127.0.0.1:9", player.url))
        there = ["--kubeconfig", str(tmp_path / "empty"), "--prometheus-url", player.url]
        status, _, err = run(*words, *reach, *there)
    assert (status, err.splitlines()[-1].partition(" was found")[2]) == (0, where), err


@pytest.mark.parametrize("verb", ["plan", "apply"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "shop", "-A"], "-n and -A: expected one of them, not both"),
        (["--set", "topK=0"], "topK"),
        (["--set", "topk=1"], "topk"),
        (["--set", "syncPeriod=0s"], "syncPeriod"),
        (["--set", "includeLocalStorage=maybe"], "includeLocalStorage"),
        (["--set", "windows"], "--set"),
        (["--kubeconfig", "/no/such"], "/no/such"),
        (["--kubeconfig", "FILE", "--metrics-from", "tea"], "tea"),
        (["--kubeconfig", "FILE", "--prometheus-url", "http://x", "--prometheus-timeout", "5x"], "5x"),
        (["-o", "xml"], "xml"),
        ([], NO_CLUSTER),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_words_are_one_line_and_exit_status_2(
    run: Ran, verb: str, arguments: list[str], message: str
) -> None:
    """The same for both: the line names the option, and nothing is on standard output."""
    status, out, err = run("rotation", verb, *arguments)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", err), err
    assert message in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--interval", "soon"], "--interval: expected seconds or a span"),
        (["--interval", "0s"], "--interval: expected at least 1s, got '0s'"),
        (["--interval", "-5"], "--interval: expected seconds or a span"),
        (["--timeout", "1x"], "--timeout: expected seconds or a span"),
        (["--timeout", "0"], "--timeout: expected at least 1s, got '0'"),
        (["--dry-run", "--timeout", "never"], "--timeout: expected seconds or a span"),
        (["--from", "x.yaml"], "No such option: --from"),
        (["--apply"], "No such option: --apply"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_words_of_apply_are_one_line_and_exit_status_2(
    run: Ran, arguments: list[str], message: str
) -> None:
    """A wait of nothing would be a flood."""
    status, out, err = run("rotation", "apply", *arguments)
    assert (status, out) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", err), err
    assert message in err


@pytest.mark.parametrize("words", [["plan"], ["apply"], ["apply", "--dry-run"]], ids=" ".join)
def test_a_cluster_that_is_not_there_is_one_line_and_exit_status_1(run: Ran, words: list[str]) -> None:
    """The world failed: the line names the address."""
    status, out, err = run("rotation", *words, "--kubeconfig", "FILE", "-n", "shop")
    assert (status, out) == (1, "")
    assert re.fullmatch(r"error: [^\n]+\n", err), err
    assert "127.0.0.1:9" in err


PODS = tuple(EvictPod(name, "shop", f"u-{name}") for name in "ab")
ROTATED = Decision("shop/web", Reason(Code.ROTATE, "Because.", {"wave": 0}), PODS)


def _turn(decision: Decision, *outcomes: Outcome) -> CycleItem:
    ref = WorkloadRef("apps/v1", "Deployment", "shop", "web")
    workload = Workload(ref, "u", "1", 6, 6, 6, 6, 1, 1, Selector(()), ())
    details = RotationDetails(memory=RotationMemory.from_data(decision.memory))
    return CycleItem(
        Target(COMMAND_REF, RotationPolicy(), Mode.ENFORCE, workload), decision, outcomes, details
    )


def test_progress_is_one_line_per_wave_and_silent_while_nothing_changes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """On standard error: what went, what keeps the next wave beyond the usual, how it ended."""
    progress = WaveProgress(300.0)
    waiting = Decision(
        "shop/web",
        Reason(Code.HELD_BY_COOLDOWN, "Wave 1 …", {"seconds_left": 9}),
        memory={"course": msgspec.to_builtins(COURSE)},
    )
    window = [
        Decision("shop/web", Reason(Code.HELD_BY_WINDOW, f"Closed {n}.")).hold(
            Reason(Code.HELD_BY_WINDOW, "")
        )
        for n in range(3)
    ]
    over = Decision("shop/web", Reason(Code.NO_HOT_PODS, "No pod is hot."))
    progress.tell(_turn(ROTATED, Outcome(PODS[0], "Accepted"), Outcome(PODS[1], "Blocked", "the budget")))
    for _ in range(3):
        progress.tell(_turn(waiting))
    for held in window:
        progress.tell(_turn(held))
    progress.tell(_turn(over))
    out, err = capsys.readouterr()
    assert out == ""
    wave, held_line, end = (line.partition(" shop/web: ")[2] for line in err.splitlines())
    assert wave.startswith("wave 1: a Accepted, b Blocked (the budget); next when all are ready and 5m ")
    assert held_line == "HeldByWindow: Closed 0."
    assert end == "NoHotPods: No pod is hot."


def test_what_was_done_is_a_plan_with_outcomes(capsys: pytest.CaptureFixture[str]) -> None:
    """The shape of a plan for scripts, with what came of each; for people a table and a count."""
    outcomes = [[Outcome(PODS[0], "Accepted"), Outcome(PODS[1], "Unknown", "cut")]]
    print_plan("rotation", [ROTATED], Format.JSON, outcomes)
    (decision,) = json.loads(capsys.readouterr().out)["decisions"]
    assert [action["pod"] for action in decision["actions"]] == ["a", "b"]
    assert [(part["pod"], part["result"], part["detail"]) for part in decision["outcomes"]] == [
        ("a", "Accepted", ""),
        ("b", "Unknown", "cut"),
    ]
    print_plan("rotation", [ROTATED], Format.TABLE, outcomes)
    shown = capsys.readouterr().out
    assert "EVICTED, IN ORDER" in shown
    assert "1 decided, 2 pods evicted, 0 held." in shown
    print_plan("rotation", [], Format.TABLE, [])
    assert capsys.readouterr().out == "There was nothing to decide.\n"


def test_a_table_shows_the_first_wave_and_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is held is marked, in the order of execution."""
    from rich.console import Console

    held = ROTATED.hold(Reason(Code.HELD_BY_BUDGET, "One at a time."), 1)
    monkeypatch.setattr(sys, "stdout", StringIO())
    console = Console(file=StringIO(), width=100)
    console.print(plan_table([held]))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "EVICT, IN ORDER" in text
    assert text.index(" a ") < text.index("b (held)")


def test_whoever_stops_an_apply_is_told_what_was_done_and_what_is_left() -> None:
    """One line: who went, that nothing more goes, and who goes on with it."""
    decision = Decision("shop/web", Reason(Code.ROTATE, "A sentence."))
    went = WorkloadResult(decision, [Outcome(EvictPod("a", "shop", "u"), "Accepted")])
    idle = WorkloadResult(Decision("shop/api", Reason(Code.NO_HOT_PODS, "A sentence.")))
    assert left_behind([went, idle]) == (
        "shop/web: a went, not verified yet; nothing more is evicted; the ledger remembers it, and another "
        "`apply` or the operator goes on with it"
    )
    assert left_behind([idle]).startswith(
        "no eviction was answered; one that was on its way may still happen"
    )
    assert left_behind([]) == left_behind([idle])


def test_ctrl_c_in_an_apply_is_one_line_and_130(run: Ran, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not silence, and no traceback."""

    def stopped(_: object, __: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RotateCommand, "run", stopped)
    status, out, said = run(
        *("rotation", "apply", "--kubeconfig", "FILE", "--prometheus-url", "http://127.0.0.1:9", "-n", "shop")
    )
    assert (status, out) == (130, "")
    assert said.startswith("stopped: no eviction was answered")
    assert said.count("\n") == 1

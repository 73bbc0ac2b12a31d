"""Loops, parts and shells of the tests' own, without a cluster."""

from __future__ import annotations

import io
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from equipoise.core.decision import Decision, EvictPod, Outcome
from equipoise.core.reason import Code, Reason
from equipoise.ports import CycleReport
from equipoise.ports.wiring import Loop
from equipoise.runtime.logs import Log, make_log
from equipoise.runtime.metrics import OperatorMetrics
from equipoise.runtime.operator.process import OperatorProcess
from equipoise.runtime.operator.worker import Batches
from equipoise.runtime.runner import HeartbeatRegistry
from equipoise.runtime.settings import Logs

WAIT_SECONDS = 60.0
"""Long enough for the busiest machine; nothing waits for it to pass."""


class Now:
    """The time of day."""

    def now(self) -> float:
        return time.time()


def decision(
    subject: str = "shop/web", code: Code = Code.NO_HOT_PODS, *pods: str, **numbers: Any
) -> Decision:
    actions = tuple(EvictPod(pod, subject.partition("/")[0], f"uid-{pod}") for pod in pods)
    return Decision(subject, Reason(code, f"{subject} is {code.value}.", numbers), actions)


def report(*decisions: Decision, done: str = "", warnings: Sequence[str] = ()) -> CycleReport:
    """Make a report; `done` is what came of all the actions, when they were done."""
    outcomes = [Outcome(action, done) for one in decisions for action in one.actions if done]
    return CycleReport(decisions, outcomes, warnings)


@dataclass
class ScriptedLoop:
    """A loop whose cycles a test writes."""

    script: Callable[[float], CycleReport] = lambda _: report()
    name: str = "rotation"
    interval_seconds: float = 0.02
    cycles: int = 0

    def cycle(self, at: float) -> CycleReport:
        self.cycles += 1
        return self.script(at)


@dataclass
class ScriptedPart:
    """A part that does what a test says, and writes down when it was asked."""

    name: str
    diary: list[str] = field(default_factory=list)
    ill: list[str] = field(default_factory=list)
    waits_for: list[str] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)

    def start(self) -> None:
        self.diary.append(f"start {self.name}")

    def stop(self, timeout_seconds: float) -> bool:
        self.diary.append(f"stop {self.name}")
        return True

    def liveness_errors(self) -> list[str]:
        return self.ill

    def readiness_errors(self) -> list[str]:
        return self.waits_for

    def errors(self) -> Mapping[str, str]:
        return self.wrong


def logged(
    level: Literal["debug", "info", "warning", "error"] = "debug",
) -> tuple[Log, Callable[[], list[dict[str, Any]]]]:
    """Make a log, and a way to read its lines."""
    stream = io.StringIO()
    log = make_log(Logs(level=level, format="json"), stream)
    return log, lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


@dataclass
class Standing:
    """A shell that runs, and what belongs to it."""

    shell: OperatorProcess
    meters: OperatorMetrics
    lines: Callable[[], list[dict[str, Any]]]
    diary: list[str]
    lease: ScriptedPart
    part: ScriptedPart

    def get(self, path: str) -> tuple[int, str]:
        return get(f"http://127.0.0.1:{self.shell.server.port}{path}")


@contextmanager
def standing(
    *loops: Loop,
    stop_seconds: float = 20.0,
    waits_for: Sequence[str] = (),
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[Standing]:
    """Start a shell around these loops, on a free port; stop it in the end."""
    diary: list[str] = []
    lease = ScriptedPart("lease", diary)
    part = ScriptedPart("caches", diary, waits_for=list(waits_for))
    log, lines = logged()
    meters = OperatorMetrics()
    shell = OperatorProcess(
        loops=loops,
        lease=lease,
        parts=[ScriptedPart("journal", diary), part],
        batches=Batches(),
        heartbeats=HeartbeatRegistry(),
        metrics=meters,
        clock=Now(),
        address="127.0.0.1:0",
        stop_seconds=stop_seconds,
        stopping=threading.Event(),
        log=log,
        rng=lambda: 0.0,
        monotonic=monotonic,
    )
    shell.start()
    try:
        yield Standing(shell, meters, lines, diary, lease, part)
    finally:
        shell.stop()


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=WAIT_SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def eventually(is_true: Callable[[], object]) -> None:
    """Wait until something holds, or fail."""
    until = time.monotonic() + WAIT_SECONDS
    while not is_true():
        assert time.monotonic() < until, "it did not come true"
        time.sleep(0.005)

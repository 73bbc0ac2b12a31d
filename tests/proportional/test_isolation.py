"""An error about one policy costs that policy's turn; all others are decided as without it."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.core.cluster import ObjectRef
from equipoise.core.decision import Outcome, SetResources
from equipoise.core.documents import explain
from equipoise.core.errors import WorldFailed
from equipoise.core.reason import Code
from equipoise.crd.targets import Mode
from equipoise.engine.policies import RejectedPolicy
from equipoise.ports import CycleReport, PolicyObject
from equipoise.proportional import loop, observe
from equipoise.proportional.loop import ProportionalLoop
from equipoise.sim import Template, World
from tests.support.guard.faults import ERRORS, Around, Unforeseen, failing, in_module, in_port
from tests.support.proportional.running import CYCLE_SECONDS, POD, Diary, Lease, spec

TENANTS = ("blue", "green", "odd", "red")
ODD = "odd"
PERCENTILE = {"percentile": {"target": 0.8, "lowThreshold": 0.6, "highThreshold": 0.95}}
ODD_STATUS = {"conditions": [7], "memory": "x", "lastDecision": 5, "resources": "none"}


def nested(depth: int) -> dict[str, Any]:
    """Return a mapping so many levels deep."""
    inner: dict[str, Any] = {}
    for _ in range(depth):
        inner = {"a": inner}
    return inner


class Cluster:
    """A Deployment `dns` and a policy for each tenant, and the loop over all of them."""

    def __init__(self) -> None:
        self.world = World(11)
        for number in range(5):
            self.world.add_node(f"node-{number}", cpu_cores=4)
        for tenant in TENANTS:
            self.world.add_workload(tenant, tenant, replicas=2, template=Template(containers=POD))
            target = {"kind": "Deployment", "name": tenant}
            smoothing = PERCENTILE if tenant == "blue" else {}
            self.world.policies.add(tenant, "dns", spec(scaleTargetRef=target, smoothing=smoothing))
        self.world.advance(60)
        world = self.world
        self.parts: dict[str, Any] = {
            "cluster": world.cluster,
            "sizes": world.sizes,
            "policies": world.policies,
            "pauses": world.pauses,
            "store": world.store,
            "actuator": world.actuator,
            "journal": Diary(),
            "leadership": Lease(),
        }

    def break_part(self, part: str, name: str, is_about: Callable[..., bool], error: Any, **how: Any) -> None:
        inner = self.parts[part]
        self.parts[part] = Around(inner, **{name: failing(getattr(inner, name), is_about, error, **how)})

    def change_policy(self, **changes: Any) -> None:
        """Let the odd one's policy be another, past the server that would not take it."""
        inner = self.parts["policies"]

        def policies() -> list[PolicyObject]:
            return [replace(one, **changes) if one.ref.namespace == ODD else one for one in inner.policies()]

        self.parts["policies"] = Around(inner, policies=policies)

    def run(self, cycles: int = 5) -> list[CycleReport]:
        ids = count()
        scaling = ProportionalLoop(
            new_id=lambda _: f"id-{next(ids)}", mode=Mode.ENFORCE, change_seconds=0.0, **self.parts
        )
        reports = []
        for number in range(cycles):
            self.world.advance(CYCLE_SECONDS)
            if number == cycles - 1:
                self.world.add_node("late", cpu_cores=4)
            reports.append(scaling.cycle(self.world.now))
        return reports

    def requests(self, tenant: str) -> list[float | None]:
        """What the first container of each pod asks for."""
        return [pod.containers[0].cpu_request_cores for pod in self.world.cluster.pods(tenant)]

    def ready(self, tenant: str) -> str:
        (policy,) = [one for one in self.world.policies.policies() if one.ref.namespace == tenant]
        return next(str(one["reason"]) for one in policy.status["conditions"] if one["type"] == "Ready")


def _workload_of(outcome: Outcome) -> str:
    assert isinstance(outcome.action, SetResources)
    return outcome.action.workload.partition("/")[0]


def others(reports: list[CycleReport]) -> list[Any]:
    """What was decided and done for everybody but one."""
    return [
        (
            [each for each in report.decisions if not each.subject.startswith(f"{ODD}/")],
            [each for each in report.outcomes if _workload_of(each) != ODD],
        )
        for report in reports
    ]


@pytest.fixture(scope="module")
def undisturbed() -> list[Any]:
    """What everybody gets while nothing fails."""
    cluster = Cluster()
    reports = cluster.run()
    assert [outcome.result for outcome in reports[0].outcomes] == ["Accepted"] * 3
    assert all(cluster.requests(tenant) == [0.34] * 2 for tenant in TENANTS[1:])
    return others(reports)


def _bad_selector(cluster: Cluster, error: Exception, patch: pytest.MonkeyPatch) -> None:
    del error, patch
    inner = cluster.parts["sizes"]

    def workload(ref: Any) -> Any:
        found = inner.workload(ref)
        if ref.namespace != ODD:
            return found
        return msgspec.structs.replace(found, selector=Unforeseen(found.selector.requirements))

    cluster.parts["sizes"] = Around(inner, workload=workload)


def _bad_spec(cluster: Cluster, error: Exception, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(observe, "explain", failing(explain, lambda _: True, error))
    cluster.change_policy(spec={"containers": 7})


def _deep_spec(cluster: Cluster, error: Exception, patch: pytest.MonkeyPatch) -> None:
    del error, patch
    cluster.change_policy(spec=spec(containers=nested(990)))


def _odd_status(cluster: Cluster, error: Exception, patch: pytest.MonkeyPatch) -> None:
    del error, patch
    cluster.change_policy(status=ODD_STATUS)


def _first(one: Any, *_: Any, **__: Any) -> bool:
    return bool(one.namespace == ODD)


FAULTS: dict[str, Callable[..., None]] = {
    "its policy": _bad_spec,
    "its deep policy": _deep_spec,
    "its status as others wrote it": _odd_status,
    "the question for its workload": in_port("sizes", "workload", _first),
    "its workload, which nobody may read": in_port("sizes", "workload", _first, error=WorldFailed("403")),
    "its selector": _bad_selector,
    "its observation": in_module(loop, "observe", lambda item, *_: item.ref.namespace == ODD),
    "its decision": in_module(loop, "decide_compiled", lambda _, seen, *__: seen.subject.startswith(ODD)),
    "its guards": in_port("pauses", "pause_of", lambda namespace: namespace == ODD),
    "its status": in_module(loop, "next_status", lambda policy, *_: policy.ref.namespace == ODD),
    "the write of its status": in_port("policies", "write_status", lambda one, _: one.ref.namespace == ODD),
    "the answer to its change": in_port("sizes", "resize", _first, is_done=True),
    "its event": in_port("actuator", "record_event", _first),
    "its record": in_module(
        loop, "record", lambda _balancer, _policy, seen, *__: seen.subject.startswith(ODD)
    ),
    "the journal": in_port("journal", "append", lambda one, **_: one.decision.subject.startswith(ODD)),
}
REFUSED = {"its deep policy"}
"""Errors that are foreseen: the policy is refused with a reason of its own."""


@pytest.mark.parametrize("fault", FAULTS)
def test_all_others_get_the_decisions_that_they_get_without_it(
    fault: str, undisturbed: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever of one policy fails, over several cycles; and nothing is set that no status remembers."""
    cluster = Cluster()
    FAULTS[fault](cluster, ERRORS[list(FAULTS).index(fault) % len(ERRORS)], monkeypatch)
    reports = cluster.run()
    assert others(reports) == undisturbed
    failed = [failed for report in reports for failed in report.failed_turns]
    assert bool(failed) == (fault not in REFUSED)
    assert all(f"{ODD}/" in each.subject for each in failed)
    (policy,) = [one for one in cluster.world.policies.policies() if one.ref.namespace == ODD]
    is_set = cluster.requests(ODD) != [0.1] * 2
    assert not is_set or policy.status["memory"]["deeds"]["written"]


def test_what_failed_is_told_and_passes_with_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision, condition, a warning event and a record; then the policy is followed like the others."""
    cluster = Cluster()
    with monkeypatch.context() as patch:
        FAULTS["its decision"](cluster, KeyError("x"), patch)
        (report,) = cluster.run(1)
    (decision,) = [each for each in report.decisions if each.subject == "odd/odd"]
    assert decision.reason.code is Code.INTERNAL_ERROR
    assert "KeyError: 'x'" in decision.reason.sentence
    assert cluster.ready(ODD) == "InternalError"
    assert [e.is_warning for e in cluster.world.actuator.events if e.reason == "InternalError"] == [True]
    assert decision in [record.decision for record in cluster.parts["journal"].records]
    cluster.run(2)
    assert cluster.ready(ODD) == "Accepted"
    assert cluster.requests(ODD) == [0.34] * 2


def test_a_status_that_was_not_written_is_not_remembered_as_done() -> None:
    """An error between decision and status leaves the memory as it was: the change is decided anew."""
    cluster = Cluster()
    broken = {ODD}
    write = failing(
        cluster.world.policies.write_status, lambda one, _: one.ref.namespace in broken, KeyError("x")
    )
    cluster.parts["policies"] = Around(cluster.world.policies, write_status=write)
    scaling = ProportionalLoop(new_id=str, mode=Mode.ENFORCE, change_seconds=60.0, **cluster.parts)
    for _ in range(3):
        cluster.world.advance(CYCLE_SECONDS)
        scaling.cycle(cluster.world.now)
    assert cluster.requests(ODD) == [0.1] * 2
    broken.clear()
    cluster.world.advance(CYCLE_SECONDS)
    report = scaling.cycle(cluster.world.now)
    assert list(map(_workload_of, report.outcomes)) == [ODD]
    assert cluster.requests(ODD) == [0.3] * 2


@settings(max_examples=60)
@given(depth=st.integers(0, 3000), place=st.sampled_from(["containers", "smoothing", "nodeSelector", "odd"]))
def test_a_policy_of_any_depth_is_refused_or_read(depth: int, place: str) -> None:
    """However far from the limits of whatever reads it: never an error."""
    ref = ObjectRef("scalingpolicy.kope.io/v1alpha1", "ScalingPolicy", "shop", "deep", "uid")
    policy = PolicyObject(ref, 1, "1", spec(**{place: nested(depth)}), {})
    readings = observe.PolicyCache().read([policy])
    assert set(readings) == {ref}
    read = readings[ref]
    assert not isinstance(read, RejectedPolicy) or read.code == "InvalidSpec"

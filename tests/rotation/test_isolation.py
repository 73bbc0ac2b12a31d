"""An error about one workload costs that workload's turn; all others are decided as without it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from equipoise.core.documents import explain
from equipoise.core.ledger import Ledger
from equipoise.core.reason import Code
from equipoise.engine import policies as engine_policies
from equipoise.ports import CycleReport, Stored
from equipoise.rotation import decide, loop
from equipoise.sim.load import Constant, Partitions
from equipoise.sim.state import WorkloadState
from equipoise.sim.template import Budget
from equipoise.sim.world import World
from tests.support.guard.faults import ERRORS, Around, Unforeseen, failing, in_module, in_port
from tests.support.rotation.tenants import ENFORCE, Diary, Lease, Pauses, Policies, loop_in
from tests.support.sim.scenes import SIX_LOADS

TENANTS = ("blue", "green", "odd", "red")
ODD = "odd"
CYCLES = 3
BAD_LEDGER = {
    "entries": [
        {"id": "1", "round": "1", "balancer": "rotation", "action": "EvictPod", "pod": "p", "uid": "u"}
        | {"at": "9999-12-31T23:59:59-23:59", "epoch": 1}
    ]
}


class Shop:
    """One workload and one policy for each tenant, and the loop over all of them."""

    def __init__(self) -> None:
        self.world = World(1)
        for number in range(4):
            self.world.add_node(f"node-{number}", cpu_cores=64)
        self.workloads = {tenant: self._workload(tenant) for tenant in TENANTS}
        self.world.advance(1200)
        self.uids = {tenant: {pod.uid for pod in self.world.cluster.pods(tenant)} for tenant in TENANTS}
        self.policies = Policies(*(ENFORCE for _ in TENANTS))
        for tenant, (name, policy) in zip(TENANTS, list(self.policies.objects.items()), strict=True):
            ref = policy.ref._replace(namespace=tenant)
            self.policies.objects[name] = (
                msgspec.structs.replace(policy, ref=ref)
                if isinstance(policy, msgspec.Struct)
                else type(policy)(ref, 1, "1", policy.spec, {})
            )
        self.parts: dict[str, Any] = {
            "cluster": self.world.cluster,
            "metrics": self.world.metrics,
            "store": self.world.store,
            "actuator": self.world.actuator,
            "pauses": Pauses(),
            "journal": Diary(),
            "leadership": Lease(),
        }

    def _workload(self, tenant: str) -> WorkloadState:
        workload = self.world.add_workload(
            tenant, "web", replicas=6, shape=Constant(sum(SIX_LOADS)), sharing=Partitions(SIX_LOADS)
        )
        self.world.add_pdb(tenant, "web", Budget(max_unavailable=1))
        self.world.add_hpa(workload, replicas_min=6, replicas_max=12)
        return workload

    def break_part(
        self, part: str, name: str, is_about: Callable[..., bool], error: Exception, **how: Any
    ) -> None:
        """Let one function of a port fail where it is about somebody."""
        inner = self.parts[part]
        self.parts[part] = Around(inner, **{name: failing(getattr(inner, name), is_about, error, **how)})

    def run(self) -> list[CycleReport]:
        """Do some cycles."""
        rotation = loop_in(self.world, self.policies, disturbed_in_cluster_max=100, **self.parts)
        reports = []
        for _ in range(CYCLES):
            reports.append(rotation.cycle(self.world.now))
            self.world.advance(30)
        return reports

    def has_lost(self, tenant: str) -> bool:
        """Whether a pod of a tenant has gone."""
        return bool(self.uids[tenant] - {pod.uid for pod in self.world.cluster.pods(tenant)})

    def check_intents(self) -> None:
        """Nothing went without an intent that was written before."""
        asked = {
            str(entry.subject)
            for entry in self.world.state.history
            if entry.kind == "EvictionAsked" and entry.detail.startswith("Accepted dry=False")
        }
        for tenant, workload in self.workloads.items():
            stored = self.world.store.read(workload.ref)
            assert asked & self.uids[tenant] <= Ledger.from_data(stored.data).sent()


def others(reports: list[CycleReport]) -> list[Any]:
    """What was decided and done for everybody but one; rounds are numbered over all of them."""
    found: list[Any] = []
    for report in reports:
        for each in report.decisions:
            if not each.subject.startswith(f"{ODD}/"):
                told = msgspec.to_builtins(each)
                told["memory"].get("course", {}).pop("round", None)
                found.append(told)
        found += [outcome for outcome in report.outcomes if outcome.action.namespace != ODD]
    return found


@pytest.fixture(scope="module")
def undisturbed() -> dict[bool, list[Any]]:
    """What everybody gets while nothing fails, by whether a pod of the odd one goes, too."""
    found = {}
    for is_acting in (True, False):
        shop = Shop()
        if not is_acting:  # in one world, whose chance goes on with every pod that is made
            _change(shop, spec=ENFORCE | {"mode": "Preview"})
        reports = shop.run()
        assert [outcome.result for outcome in reports[0].outcomes] == ["Accepted"] * (3 + is_acting)
        assert not any(report.failed_turns for report in reports)
        found[is_acting] = others(reports)
    return found


def _is_odd(text: object) -> bool:
    return f"{ODD}/" in str(text)


def _bad_selector(shop: Shop, error: Exception, patch: pytest.MonkeyPatch) -> None:
    del error, patch
    inner = shop.parts["cluster"]

    def workloads(*args: Any) -> list[Any]:
        return [
            msgspec.structs.replace(each, selector=Unforeseen(each.selector.requirements))
            if each.ref.namespace == ODD
            else each
            for each in inner.workloads(*args)
        ]

    shop.parts["cluster"] = Around(inner, workloads=workloads)


def _bad_spec(shop: Shop, error: Exception, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(engine_policies, "explain", failing(explain, lambda _: True, error))
    _change(shop, spec={"mode": 7})


def _change(shop: Shop, **changes: Any) -> None:
    name = f"policy-{TENANTS.index(ODD)}"
    shop.policies.objects[name] = replace(shop.policies.objects[name], **changes)


def _bad_window(shop: Shop, error: Exception, patch: pytest.MonkeyPatch) -> None:
    del patch
    _change(shop, spec=ENFORCE | {"metricsWindow": "4m"})
    shop.break_part("metrics", "cpu_usage", lambda _names, _at, window: window == 240.0, error)


def _bad_ledger(shop: Shop, error: Exception, patch: pytest.MonkeyPatch) -> None:
    del error, patch
    inner = shop.parts["store"]

    def read_all(*args: Any) -> dict[Any, Stored]:
        return dict(inner.read_all(*args)) | {shop.workloads[ODD].ref: Stored(BAD_LEDGER, "1")}

    shop.parts["store"] = Around(inner, read_all=read_all)


def _of_odd_pod(pod: Any, **_: Any) -> bool:
    return bool(pod.namespace == ODD)


FAULTS: dict[str, Callable[..., None]] = {
    "its selector": _bad_selector,
    "its policy": _bad_spec,
    "its metrics window": _bad_window,
    "its ledger": _bad_ledger,
    "its observation": in_module(
        loop, "observe", lambda _policy, workload, _seen: workload.ref.namespace == ODD
    ),
    "its decision": in_module(decide, "decide", lambda _policy, seen, _memory: seen.namespace == ODD),
    "its guards": in_port("pauses", "pause_of", lambda namespace: namespace == ODD),
    "its intent": in_port("store", "write", lambda key, *_: key.namespace == ODD),
    "its last look": in_port("cluster", "pods_now", lambda workload: workload.ref.namespace == ODD),
    "the answer to its eviction": in_port("actuator", "evict", _of_odd_pod, is_done=True),
    "its event": in_port("actuator", "record_event", lambda about, *_, **__: about.namespace == ODD),
    "its record": in_module(loop, "record", lambda _balancer, _policy, seen, *_, **__: seen.namespace == ODD),
    "the journal": in_port("journal", "append", lambda record, **_: _is_odd(record.decision.subject)),
    "its status": in_module(loop, "next_status", lambda policy, *_: policy.ref.namespace == ODD),
}

FORESEEN = {"its ledger"}
"""What is not taken for an error: what was done before is unknown, and so the workload is held."""


@pytest.mark.parametrize("fault", FAULTS)
def test_all_others_get_the_decisions_that_they_get_without_it(
    fault: str, undisturbed: dict[bool, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever of one workload fails, over several cycles; and nothing goes without a written intent."""
    shop = Shop()
    FAULTS[fault](shop, ERRORS[list(FAULTS).index(fault) % len(ERRORS)], monkeypatch)
    reports = shop.run()
    assert others(reports) == undisturbed[shop.has_lost(ODD)]
    assert bool(reports[0].failed_turns) == (fault not in FORESEEN)
    assert all(
        _is_odd(failed.subject) or "4m" in failed.subject
        for report in reports
        for failed in report.failed_turns
    )
    shop.check_intents()


def test_what_failed_is_told_wherever_a_decision_is_and_passes_with_its_cause() -> None:
    """Decision, status, a warning event and a record; then the workload is rotated like the others."""
    shop = Shop()
    odd = {ODD}
    pause_of = failing(shop.parts["pauses"].pause_of, lambda name: name in odd, KeyError("x"))
    shop.parts["pauses"] = Around(shop.parts["pauses"], pause_of=pause_of)
    rotation = loop_in(shop.world, shop.policies, disturbed_in_cluster_max=100, **shop.parts)
    report = rotation.cycle(shop.world.now)
    (decision,) = [each for each in report.decisions if each.subject == "odd/web"]
    assert decision.reason.code is Code.INTERNAL_ERROR
    assert "KeyError: 'x'" in decision.reason.sentence
    (entry,) = shop.policies.status(TENANTS.index(ODD))["decisions"]
    assert (entry["reason"], entry["sentence"]) == ("InternalError", decision.reason.sentence)
    (event,) = [each for each in shop.world.actuator.events if each.reason == "InternalError"]
    assert (event.about.namespace, event.is_warning) == (ODD, True)
    (record,) = [each for each in shop.parts["journal"].records if each.decision == decision]
    assert not record.has_inputs
    (failed,) = report.failed_turns
    assert "in wrapped" in failed.traceback
    odd.clear()
    shop.world.advance(30)
    assert [o.action.namespace for o in rotation.cycle(shop.world.now).outcomes] == [ODD]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1)], ids=repr)
def test_what_ends_the_process_ends_the_cycle(error: Any) -> None:
    """It is nobody's bug."""
    shop = Shop()
    shop.break_part("pauses", "pause_of", lambda _: True, error)
    with pytest.raises(type(error)):
        shop.run()


def test_an_error_after_the_lead_was_lost_ends_the_cycle() -> None:
    """Nothing is decided, written or told for anybody by who leads no more."""
    shop = Shop()
    lease = shop.parts["leadership"]

    def pause_of(namespace: str) -> None:
        lease.held = None
        raise KeyError(namespace)

    shop.parts["pauses"] = Around(shop.parts["pauses"], pause_of=pause_of)
    with pytest.raises(KeyError, match="blue"):
        shop.run()
    assert shop.policies.writes == 0

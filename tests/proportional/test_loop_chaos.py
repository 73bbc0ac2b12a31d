"""Whatever happens around it, in any order: what holds of the loop at every moment."""

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.core.errors import WorldFailed
from equipoise.core.reason import Code
from equipoise.sim.faults import FaultKind
from tests.support.proportional.running import CPU_PER_CORE, NAMESPACE, Run, spec

LOW, HIGH = 0.2, 0.5
BOUNDED = [{"name": "dns", "resources": {"requests": [CPU_PER_CORE | {"min": "200m", "max": "500m"}]}}]
HAPPENINGS = ("node", "drop", "revive", "scale", "put back", "restart", "outage", "pause", "resume", "lease")


def _happen(run: Run, what: str, number: int) -> None:
    node = run.nodes[number % len(run.nodes)]
    match what:
        case "node":
            run.add_nodes(1)
        case "drop":
            run.drop(node)
        case "revive":
            run.revive(node)
        case "scale":
            run.world.scale(run.workload, 1 + number % 4)
        case "put back":
            run.put_back("100m")
        case "restart":
            run.start()
        case "outage":
            run.world.faults.add(FaultKind.API_UNAVAILABLE, seconds=12)
        case "pause":
            run.world.pauses.pause(NAMESPACE, "test")
        case "resume":
            run.world.pauses.resume(NAMESPACE)
        case "lease":
            run.lease.now = None if run.lease.now else 9


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(HAPPENINGS), st.integers(0, 9)), max_size=14),
    st.sampled_from([{}, {"percentile": {"windowSeconds": 60}}, {"delayScaleDown": {"delaySeconds": 30}}]),
)
def test_nothing_is_written_that_should_not_be(happenings: list[tuple[str, int]], smoothing: object) -> None:
    """Every value of ours is within min and max; none while paused or not leading; none to a lost fight.

    In the end, when nobody interferes any more, every pod has what the cluster asks for, or it is lost.
    """
    run = Run(3, policy=spec(containers=BOUNDED, smoothing=smoothing), change_seconds=0.0)
    is_lost = False
    for what, number in happenings:
        with suppress(WorldFailed):
            _happen(run, what, number)
        run.world.advance(10)
        before, is_paused = run.our_writes(), bool(run.world.pauses._paused)
        try:
            report = run.loop.cycle(run.world.now)
        except WorldFailed:
            continue
        written = run.our_writes() - before
        assert not written or (run.lease.now is not None and not is_paused and not is_lost)
        is_lost = is_lost or any(d.reason.code is Code.FOUGHT_BY for d in report.decisions)
        for cpu in run.requests():
            assert cpu == 0.1 or (cpu is not None and LOW <= cpu <= HIGH)
    run.lease.now = 11
    run.world.pauses.resume(NAMESPACE)
    for node in run.nodes:
        run.revive(node)
    run.world.advance(60)
    run.start()
    for _ in range(12):
        run.cycle()
    if run.status["lastDecision"]["reason"] != "FoughtBy":
        wanted = min(max(100 + 40 * len(run.nodes), 200), 500) / 1000
        assert run.requests() == [wanted] * len(run.requests())
        assert run.conditions["Applied"] == "AllPods"
    assert run.restarts == 0
    assert run.template() == 0.1
    run.check_replay()

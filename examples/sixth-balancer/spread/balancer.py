"""The descriptor of spread."""

import msgspec
from equipoise.spread.decide import decide
from equipoise.spread.loop import SpreadLoop
from equipoise.spread.observe import Observation
from equipoise.spread.policy import SPREAD_POLICY, SpreadPolicy

from equipoise.core.decision import Decision, Record
from equipoise.engine.balancer import Balancer
from equipoise.engine.recording import replay_holds
from equipoise.ports.wiring import Loop, LoopSettings, Wiring


def make_loop(wiring: Wiring, settings: LoopSettings) -> Loop:
    """Return the loop; its policies are watched."""
    return SpreadLoop(
        cluster=wiring.cluster,
        policies=wiring.policies(SPREAD_POLICY),
        pauses=wiring.pauses,
        leadership=wiring.leadership,
        store=wiring.store,
        actuator=wiring.actuator,
        journal=wiring.journal,
        new_id=wiring.new_id,
        interval_seconds=settings.interval_seconds("spread"),
    )


def redecide(recorded: Record) -> Decision:
    """Return the decision made again from a record; what the guards held is taken from it."""
    policy = SpreadPolicy.model_validate(recorded.policy)
    decision = decide(policy, msgspec.convert(recorded.observation, Observation)).decision
    return replay_holds(recorded, decision)


BALANCER = Balancer("spread", kinds=(SPREAD_POLICY,), decide=decide, redecide=redecide, make_loop=make_loop)

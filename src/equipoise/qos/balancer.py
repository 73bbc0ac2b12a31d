"""The descriptor of node quality of service."""

import msgspec

from equipoise.core.decision import Decision, Record
from equipoise.core.reason import Code, Reason
from equipoise.engine.balancer import Balancer
from equipoise.qos.decide import decide
from equipoise.qos.execute import PREVIEW, hold_paused, namespace_of, previewed
from equipoise.qos.observation import Observation
from equipoise.qos.policy import QosPolicy
from equipoise.qos.status import QOS_KINDS
from equipoise.qos.waterlines import QosMemory


def redecide(recorded: Record) -> Decision:
    """Return the decision made again from a record's inputs; paused namespaces are taken from the record."""
    policy = QosPolicy.model_validate(recorded.policy)
    observation = msgspec.convert(recorded.observation, Observation)
    decision = decide(policy, observation, QosMemory.from_data(recorded.memory)).decision
    pauses = {
        namespace_of(one.action): Reason(one.reason, one.sentence)
        for one in recorded.decision.held
        if one.reason is Code.HELD_BY_PAUSE
    }
    decision = hold_paused(decision, pauses.get)
    return previewed(decision) if recorded.decision.reason.sentence.startswith(PREVIEW) else decision


BALANCER = Balancer("qos", kinds=QOS_KINDS, decide=decide, redecide=redecide)

"""What the dashboard's tests write into a journal: real runs of each balancer, and a hostile name."""

import msgspec

from equipoise.adapters.journal import record_id
from equipoise.core.decision import Record
from equipoise.core.reason import Reason
from tests.fixtures.kept import BALANCERS, kept
from tests.support.journal.worlds import hot

HOSTILE = "shop/<img src=x onerror=window.hit=1>"


def diary(at: float) -> list[Record]:
    """Give the kept records of all balancers, the oldest first, and the hostile one as the newest."""
    found = [record for balancer in BALANCERS for record in kept(balancer)]
    return [*sorted(found, key=lambda record: record.at), renamed(hot(1, at), HOSTILE)]


def later(at: float) -> Record:
    """Give one that is newer than all others."""
    return hot(2, at, "late/arrival")


def renamed(record: Record, name: str) -> Record:
    """Put a name wherever one may stand: the subject, the sentence, a pod."""
    reason = record.decision.reason
    decision = msgspec.structs.replace(
        record.decision,
        subject=name,
        reason=Reason(reason.code, f"{name} is hot.", reason.numbers | {"hot": [name]}),
    )
    pods = [pod | {"name": name} for pod in record.observation["pods"]]
    return msgspec.structs.replace(
        record,
        id=record_id(record.at, 9, 1),
        decision=decision,
        observation=record.observation | {"subject": name, "pods": pods},
    )

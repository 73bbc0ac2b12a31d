"""Objects of the cluster read as policies; what does not fit is left out, and said."""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from equipoise.model.errors import DECODE_ERRORS
from equipoise.model.validation import explain
from equipoise.ports import PolicyObject
from equipoise.qos.kind import POD_QOS, QOS_KINDS
from equipoise.qos.objects import QosObject, assembled
from equipoise.qos.policy import QosPolicy


def read_objects(objects: Iterable[PolicyObject]) -> tuple[QosPolicy, tuple[str, ...]]:
    """Give all that is asked for as one, and what is wrong with the rest."""
    seen = list(objects)
    read: list[QosObject] = []
    problems: list[str] = []
    for one in seen:
        where = f"{one.ref.kind} {one.ref.name}"
        if one.unreadable:
            problems.append(f"{where}: the object cannot be read: {one.unreadable}")
            continue
        spec = _spec(one.ref.kind, one.spec)
        if isinstance(spec, str):
            problems.append(f"{where}: spec.{spec}")
        else:
            read.append(QosObject(one.ref.kind, one.ref.name, spec, where))
    policy, wrong = assembled(read)
    if policy.pods is None and any(one.ref.kind == POD_QOS.name for one in seen):
        # Somebody said who may be acted on, and nobody understands it: so nobody may be.
        policy = policy.model_copy(update={"pods": ()})
    return policy, (*problems, *wrong)


def _spec(kind: str, spec: Mapping[str, Any]) -> BaseModel | str:
    model = next(one.body["spec"] for one in QOS_KINDS if one.name == kind)
    try:
        return model.model_validate(dict(spec), by_alias=True, by_name=False)
    except DECODE_ERRORS as error:
        return explain(error)

"""The custom resource kinds that Equipoise brings: one line for each."""

from collections.abc import Sequence

from equipoise.model.crd.kind import Kind
from equipoise.model.crd.ledger import LEDGER
from equipoise.model.errors import BadInput
from equipoise.proportional.kind import SCALING_POLICY
from equipoise.qos.kind import QOS_KINDS
from equipoise.recommendation.analytics import ANALYTICS, RECOMMENDATION
from equipoise.rotation.policy import ROTATION_POLICY

KINDS: tuple[Kind, ...] = (LEDGER, ROTATION_POLICY, SCALING_POLICY, *QOS_KINDS, ANALYTICS, RECOMMENDATION)
"""In the order in which they are printed and applied."""


def chosen_kinds(names: Sequence[str]) -> list[Kind]:
    """Find kinds by the names that people use for them; no name means all."""
    found = []
    for name in names:
        matching = [kind for kind in KINDS if kind.is_called(name)]
        if not matching:
            known = ", ".join(kind.name for kind in KINDS)
            raise BadInput(f"kind {name!r}: expected one of {known}")
        found += [kind for kind in matching if kind not in found]
    return found or list(KINDS)

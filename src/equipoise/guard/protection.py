"""Is this workload one that is left alone unless somebody asked?"""

from equipoise.model.reason import Code, Reason


def held_by_kind(kind: str, *, includes_stateful_sets: bool) -> Reason | None:
    """Hold StatefulSets: the same identity comes back with the same share of the load."""
    if kind != "StatefulSet" or includes_stateful_sets:
        return None
    sentence = "A StatefulSet is rotated only where includeStatefulSets says so."
    return Reason(Code.OPTED_OUT, sentence)

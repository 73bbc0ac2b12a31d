"""Label selectors."""

import pytest

from equipoise.core.cluster import Requirement, Selector

_LABELS = {"app": "web", "tier": "front"}


@pytest.mark.parametrize(
    ("requirement", "is_selected"),
    [
        (Requirement("app", "In", ("web", "api")), True),
        (Requirement("app", "In", ("api",)), False),
        (Requirement("none", "In", ("web",)), False),
        (Requirement("app", "NotIn", ("api",)), True),
        (Requirement("app", "NotIn", ("web",)), False),
        (Requirement("none", "NotIn", ("web",)), True),
        (Requirement("app", "Exists"), True),
        (Requirement("none", "Exists"), False),
        (Requirement("app", "DoesNotExist"), False),
        (Requirement("none", "DoesNotExist"), True),
        (Requirement("app", "Gt", ("1",)), False),
    ],
)
def test_a_term_selects_as_kubernetes_does(requirement: Requirement, is_selected: bool) -> None:
    """Each operator, with and without the label; an unknown operator selects nothing."""
    assert Selector((requirement,)).matches(_LABELS) is is_selected


def test_all_terms_must_hold() -> None:
    """Terms are joined by and."""
    both = Selector((Requirement("app", "Exists"), Requirement("tier", "In", ("back",))))
    assert not both.matches(_LABELS)
    assert Selector().matches(_LABELS)

"""Label selectors: read, written, and true to Kubernetes' meaning."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.adapters.kubernetes.selectors import format_selector, parse_selector, selector_of
from equipoise.adapters.kubernetes.structs import Expression, RawLabelSelector
from equipoise.core.cluster import Requirement, Selector

KEYS = st.sampled_from(["app", "tier", "example.com/role", "in", "notin", "x-y_z.1"])
VALUES = st.sampled_from(["", "web", "api", "a.b-c_d", "in"])
TERMS = st.one_of(
    st.builds(lambda k, v: Requirement(k, "In", tuple(v)), KEYS, st.lists(VALUES, min_size=1, max_size=3)),
    st.builds(lambda k, v: Requirement(k, "NotIn", tuple(v)), KEYS, st.lists(VALUES, min_size=1, max_size=3)),
    st.builds(lambda k: Requirement(k, "Exists"), KEYS),
    st.builds(lambda k: Requirement(k, "DoesNotExist"), KEYS),
)
SELECTORS = st.builds(lambda terms: Selector(tuple(terms)), st.lists(TERMS, max_size=5))
LABELS = st.dictionaries(KEYS, VALUES, max_size=4)


@given(SELECTORS)
def test_what_is_written_is_read_back(selector: Selector) -> None:
    """The text form loses nothing."""
    assert parse_selector(format_selector(selector)) == selector


def naive(text: str, labels: dict[str, str]) -> bool:
    """Kubernetes' rules again, for texts as `format_selector` writes them, without any structure."""
    for term in [] if not text else text.replace("),", ")\0").split("\0"):
        for part in [term] if term.endswith(")") and "," not in term.partition("(")[0] else _loose(term):
            if part.startswith("!"):
                holds = part[1:] not in labels
            elif " in (" in part:
                key, _, values = part.partition(" in (")
                holds = key in labels and labels[key] in values[:-1].split(",")
            elif " notin (" in part:
                key, _, values = part.partition(" notin (")
                holds = key not in labels or labels[key] not in values[:-1].split(",")
            else:
                holds = part in labels
            if not holds:
                return False
    return True


def _loose(term: str) -> list[str]:
    """Split at commas outside brackets; only the last part can have any."""
    head, bracket, tail = term.partition("(")
    *parts, last = head.split(",")
    return [*parts, last + bracket + tail]


@given(SELECTORS, LABELS)
def test_a_selector_means_what_kubernetes_means(selector: Selector, labels: dict[str, str]) -> None:
    """Structured and naive evaluation agree."""
    text = format_selector(selector)
    assert parse_selector(text).matches(labels) == naive(text, labels)


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("", ()),
        ("a=b", (("a", "In", ("b",)),)),
        ("a==b", (("a", "In", ("b",)),)),
        (" a = b , c != d ", (("a", "In", ("b",)), ("c", "NotIn", ("d",)))),
        ("a in (x, y),!f,g", (("a", "In", ("x", "y")), ("f", "DoesNotExist", ()), ("g", "Exists", ()))),
        ("a notin(x)", (("a", "NotIn", ("x",)),)),
        ("a=", (("a", "In", ("",)),)),
        ("a=,b", (("a", "In", ("",)), ("b", "Exists", ()))),
        ("a in (,b)", (("a", "In", ("", "b")),)),
    ],
)
def test_all_forms_are_read(text: str, terms: tuple[tuple[str, str, tuple[str, ...]], ...]) -> None:
    """The forms that a `scale` may carry."""
    assert parse_selector(text) == Selector(tuple(Requirement(*term) for term in terms))


@pytest.mark.parametrize(
    "text", ["a=b,", ",", "a in", "a in (b", "a in b", "=b", "a b", "a>1", "!", "a in (b c)", "(a)", "a!b"]
)
def test_what_is_no_selector_is_refused(text: str) -> None:
    """Rather than read as something else."""
    with pytest.raises(ValueError, match="expected"):
        parse_selector(text)


def test_fields_become_terms() -> None:
    """`matchLabels` and `matchExpressions` together; an operator that nobody knows is refused."""
    fields = RawLabelSelector(
        {"b": "2", "a": "1"}, [Expression("c", "NotIn", ["x"]), Expression("d", "Exists")]
    )
    assert format_selector(selector_of(fields)) == "a in (1),b in (2),c notin (x),d"
    with pytest.raises(ValueError, match="Gt"):
        selector_of(RawLabelSelector(None, [Expression("a", "Gt", ["1"])]))

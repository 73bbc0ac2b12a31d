"""Lots hold whole namespaces or whole groups of pods, and nothing is asked for twice."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from equipoise.adapters.prometheus.promql import EXACT_NAMES_MAX, EXACT_NAMES_MAX_BYTES, Matcher
from equipoise.adapters.prometheus.settings import CADVISOR
from equipoise.adapters.prometheus.strategies import QueryBatch, packed, parts

COUNTS = st.dictionaries(st.text("abc-", min_size=1, max_size=6), st.integers(0, 9), max_size=30)


@given(COUNTS, st.integers(1, 20))
def test_namespaces_are_packed_in_order_and_as_full_as_they_may_be(counts: dict[str, int], most: int) -> None:
    """One that is too large alone is a lot of its own."""
    batches = packed(counts, most)
    assert [name for batch in batches for name in batch.namespaces or ()] == list(counts)
    for batch in batches:
        assert batch.series == sum(counts[name] for name in batch.namespaces or ())
        assert batch.series <= most or len([n for n in batch.namespaces or () if counts[n]]) == 1
    for one, other in pairwise(batches):
        assert (one.series or 0) + counts[(other.namespaces or ("",))[0]] > most


PODS = st.dictionaries(st.text("xyz", min_size=1, max_size=6), st.integers(1, 9))


@given(PODS, st.data(), st.integers(1, 20))
def test_parts_hold_each_needed_pod_once_and_no_group_is_torn(
    counts: dict[str, int], data: st.DataObject, most: int
) -> None:
    """A part is beyond the limit only where one group is."""
    size = len(counts)
    groups = data.draw(st.lists(st.sampled_from("ABCD") | st.none(), min_size=size, max_size=size))
    found = parts("big", counts, groups, most)
    owner = dict(zip(counts, groups, strict=True))
    assert sorted(pod for batch in found for pod in batch.pods) == sorted(pod for pod in counts if owner[pod])
    for batch in found:
        assert batch.namespaces == ("big",)
        assert batch.groups == frozenset(owner[pod] for pod in batch.pods)
        assert batch.series == sum(counts[pod] for pod in batch.pods)
        assert batch.series <= most or len(batch.groups or ()) == 1
    every = [group for batch in found for group in batch.groups or ()]
    assert len(every) == len(set(every))


def test_many_pods_are_asked_for_in_runs_that_a_server_looks_up_by_name() -> None:
    """All of them, each once; a lot of whole namespaces is one request."""
    pods = tuple(f"web-{i:05d}" for i in range(1000))
    asked = QueryBatch(("big",), pods, frozenset({"web"}), 1000).matchers(CADVISOR)
    assert [one[0] for one in asked] == [Matcher("namespace", "=", "big")] * len(asked)
    names = [one[1].value.split("|") for one in asked]
    assert [name for run in names for name in run] == list(pods)
    assert max(map(len, names)) == EXACT_NAMES_MAX
    long = QueryBatch(("big",), tuple(f"{i:0250d}" for i in range(100)), frozenset({"web"}), 100)
    assert all(len(one[1].value) <= EXACT_NAMES_MAX_BYTES + 256 for one in long.matchers(CADVISOR))
    assert QueryBatch(None).matchers(CADVISOR) == [()]
    assert QueryBatch(("a", "b")).matchers(CADVISOR) == [(Matcher("namespace", "=~", "a|b"),)]


def test_halves_are_cut_between_namespaces() -> None:
    """All there are are known by their names; one alone has none."""
    assert QueryBatch(None).halves(("a", "b", "c")) == (QueryBatch(("a",)), QueryBatch(("b", "c")))
    assert QueryBatch(("a", "b")).halves(()) == (QueryBatch(("a",)), QueryBatch(("b",)))
    assert QueryBatch(("a",)).halves(("a", "b")) == ()

"""Queries select exactly what they must, and shards cover all pods once and within the limits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.adapters.prometheus.promql import (
    FILL,
    CpuQueries,
    Matcher,
    Reach,
    Shard,
    cut,
    escape_regex,
    has_quoted_names,
    one_of,
    plan,
    prefix_regex,
    quote,
)
from equipoise.adapters.prometheus.settings import CADVISOR, LabelNames
from equipoise.core.errors import BadInput

NASTY = st.text(alphabet=st.sampled_from('ab"\\\n\t.+*?()|[]{}^$-,=~ \x00\x7fé'), max_size=12)


@settings(deadline=None)
@given(NASTY)
def test_a_quoted_text_reads_back_as_itself(text: str) -> None:
    """Nothing in a value can end its string: no injection."""
    written = quote(text)
    assert re.fullmatch(r'"(?:[^"\\\n]|\\.)*"', written)
    assert json.loads(re.sub(r"\\x(..)", r"\\u00\1", written)) == text


@settings(deadline=None)
@given(NASTY, NASTY)
def test_an_escaped_text_matches_itself_only(text: str, other: str) -> None:
    """Metacharacters stand for themselves."""
    pattern = re.compile(escape_regex(text))
    assert pattern.fullmatch(text)
    assert bool(pattern.fullmatch(other)) == (text == other)


@settings(deadline=None)
@given(st.lists(NASTY, min_size=1, max_size=5), NASTY)
def test_one_of_matches_its_values_and_no_other(values: list[str], other: str) -> None:
    """Whether written as `=` or as `=~`."""
    matcher = one_of("pod", values)

    def holds(text: str) -> bool:
        if matcher.operator == "=":
            return text == matcher.value
        return re.fullmatch(matcher.value, text) is not None

    assert all(map(holds, values))
    assert holds(other) == (other in values)


def test_the_cpu_query_counts_each_container_once() -> None:
    """max, not sum; no pause containers; the installation's matchers in every selector."""
    queries = CpuQueries(extra={"cluster": 'eu-"1"', "az": "b"})
    inside = 'container!="",container!="POD",namespace="shop",az="b",cluster="eu-\\"1\\""'
    matchers = (Matcher("namespace", "=", "shop"),)
    assert queries.usage(matchers, 300) == (
        f"max by (namespace, pod, container) (rate(container_cpu_usage_seconds_total{{{inside}}}[5m]))"
    )
    assert queries.sampled_at(matchers) == (
        f"max by (namespace, pod, container) (timestamp(container_cpu_usage_seconds_total{{{inside}}}))"
    )
    select = f"container_cpu_usage_seconds_total{{{inside}}}"
    first = f"min_over_time((timestamp({select}) >= 700.000)[2m30s:12s500ms] offset 2m30s)"
    assert queries.coverage(matchers, 1000.0, 300) == (
        "max by (namespace, pod, container) "
        f"(round((timestamp({select}) - {first}) * 1000) + count_over_time({select}[5m]) / 1048576)"
    )
    assert 'cluster="eu-\\"1\\""' in queries.series_by_namespace()


def test_names_of_metric_and_labels_are_settings() -> None:
    """Some pipelines rename them."""
    queries = CpuQueries(LabelNames("cpu_seconds", "ns", "pod_name", "container_name"))
    assert queries.usage((), 90) == (
        "max by (ns, pod_name, container_name) "
        '(rate(cpu_seconds{container_name!="",container_name!="POD"}[1m30s]))'
    )


def test_label_names_that_only_prometheus_3_reads_are_quoted() -> None:
    """In matchers and in groupings; plain names stay as every version reads them."""
    queries = CpuQueries(LabelNames(pod="k8s.pod.name"), {"käse": "ja"})
    asked = queries.usage((Matcher("k8s.pod.name", "=", "web-1"),), 90)
    assert asked == (
        'max by (namespace, "k8s.pod.name", container) (rate(container_cpu_usage_seconds_total'
        '{container!="",container!="POD","k8s.pod.name"="web-1","käse"="ja"}[1m30s]))'
    )
    assert has_quoted_names(asked)
    assert not has_quoted_names(CpuQueries(extra={"cluster": 'a",="b'}).usage((), 90))


def test_what_promql_could_not_read_is_bad_input() -> None:
    """A label with a blank, a window of nothing."""
    with pytest.raises(BadInput, match="expected a label name"):
        CpuQueries(extra={"a b": "c"})
    with pytest.raises(BadInput, match="window"):
        CpuQueries().usage((), 0)


POD_NAMES = st.lists(
    st.text(alphabet="abc-.", min_size=1, max_size=6), min_size=2, max_size=60, unique=True
).map(sorted)


@settings(deadline=None)
@given(
    POD_NAMES, st.integers(1, 20), st.lists(st.text(alphabet="abc-.", min_size=1, max_size=6), max_size=20)
)
def test_runs_of_names_match_their_own_and_never_each_others(
    pods: list[str], pods_max: int, foreign: list[str]
) -> None:
    """Each name belongs to exactly one run, and a stranger to one at most."""
    shards = cut("ns", tuple(pods), pods_max)
    patterns = []
    for shard in shards:
        ((_, names),) = shard.asked
        patterns.append(re.compile(prefix_regex(names, shard.before, shard.after)))
        assert all(patterns[-1].fullmatch(name) for name in names)
    for name in {*pods, *foreign}:
        matched = sum(bool(pattern.fullmatch(name)) for pattern in patterns)
        assert matched == 1 if name in pods else matched <= 1


def covered(shards: Iterable[Shard]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for shard in shards:
        for namespace, pods in shard.asked:
            found.setdefault(namespace, []).extend(pods)
    return {namespace: sorted(pods) for namespace, pods in found.items()}


SIZES = st.dictionaries(
    st.text(alphabet="abcdef", min_size=1, max_size=5), st.integers(0, 60), min_size=1, max_size=30
)


@settings(deadline=None)
@given(SIZES, st.booleans(), st.integers(5, 200), st.integers(10, 200))
def test_every_pod_is_in_one_shard_and_no_shard_is_too_large(
    sizes: dict[str, int], is_counted: bool, series_max: int, query_max_bytes: int
) -> None:
    """By the counts where there are any, else by the assumed containers."""
    asked = {ns: [f"web-{i:03}" for i in range(size)] for ns, size in sizes.items()}
    counts = {ns: 2 * size for ns, size in sizes.items()} if is_counted else None
    per_pod = 2 if is_counted else 3
    shards = plan(asked, counts, series_max=series_max, query_max_bytes=query_max_bytes, containers_per_pod=3)
    assert covered(shards) == {ns: sorted(pods) for ns, pods in asked.items() if pods}
    for shard in shards:
        series = sum(per_pod * len(pods) for _, pods in shard.asked)
        assert series <= series_max or sum(len(pods) for _, pods in shard.asked) == 1
        if shard.reach is Reach.NAMESPACES and len(shard.asked) > 1:
            assert sum(len(ns) + 3 for ns, _ in shard.asked) <= query_max_bytes


def big(namespaces: int, pods: int) -> dict[str, list[str]]:
    return {f"ns-{i:04}": [f"web-{i}-{j:05}" for j in range(pods)] for i in range(namespaces)}


def test_few_pods_are_asked_for_by_name_in_one_query() -> None:
    """No count is needed, and no stranger comes back."""
    (shard,) = plan(big(3, 5), None, series_max=20_000, query_max_bytes=9_000, containers_per_pod=3)
    assert shard.reach is Reach.PODS
    assert [m.label for m in shard.matchers(CADVISOR)] == ["namespace", "pod"]


def test_a_cluster_below_the_limit_is_one_query_without_names() -> None:
    """5,000 namespaces in a regular expression would cost more than the strangers do."""
    asked = big(5_000, 1)
    counts = dict.fromkeys(asked, 2) | {"kube-system": 500}
    (shard,) = plan(asked, counts, series_max=20_000, query_max_bytes=9_000, containers_per_pod=3)
    assert shard.reach is Reach.EVERYTHING
    assert shard.matchers(CADVISOR) == ()


def test_namespaces_are_named_where_most_of_the_cluster_is_foreign() -> None:
    """Otherwise most of the answer would be thrown away."""
    asked = big(2, 300)
    counts = dict.fromkeys(asked, 300) | {"other": 10_000}
    (shard,) = plan(asked, counts, series_max=20_000, query_max_bytes=9_000, containers_per_pod=3)
    assert shard.reach is Reach.NAMESPACES


def test_a_hundred_thousand_pods_in_one_namespace_are_a_dozen_short_queries() -> None:
    """Cut by the beginnings of names: never one query per workload, never a list of all names."""
    asked = {"jobs": [f"run-{i:05x}-{i * 7919 % 99991:05x}" for i in range(100_000)]}
    shards = plan(asked, {"jobs": 200_000}, series_max=20_000, query_max_bytes=48_000, containers_per_pod=3)
    assert len(shards) == 200_000 / (20_000 * FILL) + 0.5
    for shard in shards:
        assert len(CpuQueries().usage(shard.matchers(CADVISOR), 300)) < 3_000


def test_a_shard_can_be_cut_until_it_is_one_pod() -> None:
    """So a count that was wrong is never fatal before that."""
    waiting = [Shard((("a", ("x", "y", "z")), ("b", ("x",))), Reach.EVERYTHING)]
    last = []
    while waiting:
        shard = waiting.pop()
        smaller = shard.smaller()
        waiting += smaller
        if not smaller:
            last.append(shard)
    assert sorted(shard.asked for shard in last) == [
        (("a", ("x",)),),
        (("a", ("y",)),),
        (("a", ("z",)),),
        (("b", ("x",)),),
    ]
    assert all(shard.reach is Reach.PODS for shard in last)

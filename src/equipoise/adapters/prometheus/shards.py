"""How one question about many pods becomes few queries, none of which is too large.

A shard is a set of pods that one query asks for. Planning packs whole namespaces; a namespace beyond
the limit is cut into runs of its sorted pod names. A shard that turns out too large is cut further.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from operator import itemgetter

from equipoise.adapters.prometheus.promql import Matcher, escape_regex, one_of
from equipoise.adapters.prometheus.settings import Names

EXACT_NAMES_MAX = 256
"""Up to so many alternatives Prometheus looks names up in its index instead of matching each."""
EXACT_NAMES_MAX_BYTES = 12 * 1024
FILL = 0.8
"""How full shards are planned: a rate also sees the pods that ended within its window."""
NAMED_SHARE_MAX = 0.25
"""Up to this share of all that is asked for is named pod by pod, however many queries that takes."""
NAMED_MAX = 128
"""So many names are short enough to be looked up exactly."""
OPEN_SHARE_MIN = 0.5
"""Ask without naming namespaces when at least this share of the answer is wanted."""

Asked = tuple[tuple[str, tuple[str, ...]], ...]


class Reach(Enum):
    """How closely a query names what it wants."""

    EVERYTHING = "everything"
    NAMESPACES = "namespaces"
    PODS = "pods"


@dataclass(frozen=True, slots=True)
class Shard:
    """Pods that one query asks for: namespaces with their sorted pod names."""

    asked: Asked
    reach: Reach
    before: str = ""
    """The pod name before the first in the same namespace that another shard asks for."""
    after: str = ""

    def matchers(self, names: Names) -> tuple[Matcher, ...]:
        """Return the matchers that select this shard."""
        if self.reach is Reach.EVERYTHING:
            return ()
        in_namespaces = one_of(names.namespace, (namespace for namespace, _ in self.asked))
        if self.reach is Reach.NAMESPACES:
            return (in_namespaces,)
        pods = sorted({pod for _, pods in self.asked for pod in pods})
        if len(pods) <= EXACT_NAMES_MAX and sum(map(len, pods)) <= EXACT_NAMES_MAX_BYTES:
            return (in_namespaces, one_of(names.pod, pods))
        return (in_namespaces, Matcher(names.pod, "=~", prefix_regex(pods, self.before, self.after)))

    def smaller(self) -> tuple[Shard, ...]:
        """Cut this shard into smaller ones; nothing when it asks for one pod by name."""
        if len(self.asked) > 1:
            reach = Reach.PODS if self.reach is Reach.PODS else Reach.NAMESPACES
            middle = len(self.asked) // 2
            return tuple(Shard(part, reach) for part in (self.asked[:middle], self.asked[middle:]))
        namespace, pods = self.asked[0]
        if len(pods) > 1:
            return cut(namespace, pods, -(-len(pods) // 2), self.before, self.after)
        return () if self.reach is Reach.PODS else (Shard(self.asked, Reach.PODS),)


def cut(
    namespace: str, pods: tuple[str, ...], pods_max: int, before: str = "", after: str = ""
) -> tuple[Shard, ...]:
    """Cut one namespace into runs of its sorted pod names."""
    shards = []
    for first in range(0, len(pods), pods_max):
        end = first + pods_max
        shards.append(
            Shard(
                ((namespace, pods[first:end]),),
                Reach.PODS,
                before=pods[first - 1] if first else before,
                after=pods[end] if end < len(pods) else after,
            )
        )
    return tuple(shards)


def named(pods_by_namespace: Mapping[str, Iterable[str]], total: int) -> list[Shard] | None:
    """Name a few pods of many, each by its name; None where they are not few."""
    pods = [(namespace, pod) for namespace, pods in sorted(pods_by_namespace.items()) for pod in sorted(pods)]
    if len(pods) > max(NAMED_MAX, NAMED_SHARE_MAX * total):
        return None
    parts = [pods[first : first + NAMED_MAX] for first in range(0, len(pods), NAMED_MAX)]
    return [
        Shard(
            tuple((ns, tuple(pod for _, pod in run)) for ns, run in groupby(part, itemgetter(0))), Reach.PODS
        )
        for part in parts
    ]


def prefix_regex(pods: Sequence[str], before: str, after: str) -> str:
    """Match a run of sorted names by the shortest beginnings that its two neighbours do not have.

    Names are sorted, so whatever shares a beginning with a name inside and lies outside would lie
    beyond a neighbour that shares it too. Hence no name belongs to two runs.
    """
    prefixes, whole = set(), set()
    for pod in pods:
        length = max(_shared(pod, before), _shared(pod, after)) + 1
        if length <= len(pod):
            prefixes.add(pod[:length])
        else:
            whole.add(pod)
    shortest = [p for p in prefixes if not any(p[:n] in prefixes for n in range(1, len(p)))]
    beginnings = "|".join(map(escape_regex, sorted(shortest)))
    terms = [f"(?:{beginnings}).*"] if beginnings else []
    return "|".join([*terms, *map(escape_regex, sorted(whole))])


def _shared(one: str, other: str) -> int:
    length = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        length += 1
    return length


def plan(
    pods_by_namespace: Mapping[str, Iterable[str]],
    series_by_namespace: Mapping[str, int] | None,
    *,
    series_max: int,
    query_max_bytes: int,
    containers_per_pod: int,
) -> list[Shard]:
    """Pack all pods into as few shards as the limits allow.

    Without counts a pod is taken to have `containers_per_pod` series.
    """
    asked = {ns: tuple(sorted(set(pods))) for ns, pods in sorted(pods_by_namespace.items())}
    asked = {ns: pods for ns, pods in asked.items() if pods}
    if not asked:
        return []
    if sum(map(len, asked.values())) <= min(EXACT_NAMES_MAX, series_max // containers_per_pod):
        return [Shard(tuple(asked.items()), Reach.PODS)]
    sizes = _sizes(asked, series_by_namespace, containers_per_pod)
    series_max = max(1, int(series_max * FILL))
    if series_by_namespace is not None:
        total = sum(series_by_namespace.values())
        if total <= series_max and sum(sizes.values()) >= OPEN_SHARE_MIN * total:
            return [Shard(tuple(asked.items()), Reach.EVERYTHING)]
    return _pack(asked, sizes, series_max, query_max_bytes)


def _sizes(
    asked: Mapping[str, Sequence[str]], counts: Mapping[str, int] | None, containers_per_pod: int
) -> dict[str, int]:
    if counts is None:
        return {ns: len(pods) * containers_per_pod for ns, pods in asked.items()}
    return {ns: counts.get(ns, 0) for ns in asked}


def _pack(
    asked: Mapping[str, tuple[str, ...]], sizes: Mapping[str, int], series_max: int, query_max_bytes: int
) -> list[Shard]:
    """Fill shards with the largest namespaces first, each where it first fits."""
    shards: list[Shard] = []
    bins: list[_Bin] = []
    for namespace in sorted(asked, key=lambda ns: (-sizes[ns], ns)):
        size, length = sizes[namespace], len(namespace) + 3  # an encoded `|`
        if size > series_max:
            pods = asked[namespace]
            shards += cut(namespace, pods, max(1, len(pods) * series_max // size))
            continue
        fitting = (b for b in bins if b.series + size <= series_max and b.written + length <= query_max_bytes)
        chosen = next(fitting, None)
        if chosen is None:
            chosen = _Bin()
            bins.append(chosen)
        chosen.namespaces.append(namespace)
        chosen.series += size
        chosen.written += length
    return shards + [
        Shard(tuple((ns, asked[ns]) for ns in sorted(one.namespaces)), Reach.NAMESPACES) for one in bins
    ]


@dataclass(slots=True)
class _Bin:
    """Namespaces of a shard while it is filled."""

    namespaces: list[str] = field(default_factory=list)
    series: int = 0
    written: int = 0

"""Queries as text, and how one question about many pods becomes few queries, none of which is too large.

Every selector that we build carries the matchers of the installation. A query that the user wrote is taken as
it is: to put matchers into it would take a parser of PromQL.

A shard is a set of pods that one query asks for. Planning packs whole namespaces; a namespace beyond
the limit is cut into runs of its sorted pod names. A shard that turns out too large is cut further.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from operator import itemgetter
from os.path import commonprefix
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus.settings import CADVISOR, LabelNames, check_label, is_plain_label
from equipoise.core.errors import BadInput
from equipoise.core.quantity import print_seconds

STEPS_PER_WINDOW = 24
"""How closely the first sample is looked for: where scrapes are not rarer, it is found up to a step late.

Each step costs the server about as much as asking for the present value.
"""
COUNTS_PER_MILLISECOND = 2**20
"""Milliseconds before the point, samples behind it: both of one series, exact in a float."""
SAMPLES_PER_SERIES = 2**20
"""More than a window holds of one series: what is added for each series tells how many there are."""

_META = str.maketrans({letter: f"\\{letter}" for letter in "\\.+*?()|[]{}^$"})
_CONTROLS = {chr(code): f"\\x{code:02x}" for code in (*range(0x20), 0x7F)}
_ESCAPES = str.maketrans({**_CONTROLS, "\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"})


def quote(text: str) -> str:
    """Write a PromQL string, which follows Go's rules."""
    return f'"{text.translate(_ESCAPES)}"'


def label_name(name: str) -> str:
    """Write a label's name, in quotes where only Prometheus 3 reads it."""
    return name if is_plain_label(name) else quote(name)


def has_quoted_names(query: str) -> bool:
    """Return whether a query has the name of a label in quotes: there, it is compared with a value."""
    return any(match[1] for match in _QUOTED.finditer(query))


_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"\s*(=~|!~|!=|=)?')
"""Text in quotes, and the operator behind it."""


def escape_regex(text: str) -> str:
    """Make a text stand for itself in a regular expression (RE2)."""
    return text.translate(_META)


class Matcher(NamedTuple):
    """One term between the braces of a selector."""

    label: str
    operator: str
    value: str

    def __str__(self) -> str:
        return f"{label_name(self.label)}{self.operator}{quote(self.value)}"


def one_of(label: str, values: Iterable[str]) -> Matcher:
    """Match any of these values, exactly."""
    unique = sorted(set(values))
    if len(unique) == 1:
        return Matcher(label, "=", unique[0])
    return Matcher(label, "=~", "|".join(map(escape_regex, unique)))


def of_containers(names: LabelNames) -> tuple[Matcher, ...]:
    """Match containers, but neither a pod as a whole nor its sandbox."""
    return (Matcher(names.container, "!=", ""), Matcher(names.container, "!=", "POD"))


def of_installation(extra: Mapping[str, str]) -> tuple[Matcher, ...]:
    """Match what the user added to every query, such as `cluster="eu-1"`."""
    return tuple(Matcher(label, "=", value) for label, value in sorted(extra.items()))


def selector(metric: str, matchers: Iterable[Matcher]) -> str:
    """Select a metric's series that all matchers match."""
    inner = ",".join(map(str, matchers))
    return f"{metric}{{{inner}}}" if inner else metric


class Tally(NamedTuple):
    """How many samples a window holds, and of how many series they are."""

    counts: NDArray[np.float64]
    series: NDArray[np.float64]

    @classmethod
    def unpack(cls, values: NDArray[np.float64]) -> Tally:
        """Take apart what `CpuQueries.tally` asked for; NaN stays NaN."""
        series = np.floor(values / SAMPLES_PER_SERIES)
        return cls(values - series * SAMPLES_PER_SERIES, series)


class Extent(NamedTuple):
    """How long samples reach back, and how many they are."""

    spans: NDArray[np.float64]
    """Seconds from the first to the last one."""
    counts: NDArray[np.float64]

    @classmethod
    def unpack(cls, values: NDArray[np.float64]) -> Extent:
        """Take apart what `CpuQueries.coverage` asked for; NaN stays NaN."""
        milliseconds = np.floor(values)
        return cls(milliseconds / 1000, np.rint((values - milliseconds) * COUNTS_PER_MILLISECOND))


@dataclass(frozen=True, slots=True)
class CpuQueries:
    """The queries about the CPU usage of containers."""

    names: LabelNames = CADVISOR
    extra: Mapping[str, str] = field(default_factory=dict)
    """Matchers of the installation, such as `cluster="eu-1"`."""

    def __post_init__(self) -> None:
        for label in self.extra:
            check_label(label)

    def usage(self, matchers: Iterable[Matcher], window_seconds: float) -> str:
        """Ask for the cores used by each container.

        max, not sum: a container scraped by two jobs or by a pair of Prometheus counts once.
        """
        if not 0.001 <= window_seconds < float("inf"):  # noqa: PLR2004
            raise BadInput(f"window: expected at least 0.001 seconds, got {window_seconds}")
        return self._by_container(f"rate({self._select(matchers)}[{print_seconds(window_seconds)}])")

    def sampled_at(self, matchers: Iterable[Matcher]) -> str:
        """Ask when each container was last scraped.

        `timestamp` of a bare selector is the sample's own time, not the query's; a series that ended
        (marked stale) or is older than the server's lookback gives nothing, while its rate lives on
        for a window. So a container without this time is gone, and is not counted.
        """
        return self._by_container(f"timestamp({self._select(matchers)})")

    def samples(self, matchers: Iterable[Matcher], window_seconds: float) -> str:
        """Ask for all samples that the window holds."""
        return f"{self._select(matchers)}[{print_seconds(window_seconds)}]"

    def tally(self, matchers: Iterable[Matcher], window_seconds: float) -> str:
        """Ask how many samples of each container the window holds, and of how many series; `Tally` reads it.

        Where it is one series, all that is asked about the container is about that one.
        """
        number = f"count_over_time({self._select(matchers)}[{print_seconds(window_seconds)}])"
        return self._by_container(f"{number} + {SAMPLES_PER_SERIES}", "sum")

    def begun(self, matchers: Iterable[Matcher], at: float, window_seconds: float, within: float) -> str:
        """Ask when each container was scraped in the first seconds of the window: the last such time."""
        then = (
            f"timestamp({self._select(matchers)} offset {print_seconds(max(window_seconds - within, 0.0))})"
        )
        return self._by_container(f"{then} >= {at - window_seconds:.3f}")

    def coverage(self, matchers: Iterable[Matcher], at: float, window_seconds: float) -> str:
        """Ask how long the samples of each container reach back, and how many they are; `Extent` reads it.

        Not every server has a function for a series' first sample, so the first half of the window is looked
        at in steps: healthy samples begin there, however rare they are. Of several series the one that goes
        back furthest counts, with its own number; one that ended is not asked.

        To match series with series costs the server much more than the rate does, so `tally` and `begun` tell
        first who needs it.
        """
        select = self._select(matchers)
        half = print_seconds(max(window_seconds / 2, 0.001))
        step = print_seconds(max(window_seconds / STEPS_PER_WINDOW, 0.001))
        inside = f"(timestamp({select}) >= {at - window_seconds:.3f})"
        first = f"min_over_time({inside}[{half}:{step}] offset {half})"
        number = f"count_over_time({select}[{print_seconds(window_seconds)}])"
        return self._by_container(
            f"round((timestamp({select}) - {first}) * 1000) + {number} / {COUNTS_PER_MILLISECOND}"
        )

    def series_by_namespace(self) -> str:
        return f"count by ({label_name(self.names.namespace)}) ({self._select(())})"

    def _by_container(self, expression: str, of_several: str = "max") -> str:
        return f"{of_several} by ({', '.join(map(label_name, self.names.labels))}) ({expression})"

    def _select(self, matchers: Iterable[Matcher]) -> str:
        terms = (*of_containers(self.names), *matchers, *of_installation(self.extra))
        return selector(self.names.metric, terms)


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

    def __post_init__(self) -> None:
        assert self.asked, "an empty shard would ask for everything"

    def matchers(self, names: LabelNames) -> tuple[Matcher, ...]:
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
    assert pods_max >= 1, "a run has a pod"
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
        # By letters, as is meant here.
        length = max(len(commonprefix([pod, other])) for other in (before, after)) + 1  # noqa: RUF071
        if length <= len(pod):
            prefixes.add(pod[:length])
        else:
            whole.add(pod)
    shortest = [p for p in prefixes if not any(p[:n] in prefixes for n in range(1, len(p)))]
    beginnings = "|".join(map(escape_regex, sorted(shortest)))
    terms = [f"(?:{beginnings}).*"] if beginnings else []
    return "|".join([*terms, *map(escape_regex, sorted(whole))])


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
    series_max = max(1, int(series_max * FILL))
    if series_by_namespace is None:
        sizes = {ns: len(pods) * containers_per_pod for ns, pods in asked.items()}
    else:
        sizes = {ns: series_by_namespace.get(ns, 0) for ns in asked}
        total = sum(series_by_namespace.values())
        if total <= series_max and sum(sizes.values()) >= OPEN_SHARE_MIN * total:
            return [Shard(tuple(asked.items()), Reach.EVERYTHING)]
    shards = _pack(asked, sizes, series_max, query_max_bytes)
    planned = sum(len(pods) for shard in shards for _, pods in shard.asked)
    assert planned == sum(map(len, asked.values())), "each pod is asked for once"
    return shards


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

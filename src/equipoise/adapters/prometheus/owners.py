"""Who made the ReplicaSets, as kube-state-metrics tells it: for pods that are gone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from equipoise.adapters.prometheus.client import Client
from equipoise.adapters.prometheus.errors import SPLITTABLE, Incomplete
from equipoise.adapters.prometheus.promql import Matcher, one_of, selector
from equipoise.adapters.prometheus.settings import check_label, no_text

METRIC = "kube_replicaset_owner"
LABELS = ("namespace", "exported_namespace", "replicaset", "owner_kind", "owner_name")
"""A scrape that honours no labels moves the object's namespace aside."""


@dataclass(frozen=True, slots=True)
class PrometheusOwners:
    """Owners from a Prometheus that scrapes kube-state-metrics; nothing where none does.

    The plain instant selector: a ReplicaSet outlives its pods by ten revisions, and looking back over days
    costs the server fifteen times as much.
    """

    client: Client
    extra_matchers: Mapping[str, str] = field(default_factory=no_text)

    def __post_init__(self) -> None:
        for label in self.extra_matchers:
            check_label(label)

    def replica_sets(self, namespaces: Sequence[str], at: float) -> Mapping[tuple[str, str], tuple[str, str]]:
        """Give the kind and name of the owner by namespace and ReplicaSet."""
        names = sorted(set(namespaces))
        found: dict[tuple[str, str], tuple[str, str]] = {}
        if names:
            for label in ("namespace", "exported_namespace"):
                self._ask(label, names, at, found)
        return found

    def _ask(
        self, label: str, names: Sequence[str], at: float, found: dict[tuple[str, str], tuple[str, str]]
    ) -> None:
        extra = (Matcher(name, "=", value) for name, value in sorted(self.extra_matchers.items()))
        query = selector(METRIC, (one_of(label, names), *extra))
        try:
            vector = self.client.vector(query, at, LABELS)
        except SPLITTABLE:
            middle = len(names) // 2
            if not middle:
                raise
            self._ask(label, names[:middle], at, found)
            self._ask(label, names[middle:], at, found)
            return
        if vector.partial:
            raise Incomplete(f"{self.client.address} answered in part: {vector.partial[0]}")
        for namespace, exported, replica_set, kind, name in zip(*vector.columns, strict=True):
            found[exported or namespace, replica_set] = (kind, name)

"""Which workloads `recommendation plan` lists, in which order, and what their resources cost.

A price is the user's, or what OpenCost wrote to the Prometheus that has the usage.
"""

import math
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from equipoise.cli.options import option
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.runtime.output import warn

if TYPE_CHECKING:
    from equipoise.adapters.prometheus.metrics import PrometheusMetrics
    from equipoise.cli.session import ClusterRequest
    from equipoise.core.decision import Decision

AdviceFormat = Literal["table", "wide", "name", "json", "yaml", "csv", "html", "hpa", "ehpa"]
AdviceOrder = Literal["worth", "severity", "cpu", "memory", "replicas", "name"]
HOURS_PER_MONTH = 730
PRICE_MAX = 1e6
PRICE_FORM = "cpu=NUMBER,memory=NUMBER, per core-hour and per GiB-hour, such as cpu=0.0316,memory=0.0042"
CURRENCY_LENGTH_MAX = 8
GIB = 1024.0**3


class Price(NamedTuple):
    """What a core and a GiB of memory cost in an hour."""

    per_core_hour: float
    per_gib_hour: float
    currency: str = ""
    """Printed beside amounts; empty where it is unknown."""
    source: str = "--price"

    def per_month(self, cores: float, memory_bytes: float) -> float:
        return HOURS_PER_MONTH * (self.per_core_hour * cores + self.per_gib_hour * memory_bytes / GIB)


WEIGHTS = Price(8.0, 1.0, source="a core counts as much as 8 GiB")
"""What orders workloads where no price is known; near to what clouds charge."""


@dataclass(frozen=True, slots=True)
class AdviceOutput:
    """How advice is printed, and of which workloads."""

    output: Annotated[AdviceFormat, typer.Option("-o", "--output", help="Output format.")] = "table"
    sort_by: Annotated[
        AdviceOrder | None,
        typer.Option(help="Order of the workloads; by default, those whose advice saves most come first."),
    ] = None
    selector: Annotated[
        str | None,
        option(
            "SELECTOR", "Label selector of the workloads, such as team=shop,tier!=test.", "-l", "--selector"
        ),
    ] = None
    price: Annotated[
        str | None,
        option(
            "cpu=N,memory=N",
            "Price of a core-hour and of a GiB-hour, such as cpu=0.0316,memory=0.0042,currency=EUR; "
            "by default that of OpenCost, if Prometheus has it.",
        ),
    ] = None

    @property
    def order(self) -> AdviceOrder:
        """The order of workloads; by default documents and manifests are in the order of names."""
        is_for_machines = self.output in {"json", "yaml", "hpa", "ehpa"}
        return self.sort_by or ("name" if is_for_machines else "worth")

    def selected(self, cluster: "ClusterRequest") -> "ClusterRequest":
        """Return the request for the workloads that have the labels."""
        if self.selector is None:
            return cluster
        from equipoise.adapters.kubernetes.selectors import parse_selector

        try:
            return replace(cluster, selector=parse_selector(self.selector))
        except ValueError as error:
            raise BadInput(f"--selector: expected labels such as team=shop,tier!=test: {error}") from error

    def has_requests(self, about: str | None, *, is_file: bool) -> bool:
        """Return whether there is advice on requests: of a cluster by default, but not in manifests."""
        is_default = about is None and not is_file and self.output not in {"hpa", "ehpa"}
        return is_default or about == "Resource"

    def read_price(self, about: str | None, *, has_requests: bool) -> Price | None:
        """Return the price; raise BadInput where the type of the advice does not go with an option."""
        if about == "Resource" and self.output in {"hpa", "ehpa"}:
            raise BadInput(f"-o {self.output}: expected --type HPA, since requests are no autoscaler")
        if self.price is None:
            return None
        if not has_requests:
            raise BadInput("--price: expected --type Resource beside it, since replicas alone have no cost")
        return parse_price(self.price)


def by_name(decision: "Decision") -> tuple[str, str]:
    """Return the sort key: namespace, then name."""
    namespace, _, name = decision.subject.rpartition("/")
    return namespace, name


def parse_price(text: str) -> Price:
    """Return the price of `cpu=0.0316,memory=0.0042`, to which `,currency=EUR` may be added."""
    found: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = (each.strip() for each in part.partition("="))
        if key not in {"cpu", "memory", "currency"} or key in found:
            raise BadInput(f"--price: expected {PRICE_FORM}, got {part.strip()[:80]!r}")
        found[key] = value
    if missing := {"cpu", "memory"} - found.keys():
        raise BadInput(f"--price: expected {PRICE_FORM}, got {text[:80]!r} without {min(missing)}")
    currency = found.get("currency", "")
    if len(currency) > CURRENCY_LENGTH_MAX or not currency.isprintable() or " " in currency:
        raise BadInput(
            f"--price: currency: expected at most {CURRENCY_LENGTH_MAX} characters such as EUR, "
            f"got {currency[:80]!r}"
        )
    return Price(_amount("cpu", found["cpu"]), _amount("memory", found["memory"]), currency)


def _amount(key: str, text: str) -> float:
    try:
        amount = float(text)
    except ValueError:
        amount = math.nan
    if not 0 <= amount <= PRICE_MAX:
        raise BadInput(f"--price: {key}: expected a number from 0 to {PRICE_MAX:,.0f}, got {text[:80]!r}")
    return amount


OPENCOST_SERIES = ("node_cpu_hourly_cost", "node_ram_hourly_cost")
"""OpenCost's price of a core-hour and of a GiB-hour, one series for each node."""


def price_of(cluster: "ClusterRequest") -> Price | None:
    """Return what requests cost in this cluster; None where its Prometheus does not say."""
    from equipoise.runtime.metrics_source import prometheus_metrics

    try:
        return opencost_price(prometheus_metrics(cluster.client(), cluster.prometheus))
    except WorldFailed as error:
        warn(f"OpenCost's prices are unknown: {error}")
        return None


def opencost_price(metrics: "PrometheusMetrics") -> Price | None:
    """Return the average price of the nodes; None where OpenCost wrote none, or only one of both."""
    from equipoise.adapters.prometheus.promql import of_installation, selector

    matchers, now = of_installation(metrics.extra_matchers), time.time()
    cpu, memory = (metrics.scalar(f"avg({selector(name, matchers)})", now) for name in OPENCOST_SERIES)
    if cpu is None or memory is None or min(cpu, memory) < 0 or not 0 < max(cpu, memory) <= PRICE_MAX:
        return None
    return Price(cpu, memory, source=f"OpenCost ({' and '.join(OPENCOST_SERIES)}, the average of the nodes)")

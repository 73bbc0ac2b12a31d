"""The rows of a table of advice, their order and their total: one row for each container of a workload.

A row's amounts are of one pod, as in a manifest. Differences and money are of all replicas that run now.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Literal, NamedTuple

from equipoise.cli.recommendation_options import HOURS_PER_MONTH, WEIGHTS, AdviceOrder, Price, by_name
from equipoise.core.decision import Decision
from equipoise.core.quantity import Quantity, parse_bytes, parse_cores

WHOLE_POD = "*"
"""The container name for advice from a file, which has no containers."""
MIB = 1024.0**2


class Severity(IntEnum):
    """How far a request is from its advice, by krr's bounds."""

    UNKNOWN = 0
    GOOD = 1
    OK = 2
    WARNING = 3
    CRITICAL = 4

    def __str__(self) -> str:
        return self.name.lower()


BOUNDS = {"cpu": (0.1, 0.25, 0.5), "memory": (100 * MIB, 250 * MIB, 500 * MIB)}
"""The differences in cores and bytes from which a request is ok, a warning and critical; below is good."""


class ResourceChange(NamedTuple):
    """One resource of one container: its request and limit now, and as advised. None: not set, or unknown."""

    resource: Literal["cpu", "memory"]
    request: str | None = None
    advised: str | None = None
    limit: str | None = None
    advised_limit: str | None = None

    @property
    def before(self) -> float:
        """The request in cores or bytes; 0 where there is none, as for the scheduler."""
        return _amount(self.resource, self.request)

    @property
    def after(self) -> float:
        """The advised request; today's where no advice is known."""
        return self.before if self.advised is None else _amount(self.resource, self.advised)

    @property
    def severity(self) -> Severity:
        if self.advised is None:
            return Severity.UNKNOWN
        if self.request is None:
            return Severity.WARNING
        difference = abs(self.after - self.before)
        return Severity(1 + sum(difference >= bound for bound in BOUNDS[self.resource]))


def _amount(resource: str, text: str | None) -> float:
    if text is None:
        return 0.0
    return parse_cores(text) if resource == "cpu" else parse_bytes(text)


class MonthlyCost(NamedTuple):
    """What requests cost in a month, now and as advised."""

    current: float
    recommended: float

    @property
    def difference(self) -> float:
        return self.recommended - self.current

    @property
    def document(self) -> dict[str, float]:
        named = {"current": self.current, "recommended": self.recommended, "difference": self.difference}
        return {name: _rounded(value) for name, value in named.items()}


def _rounded(value: float, digits: int = 4) -> float:
    """Return a number without floating-point noise, and 0 without a sign."""
    return round(value, digits) + 0.0


@dataclass(frozen=True, slots=True)
class AdviceRow:
    """The advice for one container, or for a workload without any."""

    decision: Decision
    container: str
    cpu: ResourceChange
    memory: ResourceChange

    @property
    def replicas(self) -> int:
        """The replicas that run now; 0 where an error ended the decision before they were known."""
        return int(self.decision.reason.numbers.get("replicas", 0))

    @property
    def severity(self) -> Severity:
        return max(self.cpu.severity, self.memory.severity)

    @property
    def has_requests(self) -> bool:
        """Whether there is advice about this container's requests."""
        return self.cpu.advised is not None or self.memory.advised is not None

    @property
    def cpu_difference(self) -> float:
        """What the advice adds to the requests of all replicas, in cores; negative where it saves."""
        return (self.cpu.after - self.cpu.before) * self.replicas

    @property
    def memory_difference(self) -> float:
        return (self.memory.after - self.memory.before) * self.replicas

    def cost(self, price: Price) -> MonthlyCost:
        before, after = (
            self.replicas * price.per_month(cores, size)
            for cores, size in ((self.cpu.before, self.memory.before), (self.cpu.after, self.memory.after))
        )
        return MonthlyCost(before, after)


def rows_of(decision: Decision) -> list[AdviceRow]:
    """Return the rows of a workload, in the order of its containers."""
    known = decision.extra.get("containers")
    containers = _of_requests(decision) if known is None else known
    if not containers:
        return [AdviceRow(decision, "", ResourceChange("cpu"), ResourceChange("memory"))]
    return [
        AdviceRow(decision, each["name"], _change("cpu", each), _change("memory", each))
        for each in containers
    ]


def _of_requests(decision: Decision) -> list[dict[str, Any]]:
    """Return the containers of advice on requests alone; of a file they are one, the pod."""
    current = decision.extra.get("current", {}).get("containers", ())
    today = {
        each["name"]: {"requests": each["requests"], "limits": each.get("limits", {})} for each in current
    }
    cores = decision.reason.numbers.get("request_cores")
    if cores is not None:
        today[WHOLE_POD] = {"requests": {"cpu": str(Quantity(round(cores * 1000) * 10**6))}}
    return [
        {"name": each["name"], "current": today.get(each["name"], {}), "recommended": each}
        for each in (decision.extra["recommended"] or {}).get("containers", ())
    ]


def _change(resource: Literal["cpu", "memory"], container: Mapping[str, Any]) -> ResourceChange:
    current, advised = container.get("current") or {}, container.get("recommended") or {}
    return ResourceChange(
        resource,
        *(
            (each.get(part) or {}).get(resource)
            for part in ("requests", "limits")
            for each in (current, advised)
        ),
    )


def hpa_of(decision: Decision) -> tuple[Mapping[str, Any] | None, bool]:
    """Return the advised HPA and whether it is advice; False: what the advice would be without a refusal."""
    for name in ("recommended", "wouldRecommend"):
        found = decision.extra.get(name)
        if found is not None and "maxReplicas" in found:
            return found, name == "recommended"
    return None, False


def is_advised(decision: Decision) -> bool:
    """Return whether a decision has advice on replicas or on requests."""
    return decision.extra["recommended"] is not None or any(row.has_requests for row in rows_of(decision))


def ordered(decisions: Sequence[Decision], order: AdviceOrder, price: Price | None = None) -> list[int]:
    """Return the places of the decisions in this order; those that are equal stay as they are."""
    keys = [_key(decision, order, price or WEIGHTS) for decision in decisions]
    return sorted(range(len(decisions)), key=keys.__getitem__)


def _key(decision: Decision, order: AdviceOrder, price: Price) -> tuple[Any, ...]:
    if order == "name":
        return by_name(decision)
    rows = rows_of(decision)
    worth = sum(row.cost(price).difference for row in rows)
    match order:
        case "severity":
            return -max(row.severity for row in rows), -abs(worth)
        case "cpu":
            return (-abs(sum(row.cpu_difference for row in rows)),)
        case "memory":
            return (-abs(sum(row.memory_difference for row in rows)),)
        case "replicas":
            return (-rows[0].replicas,)
    return (worth,)


class Total(NamedTuple):
    """The requests of all rows added up, each times its replicas."""

    workloads: int
    advised: int
    cpu: tuple[float, float]
    """Cores, now and as advised."""
    memory: tuple[float, float]
    """Bytes, now and as advised."""
    cost: MonthlyCost | None = None
    """None where no price is known."""

    @property
    def document(self) -> dict[str, Any]:
        cpu, memory = self.cpu, self.memory
        document: dict[str, Any] = {"workloads": self.workloads, "advised": self.advised}
        for name, (before, after) in {"cpu_cores": cpu, "memory_bytes": memory}.items():
            values = {"current": before, "recommended": after, "difference": after - before}
            is_whole = name == "memory_bytes"
            document[name] = {
                key: round(each) if is_whole else _rounded(each) for key, each in values.items()
            }
        return document if self.cost is None else document | {"monthly_cost": self.cost.document}


def total_of(decisions: Iterable[Decision], price: Price | None = None) -> Total:
    """Return the sum of all rows of these decisions."""
    known = list(decisions)
    rows = [row for decision in known for row in rows_of(decision)]
    cpu = [(row.replicas * row.cpu.before, row.replicas * row.cpu.after) for row in rows]
    memory = [(row.replicas * row.memory.before, row.replicas * row.memory.after) for row in rows]
    cost = None if price is None else MonthlyCost(*_sum(row.cost(price) for row in rows))
    advised = sum(map(is_advised, known))
    return Total(len(known), advised, _sum(cpu), _sum(memory), cost)


def _sum(pairs: Iterable[tuple[float, float]]) -> tuple[float, float]:
    known = list(pairs)
    return math.fsum(before for before, _ in known), math.fsum(after for _, after in known)


def has_requests(decisions: Iterable[Decision]) -> bool:
    """Return whether any row has a container: its requests are known, or advised."""
    return any(row.container for decision in decisions for row in rows_of(decision))


def with_costs(
    document: dict[str, Any], decisions: Sequence[Decision], price: Price | None
) -> dict[str, Any]:
    """Return a plan's document with severities, the total and, where a price is known, money per month."""
    if not has_requests(decisions):
        return document
    for part, decision in zip(document["decisions"], decisions, strict=True):
        rows = rows_of(decision)
        known = decision.extra.get("containers")
        if known is not None:
            part["containers"] = [
                {**each, "severity": str(row.severity)} | _cost_document([row], price)
                for each, row in zip(known, rows, strict=False)
            ]
        part.update(_cost_document(rows, price))
    document["total"] = total_of(decisions, price).document
    if price is not None:
        document["price"] = {
            "cpu_core_hour": price.per_core_hour,
            "memory_gib_hour": price.per_gib_hour,
            "currency": price.currency or None,
            "hours_per_month": HOURS_PER_MONTH,
            "source": price.source,
        }
    return document


def _cost_document(rows: Sequence[AdviceRow], price: Price | None) -> dict[str, Any]:
    if price is None:
        return {}
    return {"monthly_cost": MonthlyCost(*_sum(row.cost(price) for row in rows)).document}


def cores_text(cores: float) -> str:
    """Return a number of cores, to three or four digits."""
    return _number(cores)


def bytes_text(size: float) -> str:
    """Return an amount of memory in the unit that reads best."""
    for unit, power in (("TiB", 4), ("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if abs(size) >= 1024.0**power:
            return f"{_number(size / 1024.0**power)} {unit}"
    return f"{_number(size)} bytes" if size else "0 GiB"


def _number(value: float) -> str:
    digits = max(0, 3 - len(str(int(abs(value)))))
    return f"{round(value, digits) + 0.0:,.{digits}f}".removesuffix(".00").removesuffix(".0")


def pair_text(before: float, after: float, text: Callable[[float], str]) -> tuple[str, str]:
    """Return `1.5 → 1.2` and the unit that both have, or both with their units and an empty text."""
    (first, _, unit), (second, _, other) = text(before).partition(" "), text(after).partition(" ")
    if unit == other:
        return f"{first} → {second}", unit
    return f"{first} {unit} → {second} {other}", ""


def money_text(value: float, *, is_difference: bool = False) -> str:
    amount = _rounded(value, 2)
    return f"{amount:{'+' if is_difference and amount else ''},.2f}"


def total_text(total: Total, price: Price | None) -> str:
    """Return the total as one line: requests now and as advised, of all replicas, and their cost."""
    currency = f" {price.currency}" if price is not None and price.currency else ""
    cpu, memory = total.cpu, total.memory
    parts = [f"CPU {cores_text(cpu[0])} → {cores_text(cpu[1])} cores{_percent(cpu)}"]
    if any(memory):  # of a file, memory is not known
        parts.append(f"memory {' '.join(pair_text(*memory, bytes_text)).rstrip()}{_percent(memory)}")
    if total.cost is not None:
        before, after, change = total.cost.current, total.cost.recommended, total.cost.difference
        parts.append(
            f"{money_text(before)} → {money_text(after)}{currency} per month "
            f"({money_text(change, is_difference=True)})"
        )
    return (
        f"Total requests of {total.workloads:,} workload{'s' * (total.workloads != 1)}: {', '.join(parts)}."
    )


def _percent(pair: tuple[float, float]) -> str:
    """Return a change in percent; empty where there was nothing before."""
    before, after = pair
    if not before:
        return ""
    percent = _rounded((after / before - 1) * 100, 1)
    return f" ({percent:{'+' if percent else ''}.1f}%)"


def price_text(price: Price) -> str:
    """Return the prices and where they come from, as a sentence."""
    currency = f" {price.currency}" if price.currency else ""
    return (
        f"Prices from {price.source}: {_price(price.per_core_hour)}{currency} per core-hour and "
        f"{_price(price.per_gib_hour)}{currency} per GiB-hour; a month has {HOURS_PER_MONTH} hours."
    )


def _price(amount: float) -> str:
    return f"{amount:.8f}".rstrip("0").removesuffix(".")

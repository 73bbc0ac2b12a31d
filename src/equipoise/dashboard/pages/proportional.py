"""Proportional scaling: how large the cluster was, what that asks for, and what was applied, over time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from equipoise.core.decision import Record
from equipoise.core.reason import Reason
from equipoise.dashboard.charts import Line, Point, over_time
from equipoise.dashboard.page import (
    Chart,
    Fact,
    Page,
    Table,
    amount,
    count,
    counted,
    figure,
    items,
    mapping,
    mebibytes,
    moment,
    quantity,
    text,
)
from equipoise.dashboard.summary import Figures, numbers_of, page_of

BALANCER = "proportional"
SLOTS_MAX = 4
LOOKS_MAX = 400
CHANGES_MAX = 50
APPLIED = frozenset({"Accepted", "Created", "Changed", "Done"})
INPUTS = ("cores", "memory", "nodes", "pods")


class Look(NamedTuple):
    """What was said at one moment."""

    at: float
    numbers: Mapping[str, Any]
    applied: Mapping[str, str]
    """What was set just then, by slot."""


def page(records: Sequence[Record]) -> Page:
    """Show the workloads whose resources follow the cluster's size; the newest record comes first."""
    return page_of("Proportional scaling", BALANCER, "workload", records, _figures)


def _figures(records: Sequence[Record]) -> Figures:
    slots = _slots(records[0])
    looks = _course(records)
    return Figures(
        facts=tuple(_facts(records[0])),
        charts=tuple(_chart(slot, _input_of(slot, records[0]), looks) for slot in slots[:SLOTS_MAX]),
        tables=(_values(records[0], slots, looks), _changes(records)),
    )


def _facts(newest: Record) -> Iterator[Fact]:
    numbers = numbers_of(newest)
    inputs = mapping(numbers.get("inputs"))
    for name in INPUTS:
        value = quantity(inputs.get(name))
        if value is not None:
            size, unit = _input_size(name, value)
            yield Fact(f"Cluster's {name}", amount(size, unit))
    pods, behind = count(numbers.get("pods")), count(numbers.get("pods_behind"))
    if pods is not None:
        yield Fact("Pods", f"{pods:,}", f"{behind:,} behind" if behind else "")
    window = count(numbers.get("window"))
    if window is not None:
        yield Fact("Window", counted(window, "target"), "targets that still count")


def _slots(record: Record) -> list[str]:
    return list(mapping(numbers_of(record).get("target")))


def _is_memory(slot: str) -> bool:
    return slot.endswith(".memory")


def _unit(slot: str) -> str:
    return "MiB" if _is_memory(slot) else "cores"


def _size(slot: str, written: object) -> float | None:
    """Read the value of a slot in its unit."""
    value = quantity(written)
    return mebibytes(value) if _is_memory(slot) else value


def _input_size(name: str, value: float | None) -> tuple[float | None, str]:
    return (mebibytes(value), "MiB") if name == "memory" else (value, name)


def _course(records: Sequence[Record]) -> list[Look]:
    """Lay the looks out in time: a record is one, and the last of its streak another."""
    looks: list[Look] = []
    for record in reversed(records[:LOOKS_MAX]):
        is_applied = any(one.result in APPLIED for one in record.outcomes)
        looks.append(_look(record.at, record.decision.reason, _set_by(record) if is_applied else {}))
        if record.streak is not None:
            looks.append(_look(record.streak.until, record.streak.reason, {}))
    return looks


def _look(at: float, reason: Reason, applied: Mapping[str, str]) -> Look:
    return Look(at, mapping(reason.numbers), applied)


def _set_by(record: Record) -> dict[str, str]:
    """Return what the actions of a record set, by slot."""
    found = {}
    for action in record.decision.actions:
        for part in items(getattr(action, "containers", ())):
            container = mapping(part)
            for section in ("requests", "limits"):
                for resource, value in mapping(container.get(section)).items():
                    found[f"{container.get('name')}.{section}.{resource}"] = value
    return found


def _input_of(slot: str, record: Record) -> str:
    """Return which input a slot follows: as the policy has it, else the first that is known."""
    container, _, rest = slot.partition(".requests.")
    section, resource = "requests", rest
    if not rest:
        container, _, resource = slot.partition(".limits.")
        section = "limits"
    for part in items(record.policy.get("containers")):
        if mapping(part).get("name") == container:
            for one in items(mapping(mapping(part).get("resources")).get(section)):
                follows = mapping(mapping(one).get("function")).get("input")
                if mapping(one).get("resource") == resource and follows in INPUTS:
                    return str(follows)
    known = mapping(numbers_of(record).get("inputs"))
    return next((name for name in INPUTS if name in known), "")


def _chart(slot: str, follows: str, looks: Sequence[Look]) -> Chart | None:
    """Draw one slot: what is asked for, what is in force, between which bounds nothing is done."""
    targets = _points(slot, looks, "target")
    if not any(value is not None for _, value in targets):
        return None
    unit = _unit(slot)
    in_force = list(_in_force(slot, looks))
    lines: list[Line] = []
    if follows:
        unit_right = _input_size(follows, None)[1]
        sizes = [
            (look.at, _input_size(follows, quantity(mapping(look.numbers.get("inputs")).get(follows)))[0])
            for look in looks
        ]
        name = f"input: {follows}{'' if unit_right == follows else f' in {unit_right}'}, right"
        lines.append(Line(name, "muted", sizes, is_step=True, on_right=True))
    for name, key in (("scales up below", "scale_up_below"), ("scales down above", "scale_down_above")):
        bound = _points(slot, looks, key)
        # Without smoothing both are the target itself, and no band.
        if bound != targets and any(value is not None for _, value in bound):
            lines.append(Line(name, "limit", bound, is_step=True, is_dashed=True))
    lines += [
        Line("applied", "actual", in_force, is_step=True),
        Line("raw target", "target", targets, is_step=True, is_dashed=True),
    ]
    wanted, has = _last(targets), _last(in_force)
    words = f"{text(slot)}: {amount(wanted, unit)} is asked for, {amount(has, unit)} is in force."
    return Chart(text(slot) or "(no name)", over_time(unit, lines), words)


def _points(slot: str, looks: Sequence[Look], key: str) -> list[Point]:
    return [(look.at, _size(slot, mapping(look.numbers.get(key)).get(slot))) for look in looks]


def _in_force(slot: str, looks: Sequence[Look]) -> Iterator[Point]:
    """Yield what the workload had at each look, and what it got there."""
    for look in looks:
        yield look.at, _size(slot, mapping(look.numbers.get("current")).get(slot))
        if slot in look.applied:
            yield look.at, _size(slot, look.applied[slot])


def _last(points: Sequence[Point]) -> float | None:
    return next((value for _, value in reversed(points) if value is not None), None)


def _values(newest: Record, slots: Sequence[str], looks: Sequence[Look]) -> Table | None:
    """Return the values of every slot, also of those that are not drawn."""
    numbers = numbers_of(newest)
    columns = ("target", "scale_up_below", "scale_down_above")
    rows = tuple(
        (
            text(slot),
            _unit(slot),
            figure(_last(list(_in_force(slot, looks[-1:]))), _unit(slot)),
            *(figure(_size(slot, mapping(numbers.get(key)).get(slot)), _unit(slot)) for key in columns),
            text(mapping(numbers.get("reasons")).get(slot)) or "-",
        )
        for slot in slots[:CHANGES_MAX]
    )
    figures = ("In force", "Target", "Scales up below", "Scales down above")
    return Table("Values", ("Slot", "Unit", *figures, "Reason"), rows, figures) if rows else None


def _changes(records: Sequence[Record]) -> Table | None:
    rows = [
        (
            moment(record.at),
            ", ".join(f"{text(slot)} = {text(value)}" for slot, value in list(_set_by(record).items())[:6]),
            text(one.result),
            text(one.detail, 200),
        )
        for record in records
        for one in record.outcomes
    ]
    columns = ("When", "Set", "Came of it", "Detail")
    return Table("Changes", columns, tuple(rows[:CHANGES_MAX])) if rows else None

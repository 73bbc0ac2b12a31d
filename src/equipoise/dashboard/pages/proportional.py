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
SAMPLES_MAX = 400
CHANGES_MAX = 50
APPLIED = frozenset({"Accepted", "Created", "Changed", "Done"})
INPUTS = ("cores", "memory", "nodes", "pods")


class Sample(NamedTuple):
    """One decision at one time."""

    at: float
    numbers: Mapping[str, Any]
    applied: Mapping[str, str]
    """The values set at that time, by slot."""


def page(records: Sequence[Record]) -> Page:
    """Return the page of workloads whose resources follow the cluster's size; records are newest first."""
    return page_of("Proportional scaling", BALANCER, "workload", records, _figures)


def _figures(records: Sequence[Record]) -> Figures:
    slots = _slots(records[0])
    samples = _course(records)
    return Figures(
        facts=tuple(_facts(records[0])),
        charts=tuple(_chart(slot, _input_of(slot, records[0]), samples) for slot in slots[:SLOTS_MAX]),
        tables=(_values(records[0], slots, samples), _changes(records)),
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
    """Return the value of a slot in its unit."""
    value = quantity(written)
    return mebibytes(value) if _is_memory(slot) else value


def _input_size(name: str, value: float | None) -> tuple[float | None, str]:
    return (mebibytes(value), "MiB") if name == "memory" else (value, name)


def _course(records: Sequence[Record]) -> list[Sample]:
    """Return the samples in time order: one per record, and one for the end of its streak."""
    samples: list[Sample] = []
    for record in reversed(records[:SAMPLES_MAX]):
        is_applied = any(one.result in APPLIED for one in record.outcomes)
        samples.append(_sample(record.at, record.decision.reason, _set_by(record) if is_applied else {}))
        if record.streak is not None:
            samples.append(_sample(record.streak.until, record.streak.reason, {}))
    return samples


def _sample(at: float, reason: Reason, applied: Mapping[str, str]) -> Sample:
    return Sample(at, mapping(reason.numbers), applied)


def _set_by(record: Record) -> dict[str, str]:
    """Return the values that a record's actions set, by slot."""
    found = {}
    for action in record.decision.actions:
        for part in items(getattr(action, "containers", ())):
            container = mapping(part)
            for section in ("requests", "limits"):
                for resource, value in mapping(container.get(section)).items():
                    found[f"{container.get('name')}.{section}.{resource}"] = value
    return found


def _input_of(slot: str, record: Record) -> str:
    """Return the input that a slot follows: that of the policy, else the first available."""
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


def _chart(slot: str, follows: str, samples: Sequence[Sample]) -> Chart | None:
    """Return the chart of one slot: the target, the applied value, and the bounds without a change."""
    targets = _points(slot, samples, "target")
    if not any(value is not None for _, value in targets):
        return None
    unit = _unit(slot)
    in_force = list(_in_force(slot, samples))
    lines: list[Line] = []
    if follows:
        unit_right = _input_size(follows, None)[1]
        sizes = [
            (sample.at, _input_size(follows, quantity(mapping(sample.numbers.get("inputs")).get(follows)))[0])
            for sample in samples
        ]
        name = f"input: {follows}{'' if unit_right == follows else f' in {unit_right}'}, right"
        lines.append(Line(name, "muted", sizes, is_step=True, on_right=True))
    for name, key in (("scales up below", "scale_up_below"), ("scales down above", "scale_down_above")):
        bound = _points(slot, samples, key)
        # Without smoothing both are the target itself, and no band.
        if bound != targets and any(value is not None for _, value in bound):
            lines.append(Line(name, "limit", bound, is_step=True, is_dashed=True))
    lines += [
        Line("applied", "actual", in_force, is_step=True),
        Line("raw target", "target", targets, is_step=True, is_dashed=True),
    ]
    target, has = _last(targets), _last(in_force)
    words = f"{text(slot)}: {amount(target, unit)} is asked for, {amount(has, unit)} is in force."
    return Chart(text(slot) or "(no name)", over_time(unit, lines), words)


def _points(slot: str, samples: Sequence[Sample], key: str) -> list[Point]:
    return [(sample.at, _size(slot, mapping(sample.numbers.get(key)).get(slot))) for sample in samples]


def _in_force(slot: str, samples: Sequence[Sample]) -> Iterator[Point]:
    """Yield the applied value before and after each sample."""
    for sample in samples:
        yield sample.at, _size(slot, mapping(sample.numbers.get("current")).get(slot))
        if slot in sample.applied:
            yield sample.at, _size(slot, sample.applied[slot])


def _last(points: Sequence[Point]) -> float | None:
    return next((value for _, value in reversed(points) if value is not None), None)


def _values(newest: Record, slots: Sequence[str], samples: Sequence[Sample]) -> Table | None:
    """Return the values of every slot, including those without a chart."""
    numbers = numbers_of(newest)
    columns = ("target", "scale_up_below", "scale_down_above")
    rows = tuple(
        (
            text(slot),
            _unit(slot),
            figure(_last(list(_in_force(slot, samples[-1:]))), _unit(slot)),
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

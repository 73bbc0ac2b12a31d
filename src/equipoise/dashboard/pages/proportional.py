"""Proportional scaling: how large the cluster was, what that asks for, and what was applied, over time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from equipoise.core.decision import Record
from equipoise.dashboard.charts import Line, Point, over_time
from equipoise.dashboard.page import Chart, Fact, Figures, Page, Table, numbers_of, page_of
from equipoise.dashboard.values import Json, amount, counted, figure, mebibytes, moment, text

SLOTS_MAX = 4
SAMPLES_MAX = 400
CHANGES_MAX = 50
APPLIED = frozenset({"Accepted", "Created", "Changed", "Done"})
INPUTS = ("cores", "memory", "nodes", "pods")


class Sample(NamedTuple):
    """One decision at one time."""

    at: float
    numbers: Json
    applied: Mapping[str, Any] = {}
    """The values set at that time, by slot."""


def page(records: Sequence[Record]) -> Page:
    """Return the page of workloads whose resources follow the cluster's size; records are newest first."""
    return page_of("Proportional scaling", "proportional", "workload", records, _figures)


def _figures(records: Sequence[Record]) -> Figures:
    numbers = numbers_of(records[0])
    slots = [slot for slot, _ in numbers["target"].items()]
    samples = _course(records)
    return Figures(
        facts=_facts(numbers),
        charts=[_chart(slot, _input_of(slot, records[0]), samples) for slot in slots[:SLOTS_MAX]],
        tables=(_values(numbers, slots[:CHANGES_MAX], samples), _changes(records)),
    )


def _facts(numbers: Json) -> Iterator[Fact]:
    for name in INPUTS:
        value = numbers["inputs"][name].quantity
        if value is not None:
            yield Fact(f"Cluster's {name}", amount(*_input_size(name, value)))
    pods, behind, window = (numbers[key].count for key in ("pods", "pods_behind", "window"))
    if pods is not None:
        yield Fact("Pods", f"{pods:,}", f"{behind:,} with outdated values" if behind else "")
    if window is not None:
        yield Fact("Window", counted(window, "target"), "targets used for smoothing")


def _unit(slot: str) -> str:
    return "MiB" if slot.endswith(".memory") else "cores"


def _size(slot: str, written: Json) -> float | None:
    return mebibytes(written.quantity) if _unit(slot) == "MiB" else written.quantity


def _input_size(name: str, value: float | None) -> tuple[float | None, str]:
    return (mebibytes(value), "MiB") if name == "memory" else (value, name)


def _course(records: Sequence[Record]) -> list[Sample]:
    """Return the samples in time order: one per record, and one for the end of its streak."""
    samples: list[Sample] = []
    for record in reversed(records[:SAMPLES_MAX]):
        is_applied = any(one.result in APPLIED for one in record.outcomes)
        applied = _set_by(record) if is_applied else {}
        samples.append(Sample(record.at, Json(record.decision.reason.numbers), applied))
        if record.streak is not None:
            samples.append(Sample(record.streak.until, numbers_of(record)))
    return samples


def _set_by(record: Record) -> dict[str, Any]:
    """Return the values that a record's actions set, by slot."""
    return {
        f"{container['name'].value}.{section}.{resource}": value.value
        for action in record.decision.actions
        for container in Json(getattr(action, "containers", ()))
        for section in ("requests", "limits")
        for resource, value in container[section].items()
    }


def _input_of(slot: str, record: Record) -> str:
    """Return the input that a slot follows: that of the policy, else the first available."""
    section = "requests" if ".requests." in slot else "limits"
    container, _, resource = slot.partition(f".{section}.")
    for part in Json(record.policy)["containers"]:
        if part["name"].value == container:
            for one in part["resources"][section]:
                follows = one["function"]["input"].value
                if one["resource"].value == resource and follows in INPUTS:
                    return str(follows)
    known = dict(numbers_of(record)["inputs"].items())
    return next((name for name in INPUTS if name in known), "")


def _chart(slot: str, follows: str, samples: Sequence[Sample]) -> Chart | None:
    """Return the chart of one slot: the target, the applied value, and the bounds without a change."""
    targets = _points(slot, samples, "target")
    if _last(targets) is None:
        return None
    unit = _unit(slot)
    in_force = list(_in_force(slot, samples))
    lines: list[Line] = []
    if follows:
        unit_right = _input_size(follows, None)[1]
        sizes = [
            (sample.at, _input_size(follows, sample.numbers["inputs"][follows].quantity)[0])
            for sample in samples
        ]
        name = f"input: {follows}{'' if unit_right == follows else f' in {unit_right}'}, right"
        lines.append(Line(name, "muted", sizes, is_step=True, on_right=True))
    for name, key in (("scales up below", "scale_up_below"), ("scales down above", "scale_down_above")):
        bound = _points(slot, samples, key)
        # Without smoothing both are the target itself, and no band.
        if bound != targets and _last(bound) is not None:
            lines.append(Line(name, "limit", bound, is_step=True, is_dashed=True))
    lines += [
        Line("applied", "actual", in_force, is_step=True),
        Line("raw target", "target", targets, is_step=True, is_dashed=True),
    ]
    target, has = amount(_last(targets), unit), amount(_last(in_force), unit)
    words = f"{text(slot)}: the target is {target}, the applied value is {has}."
    return Chart(text(slot) or "(no name)", over_time(unit, lines), words)


def _points(slot: str, samples: Sequence[Sample], key: str) -> list[Point]:
    return [(sample.at, _size(slot, sample.numbers[key][slot])) for sample in samples]


def _in_force(slot: str, samples: Sequence[Sample]) -> Iterator[Point]:
    """Yield the applied value before and after each sample."""
    for sample in samples:
        yield sample.at, _size(slot, sample.numbers["current"][slot])
        if slot in sample.applied:
            yield sample.at, _size(slot, Json(sample.applied[slot]))


def _last(points: Sequence[Point]) -> float | None:
    return next((value for _, value in reversed(points) if value is not None), None)


def _values(numbers: Json, slots: Sequence[str], samples: Sequence[Sample]) -> Table:
    """Return the values of the slots, including those without a chart."""
    columns = ("target", "scale_up_below", "scale_down_above")
    rows = tuple(
        (
            text(slot),
            _unit(slot),
            figure(_last(list(_in_force(slot, samples[-1:]))), _unit(slot)),
            *(figure(_size(slot, numbers[key][slot]), _unit(slot)) for key in columns),
            numbers["reasons"][slot].text or "-",
        )
        for slot in slots
    )
    figures = ("Applied", "Target", "Scales up below", "Scales down above")
    return Table("Values", ("Slot", "Unit", *figures, "Reason"), rows, figures)


def _changes(records: Sequence[Record]) -> Table:
    rows = [
        (
            moment(record.at),
            ", ".join(
                f"{text(slot)} = {Json(value).text}" for slot, value in list(_set_by(record).items())[:6]
            ),
            text(one.result),
            text(one.detail, 200),
        )
        for record in records
        for one in record.outcomes
    ]
    return Table("Changes", ("Time", "Set", "Result", "Detail"), tuple(rows[:CHANGES_MAX]))

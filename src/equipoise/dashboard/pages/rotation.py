"""The rotation page: CPU per pod before and after, predicted and realised gains, and waves."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from equipoise.core.decision import EvictPod, Record
from equipoise.dashboard.charts import Bar, Level, bars, by_name
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
    moment,
    number,
    text,
)
from equipoise.dashboard.summary import Figures, numbers_of, page_of

PODS_MAX = 60
ROTATIONS_MAX = 20
WAVES_MAX = 50
ENDINGS = {
    "NothingLeft": "nothing is left to rotate",
    "UsedUp": "all that were planned have gone",
    "Interrupted": "a rollout or the autoscaler came between",
    "LeftOpen": "nobody went on with it",
    "TimedOut": "not whole and measured in time",
}


class PodUsage(NamedTuple):
    """One pod of an observation."""

    name: str
    cores: float


def page(records: Sequence[Record]) -> Page:
    """Return the page of workloads with rotation; records are newest first."""
    return page_of("Rotation", "rotation", "workload", records, _figures)


def _figures(records: Sequence[Record]) -> Figures:
    return Figures(
        facts=tuple(_facts(records)),
        charts=(_usage(records), _improvement(records)),
        tables=(_rotations(records), _waves(records)),
    )


def _facts(records: Sequence[Record]) -> Iterator[Fact]:
    numbers = numbers_of(records[0])
    newest_with_pods = next((record for record in records if _pods(record)), records[0])
    pods = _pods(newest_with_pods)
    for name, key, note in (
        ("Target", "target_cores", "what a pod uses that is as busy as the HPA wants it"),
        ("Tolerance line", "threshold_cores", "a pod above it is hot"),
    ):
        if (value := number(numbers.get(key))) is not None:
            yield Fact(name, amount(value, "cores"), note)
    if pods:
        note = (
            pods[0].name
            if newest_with_pods.streak is None
            else f"{pods[0].name}, {moment(newest_with_pods.at)}"
        )
        yield Fact("Hottest pod", amount(pods[0].cores, "cores"), note)
    ready, unknown = count(numbers.get("pods_ready")), count(numbers.get("pods_unknown"))
    if ready is not None:
        yield Fact("Ready", counted(ready, "pod"), f"{unknown} of unknown usage" if unknown else "")
    last = next(iter(_verdicts(records)), None)
    if last is not None:
        predicted = number(last.get("predictedPercent"))
        realised = number(last.get("realisedPercent"))
        note = f"by which the hottest pod fell; {amount(predicted, '%')} was predicted"
        yield Fact("Last rotation", amount(realised, "%"), note)


def _pods(record: Record) -> list[PodUsage]:
    """Return the pods with measured usage, busiest first."""
    found = []
    for part in items(record.observation.get("pods")):
        pod = mapping(part)
        cores = number(pod.get("cpu_cores"))
        if cores is not None:
            found.append(PodUsage(text(pod.get("name")), cores))
    return sorted(found, key=lambda pod: (-pod.cores, pod.name))


def _course(memory: object) -> Mapping[str, Any]:
    return mapping(mapping(memory).get("course"))


def _is_first_wave(record: Record) -> bool:
    is_evicting = any(isinstance(one.action, EvictPod) for one in record.outcomes)
    return is_evicting and not _course(record.memory)


def _has_ended(record: Record) -> bool:
    return bool(_course(record.memory)) and not _course(record.decision.memory)


def _before_and_after(records: Sequence[Record]) -> tuple[Record | None, Record | None]:
    """Return the record before the last rotation, and the one at its end, or else the newest."""
    with_pods = [record for record in records if _pods(record)]
    begin = next((place for place, record in enumerate(with_pods) if _is_first_wave(record)), None)
    if begin is None:
        return (with_pods[0] if with_pods else None), None
    later = with_pods[:begin]
    ended = [record for record in later if _has_ended(record)]
    after = ended[-1] if ended else later[0] if later else None
    return with_pods[begin], after


def _usage(records: Sequence[Record]) -> Chart | None:
    """Return each pod's CPU as a bar, busiest first, beside that of the same rank after a rotation."""
    before, after = _before_and_after(records)
    if before is None:
        return None
    first = _pods(before)
    second = [] if after is None else _pods(after)
    shown = max(len(first[:PODS_MAX]), len(second[:PODS_MAX]))
    numbers = before.decision.reason.numbers
    target, threshold = number(numbers.get("target_cores")), number(numbers.get("threshold_cores"))
    levels = [Level("target", target, "target"), Level("tolerance", threshold, "limit")]
    since = records if after is None else [one for one in records if before.at <= one.at <= after.at]
    evicted = {text(one.action.pod) for each in since for one in each.outcomes if one.result == "Accepted"}
    word = "before" if second else "now"
    series = list(_before(before, first[:PODS_MAX], evicted if second else set(), levels, word))
    if second:
        series.append(bars("after", "actual", [Bar(pod.name, pod.cores) for pod in second[:PODS_MAX]]))
    names = [f"{place}." for place in range(1, shown + 1)]
    title = "CPU per pod before and after the last rotation" if second else "CPU per pod"
    return Chart(title, by_name("cores", names, series), _description(first, second, threshold))


def _before(
    record: Record, pods: Sequence[PodUsage], evicted: set[str], levels: Sequence[Level], word: str
) -> Iterator[dict[str, Any]]:
    """Yield the bars by kind: hot, cold, others; labelled with their position, or as evicted."""
    decision = record.decision
    hot = {text(name) for name in items(decision.reason.numbers.get("hot"))}
    planned = [*decision.actions, *(held.action for held in decision.held)]
    positions = {text(action.pod): position for position, action in enumerate(planned, 1)}

    def kind(pod: PodUsage) -> str:
        return "hot" if pod.name in hot else "cold" if pod.name in positions else "muted"

    for colour, name in (("muted", word), ("hot", f"{word}, hot"), ("cold", f"{word}, cold")):
        values = []
        for pod in pods:
            position = str(positions.get(pod.name, ""))
            label = f"{position} ✓" if pod.name in evicted else position
            is_own = kind(pod) == colour
            values.append(Bar(pod.name, pod.cores if is_own else None, label=label if is_own else ""))
        if colour == "muted" or any(bar.value is not None for bar in values):
            yield bars(name, colour, values, stack="before", levels=levels if colour == "muted" else ())


def _description(first: Sequence[PodUsage], second: Sequence[PodUsage], threshold: float | None) -> str:
    sentence = f"The hottest of {counted(len(first), 'pod')} used {amount(first[0].cores, 'cores')}"
    if second:
        sentence += f" before, and the hottest of {len(second)} used {amount(second[0].cores, 'cores')} after"
    if threshold is not None:
        above = sum(pod.cores > threshold for pod in second or first)
        is_are = "is" if above == 1 else "are"
        sentence += f"; {above} {is_are} above the tolerance line of {amount(threshold, 'cores')}"
    more = max(len(first), len(second)) - PODS_MAX
    return f"{sentence}.{f' The {PODS_MAX} busiest are drawn.' if more > 0 else ''}"


def _verdicts(records: Sequence[Record]) -> list[Mapping[str, Any]]:
    """Return how rotations ended, the newest first; each ends once, and is remembered for long.

    One that ended while the reason stayed the same is known from its streak's numbers only.
    """
    found: dict[float, Mapping[str, Any]] = {}
    for record in records:
        for memory in (record.decision.memory, record.memory):
            last = mapping(mapping(memory).get("last"))
            ended = number(last.get("endedAt"))
            if ended is not None:
                found.setdefault(ended, last)
    known = {_gain(one) for one in found.values()}
    for record in records:
        numbers = numbers_of(record)
        gain = (
            number(numbers.get("predicted_improvement_percent")),
            number(numbers.get("realised_improvement_percent")),
        )
        if None not in gain and gain not in known:
            known.add(gain)
            at = record.until
            found.setdefault(at, {"endedAt": at, "predictedPercent": gain[0], "realisedPercent": gain[1]})
    return [found[ended] for ended in sorted(found, reverse=True)[:ROTATIONS_MAX]]


def _gain(verdict: Mapping[str, Any]) -> tuple[float | None, float | None]:
    return number(verdict.get("predictedPercent")), number(verdict.get("realisedPercent"))


def _improvement(records: Sequence[Record]) -> Chart | None:
    """Return predicted against realised gains, oldest rotation first."""
    measured = [one for one in _verdicts(records) if number(one.get("realisedPercent")) is not None]
    if not measured:
        return None
    names = [moment(number(one.get("endedAt")))[5:16] for one in reversed(measured)]
    rows = {
        key: [Bar(name, number(one.get(key))) for name, one in zip(names, reversed(measured), strict=True)]
        for key in ("predictedPercent", "realisedPercent")
    }
    floor = number(records[0].policy.get("minimumImprovementPercent"))
    levels = [Level("minimum", floor, "limit")]
    series = [
        bars("predicted", "muted", rows["predictedPercent"], levels=levels),
        bars("realised", "actual", rows["realisedPercent"]),
    ]
    realised, predicted = (number(measured[0].get(key)) for key in ("realisedPercent", "predictedPercent"))
    words = (
        f"{counted(len(measured), 'measured rotation')}; after the last one the hottest pod used "
        f"{amount(realised, '%')} less, and {amount(predicted, '%')} was predicted."
    )
    options = by_name("% lower", names, series, trigger="axis")
    return Chart("Improvement, predicted and realised", options, words)


def _rotations(records: Sequence[Record]) -> Table | None:
    rows = tuple(
        (
            moment(number(one.get("endedAt"))),
            figure(number(one.get("waves"))),
            figure(number(one.get("evicted"))),
            figure(number(one.get("predictedPercent")), "%"),
            figure(number(one.get("realisedPercent")), "%"),
            ENDINGS.get(text(one.get("ending")), text(one.get("ending"))) or "-",
        )
        for one in _verdicts(records)
    )
    figures = ("Waves", "Pods", "Predicted, %", "Realised, %")
    return Table("Rotations", ("Ended", *figures, "Since"), rows, figures) if rows else None


def _waves(records: Sequence[Record]) -> Table | None:
    rows = []
    for record in records:
        evictions = [one for one in record.outcomes if isinstance(one.action, EvictPod)]
        wave = (count(record.decision.reason.numbers.get("wave")) or 0) + 1
        rows += [
            (moment(record.at), str(wave), text(one.action.pod), text(one.result), text(one.detail, 200))
            for one in evictions
        ]
    columns = ("When", "Wave", "Pod", "Came of it", "Detail")
    return Table("Waves", columns, tuple(rows[:WAVES_MAX]), ("Wave",)) if rows else None

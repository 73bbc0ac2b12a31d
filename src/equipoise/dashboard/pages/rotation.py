"""The rotation page: CPU per pod before and after, predicted and realised gains, and waves."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from equipoise.core.decision import EvictPod, Record
from equipoise.dashboard.charts import Bar, Level, bars, by_name
from equipoise.dashboard.page import Chart, Fact, Figures, Page, Table, facts_of, numbers_of, page_of
from equipoise.dashboard.values import Json, amount, counted, figure, moment, text

PODS_MAX = 60
ROTATIONS_MAX = 20
WAVES_MAX = 50
LINE_FACTS = (
    ("Target", "target_cores", "CPU of a pod at the target of the HPA"),
    ("Threshold", "threshold_cores", "a pod above it is hot"),
)
ENDINGS = {
    "NothingLeft": "no pod is hot any more",
    "UsedUp": "all planned pods were evicted",
    "Interrupted": "a rollout or the autoscaler interrupted it",
    "LeftOpen": "no further wave in time",
    "TimedOut": "the pods were not available and measured in time",
}


class PodUsage(NamedTuple):
    """One pod of an observation."""

    name: str
    cores: float


def page(records: Sequence[Record]) -> Page:
    """Return the page of workloads with rotation; records are newest first."""
    return page_of("Rotation", "rotation", "workload", records, _figures)


def _figures(records: Sequence[Record]) -> Figures:
    verdicts = _verdicts(records)
    return Figures(
        facts=_facts(records, verdicts),
        charts=(_usage(records), _improvement(verdicts, records[0])),
        tables=(_rotations(verdicts), _waves(records)),
    )


def _facts(records: Sequence[Record], verdicts: Sequence[Json]) -> Iterator[Fact]:
    numbers = numbers_of(records[0])
    yield from facts_of(numbers, "cores", LINE_FACTS)
    with_pods = next((record for record in records if _pods(record)), None)
    if with_pods is not None:
        hottest = _pods(with_pods)[0]
        since = "" if with_pods.streak is None else f", {moment(with_pods.at)}"
        yield Fact("Hottest pod", amount(hottest.cores, "cores"), f"{hottest.name}{since}")
    ready, unknown = numbers["pods_ready"].count, numbers["pods_unknown"].count
    if ready is not None:
        yield Fact("Ready", counted(ready, "pod"), f"usage of {unknown} unknown" if unknown else "")
    if verdicts:
        predicted, realised = _gain(verdicts[0])
        note = f"lower usage of the hottest pod; predicted {amount(predicted, '%')}"
        yield Fact("Last rotation", amount(realised, "%"), note)


def _pods(record: Record) -> list[PodUsage]:
    """Return the pods with measured usage, busiest first."""
    found = [
        PodUsage(pod["name"].text, cores)
        for pod in Json(record.observation)["pods"]
        if (cores := pod["cpu_cores"].number) is not None
    ]
    return sorted(found, key=lambda pod: (-pod.cores, pod.name))


def _is_rotating(memory: object) -> bool:
    return bool(Json(memory)["course"].items())


def _is_first_wave(record: Record) -> bool:
    is_evicting = any(isinstance(one.action, EvictPod) for one in record.outcomes)
    return is_evicting and not _is_rotating(record.memory)


def _before_and_after(records: Sequence[Record]) -> tuple[Record | None, Record | None]:
    """Return the record before the last rotation, and the one at its end, or else the newest."""
    with_pods = [record for record in records if _pods(record)]
    begin = next((place for place, record in enumerate(with_pods) if _is_first_wave(record)), None)
    if begin is None:
        return (with_pods[0] if with_pods else None), None
    later = with_pods[:begin]
    ended = [one for one in later if _is_rotating(one.memory) and not _is_rotating(one.decision.memory)]
    after = ended[-1] if ended else later[0] if later else None
    return with_pods[begin], after


def _usage(records: Sequence[Record]) -> Chart | None:
    """Return each pod's CPU as a bar, busiest first, beside that of the same rank after a rotation."""
    before, after = _before_and_after(records)
    if before is None:
        return None
    first, second = _pods(before), [] if after is None else _pods(after)
    numbers = Json(before.decision.reason.numbers)
    target, threshold = numbers["target_cores"].number, numbers["threshold_cores"].number
    levels = [Level("target", target, "target"), Level("threshold", threshold, "limit")]
    since = records if after is None else [one for one in records if before.at <= one.at <= after.at]
    evicted = {text(one.action.pod) for each in since for one in each.outcomes if one.result == "Accepted"}
    word = "before" if second else "now"
    series = list(_before(before, first[:PODS_MAX], evicted if second else set(), levels, word))
    if second:
        series.append(bars("after", "actual", [Bar(pod.name, pod.cores) for pod in second[:PODS_MAX]]))
    names = [f"{place}." for place in range(1, min(PODS_MAX, max(len(first), len(second))) + 1)]
    title = "CPU per pod before and after the last rotation" if second else "CPU per pod"
    return Chart(title, by_name("cores", names, series), _description(first, second, threshold))


def _before(
    record: Record, pods: Sequence[PodUsage], evicted: set[str], levels: Sequence[Level], word: str
) -> Iterator[dict[str, Any]]:
    """Yield the bars by kind: hot, cold, others; labelled with their position, or as evicted."""
    decision = record.decision
    hot = {pod.text for pod in Json(decision.reason.numbers)["hot"]}
    planned = [*decision.actions, *(held.action for held in decision.held)]
    positions = {text(action.pod): position for position, action in enumerate(planned, 1)}

    def bar(pod: PodUsage, colour: str) -> Bar:
        own = "hot" if pod.name in hot else "cold" if pod.name in positions else "muted"
        if own != colour:
            return Bar(pod.name, None)
        position = str(positions.get(pod.name, ""))
        return Bar(pod.name, pod.cores, label=f"{position} ✓" if pod.name in evicted else position)

    for colour, name in (("muted", word), ("hot", f"{word}, hot"), ("cold", f"{word}, cold")):
        values = [bar(pod, colour) for pod in pods]
        if colour == "muted" or any(bar.value is not None for bar in values):
            yield bars(name, colour, values, stack="before", levels=levels if colour == "muted" else ())


def _description(first: Sequence[PodUsage], second: Sequence[PodUsage], threshold: float | None) -> str:
    sentence = f"The hottest of {counted(len(first), 'pod')} used {amount(first[0].cores, 'cores')}"
    if second:
        sentence += f" before, and the hottest of {len(second)} used {amount(second[0].cores, 'cores')} after"
    if threshold is not None:
        above = sum(pod.cores > threshold for pod in second or first)
        is_are = "is" if above == 1 else "are"
        sentence += f"; {above} {is_are} above the threshold of {amount(threshold, 'cores')}"
    is_cut = max(len(first), len(second)) > PODS_MAX
    return f"{sentence}.{f' The {PODS_MAX} busiest are shown.' if is_cut else ''}"


def _verdicts(records: Sequence[Record]) -> list[Json]:
    """Return how rotations ended, the newest first; each ends once, and stays in the memory for long.

    One that ended while the reason stayed the same is known from its streak's numbers only.
    """
    found: dict[float, Json] = {}
    for record in records:
        for memory in (record.decision.memory, record.memory):
            last = Json(memory)["last"]
            ended = last["endedAt"].number
            if ended is not None:
                found.setdefault(ended, last)
    known = {_gain(one) for one in found.values()}
    for record in records:
        numbers = numbers_of(record)
        predicted, realised = (
            numbers[key].number for key in ("predicted_improvement_percent", "realised_improvement_percent")
        )
        if predicted is not None and realised is not None and (predicted, realised) not in known:
            known.add((predicted, realised))
            gain = {"predictedPercent": predicted, "realisedPercent": realised}
            found.setdefault(record.until, Json({"endedAt": record.until, **gain}))
    return [found[ended] for ended in sorted(found, reverse=True)[:ROTATIONS_MAX]]


def _gain(verdict: Json) -> tuple[float | None, float | None]:
    """Return the predicted and the realised gain in percent."""
    return verdict["predictedPercent"].number, verdict["realisedPercent"].number


def _improvement(verdicts: Sequence[Json], newest: Record) -> Chart | None:
    """Return predicted against realised gains, oldest rotation first."""
    measured = [one for one in reversed(verdicts) if _gain(one)[1] is not None]
    if not measured:
        return None
    names = [moment(one["endedAt"].number)[5:16] for one in measured]
    predicted, realised = zip(*map(_gain, measured), strict=True)
    levels = [Level("minimum", Json(newest.policy)["minimumImprovementPercent"].number, "limit")]
    series = [
        bars("predicted", "muted", list(map(Bar, names, predicted)), levels=levels),
        bars("realised", "actual", list(map(Bar, names, realised))),
    ]
    words = (
        f"{counted(len(measured), 'measured rotation')}; the last one lowered the usage of the hottest pod "
        f"by {amount(realised[-1], '%')}, and the prediction was {amount(predicted[-1], '%')}."
    )
    options = by_name("% lower", names, series, trigger="axis")
    return Chart("Improvement, predicted and realised", options, words)


def _rotations(verdicts: Sequence[Json]) -> Table:
    rows = tuple(
        (
            moment(one["endedAt"].number),
            figure(one["waves"].number),
            figure(one["evicted"].number),
            *(figure(percent, "%") for percent in _gain(one)),
            ENDINGS.get(one["ending"].text, one["ending"].text) or "-",
        )
        for one in verdicts
    )
    figures = ("Waves", "Pods", "Predicted, %", "Realised, %")
    return Table("Rotations", ("Ended", *figures, "Reason"), rows, figures)


def _waves(records: Sequence[Record]) -> Table:
    rows = []
    for record in records:
        wave = str((Json(record.decision.reason.numbers)["wave"].count or 0) + 1)
        rows += [
            (moment(record.at), wave, text(one.action.pod), text(one.result), text(one.detail, 200))
            for one in record.outcomes
            if isinstance(one.action, EvictPod)
        ]
    columns = ("Time", "Wave", "Pod", "Result", "Detail")
    return Table("Waves", columns, tuple(rows[:WAVES_MAX]), ("Wave",))

"""A range query of many series into one array, beside plain `json` and `float()`."""

from __future__ import annotations

import json
import math
import urllib.request
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlencode

import numpy as np

from benchmarks.measuring import MEBIBYTE, Figures, in_own_process, interleaved, measure
from benchmarks.serving import Answer, serving
from benchmarks.tables import Section, Table, ratio

SERIES = 1000
POINTS = 2016
STEP_SECONDS = 300
START = 1_789_999_800
SEED = 11
QUERY = 'rate(container_cpu_usage_seconds_total{container!=""}[5m])'
HOLES = {"none": 0, "a few: NaN and +Inf in 1 % of the series": 100, "NaN or +Inf in every series": 1}
"""Every how manyth series has one point that is no number."""


def prometheus(series: int, every: int) -> Answer:
    """Prepare the text of every point; an answer is joined once for each stretch that is asked for."""
    chance = np.random.default_rng(SEED)
    rows = chance.gamma(2.0, 0.25, (series, POINTS))
    if every:
        rows[::every, 7] = np.nan
        rows[:: every * 2, 9] = np.inf
    times = [START + i * STEP_SECONDS for i in range(POINTS)]
    texts = [
        [f'[{at},"{_text(value)}"]' for at, value in zip(times, row, strict=True)] for row in rows.tolist()
    ]

    @lru_cache(maxsize=16)
    def body(first: int, end: int) -> bytes:
        result = ",".join(
            f'{{"metric":{{"namespace":"shop","pod":"web-{i:05d}"}},"values":[{",".join(row[first:end])}]}}'
            for i, row in enumerate(texts)
        )
        return f'{{"status":"success","data":{{"resultType":"matrix","result":[{result}]}}}}'.encode()

    def answer(path: str, fields: Mapping[str, str]) -> bytes:
        if path == "/api/v1/query":
            count = f'[{{"metric":{{}},"value":[{fields["time"]},"{series}"]}}]'
            return f'{{"status":"success","data":{{"resultType":"vector","result":{count}}}}}'.encode()
        first, last = (round((float(fields[name]) - START) / STEP_SECONDS) for name in ("start", "end"))
        return body(first, last + 1)

    return answer


def _text(value: float) -> str:
    return repr(value) if math.isfinite(value) else "NaN" if math.isnan(value) else "+Inf"


def ours(url: str) -> Figures:
    from equipoise.adapters.prometheus.client import PrometheusClient
    from equipoise.adapters.prometheus.matrix import Grid
    from equipoise.adapters.prometheus.range import query_range
    from equipoise.adapters.prometheus.settings import PrometheusSettings
    from equipoise.adapters.prometheus.transport import Direct

    client = PrometheusClient(Direct(PrometheusSettings(url=url)))
    grid = Grid.over(START, START + (POINTS - 1) * STEP_SECONDS, STEP_SECONDS)
    matrix, taken = measure(lambda: query_range(client, QUERY, grid, ("namespace", "pod")))
    return taken.figures(**_checksum(matrix.values))


def plain(url: str) -> Figures:
    end = START + (POINTS - 1) * STEP_SECONDS
    form = urlencode({"query": QUERY, "start": START, "end": end, "step": STEP_SECONDS}).encode()

    def ask() -> Any:
        with urllib.request.urlopen(f"{url}/api/v1/query_range", form, timeout=60) as response:
            answer = json.load(response)
        return np.array([[float(text) for _, text in s["values"]] for s in answer["data"]["result"]])

    values, taken = measure(ask)
    return taken.figures(**_checksum(values))


def _checksum(values: Any) -> Figures:
    """Tell two arrays apart: the order counts, and so does what is no number."""
    weights = np.arange(1, values.size + 1).reshape(values.shape)
    finite = np.where(np.isfinite(values), values, 0.0)
    return {
        "sum": float((finite * weights).sum()),
        "nan": float((np.isnan(values) * weights).sum()),
        "infinite": float((np.isposinf(values) * weights).sum()),
        "array_bytes": float(values.nbytes),
    }


def run(*, quick: bool) -> Section:
    series = SERIES // 10 if quick else SERIES
    columns = (
        "points that are no number",
        "read by",
        "wall s",
        "CPU s",
        "extra peak MiB",
        "of it the array",
        "wall ratio",
        "CPU ratio",
        "peak ratio",
    )
    table = Table(columns)
    times: list[float] = []
    for holes, every in HOLES.items():
        with serving(prometheus, series=series, every=every) as url:
            for part in (ours, plain):
                in_own_process(part, url=url)  # so that the server has every stretch ready
            mine, peer = interleaved(1 if quick else 7, _part(ours, url), _part(plain, url))
        for name in ("sum", "nan", "infinite"):
            assert mine[name] == peer[name], f"{name} of {holes}: {mine[name]} and {peer[name]}"
        times.append(peer["cpu_seconds"] / mine["cpu_seconds"])
        for reader, figures in (("Equipoise", mine), ("`json` + `float()`", peer)):
            table.add(
                holes,
                reader,
                f"{figures['wall_seconds']:.2f}",
                f"{figures['cpu_seconds']:.2f}",
                f"{_extra(figures) / MEBIBYTE:.0f}",
                f"{figures['array_bytes'] / MEBIBYTE:.0f}",
                ratio(figures["wall_seconds"], mine["wall_seconds"]),
                ratio(figures["cpu_seconds"], mine["cpu_seconds"]),
                ratio(_extra(figures), _extra(mine)),
            )
    return Section(
        f"Range query: {series:,} series x {POINTS:,} points",
        [table],
        "A week at five minutes, from the first byte to an array: plain `json` takes "
        f"{times[0]:.1f} times the CPU time, {times[1]:.1f} times where a few points are no number, and "
        f"{times[2]:.1f} times where every series has one.",
        [
            "Both sides give the same checksum, holes included.",
        ],
    )


def _part(part: Callable[..., Figures], url: str) -> Callable[[], Figures]:
    return lambda: in_own_process(part, url=url)


def _extra(figures: Figures) -> float:
    return figures["peak_bytes"] - figures["rss_before_bytes"]

"""Remote read against a real Prometheus is, bit for bit, what raw PromQL gives; also where it hurts."""

import json
import math
import time
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import urllib3

from equipoise.adapters.prometheus import strategies as lots
from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.errors import QueryFailed, TooHeavy
from equipoise.adapters.prometheus.history import HistoryReading, HistorySource, PrometheusHistory
from equipoise.adapters.prometheus.promql import Matcher
from equipoise.adapters.prometheus.remote_read.frames import by_name
from equipoise.adapters.prometheus.remote_read.read import Form, RemoteRead
from equipoise.adapters.prometheus.remote_read.windows import STALE
from equipoise.adapters.prometheus.settings import PrometheusSettings
from equipoise.adapters.prometheus.strategies import ReducedUsage
from equipoise.adapters.prometheus.transport import Direct
from equipoise.ports.cluster import CPU, MEMORY, UsageHistory
from tests.e2e.conftest import Offered
from tests.support.e2e.remote_read import END, containers
from tests.testbed import ControlPlane, Kwok, Prometheus, StartPrometheus, wait_until
from tests.testbed.scenes import six_pods

HOURS = 30
START = END - HOURS * 3600
ODD = ["NaN", "+Inf", "-Inf", "-0.0", "0", "1e-320", "1.7976931348623157e308", "3", "3", "3", "0.1"]

Bits = dict[str, list[tuple[int, int]]]
"""For each series its times in milliseconds, and the bits of its values."""


def _hostile(chance: np.random.Generator) -> dict[str, list[tuple[int, str]]]:
    """Make series of every kind: time in milliseconds, value as text."""
    even = [1000 * START + 60_000 * i for i in range(HOURS * 60)]
    late = [at + int(chance.integers(-5000, 5001)) for at in even]
    wild = np.cumsum(chance.integers(1, 700_000, 600)) + 1000 * START
    counted = np.cumsum(chance.gamma(2.0, 9.0, len(even))).round(9).tolist()
    reset = [value % 1000.0 for value in counted]
    return {
        "odd": [(at, ODD[i % len(ODD)]) for i, at in enumerate(late)],
        "late": list(zip(late, map(repr, counted), strict=True)),
        "even": list(zip(even, map(repr, counted), strict=True)),
        "resets": list(zip(late, map(repr, reset), strict=True)),
        "constant": [(at, "7") for at in even],
        "zeros": [(at, "0") for at in late],
        "gaps": [(at, repr(at / 7)) for i, at in enumerate(late) if i % 100 < 60 or i % 1000 > 900],
        "wild": [(int(at), repr(float(chance.normal()))) for at in wild if at < 1000 * END],
        "random bits": [
            (at, repr(value))
            for at, value in zip(
                even, chance.integers(1, 1 << 62, len(even)).view(np.float64).tolist(), strict=True
            )
        ],
        "single": [(even[77], "42.5")],
        "two": [(even[0], "1"), (even[-1], "-1")],
        "fast": [(1000 * START + 250 * i, repr(i * 0.25)) for i in range(5000)],
    }


def _text(series: dict[str, list[tuple[int, str]]]) -> str:
    lines = ["# TYPE hostile gauge"]
    for name, samples in series.items():
        lines += [f'hostile{{name="{name}"}} {value} {at / 1000:.3f}' for at, value in samples]
    return "\n".join([*lines, "# EOF", ""])


def _raw(url: str, selector: str, start_ms: int, end_ms: int, label: str) -> Bits:
    """Ask for raw samples by PromQL: a range selector, hour by hour so that none is too large."""
    found: dict[str, dict[int, int]] = {}
    edges = [*range(start_ms - 1, end_ms, 36_000_000), end_ms]
    for first, last in pairwise(edges):
        # Ends that belong to it on both sides in version 2; the doubles are the same.
        query = f"{selector}[{last - first}ms]"
        fields = {"query": query, "time": f"{last / 1000:.3f}"}
        answer = urllib3.request("POST", f"{url}/api/v1/query", fields=fields)
        for series in json.loads(answer.data)["data"]["result"]:
            values = found.setdefault(series["metric"][label], {})
            for at, value in series["values"]:
                if start_ms <= round(at * 1000) <= end_ms:
                    values[round(at * 1000)] = _bits(value)
    return {name: sorted(values.items()) for name, values in found.items()}


def _bits(text: str) -> int:
    value = float(text)
    # Text cannot tell one NaN from another.
    return int(np.array([np.nan if math.isnan(value) else value]).view(np.uint64)[0])


def _read(reader: RemoteRead, matchers: list[Matcher], start_ms: int, end_ms: int, label: str) -> Bits:
    found: Bits = {}
    for batch in reader.series(matchers, start_ms, end_ms):
        is_sample = batch.values.view(np.int64) != STALE
        plain = np.where(np.isnan(batch.values), np.nan, batch.values).view(np.uint64)
        for row, (name,) in enumerate(batch.columns([label])):
            assert name not in found, "a series came twice"
            span = slice(int(batch.offsets[row]), int(batch.offsets[row + 1]))
            kept = is_sample[span]
            times, bits = batch.times[span][kept], plain[span][kept]
            found[name] = list(zip(times.tolist(), bits.tolist(), strict=True))
    return {name: samples for name, samples in found.items() if samples}


@pytest.fixture
def hostile(start_prometheus: StartPrometheus) -> Prometheus:
    """A server whose blocks are full of hostile series."""
    return start_prometheus(backfill=_text(_hostile(np.random.default_rng(7))))


def test_hostile_series_are_read_bit_for_bit(hostile: Prometheus) -> None:
    """NaN, Inf, -0.0, resets, gaps, jitter, one sample: by chunks, plain samples, PromQL, and as written."""
    written = {
        name: [(at, _bits(value)) for at, value in samples]
        for name, samples in _hostile(np.random.default_rng(7)).items()
    }
    asked = ([by_name("hostile")], 1000 * START, 1000 * END, "name")
    chunks, plain = (
        RemoteRead(Direct(PrometheusSettings(hostile.url)), streamed=streamed) for streamed in (True, False)
    )
    assert (chunks.probe(), plain.probe()) == (Form.CHUNKS, Form.SAMPLES)
    found = _read(chunks, *asked)
    assert found == written
    assert found == _raw(hostile.url, "hostile", 1000 * START, 1000 * END, "name")
    negative = _bits("-0.0")
    # As plain samples, zero is left out on the wire, and its sign with it.
    signless = {
        name: [(at, 0 if bits == negative else bits) for at, bits in samples]
        for name, samples in written.items()
    }
    assert _read(plain, *asked) == signless


def test_a_part_of_the_time_is_cut_exactly(hostile: Prometheus) -> None:
    """Both ends belong to it, wherever they fall within chunks."""
    reader = RemoteRead(Direct(PrometheusSettings(hostile.url)))
    for first, last in ((0, 1), (61_000, 7_261_000), (59_999, 60_000), (10_000_000, 90_000_001)):
        start, end = 1000 * START + first, 1000 * START + last
        whole = _read(reader, [by_name("hostile")], 1000 * START, 1000 * END, "name")
        cut = {name: [s for s in samples if start <= s[0] <= end] for name, samples in whole.items()}
        expected = {name: samples for name, samples in cut.items() if samples}
        assert _read(reader, [by_name("hostile")], start, end, "name") == expected


def test_matchers_pick_the_series_that_promql_picks(hostile: Prometheus) -> None:
    """All four kinds."""
    reader = RemoteRead(Direct(PrometheusSettings(hostile.url)))
    for matcher in (
        Matcher("name", "=", "odd"),
        Matcher("name", "!=", "odd"),
        Matcher("name", "=~", "(o|e).*"),
        Matcher("name", "!~", "(o|e).*|random bits"),
    ):
        found = _read(reader, [by_name("hostile"), matcher], 1000 * START, 1000 * END, "name")
        assert found == _raw(hostile.url, f"hostile{{{matcher}}}", 1000 * START, 1000 * END, "name"), matcher


def test_the_sample_limit_of_the_server_is_told(start_prometheus: StartPrometheus) -> None:
    """It holds for plain samples only; chunks are streamed past it."""
    text = _text({"late": _hostile(np.random.default_rng(7))["late"]})
    server = start_prometheus(backfill=text, extra_args=["--storage.remote.read-sample-limit=100"])
    way = Direct(PrometheusSettings(server.url))
    asked = ([by_name("hostile")], 1000 * START, 1000 * END, "name")
    assert len(_read(RemoteRead(way), *asked)["late"]) == HOURS * 60
    with pytest.raises(TooHeavy, match="sample limit"):
        _read(RemoteRead(way, streamed=False), *asked)


def test_a_large_series_comes_in_several_frames(start_prometheus: StartPrometheus) -> None:
    """The server is told to send small ones."""
    series = _hostile(np.random.default_rng(7))
    server = start_prometheus(
        backfill=_text(series), extra_args=["--storage.remote.read-max-bytes-in-frame=2000"]
    )
    asked = ([by_name("hostile")], 1000 * START, 1000 * END, "name")
    found = _read(RemoteRead(Direct(PrometheusSettings(server.url))), *asked)
    assert found == {name: [(at, _bits(v)) for at, v in samples] for name, samples in series.items()}


def test_blocks_that_overlap_are_read_in_order(offered: Offered, tmp_path: Path) -> None:
    """A series that was written twice, out of order and with doubles, comes once and sorted."""
    even = [(1000 * START + 60_000 * i, repr(i / 3)) for i in range(1000)]
    odd = [(at + 30_000, value) for at, value in even[100:700]] + even[650:690]
    with offered():
        server = Prometheus(tmp_path / "overlapping")
        server.backfill(_text({"late": even, "other": even[:10]}))
        server.backfill(_text({"late": sorted(odd)}))
        server.start()
    try:
        asked = (1000 * START, 1000 * END, "name")
        found = _read(RemoteRead(Direct(PrometheusSettings(server.url))), [by_name("hostile")], *asked)
        assert [at for at, _ in found["late"]] == sorted({at for at, _ in (*even, *odd)})
        assert found == _raw(server.url, "hostile", *asked)
    finally:
        server.stop()


@pytest.mark.parametrize("samples_per_time_max", [1.25, 0], ids=["raw samples", "reduced by the server"])
def test_every_way_gives_the_same_history(
    start_prometheus: StartPrometheus, monkeypatch: pytest.MonkeyPatch, samples_per_time_max: float
) -> None:
    """Chunks and raw samples that we reduce, and PromQL that the server reduces, number for number."""
    monkeypatch.setattr(lots, "SAMPLES_PER_TIME_MAX", samples_per_time_max)
    server = start_prometheus(backfill=containers(END))
    found: dict[tuple[str, str], dict[Any, Any]] = {}
    with closing(PrometheusClient(Direct(PrometheusSettings(server.url)))) as client:
        for source in (HistorySource.REMOTE_READ, HistorySource.PROMQL):
            history = PrometheusHistory(client, source=source)
            for one in _without_queries(history) if source is HistorySource.REMOTE_READ else _all(history):
                keys = zip(one.namespaces, one.pods, one.containers, strict=True)
                found[one.measure, source] = dict(zip(keys, one.values, strict=True))
                assert one.warnings == ()
                assert one.source.startswith(
                    "PromQL" if source is HistorySource.PROMQL else "remote read (chunks)"
                )
                assert one.window_seconds == (150 if one.measure == "cpu" else 79_920)
        _compare_in_parts(client, found["cpu", HistorySource.REMOTE_READ])
    for measure in ("cpu", "memory"):
        ours, theirs = found[measure, HistorySource.REMOTE_READ], found[measure, HistorySource.PROMQL]
        assert ours.keys() == theirs.keys()
        assert len(ours) == 6
        for key, values in ours.items():
            # Only where a counter was reset does another order of adding show, in the last digits.
            exact = values if key[1] != "pod-4" else values.round(9)
            expected = theirs[key] if key[1] != "pod-4" else theirs[key].round(9)
            np.testing.assert_array_equal(exact, expected, err_msg=f"{measure} of {key}")
            assert np.isnan(values).any() == (key[1] == "pod-5" and measure == "cpu")
    raw = _raw(server.url, MEMORY.metric, 1000 * (END - 79_980), 1000 * (END - 60), "pod")
    peaks = {pod: max(bits for _, bits in samples) for pod, samples in raw.items()}
    assert {key[1]: _bits(repr(float(top))) for key, (top,) in ours.items()} == peaks


def _all(history: PrometheusHistory) -> list[UsageHistory]:
    return list(history.read((CPU, MEMORY), END - 80_000, END - 60, 60))


def _without_queries(history: PrometheusHistory) -> list[UsageHistory]:
    """Read memory by remote read too, as where the query for it fails."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(HistoryReading, "_by_promql", _refusing)
        return _all(history)


def _refusing(reading: HistoryReading, job: lots.Job) -> ReducedUsage:
    raise QueryFailed(f"{reading.history.client.address}: {job.measure.metric} is not asked for here")


def _compare_in_parts(client: PrometheusClient, whole: dict[Any, Any]) -> None:
    """Read namespaces that are too large for the memory there is, pod by pod."""
    for source in (HistorySource.REMOTE_READ, HistorySource.PROMQL):
        history = PrometheusHistory(client, source=source, lots_max_bytes=2 * 1333 * 8)
        parts = list(history.read((CPU,), END - 80_000, END - 60, 60, grouping=lambda _, pods: list(pods)))
        assert [lot.groups for lot in parts] == [frozenset({pod}) for ns in range(3) for pod in _pods(ns)]
        for lot in parts:
            (key,) = zip(lot.namespaces, lot.pods, lot.containers, strict=True)
            np.testing.assert_array_equal(lot.values[0].round(9), whole[key].round(9))


def _pods(namespace: int) -> list[str]:
    return [f"pod-{namespace}", f"pod-{namespace + 3}"]


def test_what_is_scraped_and_was_marked_stale_is_read_as_promql_reads_it(
    control_plane: ControlPlane, kwok: Kwok, namespace: str, start_prometheus: StartPrometheus
) -> None:
    """Samples in the head, which is still being written, and the markers of pods that are gone."""
    pods = six_pods(control_plane, kwok, namespace=namespace)
    server = start_prometheus(kwok=kwok)
    selector = f'container_cpu_usage_seconds_total{{namespace="{namespace}"}}'
    server.wait_for(f"count_over_time({selector}[1m]) >= 5", len(pods))
    began = round(time.time() * 1000) - 60_000
    gone = pods["A"]
    control_plane.api.delete(f"/api/v1/namespaces/{namespace}/pods/{gone}")
    server.wait_for(f'absent({selector[:-1]},pod="{gone}"}})')
    until = round(time.time() * 1000) - 2000
    matchers = [by_name("container_cpu_usage_seconds_total"), Matcher("namespace", "=", namespace)]
    reader = RemoteRead(Direct(PrometheusSettings(server.url)))
    batches = list(reader.series(matchers, began, until + 2000))
    assert any((batch.values.view(np.int64) == STALE).any() for batch in batches), "a marker was to come"

    def is_same() -> bool:
        """Whether both read the same; a scrape that a busy machine ends late may come between them."""
        found = _read(reader, matchers, began, until, "pod")
        assert gone in found
        return found == _raw(server.url, selector, began, until, "pod")

    wait_until(is_same, "the same samples by remote read and by PromQL", 60)


def test_a_store_of_older_samples_that_is_down_makes_the_past_partial(
    start_prometheus: StartPrometheus,
) -> None:
    """Behind a Prometheus that reads them from it: remote read gives a third of the past, without a word."""
    times, cut = range(START, END, 60), END - HOURS * 1200
    parts = [["# TYPE container_cpu_usage_seconds counter"], ["# TYPE container_cpu_usage_seconds counter"]]
    for pod in range(3):
        head = f'{CPU.metric}{{container="app",namespace="shop",pod="web-{pod}"}}'
        for at in times:
            parts[at >= cut].append(f"{head} {at - START} {at}")
    old, recent = ("\n".join([*part, "# EOF", ""]) for part in parts)
    older = start_prometheus(backfill=old)
    server = start_prometheus(backfill=recent, older_from=[older.url])

    def found(source: HistorySource) -> tuple[int, tuple[str, ...], str]:
        with closing(PrometheusClient(Direct(PrometheusSettings(server.url)))) as client:
            (lot,) = PrometheusHistory(client, source=source).read((CPU,), START, END - 60, 60.0)
        return int((~np.isnan(lot.values)).sum()), lot.partial, lot.source.partition(" of ")[0]

    whole, why, way = found(HistorySource.AUTO)
    assert (whole > 3 * 0.95 * len(times), why, way) == (True, (), "remote read (chunks)")
    older.stop()
    for source in (HistorySource.AUTO, HistorySource.PROMQL):
        known, why, _ = found(source)
        assert known < whole / 2
        assert len(why) == 1
        assert why[0].startswith("remote_read: ")

"""Files that users give us: CSV and Parquet in every usual form, and what is wrong with the others."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from equipoise.adapters.sample_files import read_samples
from equipoise.adapters.sample_files.csv import read_csv
from equipoise.core.errors import BadInput
from equipoise.recommendation.files import FileDefaults, observe
from equipoise.stats.samples import Samples

CSV = {
    "seconds": "timestamp,value\n1700006400,1.5\n1700006460,2\n",
    "ts": "ts,value\n1700006400.0,1.5\n1700006460,2e0\n",
    "iso": "timestamp,value\n2023-11-15T00:00:00Z,1.5\n2023-11-15T00:01:00Z,2.0\n",
    "offset": "timestamp,value\n2023-11-15T01:00:00+01:00,1500m\n2023-11-15T01:01:00.000+01:00,2\n",
    "no zone, spaces": "timestamp, value\n2023-11-15 00:00:00, 1.5\n2023-11-15 00:01:00, 2 \n",
    "carriage returns": "timestamp,value\r\n1700006400,1.5\r\n1700006460,2\r\n",
    "no end, blank lines": "timestamp,value\n\n1700006400,1.5\n\n1700006460,2",
    "quotes": '"timestamp","value"\n"1700006400","1.5"\n"1700006460","2"\n',
    "times of both forms": "timestamp,value\n1700006400,1.5\n2023-11-15T01:01:00+01:00,2\n",
    "times of both forms, the other first": "timestamp,value\n2023-11-15T00:00:00Z,1.5\n1.70000646e9,2\n",
    "other order": "value,timestamp\n1.5,1700006400\n2,1700006460\n",
    "mark": "\ufefftimestamp,value\n1700006400,1.5\n1700006460,2\n",
}


@pytest.mark.parametrize("text", CSV.values(), ids=CSV.keys())
def test_csv_is_read_in_every_usual_form(text: str, tmp_path: Path) -> None:
    """The same two samples."""
    path = tmp_path / "usage.csv"
    path.write_text(text, encoding="utf-8")
    samples = read_samples(str(path))
    assert samples.times.tolist() == [1700006400.0, 1700006460.0]
    assert samples.values.tolist() == [1.5, 2.0]


def test_a_request_may_be_in_the_file_of_one_workload_too(tmp_path: Path) -> None:
    """It wins over what the command line says, and the latest over the others."""
    path = tmp_path / "usage.csv"
    path.write_text("timestamp,value,request\n1700006400,1.5,250m\n1700006460,2,500m\n1700006520,2,\n")
    assert observe(
        read_samples(str(path)), FileDefaults("f", request_cores=4.0), "web"
    ).request_cores.tolist() == [0.5]


def test_odd_numbers_are_read_as_what_they_are(tmp_path: Path) -> None:
    """Exactly as Python would, digit by digit."""
    words = [
        "NaN",
        "nan",
        "+Inf",
        "-Inf",
        "-1",
        "",
        "1e-7",
        "0.1",
        "123456789.123456789",
        "0.30000000000000004",
        ".5",
        "7.",
    ]
    path = tmp_path / "usage.csv"
    path.write_text("timestamp,value\n" + "".join(f"{n},{word}\n" for n, word in enumerate(words)))
    expected = [float(word) if word else np.nan for word in words]
    np.testing.assert_allclose(read_csv(str(path)).values, expected, rtol=2e-16)


def test_amounts_of_any_sign_are_read(tmp_path: Path) -> None:
    """What is below nothing is no usage, in whatever form; it is dropped where samples enter."""
    path = tmp_path / "usage.csv"
    words = ("250m", "-250m", "-5u", "-1k", "1e-3")
    path.write_text("timestamp,value\n" + "".join(f"{n},{word}\n" for n, word in enumerate(words)))
    np.testing.assert_allclose(read_csv(str(path)).values, [0.25, -0.25, -5e-6, -1000, 1e-3])


def test_names_are_kept_apart_over_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file is read in blocks, and a name has one number in all of them."""
    monkeypatch.setattr("equipoise.adapters.sample_files.csv.BLOCK_BYTES", 64)
    path = tmp_path / "usage.csv"
    rows = [f"{60 * t},ns-{p % 2},web,web-{p},{p}.25,{p + 1}00m" for t in range(20) for p in range(5)]
    path.write_text("timestamp,namespace,workload,pod,value,request\n" + "\n".join(rows) + "\n")
    samples = read_csv(str(path))
    words = [samples.names["pod"][code] for code in samples.labels["pod"]]
    assert words == [f"web-{p}" for _ in range(20) for p in range(5)]
    assert samples.values.tolist() == [p + 0.25 for _ in range(20) for p in range(5)]
    observed = observe(samples, FileDefaults("f"), "")
    assert observed.subjects == ["ns-0/web", "ns-1/web"]
    assert observed.request_cores.tolist() == [0.5, 0.4]


FILES = {
    "no such file": (None, "file.csv: No such file or directory"),
    "empty": ("", "timestamp,namespace,workload,pod,value, got an empty file"),
    "unknown column": ("when,value\n", "got the column 'when'"),
    "no value": ("timestamp\n1\n", "without value"),
    "twice": ("ts,timestamp,value\n", "got timestamp twice"),
    "too many columns": ("timestamp,value\n1,2\n3,4,5\n", "file.csv: line 3: expected 2 columns, got 3"),
    "no number": ("timestamp,value\n1,2\n\n3,x\n", "file.csv: line 4: value: expected a number, got 'x'"),
    "no time": ("timestamp,value\nyesterday,2\n", "line 2: timestamp: expected seconds or ISO 8601"),
    "no such day": (
        "timestamp,value\n2026-02-30T00:00:00Z,2\n",
        "line 2: timestamp: expected seconds or ISO 8601",
    ),
    "NaN as time": ("timestamp,value\nNaN,2\n", "line 2: timestamp: expected seconds or ISO 8601, got 'NaN'"),
    "milliseconds": (
        "timestamp,value\n1700006400000,2\n",
        "timestamp: expected seconds since 1970 or ISO 8601, got 1700006400000; are these milliseconds?",
    ),
    "nanoseconds": ("timestamp,value\n1700006400000000000,2\n", "are these nanoseconds?"),
    "a point for what is missing": (
        "timestamp,value\n1,2\n2,.\n",
        "line 3: value: expected a number, got '.'",
    ),
    "a quoted comma": ('timestamp,value\n"1","1,5"\n', "line 2: value: expected a number, got '1,5'"),
    "one name for two": (
        "timestamp,namespace,workload,pod,value\n1,a,b/web,p,2\n1,a/b,web,p,3\n",
        "expected workloads that can be told apart, got 'a/b/web' twice, from names with a / in them",
    ),
    "gzip": ("\x1f\x8b\x08", "workload,pod,value, got gzip; unpack it, such as by zcat"),
    "a name with a comma": (
        'timestamp,workload,pod,value\n1,we_b,a,2\n1,"we,b",a,3\n',
        "line 3: workload: expected a name, got 'we,b'",
    ),
    "a name of two lines": (
        'timestamp,workload,pod,value\n1,we b,a,2\n1,"we\nb",a,3\n',
        "line 3: workload: expected a name, got 'we\\nb'",
    ),
    "a name that returns": (
        'timestamp,workload,pod,value\n1,web,p,2\n1,web,"p\r",3\n',
        "line 3: pod: expected a name, got 'p\\r'",
    ),
    "no time in a row": (
        "timestamp,value\n2026-02-01T00:00:00Z,2\n,3\n",
        "line 3: timestamp: expected seconds or ISO 8601, got ''",
    ),
    "an amount as time": ("timestamp,value\n250m,2\n", "line 2: timestamp: expected seconds or ISO 8601"),
    "a quote without an end": (
        'timestamp,value\n"' + "x" * 140_000,
        "from line 2 on: expected quotes in pairs",
    ),
    "no amount": (
        "timestamp,value\n1,1e300\n",
        "value: expected at most 1,000,000,000,000 cores, got a number of 301 digits",
    ),
    "before all calendars": (
        "timestamp,value\n-99999999999,2\n",
        "timestamp: expected seconds since 1970 or ISO 8601, got -99999999999",
    ),
    "too close": (
        "timestamp,value\n0.000001,1\n0.000002,2\n",
        "timestamp: expected samples at least 0.05 s apart, got 0.000001 s",
    ),
    "memory": ("timestamp,value\n1700006400,1Gi\n", "line 2: value: expected a number, got '1Gi'"),
    "no name": (
        "timestamp,namespace,workload,pod,value\n1,shop,web,a,2\n1,shop,,a,2\n",
        "line 3: workload: expected a name, got ''",
    ),
    "no pod's name": (
        "timestamp,workload,pod,value\n1,web,a,2\n1,web,,2\n",
        "line 3: pod: expected a name, got ''",
    ),
    "letters of another code": (
        "timestamp,workload,pod,value\n1,caf\xe9,a,2\n",
        "line 2: workload: expected a name, got 'caf\ufffd'",
    ),
    "a name that moves the cursor": (
        "timestamp,namespace,workload,pod,value\n1,shop,we\x1b[31mb,a,2\n",
        "line 2: workload: expected a name, got 'we\\x1b[31mb'",
    ),
    "a request of memory": (
        "timestamp,workload,pod,value,request\n1,web,a,2,1e9\n",
        "request: expected at most 1,000,000 cores for a pod, got 1,000,000,000",
    ),
    "no year": ("timestamp,value\n1e300,2\n", "timestamp: expected seconds since 1970 or ISO 8601"),
    "no lines": (
        "\n\n",
        "file.csv: line 1: expected a header such as timestamp,value or timestamp,namespace,",
    ),
    "semicolons": ("timestamp;value\n1;2\n", "'timestamp;value'; columns are separated by commas"),
    "other letters": ("\ufefft\x00".encode("utf-16-le").decode("latin-1"), "in UTF-8, got UTF-16"),
    "pods without a workload": (
        "timestamp,pod,value\n1,a,2\n1,b,3\n",
        "expected a column workload beside pod, or the file as --pod-usage",
    ),
    "no workload": ("timestamp,namespace,value\n1,a,2\n", "expected a column workload beside namespace"),
    "no pod": ("timestamp,workload,value\n1,web,2\n", "expected a column pod"),
    "no text": ("\x00\x01\x02", "file.csv: line 1: expected a header"),
}


@pytest.mark.parametrize(("text", "message"), FILES.values(), ids=FILES.keys())
def test_a_bad_file_is_named_with_its_line(text: str | None, message: str, tmp_path: Path) -> None:
    """With its path, the line, and what was expected."""
    path = tmp_path / "file.csv"
    if text is not None:
        path.write_text(text, "latin-1")
    with pytest.raises(BadInput, match=re.escape(message)) as caught:
        observe(read_samples(str(path)), FileDefaults(str(path)), "")
    assert str(caught.value).startswith(str(path))


def test_parquet_gives_what_csv_gives(tmp_path: Path) -> None:
    """With times as seconds, as moments and as text."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    times = [1700006400, 1700006460]
    for kind in (
        times,
        pa.array([t * 1000 for t in times], pa.timestamp("ms", "UTC")),
        ["2023-11-15T00:00:00Z"] * 2,
    ):
        path = tmp_path / "usage"
        parquet.write_table(pa.table({"ts": kind, "pod": ["a", "b"], "value": [1.5, 2.0]}), path)
        samples = read_samples(str(path))
        assert samples.times[0] == 1700006400.0
        assert samples.values.tolist() == [1.5, 2.0]
        assert list(samples.names["pod"]) == ["a", "b"]
    parquet.write_table(
        pa.table({"ts": pa.array([1, None], pa.timestamp("s")), "value": [1.5, 2.0]}), tmp_path / "hole"
    )
    assert np.isnan(read_samples(str(tmp_path / "hole")).times).tolist() == [False, True]
    path = tmp_path / "usage.parquet"
    parquet.write_table(pa.table({"when": times, "value": [1, 2]}), path)
    with pytest.raises(BadInput, match="'when'"):
        read_samples(str(path))
    path.write_text("no parquet")
    with pytest.raises(BadInput, match="expected a Parquet file"):
        read_samples(str(path))


def test_a_parquet_file_is_as_hostile_as_any(tmp_path: Path) -> None:
    """A namespace that is missing is none, words are numbers where they can be, folders are no columns."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    def read(**columns: Any) -> Samples:
        folder = tmp_path / "day=1"
        folder.mkdir(exist_ok=True)
        parquet.write_table(pa.table(columns), folder / "usage.parquet")
        return read_samples(str(folder / "usage.parquet"))

    samples = read(ts=[1, 2, 3], namespace=["a", None, "a"], value=pa.array(["250m", None, "NaN"]))
    assert [samples.names["namespace"][code] for code in samples.labels["namespace"]] == ["a", "", "a"]
    np.testing.assert_equal(samples.values, [0.25, np.nan, np.nan])
    assert read(ts=["1700006400", "2023-11-15"], value=[1, 2]).times.tolist() == [1700006400.0, 1700006400.0]
    nobody = pa.array([], pa.string())
    assert len(read(ts=pa.array([], pa.int64()), pod=nobody, value=pa.array([], pa.float64())).times) == 0
    many: dict[str, Any] = {"ts": [1, 2], "pod": ["a", "b"], "value": [1.0, 2.0]}
    for columns, message in (
        ({"ts": [1], "timestamp": [1], "value": [1]}, "got timestamp twice"),
        (many | {"workload": ["web", None]}, "workload: expected a name, got ''"),
        (many | {"pod": ["a", None]}, "pod: expected a name, got ''"),
        (many | {"pod": ["a", "b\x07"]}, "pod: expected a name, got 'b\\x07'"),
        ({"ts": ["soon"], "value": [1]}, "timestamp: expected seconds or ISO 8601, got 'soon'"),
        ({"ts": [1], "value": ["1Gi"]}, "value: expected a number, got '1Gi'"),
        ({"ts": [1], "value": [[1.0]]}, "value: expected a number, got 'list<"),
    ):
        with pytest.raises(BadInput, match=re.escape(message)):
            read(**columns)

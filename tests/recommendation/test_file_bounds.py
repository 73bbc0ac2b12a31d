"""Files cost time and memory in proportion to what they say, however they are made."""

import csv
import io
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.adapters import sample_files
from equipoise.adapters.sample_files import read_samples
from equipoise.core.errors import BadInput
from tests.support.cli.terminal import CODES
from tests.support.recommendation.worlds import decisions

HEADER = "timestamp,namespace,workload,pod,value\n"
NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-.", min_size=1, max_size=253)


def write(path: Path, rows: list[tuple[object, ...]]) -> str:
    with path.open("w", newline="") as file:
        file.write(HEADER)
        csv.writer(file).writerows(rows)
    return str(path)


def test_a_name_longer_than_kubernetes_allows_is_refused_at_once(tmp_path: Path) -> None:
    """It is named by its line and its length; 253 characters are still a name."""
    rows: list[tuple[object, ...]] = [(n, "shop", "web", "a" * 253, 1) for n in range(9)]
    assert read_samples(write(tmp_path / "file.csv", rows)).names["pod"] == ["a" * 253]
    path = write(tmp_path / "long.csv", [*rows, (9, "shop", "web", "a" * 100_000, 1)])
    message = f"{path}: line 11: pod: expected a name of at most 253 characters, got 100,000: 'aaaa"
    with pytest.raises(BadInput, match=re.escape(message)):
        read_samples(path)


@given(st.lists(st.tuples(NAMES, NAMES), min_size=1, max_size=40))
def test_names_of_any_lengths_are_told_apart(pairs: list[tuple[str, str]]) -> None:
    """Short rows, which end early, and long ones beside each other are what the csv module reads."""
    text = HEADER + "".join(f"{n},s,{work},{pod},1\n" for n, (work, pod) in enumerate(pairs))
    expected = [(row["workload"], row["pod"]) for row in csv.DictReader(io.StringIO(text))]
    from equipoise.adapters.sample_files import csv as reader

    samples = reader._read("-", io.BytesIO(text.encode()), lambda _: None)
    found = zip(
        *([samples.names[name][code] for code in samples.labels[name]] for name in ("workload", "pod")),
        strict=True,
    )
    assert list(found) == expected


def test_one_long_name_does_not_cost_the_other_rows_time(tmp_path: Path) -> None:
    """Reading takes time for the bytes that are there, not for the longest name times all rows."""
    short: list[tuple[object, ...]] = [(n, "shop", "web", "a", 1) for n in range(300_000)]
    plain = write(tmp_path / "plain.csv", short)
    mixed = write(tmp_path / "mixed.csv", [*short, (9, "shop", "web", "a" * 253, 1)])

    def seconds(path: str) -> float:
        began = time.process_time()
        read_samples(path)
        return time.process_time() - began

    assert min(seconds(mixed) for _ in range(3)) < 3 * min(seconds(plain) for _ in range(3))


def test_a_long_table_is_printed_without_being_laid_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight thousand workloads are one line each, with everything that the short table says."""
    from rich.console import Console
    from rich.table import Table

    from equipoise.cli.recommendation_table import print_tables
    from equipoise.recommendation.files import FileDefaults, observe_many
    from equipoise.recommendation.settings import RecommendationPolicy

    rows: list[tuple[object, ...]] = [(60 * (n % 7), "shop", f"w{n}", f"w{n}-a", 0.5) for n in range(8_000)]
    (seen,) = observe_many(
        read_samples(write(tmp_path / "file.csv", rows)), FileDefaults("f", request_cores=1), []
    )
    decided = decisions(RecommendationPolicy(), seen)
    laid_out: list[object] = []
    render = Console.render

    def counted(console: Console, renderable: Any, options: Any = None) -> Any:
        laid_out.append(renderable)
        return render(console, renderable, options)

    monkeypatch.setattr(Console, "render", counted)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "250")
    print_tables(decided[:1_000])
    printed = CODES.sub("", capsys.readouterr().out)
    first = [line.split() for line in printed.splitlines() if "LowUsage" in line]
    assert len(first) == 1_000
    assert any(isinstance(each, Table) for each in laid_out)
    laid_out.clear()
    print_tables(decided)
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("shop/")]
    assert lines[:1_000] == first
    assert len(lines) == 8_000
    assert not any(isinstance(each, Table) for each in laid_out)


def test_many_steps_in_one_file_are_sorted_out_once(tmp_path: Path) -> None:
    """A file in which every workload keeps a step of its own is not read once for each of them."""
    from equipoise.recommendation.files import FileDefaults, observe_many

    def seconds(count: int) -> float:
        rows: list[tuple[object, ...]] = [
            (60 * n, "shop", "usual", f"usual-{n % 50}", 1) for n in range(20 * count)
        ]
        rows += [
            (round((100 + 0.5 * work) * n, 1), "shop", f"w{work}", f"w{work}-a", 1)
            for work in range(count)
            for n in range(14)
        ]
        samples = read_samples(write(tmp_path / f"{count}.csv", rows))
        began = time.process_time()
        found = observe_many(samples, FileDefaults("file"), [])
        assert sum(len(seen.subjects) for seen in found) == count + 1
        return time.process_time() - began

    small = seconds(100)
    assert seconds(800) < 24 * small


@pytest.fixture
def parquet() -> Any:
    """Return the module that writes files, where the extra is installed."""
    return pytest.importorskip("pyarrow.parquet")


def test_parquet_is_judged_by_its_footer_before_anything_is_unpacked(
    parquet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More rows than the bound, in a file of 25 kB, are refused without reading them."""
    import pyarrow as pa

    from equipoise.adapters.sample_files import parquet as reader

    monkeypatch.setattr(reader, "ROWS_MAX", 2_000_000, raising=False)
    path = tmp_path / "huge.parquet"
    part = pa.table({name: np.zeros(1_000_000) for name in ("timestamp", "value")})
    with parquet.ParquetWriter(path, part.schema) as writer:
        for _ in range(3):
            writer.write_table(part)
    assert path.stat().st_size < 100_000
    with pytest.raises(BadInput, match="expected at most 2,000,000 rows, got 3,000,000"):
        read_samples(str(path))


def test_parquet_has_the_rows_of_its_row_groups(
    parquet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A footer that speaks of one row in all is not believed."""
    import pyarrow as pa

    from equipoise.adapters.sample_files import parquet as reader

    monkeypatch.setattr(reader, "ROWS_MAX", 2_000_000, raising=False)
    path = tmp_path / "lie.parquet"
    part = pa.table({name: np.zeros(3_000_000) for name in ("timestamp", "value")})
    parquet.write_table(part, path, row_group_size=1_000_000)
    written = path.read_bytes()
    rows, one = (
        b"\x16\x80\x9b\xee\x02",
        b"\x16\x82\x80\x80\x00",
    )  # Thrift: a field of 64 bits, 3,000,000 and 1
    assert written.count(rows) == 1
    path.write_bytes(written.replace(rows, one))
    assert parquet.read_metadata(path).num_rows == 1
    with pytest.raises(BadInput, match="expected at most 2,000,000 rows, got 3,000,000"):
        read_samples(str(path))


def test_a_byte_of_parquet_that_is_wrong_is_a_refusal(parquet: Any, tmp_path: Path) -> None:
    """Each of the data in turn, those among them that say which word of a dictionary a row has."""
    import pyarrow as pa

    path = tmp_path / "damaged.parquet"
    pods = [f"web-{n % 5}" for n in range(20)]
    columns = {"ts": np.arange(20), "workload": ["web"] * 20, "pod": pods, "value": ["1", "2"] * 10}
    parquet.write_table(pa.table(columns), path, compression="none")
    written = path.read_bytes()
    footer = int.from_bytes(written[-8:-4], "little")
    refused = 0
    for place in range(4, len(written) - footer - 8):
        path.write_bytes(written[:place] + bytes([written[place] ^ 0xFF]) + written[place + 1 :])
        try:
            read_samples(str(path))
        except BadInput:
            refused += 1
    assert refused > 100


def _bombs() -> dict[str, tuple[Any, str]]:
    """Return columns that are few bytes in a file, and what is said of each."""
    pa = pytest.importorskip("pyarrow")
    count = 20_000
    long = pa.array(["1" * 10_000]).take(pa.array(np.zeros(count, np.int64)))
    wide = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(10_000), count, [None, pa.py_buffer(bytes(count * 10_000))]
    )
    floats = pa.array(np.zeros(5_000_000))
    lists = pa.ListArray.from_arrays(np.append(np.zeros(count, np.int32), np.int32(len(floats))), floats)
    return {
        "lists": (lists, "value: expected a number, got 'list<"),
        "structures": (
            pa.StructArray.from_arrays([floats[:count]], ["a"]),
            "value: expected a number, got 'struct<",
        ),
        "bytes": (wide, "value: expected a number, got 'fixed_size_binary"),
        "text": (long, "expected at most 512 bytes for a name or a number, got 200,"),
    }


@pytest.mark.parametrize("kind", ["lists", "structures", "bytes", "text"])
def test_parquet_whose_rows_hold_more_than_a_number_is_refused_by_its_footer(
    parquet: Any, tmp_path: Path, kind: str
) -> None:
    """Arrow unpacks nothing of it."""
    import pyarrow as pa

    values, message = _bombs()[kind]
    path = tmp_path / "bomb.parquet"
    columns = pa.table({"ts": np.arange(len(values)), "value": values})
    parquet.write_table(columns, path, compression="zstd", use_dictionary=kind == "lists")
    assert path.stat().st_size < 250_000
    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    former = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        with pytest.raises(BadInput, match=re.escape(message)):
            read_samples(str(path))
    finally:
        pa.set_memory_pool(former)
    assert pool.max_memory() < 1_000_000


def test_numbers_that_parquet_has_as_text_are_read_once_each(
    parquet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million rows of two texts are two numbers; what is missing is unknown, as in a CSV file."""
    import pyarrow as pa

    from equipoise.adapters.sample_files import parquet as reader

    values = pa.array(["250m", "1.5", None]).take(pa.array(np.arange(1_000_000) % 3))
    parquet.write_table(pa.table({"ts": np.arange(1_000_000), "value": values}), tmp_path / "text.parquet")
    read = reader._read
    asked: list[object] = []

    def counted(column: str, word: object, form: Any) -> float:
        asked.append(word)
        return read(column, word, form)

    monkeypatch.setattr(reader, "_read", counted)
    samples = read_samples(str(tmp_path / "text.parquet"))
    np.testing.assert_array_equal(samples.values[:6], [0.25, 1.5, np.nan] * 2)
    assert sorted(map(str, asked)) == ["1.5", "250m"]


def test_parquet_that_unpacks_to_more_than_a_csv_may_have_is_refused(
    parquet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The footer says how large the columns are."""
    import pyarrow as pa

    from equipoise.adapters.sample_files import parquet as reader

    monkeypatch.setattr(reader, "UNPACKED_BYTES_MAX", 1 << 20)
    path = tmp_path / "wide.parquet"
    parquet.write_table(pa.table({"ts": np.arange(200_000), "value": np.arange(200_000) / 7}), path)
    with pytest.raises(BadInput, match=r"of unpacked columns, got 0\.0 GiB"):
        read_samples(str(path))


def test_parquet_is_read_a_batch_of_rows_at_a_time(
    parquet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What Arrow holds at its peak is less than one column of a row group."""
    import pyarrow as pa

    from equipoise.adapters.sample_files import parquet as reader

    monkeypatch.setattr(reader, "BATCH_ROWS", 10_000)
    count = 2_000_000
    path = tmp_path / "usage.parquet"
    pods = pa.DictionaryArray.from_arrays(np.arange(count) % 7, [f"web-{n}" for n in range(7)])
    times = np.arange(count, dtype=np.float64)
    columns = {"ts": times, "workload": ["web"] * count, "pod": pods, "value": times / 7}
    parquet.write_table(pa.table(columns), path, row_group_size=count)
    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    former = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        samples = read_samples(str(path))
    finally:
        pa.set_memory_pool(former)
    np.testing.assert_array_equal(samples.times, times)
    np.testing.assert_array_equal(samples.values, times / 7)
    assert [samples.names["pod"][code] for code in samples.labels["pod"][:9]] == [
        f"web-{n % 7}" for n in range(9)
    ]
    assert pool.max_memory() < count * 8


def test_a_name_that_parquet_repeats_is_not_unpacked(parquet: Any, tmp_path: Path) -> None:
    """A name of a megabyte that a million rows share is one word of a dictionary: refused, at once."""
    import pyarrow as pa

    count = 1_000_000
    names = pa.DictionaryArray.from_arrays(np.zeros(count, np.int32), ["x" * 1_000_000])
    path = tmp_path / "names.parquet"
    columns = {"ts": np.arange(count), "workload": names, "pod": names, "value": np.zeros(count)}
    parquet.write_table(pa.table(columns), path)
    with pytest.raises(BadInput, match="workload: expected a name of at most 253 characters, got 1,000,000"):
        read_samples(str(path))


def test_a_folder_of_parquet_is_one_file(parquet: Any, tmp_path: Path) -> None:
    """As other tools write it, with notes of their own beside the parts."""
    import pyarrow as pa

    folder = tmp_path / "usage.parquet"
    folder.mkdir()
    with pytest.raises(BadInput, match="expected a Parquet file, got an empty folder"):
        read_samples(str(folder))
    for part in range(2):
        parquet.write_table(pa.table({"ts": [part], "value": [1.0 + part]}), folder / f"part-{part}.parquet")
    (folder / "_SUCCESS").touch()
    assert sample_files.read_samples(str(folder)).values.tolist() == [1.0, 2.0]
    parquet.write_table(pa.table({"ts": [3], "pod": ["a"], "value": [1.0]}), folder / "part-2.parquet")
    with pytest.raises(BadInput, match="expected the same columns in every file, got others in"):
        read_samples(str(folder))

"""Range answers onto a fixed time grid.

The series of an answer, one at a time, and the numbers of each.

The values of a series travel as `[[1700000000,"0.25"],…]` and are nearly all of an answer. So the text is cut
between its series, of which only the rest is read as JSON. Values without quotes are lists of numbers that
simdjson turns into one float64 array, 6 times faster than making the pairs. They are first proven to be
pairs; everything else (NaN, Inf, blanks) goes pair by pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import numpy as np
import simdjson
from numpy.typing import NDArray

from equipoise.adapters.prometheus.decode import (
    HISTOGRAMS_LEFT_OUT,
    QueryAnswer,
    check_series,
    decode_json,
    expect,
    labels_struct,
    numbers,
    tidy,
)
from equipoise.adapters.prometheus.errors import Malformed
from equipoise.core.errors import BadInput

Key = tuple[str, ...]

POINT_BYTES = 40
"""One point as JSON: `[1700000000,"0.123456789012"],` with some room."""
SHORT_BYTES = 1024
"""Below this a series is quicker pair by pair."""
SECONDS_MAX = 1e11
_COMMA, _QUOTE, _OPEN, _CLOSE = b',"[]'
_FIRST = b'[{"metric":'
_BETWEEN = b'},{"metric":'
"""No label has this in it: there, each quote has a backslash before it."""
_VALUES = b'"values":[['
_END = b'"]]}'


class _WrittenNumbers(msgspec.Struct, gc=False):
    """A series whose parts are not read yet."""

    metric: msgspec.Raw
    values: msgspec.Raw = msgspec.Raw(b"")
    histograms: msgspec.Raw = msgspec.Raw(b"")


class Values(NamedTuple):
    """Where the values of a series stand: a list of pairs as JSON; nowhere if there are none."""

    text: bytes | memoryview
    begin: int
    end: int

    def __bool__(self) -> bool:
        return self.begin < self.end


class PodSeries(NamedTuple):
    """One series as it came."""

    key: Key
    labels: bytes
    """All of its labels, as they were written."""
    values: Values
    has_histograms: bool


def each_series(answer: QueryAnswer, labels: Sequence[str], series_max: int) -> list[PodSeries]:
    """Find the series of a list of them, and these of their labels; their values stay where they are."""
    wanted, cuts = labels_struct(tuple(labels)), _cuts(answer.text)
    if cuts:
        check_series(len(cuts), series_max, answer.address)
        return [_cut(answer.text, *cut, wanted, answer.address) for cut in cuts]
    written = decode_json(answer.result, list[_WrittenNumbers], answer.address)
    check_series(len(written), series_max, answer.address)
    return [_read(one, wanted, answer.address) for one in written]


def _cut(text: bytes, begin: int, end: int, wanted: Any, address: str) -> PodSeries:
    values = text.find(_VALUES, begin, end)
    if values < 0 or not text.endswith(_END, begin, end):
        return _read(decode_json(text[begin:end], _WrittenNumbers, address), wanted, address)
    read = _read(decode_json(text[begin:values] + b'"values":[]}', _WrittenNumbers, address), wanted, address)
    return read._replace(values=Values(text, values + len(_VALUES) - 2, end - 1))


def _read(one: _WrittenNumbers, wanted: Any, address: str) -> PodSeries:
    labels = bytes(one.metric)
    key = msgspec.structs.astuple(decode_json(labels, wanted, address))
    return PodSeries(key, labels, Values(memoryview(one.values), 0, len(one.values)), bool(one.histograms))


def _cuts(text: bytes) -> list[tuple[int, int]]:
    """Find where each series stands; nothing where the text is not written as Prometheus writes it."""
    first, end = text.find(_FIRST) + 1, text.rfind(b"}]") + 1
    if not 0 < first < end:
        return []
    cuts: list[tuple[int, int]] = []
    values = text.find(_VALUES, first, end)
    while (stop := _stop(text, first, values, end)) >= 0:
        cuts.append((first, stop + 1))
        first = stop + 2
        if 0 <= values < first:  # not looked for again where these are a later one's, or there are none
            values = text.find(_VALUES, first, end)
    cuts.append((first, end))
    # Where something else stood between series, the first would hold them all.
    begun = text.find(_VALUES, *cuts[0])
    is_one = begun < 0 or text.find(b"]]", begun, end) == cuts[0][1] - 3
    return cuts if is_one else []


def _stop(text: bytes, begin: int, values: int, end: int) -> int:
    """Find what stands between the series that begins here and the next; the next values stand there."""
    stop = text.find(_BETWEEN, begin, end if values < 0 else values)
    if stop >= 0 or values < 0:
        return stop
    # No number has a brace, and one letter is found many times faster than a word.
    brace = text.find(b"{", values, end)
    return brace if brace < 0 else text.find(_BETWEEN, brace - 2, end)


def points(values: Values, parser: Any, address: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Read the times and the values of one series."""
    text, begin, end = values
    if end - begin >= SHORT_BYTES:
        flat = _flat(np.frombuffer(text, np.uint8, end - begin, begin), parser)
        if flat is not None:
            return flat[0::2], flat[1::2]
    pairs = decode_json(bytes(text[begin:end]), list[tuple[float, str]], address)
    times = np.fromiter((pair[0] for pair in pairs), dtype=np.float64, count=len(pairs))
    return times, numbers([pair[1] for pair in pairs], address)


def _flat(octets: NDArray[np.uint8], parser: Any) -> NDArray[np.float64] | None:
    """Read all numbers at once, or None when this is not exactly a list of `[number,"number"]`.

    Each text must stand between `,` and `],[` (the last before `]]`), and no more brackets and quotes may
    exist than that takes. Without the quotes it must be JSON that has two numbers for each text. Then no pair
    can have lost or gained a part.
    """
    is_quote = octets == _QUOTE
    quotes = np.flatnonzero(is_quote)
    pairs, odd = divmod(len(quotes), 2)
    if odd or not pairs or octets[:2].tobytes() != b"[[" or octets[-3:].tobytes() != b'"]]':
        return None
    opening, closing = quotes[0::2], quotes[1:-1:2]
    is_paired = (
        np.count_nonzero(octets == _OPEN) == pairs + 1
        and bool((octets[opening - 1] == _COMMA).all())
        and bool((octets[1:][closing] == _CLOSE).all())
        and bool((octets[2:][closing] == _COMMA).all())
        and bool((octets[3:][closing] == _OPEN).all())
    )
    if not is_paired:
        return None
    marks = is_quote.view(np.uint8)
    bare = octets - (marks + marks)  # two less than a quote is a blank
    try:
        flat = np.frombuffer(parser.parse(bare.data).as_buffer(of_type="d"))
    except (ValueError, TypeError, RuntimeError):
        return None
    return flat if len(flat) == 2 * pairs else None


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Grid:
    """Evenly spaced times, in whole milliseconds as Prometheus keeps them."""

    start_ms: int
    step_ms: int
    count: int

    @classmethod
    def over(cls, start: float, end: float, step_seconds: float) -> Grid:
        """Return the multiples of the step within [start, end].

        Caches in front of a Prometheus move a range to multiples of its step; ours is there already.
        """
        step_ms = round(step_seconds * 1000)
        if step_ms < 1:
            raise BadInput(f"step: expected at least 0.001 seconds, got {step_seconds}")
        first = -(-round(start * 1000) // step_ms)
        last = round(end * 1000) // step_ms
        if last < first:
            raise BadInput(f"range: no multiple of {step_seconds} seconds lies from {start} to {end}")
        return cls(first * step_ms, step_ms, last - first + 1)

    @property
    def end_ms(self) -> int:
        return self.start_ms + (self.count - 1) * self.step_ms

    @property
    def timestamps(self) -> NDArray[np.float64]:
        return (self.start_ms + np.arange(self.count, dtype=np.int64) * self.step_ms) / 1000.0

    def part(self, first: int, count: int) -> Grid:
        assert 0 <= first <= first + count <= self.count, "a part lies within the whole"
        return Grid(self.start_ms + first * self.step_ms, self.step_ms, count)


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Series as rows on one time grid; NaN where there is no sample."""

    keys: list[Key]
    timestamps: NDArray[np.float64]
    values: Floats
    warnings: tuple[str, ...] = ()
    partial: tuple[str, ...] = ()
    """Why data may be missing, in the server's words."""

    def __post_init__(self) -> None:
        assert self.values.shape == (len(self.keys), len(self.timestamps)), "a row a key, a column a time"


def decode_matrix(answer: QueryAnswer, labels: Sequence[str], grid: Grid, series_max: int) -> Matrix:
    """Decode a range answer.

    Points outside the grid's ends are left out; points between its times, or two at one time, are refused. Of
    several series that are the same in these labels, the larger value counts.
    """
    expect(answer, "matrix")
    series = each_series(answer, labels, series_max)
    keys: list[Key] = []
    has_histograms = False
    values = np.full((len(series), grid.count), np.nan)
    parser, every = simdjson.Parser(), grid.timestamps
    for one in series:
        has_histograms |= one.has_histograms
        if not one.values:
            if not one.has_histograms:
                raise Malformed(f"{answer.address} answered a series without values")
            continue
        times, samples = points(one.values, parser, answer.address)
        row = values[len(keys)]
        if np.array_equal(times, every):
            row[:] = samples
        else:
            _place(times, samples, grid, row, answer.address)
        keys.append(one.key)
    values = values[: len(keys)]
    warnings = tidy((*answer.warnings, HISTOGRAMS_LEFT_OUT)) if has_histograms else answer.warnings
    keys, values = merge_rows(keys, values)
    return Matrix(keys, grid.timestamps, values, warnings, answer.partial)


def _place(
    times: NDArray[np.float64], samples: NDArray[np.float64], grid: Grid, row: Floats, address: str
) -> None:
    if len(times) and float(np.abs(times).max()) > SECONDS_MAX:
        raise Malformed(f"{address} answered an invalid timestamp")
    index, between = np.divmod(np.rint(times * 1000).astype(np.int64) - grid.start_ms, grid.step_ms)
    if between.any():
        raise Malformed(f"{address} answered points between the steps of {grid.step_ms / 1000:g} s asked for")
    if (np.diff(index) <= 0).any() and len(np.unique(index)) != len(index):
        raise Malformed(f"{address} answered two points at one time in one series")
    is_inside = (index >= 0) & (index < grid.count)
    row[index[is_inside]] = samples[is_inside]


def merge_rows(keys: list[Key], values: Floats) -> tuple[list[Key], Floats]:
    """Merge the rows of one key, such as of a container that is scraped twice: the larger value counts."""
    rows: dict[Key, int] = {}
    for row, key in enumerate(keys):
        first = rows.setdefault(key, row)
        if first != row:
            np.fmax(values[first], values[row], out=values[first])
    return (keys, values) if len(rows) == len(keys) else (list(rows), values[list(rows.values())])


def concatenate(parts: Sequence[Matrix], grid: Grid) -> Matrix:
    """Put stretches of series that follow one another into one matrix."""
    rows = {key: row for row, key in enumerate(dict.fromkeys(key for part in parts for key in part.keys))}
    values = np.full((len(rows), grid.count), np.nan)
    end = 0
    for part in parts:
        first, end = end, end + part.values.shape[1]
        values[[rows[key] for key in part.keys], first:end] = part.values
    assert end == grid.count, "the parts are the whole grid"
    warnings = tidy(warning for part in parts for warning in part.warnings)
    partial = tidy(why for part in parts for why in part.partial)
    return Matrix(list(rows), grid.timestamps, values, warnings, partial)

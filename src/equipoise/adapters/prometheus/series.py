"""The series of an answer, one at a time, and the numbers of each.

The values of a series travel as `[[1700000000,"0.25"],…]` and are nearly all of an answer. So the text is cut
between its series, of which only the rest is read as JSON. Values without quotes are lists of numbers that
simdjson turns into one float64 array, 6 times faster than making the pairs. They are first proven to be
pairs; everything else (NaN, Inf, blanks) goes pair by pair.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus.decode import Answer, check_series, decode_json, labels_struct, numbers

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


class _Written(msgspec.Struct, gc=False):
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


class Series(NamedTuple):
    """One series as it came."""

    key: Key
    labels: bytes
    """All of its labels, as they were written."""
    values: Values
    has_histograms: bool


def each_series(answer: Answer, labels: Sequence[str], series_max: int) -> list[Series]:
    """Find the series of a list of them, and these of their labels; their values stay where they are."""
    wanted, cuts = _wanted(tuple(labels)), _cuts(answer.text)
    if cuts:
        check_series(len(cuts), series_max, answer.address)
        return [_cut(answer.text, *cut, wanted, answer.address) for cut in cuts]
    written = decode_json(answer.result, list[_Written], answer.address)
    check_series(len(written), series_max, answer.address)
    return [_read(one, wanted, answer.address) for one in written]


def _cut(text: bytes, begin: int, end: int, wanted: Any, address: str) -> Series:
    values = text.find(_VALUES, begin, end)
    if values < 0 or not text.endswith(_END, begin, end):
        return _read(decode_json(text[begin:end], _Written, address), wanted, address)
    read = _read(decode_json(text[begin:values] + b'"values":[]}', _Written, address), wanted, address)
    return read._replace(values=Values(text, values + len(_VALUES) - 2, end - 1))


def _read(one: _Written, wanted: Any, address: str) -> Series:
    labels = bytes(one.metric)
    key = msgspec.structs.astuple(decode_json(labels, wanted, address))
    return Series(key, labels, Values(memoryview(one.values), 0, len(one.values)), bool(one.histograms))


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


@functools.lru_cache(maxsize=64)
def _wanted(labels: tuple[str, ...]) -> Any:
    return labels_struct(labels)

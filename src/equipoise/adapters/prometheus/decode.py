"""Decodes answers of the Prometheus API into columns.

Only the requested labels become Python objects. An invalid answer raises `Malformed` (or the error that the
server reports), and never becomes a wrong number.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from equipoise.adapters.prometheus import errors
from equipoise.adapters.prometheus.errors import api_error, clean
from equipoise.core.errors import DECODE_ERRORS

WARNINGS_MAX = 20
T = TypeVar("T")

HISTOGRAMS_LEFT_OUT = "native histograms were ignored: only float samples are read"
ANNOTATIONS = ("PromQL info:", "PromQL warning:")
"""Prefixes of Prometheus' remarks on a query, such as a metric name that is unusual for a counter.

Servers without `infos` report both as warnings. Every other warning is of the storage: the answer is partial.
"""
MARKED_PARTIAL = "the server marks its answer as partial (isPartial)"


_PLAIN_BEGIN = b'{"status":"success","data":{"resultType":"matrix","result":['
_PLAIN_ENDS = (b"]}}", b"]}}\n")
"""The beginning and the end of an answer to a range query without warnings."""


class _Data(msgspec.Struct, gc=False):
    resultType: str
    result: msgspec.Raw


class _Envelope(msgspec.Struct, gc=False):
    status: str
    data: msgspec.Raw = msgspec.Raw(b"")
    errorType: str = ""
    error: str = ""
    warnings: list[str] | None = None
    isPartial: bool | None = None
    """Reported by a cluster of VictoriaMetrics."""


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """A successful answer with an undecoded result."""

    result_type: str
    result: msgspec.Raw
    warnings: tuple[str, ...]
    address: str
    text: bytes = b""
    """The whole body, where it has nothing but a matrix."""
    partial: tuple[str, ...] = ()
    """Why data may be missing from the answer, in the server's words."""


@dataclass(frozen=True, slots=True, eq=False)
class Vector:
    """An instant vector: for each wanted label a column of text, and one of numbers."""

    columns: tuple[list[str], ...]
    values: NDArray[np.float64]
    warnings: tuple[str, ...] = ()
    """What makes the answer partial or doubtful."""
    partial: tuple[str, ...] = ()
    """Why data may be missing from the answer, in the server's words."""

    def __post_init__(self) -> None:
        assert all(len(column) == len(self.values) for column in self.columns), "a number for each row"

    def __len__(self) -> int:
        return len(self.values)

    def known(self) -> Vector:
        """Return this without the rows that have no number."""
        is_known = ~np.isnan(self.values)
        if is_known.all():
            return self
        kept = np.flatnonzero(is_known).tolist()
        columns = tuple([column[row] for row in kept] for column in self.columns)
        return replace(self, columns=columns, values=self.values[is_known])


def open_answer(body: bytes, address: str) -> QueryAnswer:
    """Read the envelope of an answer, or raise what it reports."""
    if not body:
        raise errors.Malformed(f"{address} answered an empty body: expected JSON of the Prometheus API")
    if body.startswith(_PLAIN_BEGIN) and body.endswith(_PLAIN_ENDS):
        # Nothing but a result: what lies between is looked at once, when it is decoded as a list.
        result = memoryview(body)[len(_PLAIN_BEGIN) - 1 : body.rindex(b"}}")]
        return QueryAnswer("matrix", msgspec.Raw(result), (), address, body)
    envelope = _envelope(body, address)
    if not envelope.data:
        raise errors.Malformed(f"{address} answered a success without data: expected a result")
    data = decode_json(envelope.data, _Data, address)
    warnings = tidy(envelope.warnings or ())
    return QueryAnswer(data.resultType, data.result, warnings, address, partial=_partial(envelope))


def _partial(envelope: _Envelope) -> tuple[str, ...]:
    """Return why data may be missing: what the storage warned of, or that the server says so in general."""
    told = tidy(one for one in envelope.warnings or () if not one.startswith(ANNOTATIONS))
    return told or ((MARKED_PARTIAL,) if envelope.isPartial else ())


def _envelope(body: bytes, address: str) -> _Envelope:
    """Read the envelope, or raise the error that it reports."""
    try:
        envelope = msgspec.json.decode(body, type=_Envelope)
    except msgspec.ValidationError as error:
        raise errors.NotPrometheus(
            f"{address} is not a Prometheus API: it answered other JSON ({clean(str(error), 120)})"
        ) from error
    except DECODE_ERRORS as error:
        if body.lstrip()[:1] == b"<":
            said = f"{address} is not a Prometheus API: it answered an HTML page"
            raise errors.NotPrometheus(said) from error
        said = f"{address} answered JSON that is truncated or damaged ({clean(str(error), 120)})"
        raise errors.Malformed(said) from error
    if envelope.status == "error":
        raise api_error(envelope.errorType, envelope.error, address)
    if envelope.status != "success":
        raise errors.NotPrometheus(
            f"{address} is not a Prometheus API: its JSON has the status {clean(envelope.status, 40)!r}, "
            "expected success or error"
        )
    return envelope


def decode_json(raw: msgspec.Raw | bytes, kind: type[T], address: str) -> T:
    """Decode a part of an answer, or raise `Malformed`."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except DECODE_ERRORS as error:
        raise errors.Malformed(
            f"{address} answered a result of an unexpected shape ({clean(str(error), 120)})"
        ) from error


def tidy(warnings: Iterable[str]) -> tuple[str, ...]:
    """Make warnings safe to show: cleaned, each once, and not endlessly many."""
    unique = list(dict.fromkeys(clean(warning) for warning in warnings))
    if len(unique) > WARNINGS_MAX:
        unique = [*unique[:WARNINGS_MAX], f"and {len(unique) - WARNINGS_MAX} more warnings"]
    return tuple(unique)


def decode_vector(answer: QueryAnswer, labels: Sequence[str], series_max: int) -> Vector:
    """Decode an instant vector; a label that a series does not have is the empty text."""
    expect(answer, "vector")
    samples = decode_json(answer.result, _sample_list(tuple(labels)), answer.address)
    check_series(len(samples), series_max, answer.address)
    warnings = answer.warnings
    floats = [s for s in samples if s.value is not None]
    if len(floats) != len(samples):
        if any(s.value is None and not s.histogram for s in samples):
            raise errors.Malformed(f"{answer.address} answered a sample without a value")
        warnings = tidy((*warnings, HISTOGRAMS_LEFT_OUT))
    columns = tuple(
        list(map(sys.intern, map(attrgetter(f"metric.label_{i}"), floats))) for i in range(len(labels))
    )
    values = numbers([s.value[1] for s in floats], answer.address)
    return Vector(columns, values, warnings, answer.partial)


def decode_series(body: bytes, labels: Sequence[str], series_max: int, address: str) -> list[tuple[str, ...]]:
    """Decode a list of series; a label that one does not have is the empty text."""
    envelope = _envelope(body, address)
    if partial := _partial(envelope):
        raise errors.Incomplete(f"{address} returned incomplete data: {partial[0]}")
    kind: Any = list[labels_struct(tuple(labels))]  # type: ignore[misc]
    found = decode_json(envelope.data, kind, address)
    check_series(len(found), series_max, address)
    return [tuple(getattr(one, f"label_{i}") for i in range(len(labels))) for one in found]


def decode_number(answer: QueryAnswer) -> float | None:
    """Return the one number of a scalar, or of a vector with one sample; None for all else."""
    if answer.result_type == "scalar":
        sample = decode_json(answer.result, tuple[float, str], answer.address)
        return float(numbers([sample[1]], answer.address)[0])
    if answer.result_type in {"string", "matrix"}:
        return None
    expect(answer, "vector")
    found = decode_json(answer.result, list[msgspec.Raw], answer.address)
    if len(found) != 1:
        return None
    vector = decode_vector(answer, (), 1)
    return float(vector.values[0]) if len(vector) else None


def expect(answer: QueryAnswer, result_type: str) -> None:
    """Refuse an answer of another type than the query has."""
    if answer.result_type != result_type:
        raise errors.Malformed(
            f"{answer.address} answered a {clean(answer.result_type, 40) or 'nameless'} result: "
            f"expected a {result_type}"
        )


def check_series(series: int, series_max: int, address: str) -> None:
    """Refuse an answer with more series than the limit."""
    if series > series_max:
        raise errors.TooManySeries(
            f"{address} answered {series} series, more than the limit of {series_max}: "
            "narrow the namespaces, or raise prometheus series_max"
        )


def numbers(texts: list[str], address: str) -> NDArray[np.float64]:
    """Read sample values; they come as text, since JSON has no NaN."""
    joined = "".join(texts)
    try:
        # float() would also take 1_000 and digits of other scripts.
        if "_" in joined or not joined.isascii():
            raise ValueError(joined)  # noqa: TRY301
        return np.fromiter(map(float, texts), dtype=np.float64, count=len(texts))
    except ValueError as error:
        raise errors.Malformed(f"{address} answered a value that is not a number") from error


@functools.lru_cache(maxsize=64)
def labels_struct(labels: tuple[str, ...]) -> type[msgspec.Struct]:
    """Make the struct that picks these labels out of a series, and skips all others."""
    fields = [(f"label_{i}", str, "") for i in range(len(labels))]
    rename = {f"label_{i}": label for i, label in enumerate(labels)}
    return msgspec.defstruct("Labels", fields, rename=rename, gc=False)


@functools.lru_cache(maxsize=64)
def _sample_list(labels: tuple[str, ...]) -> Any:
    sample = msgspec.defstruct(
        "Sample",
        [
            ("metric", labels_struct(labels)),
            ("value", tuple[float, str] | None, None),
            ("histogram", msgspec.Raw, msgspec.Raw(b"")),
        ],
        gc=False,
    )
    return list[sample]  # type: ignore[valid-type]

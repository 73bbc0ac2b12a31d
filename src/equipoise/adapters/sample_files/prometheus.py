"""An answer of Prometheus, saved as a file: what `query_range` and `query` of its API and promtool print."""

from collections.abc import Callable
from dataclasses import replace
from typing import IO, Any

import msgspec
import numpy as np

from equipoise.adapters.sample_files.headers import labelled
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.core.file_forms import USAGE, form_of_text, refuse_other_form
from equipoise.stats.samples import ROWS_MAX, Samples, WordNumbers, added_up, named

BYTES_MAX = 1024**3
EXPECTED = "expected an answer of Prometheus (query_range or query), or CSV"
Sample = tuple[float, str | float]


class _SavedSeries(msgspec.Struct, gc=False):
    metric: dict[str, str] = {}
    values: list[Sample] = []
    value: Sample | None = None
    histograms: msgspec.Raw = msgspec.Raw(b"")
    histogram: msgspec.Raw = msgspec.Raw(b"")


class _SavedAnswer(msgspec.Struct, gc=False):
    """The whole answer, or only its `data`."""

    status: str = ""
    data: msgspec.Raw = msgspec.Raw(b"")
    resultType: str = ""
    result: msgspec.Raw = msgspec.Raw(b"")
    error: str = ""
    warnings: list[str] = []


def read_answer(path: str, file: IO[bytes], on_bytes: Callable[[int], None] | None = None) -> Samples:
    """Read the samples of each series; those of a pod's containers are added up."""
    content = file.read(BYTES_MAX + 1)
    if len(content) > BYTES_MAX:
        raise BadInput(f"{path}: expected at most {BYTES_MAX >> 30} GiB of JSON; ask for a longer step")
    if on_bytes is not None:
        on_bytes(len(content))
    content = content.removeprefix(b"\xef\xbb\xbf")
    try:
        found, warnings = _series_of(path, content)
        return _samples(path, found, warnings)
    except DECODE_ERRORS as error:
        refuse_other_form(form_of_text(content.decode("utf-8", "replace")), path, (USAGE,))
        reason = " ".join(str(error).split())[:200]
        raise BadInput(f"{path}: {EXPECTED}: {reason}") from error


def _series_of(path: str, content: bytes) -> tuple[list[_SavedSeries], list[str]]:
    """Return the series of an answer, of its `data`, or of its `result` alone."""
    if content.lstrip()[:1] == b"[":
        return msgspec.json.decode(content, type=list[_SavedSeries]), []
    answer = msgspec.json.decode(content, type=_SavedAnswer)
    if answer.status == "error" or answer.error:
        raise BadInput(
            f"{path}: Prometheus answered with an error: {answer.error[:200] or 'without a reason'}"
        )
    warnings = answer.warnings
    if answer.data:
        answer = msgspec.json.decode(answer.data, type=_SavedAnswer)
    if not answer.result:
        refuse_other_form(form_of_text(content.decode("utf-8", "replace")), path, (USAGE,))
        raise BadInput(f"{path}: {EXPECTED}, got JSON without data.result")
    if answer.resultType == "scalar":
        return [_SavedSeries(value=msgspec.json.decode(answer.result, type=Sample))], warnings
    if answer.resultType not in {"", "matrix", "vector"}:
        raise BadInput(f"{path}: {EXPECTED}, got a {answer.resultType[:20]}")
    return msgspec.json.decode(answer.result, type=list[_SavedSeries]), warnings


def _samples(path: str, series: list[_SavedSeries], warnings: list[str]) -> Samples:
    if not series:
        hint = "the query matches nothing; look at its namespace and pods, and at start and end"
        raise BadInput(f"{path}: expected at least one series in the answer of Prometheus: {hint}")
    notes = [f"{path}: Prometheus warned: {text[:200]}" for text in warnings[:1]]
    if any(each.histograms or each.histogram for each in series):
        notes.append(f"{path}: ignored native histograms")
    if series and all(each.value is not None for each in series):
        notes.append(f"{path}: holds one sample for each series; query_range has a week of them")
    what = labelled(path, [each.metric or {"": ""} if len(series) > 1 else each.metric for each in series])
    kept = [series[place] for place in what.kept]
    pairs = [[*each.values, *([each.value] if each.value is not None else [])] for each in kept]
    counts = np.array([len(each) for each in pairs], np.intp)
    if int(counts.sum()) > ROWS_MAX:
        raise BadInput(f"{path}: expected at most {ROWS_MAX:,} samples")
    owner = np.repeat(np.arange(len(kept)), counts)
    part: dict[str, Any] = {
        "timestamp": np.array([time for each in pairs for time, _ in each], np.float64),
        "value": np.array([float(value) for each in pairs for _, value in each], np.float64),
    }
    names: dict[str, WordNumbers] = {label: {} for label in what.labels}
    for label, words in what.labels.items():
        part[label] = named(names[label], np.arange(len(words)), words)[owner] if len(words) else owner
    joined = Samples.joined([part], names, list(part))
    found = added_up(joined) if what.labels else joined
    return replace(found, shape=what.shape, notes=(*notes, *what.notes))

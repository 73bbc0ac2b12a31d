"""What the columns of a CSV file are, by its header.

A file with a column of usage has a row for each sample, and says in other columns what it is of. One without
is wide: beside the time, every column is a series, as in an export of Grafana.
"""

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass

from equipoise.core.errors import BadInput
from equipoise.core.file_forms import OBSERVATIONS, USAGE, form_of_text, refuse_other_form
from equipoise.stats.samples import (
    CONTAINER,
    LABELS,
    NAME_LENGTH_MAX,
    Column,
    Shape,
    column_of,
    is_name,
)

EXPECTED = "expected a header such as timestamp,value or timestamp,namespace,workload,pod,value"
GZIP_MARK = b"\x1f\x8b"
UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
LABEL = re.compile(r'([A-Za-z_]\w*)="((?:[^"\\]|\\.)*)"')
NAMED_MAX = 4
"""How many ignored columns are named."""
PODS, WORKLOADS = ("pod", "pod_name"), ("workload", "deployment", "statefulset", "daemonset")
"""Labels of a series that name its pod and its workload."""
TIME_OF_GRAFANA = "time"
"""The column whose numbers may be milliseconds."""


@dataclass(frozen=True, slots=True)
class SeriesLabels:
    """Which pod, namespace, workload and container each of several series is of."""

    shape: Shape
    labels: dict[str, list[str]]
    """By label, the word of each series that is kept."""
    kept: list[int]
    notes: tuple[str, ...] = ()

    @property
    def has_twice(self) -> bool:
        """Whether two series have the same labels, so that they are added up."""
        series = list(zip(*self.labels.values(), strict=True))
        return len(set(series)) < len(series)


@dataclass(frozen=True, slots=True)
class Header:
    """What each column of a CSV file is."""

    columns: tuple[Column | None, ...]
    """None is a column that is ignored, or a series."""
    series: SeriesLabels | None = None
    places: tuple[int, ...] = ()
    """The columns of a wide file that are series."""
    notes: tuple[str, ...] = ()
    may_be_milliseconds: bool = False

    @property
    def names(self) -> list[str]:
        """The names of the columns that are read, in order."""
        return [column.name for column in self.columns if column is not None]


def read_header(path: str, line: bytes, line_number: int = 1, begin: bytes = b"") -> Header:
    """Return what the columns of a file are; raise BadInput for a first line that is no header.

    By how the file begins, one for another command is recognised.
    """
    where = f"{path}: line {line_number}"
    text, names = _first_line(where, line)
    columns = [column_of(name) for name in names]
    known = [column.name for column in columns if column is not None]
    if "timestamp" not in known:
        refuse_other_form(form_of_text(begin.decode("utf-8-sig", "replace") or text), path, (USAGE,))
        raise BadInput(f"{where}: {EXPECTED}, {_got(names, columns) or 'without timestamp'}")
    if known.count("timestamp") > 1:
        raise BadInput(f"{where}: {EXPECTED}, got timestamp twice")
    if form_of_text(text) == OBSERVATIONS:
        refuse_other_form(OBSERVATIONS, path, ())
    is_grafana = names[known_place(columns, "timestamp")].lower() == TIME_OF_GRAFANA
    if "value" not in known:
        columns, is_wide = _guessed(where, names, columns)
        if is_wide:
            return _wide(path, names, columns, is_grafana=is_grafana)
    _keep_first(columns, names)
    ignored = [name for name, column in zip(names, columns, strict=True) if column is None]
    notes = (f"{path}: ignored {listed(ignored)}",) if ignored else ()
    twice = next((name for name in known if name != "value" and known.count(name) > 1), "")
    if twice:
        raise BadInput(f"{where}: {EXPECTED}, got {twice} twice")
    return Header(tuple(columns), notes=notes, may_be_milliseconds=is_grafana)


def _first_line(where: str, line: bytes) -> tuple[str, list[str]]:
    """Return the first line, and the names in it."""
    if line.startswith(UTF16_MARKS):
        raise BadInput(f"{where}: {EXPECTED} in UTF-8, got UTF-16")
    if line.startswith(GZIP_MARK):
        raise BadInput(f"{where}: {EXPECTED}, got gzip; unpack it, such as by zcat into --from -")
    text = line.decode("utf-8-sig", "replace").strip()
    if not text:
        raise BadInput(f"{where}: {EXPECTED}, got {'an empty line' if line else 'an empty file'}")
    try:
        names = [name.strip() for name in next(csv.reader([text]), [])]
    except csv.Error:  # what is no CSV is named by its first column
        names = [name.strip() for name in text.split(",")]
    return text, names


def known_place(columns: Sequence[Column | None], name: str) -> int:
    """Return the place of the first column that is this."""
    return next(place for place, column in enumerate(columns) if column is not None and column.name == name)


def _guessed(where: str, names: list[str], columns: list[Column | None]) -> tuple[list[Column | None], bool]:
    """Return the columns of a file without one that is known to be usage, and whether it is wide."""
    unknown = [place for place, column in enumerate(columns) if column is None]
    labels = {column.name for column in columns if column is not None} & {*LABELS, CONTAINER}
    if not unknown:
        hint = "; memory alone is not enough" if any(one and one.name == "memory" for one in columns) else ""
        raise BadInput(f"{where}: {EXPECTED}, without value{hint}")
    if not labels:
        return columns, True
    if len(unknown) > 1:
        raise BadInput(f"{where}: {EXPECTED}, without value: {_got(names, columns)}")
    return [Column("value") if column is None else column for column in columns], False


def _keep_first(columns: list[Column | None], names: list[str]) -> None:
    """Of several columns of usage or memory, keep the one named exactly so, else the first."""
    for name in ("value", "memory"):
        places = [place for place, column in enumerate(columns) if column is not None and column.name == name]
        exact = [place for place in places if names[place].lower() == name]
        for place in places:
            if place != (exact or places)[0]:
                columns[place] = None


def _wide(path: str, names: list[str], columns: list[Column | None], *, is_grafana: bool) -> Header:
    places = [place for place, column in enumerate(columns) if column is None and names[place]]
    if not places:
        raise BadInput(f"{path}: line 1: {EXPECTED}, got columns without names")
    series = labelled(path, [series_name(names[place]) for place in places])
    others = [
        names[place]
        for place, column in enumerate(columns)
        if column is not None and column.name != "timestamp"
    ]
    notes = (f"{path}: ignored {listed(others)}",) if others else ()
    only_time = tuple(column if column and column.name == "timestamp" else None for column in columns)
    kept = tuple(places[number] for number in series.kept)
    return Header(only_time, series, kept, (*notes, *series.notes), is_grafana)


def series_name(name: str) -> dict[str, str]:
    """Return the labels of a series by its legend: `{pod="web-1"}`, or a name alone."""
    found = {key: re.sub(r"\\(.)", r"\1", value) for key, value in LABEL.findall(name)}
    return found if "{" in name and found else {"": name}


def labelled(path: str, series: Sequence[dict[str, str]]) -> SeriesLabels:
    """Return what each series is of, by its labels: a pod, a workload, or something that its name says."""
    pods = [_first(labels, PODS) for labels in series]
    works = [_first(labels, WORKLOADS) for labels in series]
    spaces = [labels.get("namespace", "") for labels in series]
    found = {"namespace": spaces} if any(spaces) else {}
    notes: tuple[str, ...] = ()
    kept = list(range(len(series)))
    if any(pods):
        kept = [place for place in kept if pods[place]]
        if len(kept) < len(series):
            notes = (f"{path}: ignored {len(series) - len(kept)} series without a pod label",)
        containers = [_first(labels, ("container", "container_name")) for labels in series]
        found |= {"pod": pods} | ({CONTAINER: containers} if any(containers) else {})
        shape = Shape.PODS
        if all(works[place] for place in kept):
            found, shape = found | {"workload": works}, Shape.ROWS
    elif works and all(works):
        found |= {"workload": works, "pod": works}
        shape = Shape.TOTALS
    elif len(series) == 1 and "" not in series[0]:
        found, shape = {}, Shape.ROWS
    else:
        found, shape = {"pod": _told_apart(series)}, Shape.COLUMNS
    picked = {label: [words[place] for place in kept] for label, words in found.items()}
    for label, words in picked.items():
        odd = next(
            (word for word in words if not is_name(word, is_needed=label in {"pod", "workload"})), None
        )
        if odd is not None:
            raise BadInput(
                f"{path}: expected names of at most {NAME_LENGTH_MAX} printable characters, got {odd[:60]!r}"
            )
    return SeriesLabels(shape, picked, kept, notes)


def _first(labels: dict[str, str], names: Sequence[str]) -> str:
    return next((labels[name] for name in names if labels.get(name)), "")


def _told_apart(series: Sequence[dict[str, str]]) -> list[str]:
    """Return a name for each series: the only label in which they differ, else all labels."""
    keys = sorted({key for labels in series for key in labels})
    varying = [key for key in keys if len({labels.get(key, "") for labels in series}) > 1]
    if len(varying) == 1 or (len(series) == 1 and "" in series[0]):
        return [labels.get(varying[0] if varying else "", "") or "other" for labels in series]
    names = [",".join(f"{key}={labels[key]}" for key in varying if key in labels) for labels in series]
    return [name[:NAME_LENGTH_MAX] or "other" for name in names]


def _got(names: list[str], columns: Sequence[Column | None]) -> str:
    unknown = next((name for name, column in zip(names, columns, strict=True) if column is None), "")
    hint = "; columns are separated by commas" if {";", "\t"} & set(unknown) else ""
    return f"got the column {unknown[:60]!r}{hint}" if unknown else ""


def listed(names: Sequence[str]) -> str:
    """Return the names of columns as words, the first few of them."""
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    shown = ", ".join(repr(name[:60]) for name in names[:NAMED_MAX])
    return f"the column{'s' if len(names) > 1 else ''} {shown}{more}"

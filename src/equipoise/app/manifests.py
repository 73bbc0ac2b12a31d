"""Manifests in files: every document of a file, read as the API server reads it, and judged."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

import yaml

from equipoise.app.files import read_text
from equipoise.app.kinds import KINDS
from equipoise.model.crd.acceptance import Problem
from equipoise.model.crd.kind import Kind
from equipoise.model.crd.manifest import problems
from equipoise.model.documents import VALUES_MAX, StrictLoader, TooMuch, check_bounds
from equipoise.model.errors import DECODE_ERRORS

NOTHING = f"expected a manifest of one of {', '.join(kind.name for kind in KINDS)}, got none"


@dataclass(frozen=True, slots=True)
class Finding:
    """One problem of one manifest."""

    file: str
    document: int
    kind: str
    name: str
    path: str
    message: str

    def record(self) -> dict[str, Any]:
        """Give it for scripts."""
        return asdict(self)

    def __str__(self) -> str:
        what = " ".join(word for word in (self.kind, self.name) if word)
        where = f"{self.file}: document {self.document}" + (f" ({what})" if what else "")
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found in all files."""

    findings: tuple[Finding, ...]
    ours: int
    others: tuple[str, ...]
    """Documents of kinds that are not ours, which nobody judged."""


class Unreadable(ValueError):  # noqa: N818 - reads as a fact
    """A document that no JSON could hold."""


class ManifestLoader(StrictLoader):
    """YAML as kubectl reads it: a date is text, and a key that comes twice is an error."""


ManifestLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def judge(paths: Sequence[str]) -> Verdict:
    """Judge every document of every file."""
    findings: list[Finding] = []
    others: list[str] = []
    ours = 0
    for path in paths:
        before = len(findings) + ours
        for number, document in _documents(path):
            if isinstance(document, Unreadable):
                findings.append(Finding(path, number, "", "", "", str(document)))
                continue
            for at, item in _items(document):
                kind, name = _word(item, "kind"), _word(item.get("metadata"), "name")
                known = _known(item)
                if known is None:
                    others.append(f"{path}: document {number}: {kind or 'no kind'} {name}".rstrip())
                    continue
                ours += 1
                found = [known] if isinstance(known, Problem) else problems(known, item)
                findings += [
                    Finding(path, number, kind, name, f"{at}{problem.path}", problem.message)
                    for problem in found
                ]
        if len(findings) + ours == before:
            findings.append(Finding(path, 1, "", "", "", NOTHING))
    return Verdict(tuple(findings), ours, tuple(others))


def _documents(path: str) -> Iterator[tuple[int, Any]]:
    """Give the documents by their number; one that can't be read ends the file."""
    number = 0
    text = read_text(path)
    loader = ManifestLoader(text)
    try:
        refused = _refused(text)
        while True:
            number += 1
            if refused is not None and number == refused.document:
                raise refused
            if not loader.check_data():
                return
            document = loader.get_data()
            if document is not None:
                plain = _plain(document, [VALUES_MAX])
                yield number, plain if isinstance(plain, dict) else Unreadable("expected a mapping")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        yield number, Unreadable(f"expected YAML, but{where}: {problem}")
    except Unreadable as error:
        yield number, error
    except DECODE_ERRORS as error:
        yield max(number, 1), Unreadable(f"expected plain YAML: {error}")
    finally:
        loader.dispose()


def _refused(text: str) -> TooMuch | None:
    """Find the document that must not be read; those before it are judged first."""
    try:
        with suppress(yaml.YAMLError):
            check_bounds(text)
    except TooMuch as error:
        return error
    return None


def _plain(value: Any, left: list[int]) -> Any:
    """Write a document out as JSON holds it; keys become text, as they do for the API server."""
    left[0] -= 1
    if left[0] < 0:
        raise Unreadable(f"expected at most {VALUES_MAX} values once anchors are written out")
    match value:
        case None | bool() | int() | float() | str():
            return value
        case dict():
            return {_key(key): _plain(part, left) for key, part in value.items()}
        case list():
            return [_plain(part, left) for part in value]
    raise Unreadable(f"expected text, numbers, lists and mappings, got {type(value).__name__}")


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return str(key).lower()
    if isinstance(key, str | int | float):
        return str(key)
    raise Unreadable("expected text as key")


def _items(document: dict[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Look into a `List`, which is what `kubectl get -o yaml` prints."""
    if document.get("apiVersion") == "v1" and document.get("kind") == "List":
        items = document.get("items")
        for number, item in enumerate(items if isinstance(items, list) else []):
            if isinstance(item, dict):
                yield from _items(item, f"{at}items[{number}].")
        return
    yield at, document


def _known(item: Mapping[str, Any]) -> Kind | Problem | None:
    """Find the kind, or say what is wrong with its name or group; None means that it is somebody else's."""
    version, name = _word(item, "apiVersion"), _word(item, "kind")
    group = version.rpartition("/")[0]
    within = [kind for kind in KINDS if kind.group == group]
    for kind in KINDS:
        if kind.name == name:
            expected = f"expected {kind.api_version}, got {version!r}"
            return kind if kind.api_version == version else Problem("apiVersion", expected)
    if within:
        return Problem("kind", f"expected {' or '.join(kind.name for kind in within)}, got {name!r}")
    return None


def _word(part: Any, key: str) -> str:
    value = part.get(key) if isinstance(part, Mapping) else None
    return value if isinstance(value, str) else ""

"""Merges the layers of settings: defaults, the file, the environment, flags; each value with its origin.

`equipoise config` prints the effective settings as a file that can be used again, with the origin of each.
"""

import difflib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any

from pydantic import BaseModel, ValidationError

from equipoise.core.documents import explain
from equipoise.core.errors import DECODE_ERRORS, BadInput
from equipoise.runtime.output import Format, print_document, read_yaml
from equipoise.runtime.settings import SECRET_PATHS, Settings

PREFIX = "EQUIPOISE_"
FILE_VARIABLE = "EQUIPOISE_CONFIG"
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)|_PORT(_|$)")
"""Variables that Kubernetes sets in a pod for a Service named equipoise."""

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a value: as `equipoise config` prints it, and as an error message does."""

    text: str
    blame: str
    is_file: bool = False


@dataclass(frozen=True, slots=True)
class Effective:
    """The effective settings, and the origin of each value."""

    settings: Settings
    sources: Mapping[Path, Origin]
    warnings: tuple[str, ...] = ()

    def source(self, path: Path) -> str:
        origin = self.sources.get(path)
        return origin.text if origin else "default"


Layer = dict[Path, tuple[Any, Origin]]


def effective(
    file: str | None,
    environment: Mapping[str, str],
    flags: Mapping[tuple[str, Path], Any],
    sets: Sequence[str] = (),
) -> Effective:
    """Return the merged layers; an invalid value raises BadInput, which names its origin.

    `flags` are values by the flag's name and the path that it sets; `sets` are `KEY=VALUE`.
    """
    chosen = file or environment.get(FILE_VARIABLE, "").strip()
    merged: Layer = {}
    if chosen:
        _merge(merged, _of_file(chosen))
    _merge(merged, _of_environment(environment))
    _merge(merged, {path: (value, Origin(flag, flag)) for (flag, path), value in flags.items()})
    _merge(merged, _of_sets(sets))
    settings = _validated(merged)
    sources = {path: origin for path, (_, origin) in merged.items()}
    return Effective(settings, sources, _misspelt(environment))


def leaf_paths(model: type[BaseModel] = Settings, above: Path = ()) -> Iterator[Path]:
    """Yield the path of each setting; a list or a map is one setting."""
    for name, field in model.model_fields.items():
        path = (*above, field.alias or name)
        inner = _inner(field.annotation)
        if inner is None:
            yield path
        else:
            yield from leaf_paths(inner, path)


def variables() -> dict[str, Path]:
    """Return the variables by name: `EQUIPOISE_LEASE_NAMESPACE`, and the same with `__` between the parts."""
    words = {path: [re.sub(r"([A-Z])", r"_\1", part).upper() for part in path] for path in leaf_paths()}
    return {PREFIX + between.join(words[path]): path for path in words for between in ("_", "__")}


def _inner(annotation: Any) -> type[BaseModel] | None:
    is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return annotation if is_model else None


def _merge(merged: Layer, layer: Layer) -> None:
    """Merge a layer over the lower ones; a whole mapping replaces the values below its path."""
    for path, value in layer.items():
        for below in [below for below in merged if below[: len(path)] == path]:
            del merged[below]
        merged[path] = value


def _of_file(name: str) -> Layer:
    document = read_yaml(name)
    if document is not None and not isinstance(document, Mapping):
        raise BadInput(f"{name}: expected a mapping of settings")
    origin = Origin(name, name, is_file=True)
    return {path: (value, origin) for path, value in _leaves(document or {}, Settings)}


def _leaves(
    document: Mapping[Any, Any], model: type[BaseModel], above: Path = ()
) -> Iterator[tuple[Path, Any]]:
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, value in document.items():
        path = (*above, str(key))
        inner = _inner(fields[str(key)].annotation) if str(key) in fields else None
        if inner is not None and isinstance(value, Mapping):
            yield from _leaves(value, inner, path)
        elif inner is None or value is not None:  # an empty `lease:` sets nothing
            yield path, value


def _of_environment(environment: Mapping[str, str]) -> Layer:
    layer: Layer = {}
    for name, path in variables().items():
        value = environment.get(name, "").strip()
        if not value:
            continue
        if path in layer and layer[path][0] != value:
            expected = f"expected the value of {layer[path][1].text}; set one of the two"
            raise BadInput(f"environment variable {name}: {expected}")
        layer[path] = (value, Origin(name, f"environment variable {name}"))
    return layer


def _of_sets(texts: Sequence[str]) -> Layer:
    layer: Layer = {}
    for text in texts:
        key, separator, value = text.partition("=")
        path = tuple(key.split("."))
        if not separator or not all(path):
            # The value may be a password.
            key_text = re.split(r"[=:]", text, maxsplit=1)[0]
            raise BadInput(f"--set {key_text}: expected KEY=VALUE, such as lease.name=blue")
        layer[path] = (value, Origin("--set", f"--set {key}"))
    return layer


def _misspelt(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return warnings about variables that look like a misspelt setting; others are ignored."""
    known = [*variables(), FILE_VARIABLE]
    return tuple(
        f"environment variable {name} is unknown and was ignored; did you mean {close}?"
        for name in sorted(environment)
        if name.startswith(PREFIX) and name not in known and not _SERVICE_LINK.search(name)
        for close in difflib.get_close_matches(name, known, 1, 0.85)
    )


def _validated(merged: Layer) -> Settings:
    document: dict[str, Any] = {}
    for path, (value, _) in merged.items():
        _put(document, path, value)
    try:
        return Settings.model_validate(document)
    except DECODE_ERRORS as error:
        raise BadInput(_message(error, merged)) from error


def _put(document: dict[str, Any], path: Path, value: Any) -> None:
    *parents, last = path
    for parent in parents:
        inner = document.setdefault(parent, {})
        if not isinstance(inner, dict):  # a lower layer has a scalar here; validation reports it
            return
        document = inner
    document[last] = value


def _message(error: Exception, merged: Layer) -> str:
    """Return the first error, with the origin of its value: the topmost layer's if several have one."""
    if not isinstance(error, ValidationError):
        return explain(error, Settings)
    place = tuple(map(str, error.errors(include_url=False)[0]["loc"]))
    sentence = explain(error, Settings)
    if any(place[: len(path)] == path or path[: len(place)] == place for path in SECRET_PATHS):
        sentence = re.sub(r", got .*", "", sentence, flags=re.DOTALL)
    named = [
        (path, origin)
        for path, (_, origin) in merged.items()
        if path[: len(place)] == place or place[: len(path)] == path
    ]
    if not named:
        return sentence
    path, origin = next((pair for pair in named if pair[0] == place), named[-1])
    if origin.is_file or path != place:
        return f"{origin.blame}: {sentence}"
    return f"{origin.blame}: {sentence.partition(': ')[2]}"


COMMENT_COLUMN = 44


def print_settings(found: Effective, form: Format) -> None:
    """Print on standard output; secrets are hidden in every form."""
    if form is Format.JSON:
        sources = {".".join(path): found.source(path) for path in leaf_paths()}
        print_document({"settings": found.settings.document(), "sources": sources}, form)
    elif form is Format.YAML:
        sys.stdout.writelines(f"{line}\n" for line in setting_lines(found, found.settings.document()))
    else:
        _print_table(found)


def setting_lines(found: Effective, document: Mapping[str, Any], above: Path = ()) -> Iterator[str]:
    """Yield YAML with the origin of each value in a comment."""
    leaves = set(leaf_paths())
    indent = "  " * len(above)
    for key, value in document.items():
        path = (*above, key)
        if path in leaves:
            text = f"{indent}{key}: {_flow(value)}"
            yield f"{text.ljust(COMMENT_COLUMN)} # from {found.source(path)}"
        else:
            yield f"{indent}{key}:"
            yield from setting_lines(found, value, path)


def _flow(value: Any) -> str:
    from equipoise.core.documents import dump

    text = dump(value, is_flow=True, sort_keys=True)
    return text.removesuffix("\n").removesuffix("\n...")


def _print_table(found: Effective) -> None:
    from rich.text import Text

    from equipoise.runtime.console import Console, table

    laid_out = table("SETTING", "VALUE", "FROM")
    for path in leaf_paths():
        value = reduce(getitem, path, found.settings.document())
        laid_out.add_row(*map(Text, (".".join(path), _flow(value), found.source(path))))
    Console().print(laid_out)

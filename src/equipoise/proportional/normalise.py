"""From shorthand to the canonical form; where each thing was written is kept, for whoever must mend it.

container: {...}             containers: [{...}]
requests: / limits:          resources: {requests: [...], limits: [...]}
functions: {...} or [...]    one rule for each function
a mapping                    where the canonical form has a list of one
"""

from collections.abc import Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]
Origins = dict[Path, Path]
"""Canonical paths whose parts were written elsewhere, and where."""
SECTIONS = ("requests", "limits")


class Misplaced(ValueError):  # noqa: N818 - reads as a fact
    """Something that stands where it can't be understood."""

    def __init__(self, path: Path, message: str) -> None:
        super().__init__(message)
        self.path = path


def normalised(document: Any) -> tuple[Any, Origins]:
    """Give a spec in canonical form, and where its parts were written; what is odd stays as it is."""
    if not isinstance(document, Mapping):
        return document, {}
    spec, origins = dict(document), Origins()
    _renamed(spec, "container", "containers", ())
    if "containers" in spec:
        written = "container" if "container" in document else "containers"
        spec["containers"] = [
            _container(part, ("containers", number), path, origins)
            for number, (part, path) in enumerate(_listed(spec["containers"], (written,)))
        ]
    return spec, origins


def written_path(path: Path, origins: Origins) -> Path:
    """Give where something of the canonical form was written."""
    for length in range(len(path), 0, -1):
        if (found := origins.get(path[:length])) is not None:
            return (*found, *path[length:])
    return path


def _renamed(part: dict[str, Any], short: str, canonical: str, at: Path) -> None:
    if short in part:
        if canonical in part:
            raise Misplaced((*at, short), f"expected {short} or {canonical}, got both")
        part[canonical] = part.pop(short)


def _listed(value: Any, at: Path) -> Iterator[tuple[Any, Path]]:
    """Give the items with where each was written; a mapping is a list of one."""
    if isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield item, (*at, number)
    elif isinstance(value, Mapping):
        yield value, at
    else:
        raise Misplaced(at, f"expected a list, or a mapping for a list of one, got {value!r:.60}")


def _container(part: Any, at: Path, written: Path, origins: Origins) -> Any:
    origins[at] = written
    if not isinstance(part, Mapping):
        return part
    container = dict(part)
    resources = container.get("resources", {})
    if not isinstance(resources, Mapping):
        return container
    resources = dict(resources)
    for section in SECTIONS:
        path = (*written, "resources", section)
        if section in container:
            if section in resources:
                raise Misplaced((*written, section), f"expected {section} or resources.{section}, got both")
            resources[section], path = container.pop(section), (*written, section)
        if section in resources:
            here = (*at, "resources", section)
            origins[here] = path
            resources[section] = list(_rules(resources[section], here, path, origins))
    if resources or "resources" in container:
        container["resources"] = resources
    if "quantization" in container:
        here = (*at, "quantization")
        container["quantization"] = [
            _segmented(item, (*here, number), path, origins)
            for number, (item, path) in enumerate(
                _listed(container["quantization"], (*written, "quantization"))
            )
        ]
    return container


def _rules(value: Any, at: Path, written: Path, origins: Origins) -> Iterator[Any]:
    """Give the rules; one with several functions becomes several, of which the first has the bounds."""
    number = 0
    for item, path in _listed(value, written):
        origins[*at, number] = path
        if not isinstance(item, Mapping) or ("functions" not in item and "function" not in item):
            yield item
            number += 1
            continue
        rule = dict(item)
        if "functions" in rule and "function" in rule:
            raise Misplaced((*path, "functions"), "expected function or functions, got both")
        name = "functions" if "functions" in rule else "function"
        functions = rule.pop(name)
        if name == "function" and not isinstance(functions, Mapping):
            raise Misplaced((*path, name), f"expected a mapping, got {functions!r:.60}")
        for function, where in _listed(functions, (*path, name)):
            here = (*at, number)
            origins[here] = path
            yield rule | {"function": _segmented(function, (*here, "function"), where, origins)}
            rule = {key: part for key, part in rule.items() if key not in {"min", "max"}}
            number += 1


def _segmented(part: Any, at: Path, written: Path, origins: Origins) -> Any:
    origins[at] = written
    if not isinstance(part, Mapping) or "segments" not in part:
        return part
    found = list(_listed(part["segments"], (*written, "segments")))
    for number, (_, path) in enumerate(found):
        origins[*at, "segments", number] = path
    return dict(part) | {"segments": [item for item, _ in found]}

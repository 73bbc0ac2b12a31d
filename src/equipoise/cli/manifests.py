"""Our custom resource definitions: installs them into a cluster, and validates manifests of their kinds.

A definition may belong to another project. So it is applied only if none is installed, or ours is. Manifests
are decoded as the API server decodes them.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Literal

import msgspec
import yaml

from equipoise.adapters.kubernetes import ApiError, Client
from equipoise.core.documents import StrictLoader, TooMuch, check_bounds
from equipoise.core.errors import DECODE_ERRORS, BadInput, WorldFailed
from equipoise.crd.definition import OWNER, OWNER_LABEL, DefinedKind, definition
from equipoise.crd.manifest import Problem, problems
from equipoise.crd.status import LEDGER
from equipoise.engine.balancer import BALANCERS, balancer
from equipoise.runtime.output import read_text

ESTABLISHED_SECONDS_MAX = 30.0
POLL_SECONDS = 0.2
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NOT_FOUND = 404
APPLY = "application/apply-patch+yaml"
OUR_GROUP = "equipoise.dev"

Changed = Literal["Created", "Updated", "Unchanged"]


class Installed(msgspec.Struct, frozen=True):
    """What became of one definition."""

    name: str
    result: Changed | Literal["Foreign", "Failed"]
    sentence: str

    @property
    def is_fine(self) -> bool:
        """Whether the kind can be used now: one of another group also where its own people defined it."""
        is_theirs = self.result == "Foreign" and not self.name.endswith(f".{OUR_GROUP}")
        return is_theirs or self.result in {"Created", "Updated", "Unchanged"}


class InstallReport(msgspec.Struct, frozen=True, rename="camel"):
    """What `crds apply` prints."""

    dry_run: bool
    definitions: list[Installed]


class _DefinitionMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Condition(msgspec.Struct):
    type: str
    status: str = ""
    message: str = ""


class _DefinitionStatus(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Definition(msgspec.Struct):
    metadata: _DefinitionMeta
    spec: dict[str, Any]
    status: _DefinitionStatus | None = None


def install(client: Client, kinds: Sequence[DefinedKind], *, is_dry_run: bool) -> Iterator[Installed]:
    """Yield the result of applying each definition; one of another owner is left unchanged."""
    for kind in kinds:
        before = _definition(client, kind.definition_name)
        if before is None or (before.metadata.labels or {}).get(OWNER_LABEL) == OWNER:
            yield _apply(client, kind, before, is_dry_run=is_dry_run)
        else:
            sentence = (
                f"It is there already and lacks the label {OWNER_LABEL}={OWNER}: it is somebody else's, "
                "and was left alone."
            )
            yield Installed(kind.definition_name, "Foreign", sentence)


def _definition(client: Client, name: str) -> _Definition | None:
    try:
        return client.get_as(_Definition, f"{PATH}/{name}")
    except ApiError as error:
        if error.status == NOT_FOUND:
            return None
        raise


def _apply(client: Client, kind: DefinedKind, before: _Definition | None, *, is_dry_run: bool) -> Installed:
    """Apply on the server's side.

    Ours is overwritten whoever changed it, if it is still the one we looked at. Where none was, nothing is
    forced: one that somebody made in between is a conflict, not a prey.
    """
    wanted = definition(kind)
    params: dict[str, str | int] = {"fieldManager": OWNER, "fieldValidation": "Strict"}
    if before is not None:
        wanted["metadata"]["resourceVersion"] = before.metadata.resource_version
        params["force"] = "true"
    if is_dry_run:
        params["dryRun"] = "All"
    path = f"{PATH}/{kind.definition_name}"
    body = client.request("PATCH", path, params, body=wanted, content_type=APPLY, is_idempotent=True)
    after = client.decode(_Definition, body, f"PATCH {path}")
    is_same = before is not None and _parts(before) == _parts(after)
    result: Changed = "Created" if before is None else "Unchanged" if is_same else "Updated"
    if is_dry_run:
        sentence = f"The server would accept it ({result.lower()}); dry run."
        return Installed(kind.definition_name, result, sentence)
    return _established(client, kind, result)


def _parts(found: _Definition) -> tuple[object, ...]:
    return found.spec, found.metadata.labels, found.metadata.annotations


def _established(client: Client, kind: DefinedKind, result: Changed) -> Installed:
    """Wait until the server serves the kind, or reports why it does not."""
    name = kind.definition_name
    deadline = client.world.monotonic() + ESTABLISHED_SECONDS_MAX
    while True:
        found = _definition(client, name)
        status = found.status if found is not None else None
        conditions = {one.type: one for one in status.conditions or ()} if status is not None else {}
        for type_, bad in (("NonStructuralSchema", "True"), ("NamesAccepted", "False")):
            condition = conditions.get(type_, _Condition(type_))
            if condition.status == bad:
                return Installed(name, "Failed", f"{type_} is {bad}: {condition.message}")
        if conditions.get("Established", _Condition("")).status == "True":
            return Installed(name, result, f"{kind.name} ({kind.api_version}) is served.")
        if client.world.monotonic() >= deadline:
            late = f"not established after {ESTABLISHED_SECONDS_MAX:.0f} s"
            raise WorldFailed(f"customresourcedefinition {name}: {late}")
        client.world.sleep(POLL_SECONDS)


_KINDS = [LEDGER, *(kind for name in BALANCERS for kind in balancer(name).kinds)]
_KINDS.sort(key=lambda kind: (kind.group == OUR_GROUP, kind.group), reverse=True)
KINDS: tuple[DefinedKind, ...] = tuple(_KINDS)
"""All kinds, in the order in which they are printed and applied."""


def chosen_kinds(names: Sequence[str]) -> list[DefinedKind]:
    """Return the kinds of these names, plurals or short names; all without a name."""
    found = []
    for name in names:
        matching = [kind for kind in KINDS if kind.is_called(name)]
        if not matching:
            raise BadInput(f"kind {name!r}: expected one of {', '.join(kind.name for kind in KINDS)}")
        found += [kind for kind in matching if kind not in found]
    return found or list(KINDS)


NOTHING = f"expected a manifest of one of {', '.join(kind.name for kind in KINDS)}, got none"


class Finding(msgspec.Struct, frozen=True):
    """One problem of one manifest."""

    file: str
    document: Annotated[int, msgspec.Meta(ge=1)]
    kind: str
    name: str
    path: str
    message: str

    def __str__(self) -> str:
        what = " ".join(word for word in (self.kind, self.name) if word)
        where = f"{self.file}: document {self.document}" + (f" ({what})" if what else "")
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


class ValidationReport(msgspec.Struct, frozen=True, rename="camel"):
    """What was found in all files."""

    valid: bool
    findings: list[Finding]
    checked: Annotated[int, msgspec.Meta(ge=0)]
    not_ours: list[str]
    """Documents of kinds that are not ours, which nobody judged."""


class UnreadableManifest(ValueError):  # noqa: N818 - reads as a fact
    """A document that is no manifest."""


def judge(paths: Sequence[str]) -> ValidationReport:
    findings: list[Finding] = []
    others: list[str] = []
    ours = 0
    for path in paths:
        before = len(findings) + ours
        for number, document in _documents(path):
            if isinstance(document, UnreadableManifest):
                findings.append(Finding(path, number, "", "", "", str(document)))
                continue
            for at, item in _items(document):
                kind, name = _word(item, "kind"), _word(item.get("metadata"), "name")
                definition = _kind_of(item)
                if definition is None:
                    others.append(f"{path}: document {number}: {kind or 'no kind'} {name}".rstrip())
                    continue
                ours += 1
                found = [definition] if isinstance(definition, Problem) else problems(definition, item)
                findings += [
                    Finding(path, number, kind, name, f"{at}{problem.path}", problem.message)
                    for problem in found
                ]
        if len(findings) + ours == before:
            findings.append(Finding(path, 1, "", "", "", NOTHING))
    return ValidationReport(not findings, findings, ours, others)


def _documents(path: str) -> Iterator[tuple[int, Any]]:
    """Yield the documents with their number; one that cannot be decoded ends the file."""
    number = 0
    text = read_text(path)
    loader = StrictLoader(text)
    try:
        refused = _refused(text)
        while True:
            number += 1
            if refused is not None and number == refused.document:
                raise refused
            if not loader.check_data():
                return
            document = loader.get_data()
            if isinstance(document, dict):
                yield number, document
            elif document is not None:
                yield number, UnreadableManifest("expected a mapping")
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or "not YAML"
        yield number, UnreadableManifest(f"expected YAML, but{where}: {problem}")
    except UnreadableManifest as error:
        yield number, error
    except DECODE_ERRORS as error:
        yield max(number, 1), UnreadableManifest(f"expected plain YAML: {error}")
    finally:
        loader.dispose()


def _refused(text: str) -> TooMuch | None:
    """Return where a document must not be decoded; those before it are validated first."""
    try:
        with suppress(yaml.YAMLError):
            check_bounds(text)
    except TooMuch as error:
        return error
    return None


def _items(document: dict[str, Any], at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the items of a `List`, which is what `kubectl get -o yaml` prints."""
    if document.get("apiVersion") == "v1" and document.get("kind") == "List":
        items = document.get("items")
        for number, item in enumerate(items if isinstance(items, list) else []):
            if isinstance(item, dict):
                yield from _items(item, f"{at}items[{number}].")
        return
    yield at, document


def _kind_of(item: Mapping[str, Any]) -> DefinedKind | Problem | None:
    """Return the kind, or an error about its name or group; None for a kind that is not ours."""
    version, name = _word(item, "apiVersion"), _word(item, "kind")
    group = version.rpartition("/")[0]
    for kind in KINDS:
        if kind.name == name:
            expected = f"expected {kind.api_version}, got {version!r}"
            return kind if kind.api_version == version else Problem("apiVersion", expected)
    if within := [kind.name for kind in KINDS if kind.group == group]:
        return Problem("kind", f"expected {' or '.join(within)}, got {name!r}")
    return None


def _word(part: Any, key: str) -> str:
    value = part.get(key) if isinstance(part, Mapping) else None
    return value if isinstance(value, str) else ""

"""Puts our definitions into a cluster: only where none is, or where ours is."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec

from equipoise.adapters.kubernetes import ApiError, Client
from equipoise.model.crd.definition import OWNER, OWNER_LABEL, definition
from equipoise.model.crd.kind import Kind
from equipoise.model.errors import WorldFailed

ESTABLISHED_SECONDS_MAX = 30.0
POLL_SECONDS = 0.2
PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NOT_FOUND = 404
APPLY = "application/apply-patch+yaml"
OUR_GROUP = "equipoise.dev"


@dataclass(frozen=True, slots=True)
class Installed:
    """What became of one definition: Created, Updated, Unchanged, Foreign or Failed."""

    name: str
    result: str
    sentence: str

    @property
    def is_fine(self) -> bool:
        """Whether the kind can be used now: one of another group also where its own people defined it."""
        is_theirs = self.result == "Foreign" and not self.name.endswith(f".{OUR_GROUP}")
        return is_theirs or self.result in {"Created", "Updated", "Unchanged"}

    def record(self) -> dict[str, Any]:
        """Give it for scripts."""
        return asdict(self)


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Condition(msgspec.Struct):
    type: str
    status: str = ""
    message: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Definition(msgspec.Struct):
    metadata: _Meta
    spec: dict[str, Any]
    status: _Status | None = None


def install(client: Client, kinds: Sequence[Kind], *, is_dry_run: bool) -> Iterator[Installed]:
    """Apply the definitions one by one; one that is not ours is left alone, and the others go on."""
    for kind in kinds:
        before = _look(client, kind.definition_name)
        if before is None or _is_ours(before):
            yield _apply(client, kind, before, is_dry_run=is_dry_run)
        else:
            sentence = (
                f"It is there already and lacks the label {OWNER_LABEL}={OWNER}: it is somebody else's, "
                "and was left alone."
            )
            yield Installed(kind.definition_name, "Foreign", sentence)


def _look(client: Client, name: str) -> _Definition | None:
    try:
        return client.get_as(_Definition, f"{PATH}/{name}")
    except ApiError as error:
        if error.status == NOT_FOUND:
            return None
        raise


def _is_ours(found: _Definition) -> bool:
    return (found.metadata.labels or {}).get(OWNER_LABEL) == OWNER


def _apply(client: Client, kind: Kind, before: _Definition | None, *, is_dry_run: bool) -> Installed:
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
    result = "Created" if before is None else "Updated" if _has_changed(before, after) else "Unchanged"
    if is_dry_run:
        return Installed(
            kind.definition_name, result, f"The server would accept it ({result.lower()}); dry run."
        )
    return _established(client, kind, result)


def _has_changed(before: _Definition, after: _Definition) -> bool:
    was, now = before.metadata, after.metadata
    return (before.spec, was.labels, was.annotations) != (after.spec, now.labels, now.annotations)


def _established(client: Client, kind: Kind, result: str) -> Installed:
    """Wait until the server serves the kind, or says why it does not."""
    name = kind.definition_name
    deadline = client.world.monotonic() + ESTABLISHED_SECONDS_MAX
    while True:
        conditions = _conditions(_look(client, name))
        for type_, bad in (("NonStructuralSchema", "True"), ("NamesAccepted", "False")):
            said = conditions.get(type_, _Condition(type_))
            if said.status == bad:
                return Installed(name, "Failed", f"{type_} is {bad}: {said.message}")
        if conditions.get("Established", _Condition("")).status == "True":
            return Installed(name, result, f"{kind.name} ({kind.api_version}) is served.")
        if client.world.monotonic() >= deadline:
            raise WorldFailed(
                f"customresourcedefinition {name}: not established after {ESTABLISHED_SECONDS_MAX:.0f} s"
            )
        client.world.sleep(POLL_SECONDS)


def _conditions(found: _Definition | None) -> dict[str, _Condition]:
    status = found.status if found is not None else None
    return {one.type: one for one in status.conditions or ()} if status is not None else {}

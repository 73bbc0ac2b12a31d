"""The `Store` port over an API server: one bounded `Ledger` object for each workload, in its namespace.

A write is a compare-and-swap by resource version. Every write has its own token, so that after a lost answer
our own write is not taken for a conflict: the same request is sent again, and when the server then answers
that the version has changed, the token shows whether we changed it. Where that cannot be read either,
`WorldFailed` is raised, and the outcome is unknown.

A document is the `data` of a Ledger, in the shape of its definition; the private part of each balancer is in
its `memory`. Validation is strict: a key that the definition does not have is refused, where the server would
otherwise drop it silently.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec

from equipoise.adapters.kubernetes.cache import Warnings
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.kubernetes.kinds import list_items
from equipoise.adapters.kubernetes.objects import path_of
from equipoise.adapters.kubernetes.structs import ObjectMeta
from equipoise.core.cluster import WorkloadRef
from equipoise.core.errors import DECODE_ERRORS, WorldFailed
from equipoise.core.ledger import BYTES_MAX
from equipoise.ports import NotInstalled, StoreConflict, Stored

GROUP, VERSION, KIND, PLURAL = "equipoise.dev", "v1alpha1", "Ledger", "ledgers"
NAME_LENGTH_MAX = 63
WRITE_ANNOTATION = "equipoise.dev/write"
"""The annotation with the token of the last write."""
OWNER_LABEL = "app.kubernetes.io/managed-by"
KIND_LABEL = "equipoise.dev/workload-kind"
_HASH_LENGTH = 10
_INSTALL = f"the kind {KIND} ({GROUP}/{VERSION}) is not installed; `equipoise crds apply` installs it"
_STRICTLY = {"fieldValidation": "Strict"}


class LedgerTooLarge(WorldFailed):
    """The entry is too large. Nothing was written; the caller has to remove something first."""


class RawLedger(msgspec.Struct):
    """The fields of a Ledger object that we read."""

    metadata: ObjectMeta
    data: dict[str, Any] = {}


class LedgerOwner(msgspec.Struct):
    """The workload of a ledger."""

    kind: str
    name: str
    apiVersion: str = "apps/v1"


class LedgerStore:
    """Stores each workload's ledger in the workload's namespace. Threads may share it."""

    def __init__(
        self,
        client: Client,
        *,
        uid_of: Callable[[WorkloadRef], str | None] = lambda _: None,
        namespaces: Sequence[str] = (),
        token: Callable[[], str] = lambda: secrets.token_hex(8),
    ) -> None:
        """Use a session; `uid_of` returns a workload's UID, so that its ledger is deleted with it.

        With `namespaces`, all namespaces means these, for rights that are limited to them.
        """
        self._client = client
        self._uid_of = uid_of
        self._namespaces = tuple(namespaces)
        self._token = token
        self._uids: dict[WorkloadRef, str] = {}
        self.warnings: tuple[str, ...] = ()
        """What the last `read_all` could not decode."""

    def read(self, workload: WorkloadRef) -> Stored:
        found = self._find(workload)
        return Stored({}) if found is None else Stored(found.data, found.metadata.resourceVersion)

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        """Read all entries, in one paged list for each namespace; their content is not checked.

        An object that names no workload, or that `read` would not find, is left out. That is safe, since a
        write without its version is a conflict.
        """
        warnings = Warnings()
        found: dict[WorkloadRef, RawLedger] = {}
        for place in self._namespaces if namespace is None and self._namespaces else (namespace,):
            found |= self._list(place, warnings)
        for workload in list(self._uids):
            if workload not in found and namespace in {None, workload.namespace}:
                self._uids.pop(workload, None)
        for workload, ledger in found.items():
            self._learn_owner(workload, ledger)
        self.warnings = warnings.sentences()
        return {ref: Stored(each.data, each.metadata.resourceVersion) for ref, each in found.items()}

    def _list(self, namespace: str | None, warnings: Warnings) -> dict[WorkloadRef, RawLedger]:
        warn = partial(warnings.add, "a Ledger that names no workload")
        path = path_of(GROUP, VERSION, PLURAL, namespace)
        found: dict[WorkloadRef, RawLedger] = {}
        with _installed():
            ledgers = list_items(self._client, path, RawLedger, lambda one: warn(one.place))
        for ledger in ledgers:
            workload = _workload_of(ledger)
            if workload is None or ledger.metadata.name != entry_name(workload):
                warn(f"{ledger.metadata.namespace}/{ledger.metadata.name}")
            else:
                found[workload] = ledger
        return found

    def _learn_owner(self, workload: WorkloadRef, ledger: RawLedger) -> None:
        """Remember the owner reference, so that a later write keeps it."""
        for owner in ledger.metadata.ownerReferences or ():
            self._uids[workload] = owner.uid

    def write(self, workload: WorkloadRef, data: Mapping[str, Any], version: str) -> Stored:
        content = self._encoded(workload, data)
        token = self._token()
        body = self._body(workload, content, version, token)
        collection = path_of(GROUP, VERSION, PLURAL, workload.namespace)
        method, path = ("PUT", _path(workload)) if version else ("POST", collection)
        try:
            # The resource version makes a retry safe after a lost answer.
            answer = self._client.request(method, path, _STRICTLY, body=body, is_idempotent=True)
        except ApiError as error:
            if error.status != HTTPStatus.CONFLICT and not (version and error.is_not_found):
                raise
            there = self._find(workload)  # it was updated, created or deleted since it was read
            if there is None or (there.metadata.annotations or {}).get(WRITE_ANNOTATION) != token:
                raise StoreConflict(f"the ledger of {workload}: {error.message}") from error
            return Stored(json.loads(content), there.metadata.resourceVersion)
        written = self._client.decode(RawLedger, answer, f"{method} {path}")
        return Stored(json.loads(content), written.metadata.resourceVersion)

    def _find(self, workload: WorkloadRef) -> RawLedger | None:
        try:
            with _installed():
                found = self._client.get_as(RawLedger, _path(workload))
        except ApiError as error:
            if error.is_not_found:
                self._uids.pop(workload, None)
                return None
            raise
        self._learn_owner(workload, found)
        return found

    def _encoded(self, workload: WorkloadRef, data: Mapping[str, Any]) -> bytes:
        whole = {"workload": _identity(workload)} | dict(data)
        # Not msgspec's encoder, which would write a NaN as null.
        text = json.dumps(whole, allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=dict)
        content = text.encode()
        if len(content) > BYTES_MAX:
            raise LedgerTooLarge(
                f"the ledger of {workload}: {len(content)} bytes, expected at most {BYTES_MAX}"
            )
        return content

    def _body(self, workload: WorkloadRef, content: bytes, version: str, token: str) -> dict[str, Any]:
        metadata: dict[str, Any] = {
            "name": entry_name(workload),
            "namespace": workload.namespace,
            "labels": {OWNER_LABEL: "equipoise", KIND_LABEL: workload.kind},
            "annotations": {WRITE_ANNOTATION: token},
        }
        if version:
            metadata["resourceVersion"] = version
        if uid := self._uid_of(workload) or self._uids.get(workload):
            self._uids[workload] = uid
            metadata["ownerReferences"] = [_identity(workload) | {"uid": uid}]
        kind = {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND}
        return kind | {"metadata": metadata, "data": msgspec.Raw(content)}


def _identity(workload: WorkloadRef) -> dict[str, Any]:
    return {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name}


def entry_name(workload: WorkloadRef) -> str:
    """Return the name of a workload's entry: readable, and unique however long or alike the names are."""
    exact = f"{workload.group}/{workload.kind}/{workload.name}"
    digest = hashlib.sha256(exact.encode()).hexdigest()[:_HASH_LENGTH]
    readable = re.sub(r"[^a-z0-9]+", "-", f"{workload.kind}-{workload.name}".lower())
    return f"{readable[: NAME_LENGTH_MAX - _HASH_LENGTH - 1].strip('-')}-{digest}"


@contextmanager
def _installed() -> Iterator[None]:
    """Raise NotInstalled where the kind is missing, not the object: then the 404 has no Status reason."""
    try:
        yield
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND and not error.is_not_found:
            raise NotInstalled(_INSTALL) from error
        raise


def _path(workload: WorkloadRef) -> str:
    return path_of(GROUP, VERSION, PLURAL, workload.namespace, entry_name(workload))


def _workload_of(ledger: RawLedger) -> WorkloadRef | None:
    try:
        said = msgspec.convert(ledger.data.get("workload"), type=LedgerOwner)
    except DECODE_ERRORS:
        return None
    return WorkloadRef(said.apiVersion, said.kind, ledger.metadata.namespace, said.name).canonical

"""The `Pauses` port over annotations on namespaces: a user who may edit a namespace can pause it.

`equipoise.dev/paused` on a namespace stops every action in it; `equipoise.dev/paused-everywhere` on the
operator's own namespace stops every action. The value names who and why; only `false` means no pause.

A pause has to take effect within five seconds, also over a dead link. So the watch is short and the server
answers every few seconds. When it has not answered for `age_max_seconds`, the pauses are unknown: asking for
one raises, and nothing is done.
"""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from equipoise.adapters.http import Backoff, one_line
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.errors import ApiError, bad_answer
from equipoise.adapters.kubernetes.kinds import ResourceKind, cluster_key
from equipoise.adapters.kubernetes.reflector import Reflector, Stale, Timings
from equipoise.adapters.kubernetes.structs import ObjectMeta
from equipoise.core.errors import WorldFailed

PAUSED = "equipoise.dev/paused"
PAUSED_EVERYWHERE = "equipoise.dev/paused-everywhere"
OPERATOR_NAMESPACE = "equipoise-system"
AGE_MAX_SECONDS = 5.0
TEXT_LENGTH_MAX = 300
TIMINGS = Timings(
    watch_seconds=(2.0, 3.0), silence_seconds=4.0, retry=Backoff(first_seconds=0.25, delay_max_seconds=2.0)
)
"""Timings for one operator. Thousands of agents need longer ones, and a longer maximum age."""
_STALE = Stale(
    "it is not known yet whether Equipoise is paused",
    "it is unknown whether Equipoise is paused: the last answer of the API server is {age:.1f} s old; "
    "the limit is {age_max:g} s",
)


class RawNamespace(msgspec.Struct, gc=False):
    """A namespace's annotations."""

    metadata: ObjectMeta


class NamespaceMarks(msgspec.Struct, frozen=True, gc=False):
    """The pauses of a namespace."""

    name: str
    uid: str
    resource_version: str
    paused: str | None = None
    paused_everywhere: str | None = None


def _marks(_: Decoder, raw: RawNamespace) -> NamespaceMarks:
    meta, annotations = raw.metadata, raw.metadata.annotations or {}
    paused, everywhere = (_text(annotations.get(key)) for key in (PAUSED, PAUSED_EVERYWHERE))
    return NamespaceMarks(meta.name, meta.uid, meta.resourceVersion, paused, everywhere)


NAMESPACES: ResourceKind[NamespaceMarks] = ResourceKind(
    "Namespace",
    "namespaces",
    "",
    "v1",
    RawNamespace,
    _marks,
    cluster_key,
    is_namespaced=False,
    stand_in=lambda outline: NamespaceMarks(
        outline.meta.name,
        outline.meta.uid,
        outline.meta.resourceVersion,
        paused=f"the namespace cannot be read ({outline.why})",
        paused_everywhere=f"the namespace {outline.meta.name} cannot be read ({outline.why})",
    ),
)


class NamespacePauses:
    """Watches the namespaces while its reflector runs."""

    def __init__(
        self,
        client: Client,
        *,
        operator_namespace: str = OPERATOR_NAMESPACE,
        age_max_seconds: float = AGE_MAX_SECONDS,
        timings: Timings = TIMINGS,
    ) -> None:
        self.reflector = Reflector(client, NAMESPACES, timings=timings)
        self._operator_namespace = operator_namespace
        self._age_max_seconds = age_max_seconds

    def pause_of(self, namespace: str) -> str | None:
        cache = self.reflector.require_fresh(age_max_seconds=self._age_max_seconds, sentences=_STALE)
        operator = cache.get("", self._operator_namespace)
        if operator is not None and operator.paused_everywhere is not None:
            return f"all of Equipoise is paused ({operator.paused_everywhere})"
        marks = cache.get("", namespace)
        if marks is None:
            raise WorldFailed(f"namespace {namespace}: not found, so it is unknown whether it is paused")
        return None if marks.paused is None else f"namespace {namespace} is paused ({marks.paused})"


class DirectPauses:
    """Reads from the server at every call; for commands, which call it seldom."""

    def __init__(self, client: Client, *, operator_namespace: str = OPERATOR_NAMESPACE) -> None:
        self._client = client
        self._operator_namespace = operator_namespace

    def pause_of(self, namespace: str) -> str | None:
        everywhere = self._text_of(self._operator_namespace, PAUSED_EVERYWHERE)
        if everywhere is not None:
            return f"all of Equipoise is paused ({everywhere})"
        here = self._text_of(namespace, PAUSED)
        return None if here is None else f"namespace {namespace} is paused ({here})"

    def _text_of(self, namespace: str, key: str) -> str | None:
        """Return one annotation; a namespace that does not exist has none."""
        try:
            return _annotation(self._client, namespace, key)
        except ApiError as error:
            if error.is_not_found:
                return None
            raise


def pause(
    client: Client, namespace: str | None, who: str, *, operator_namespace: str = OPERATOR_NAMESPACE
) -> None:
    """Pause a namespace, or (None) everything; `who` names who and why."""
    _annotate(client, namespace, one_line(who, TEXT_LENGTH_MAX) or "true", operator_namespace)


def resume(
    client: Client, namespace: str | None, *, operator_namespace: str = OPERATOR_NAMESPACE
) -> str | None:
    """End a pause; return its annotation's value, or None when there was none."""
    before = read_pause(client, namespace, operator_namespace)
    if before is not None:
        _annotate(client, namespace, None, operator_namespace)
    return before


def read_pause(
    client: Client, namespace: str | None, operator_namespace: str = OPERATOR_NAMESPACE
) -> str | None:
    """Return who or what paused a namespace, or (None) everything; None without a pause."""
    where, key = _place(namespace, operator_namespace)
    try:
        return _annotation(client, where, key)
    except ApiError as error:
        raise _explained(error, where, namespace) from error


def _annotation(client: Client, namespace: str, key: str) -> str | None:
    found = client.get_as(RawNamespace, NAMESPACES.path(None, namespace))
    return _text((found.metadata.annotations or {}).get(key))


def _annotate(client: Client, namespace: str | None, value: str | None, operator_namespace: str) -> None:
    where, key = _place(namespace, operator_namespace)
    path = NAMESPACES.path(None, where)
    try:
        body = client.patch(path, {"metadata": {"annotations": {key: value}}})
    except ApiError as error:
        raise _explained(error, where, namespace) from error
    # A proxy's answer must not confirm a pause: only the API server can.
    found = client.decode(RawNamespace, body, f"PATCH {path}").metadata
    if found.name != where or (found.annotations or {}).get(key) != value:
        raise bad_answer(client.address, f"PATCH {path}", body, "expected the changed namespace")


def _place(namespace: str | None, operator_namespace: str) -> tuple[str, str]:
    return (operator_namespace, PAUSED_EVERYWHERE) if namespace is None else (namespace, PAUSED)


def _explained(error: ApiError, where: str, namespace: str | None) -> WorldFailed:
    if error.status != HTTPStatus.NOT_FOUND:
        return error
    hint = (
        "; --operator-namespace names the namespace in which Equipoise is installed"
        if namespace is None
        else ""
    )
    return WorldFailed(f"namespace {where}: not found{hint}")


def _text(value: str | None) -> str | None:
    """Return an annotation's value; None (no pause) where it is absent or `false`, never for empty text."""
    if value is None or value.strip().lower() == "false":
        return None
    return one_line(value, TEXT_LENGTH_MAX) or "true"

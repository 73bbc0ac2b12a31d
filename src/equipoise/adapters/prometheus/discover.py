"""Finds the cluster's Prometheus when no address is given, and never guesses between two."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from equipoise.adapters.http import NO_RETRIES
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.prometheus.candidates import (
    FAMILIES,
    Candidate,
    PrometheusObject,
    Service,
    from_objects,
    from_services,
)
from equipoise.adapters.prometheus.client import Client
from equipoise.adapters.prometheus.decode import decode_number
from equipoise.adapters.prometheus.errors import Ambiguous, Malformed, NotFound, PrometheusFailed, clean
from equipoise.adapters.prometheus.proxy import ApiServer, ServiceProxy
from equipoise.adapters.prometheus.settings import Limits
from equipoise.model.errors import DECODE_ERRORS

PAGE_OBJECTS = 500
PAGE_BYTES_MAX = 64 * 1024 * 1024
PROBE_SECONDS = 10.0
LISTED_MAX = 5
CHOOSE = "name one with --prometheus-url"
OBJECTS_PATH = "/apis/monitoring.coreos.com/v1/prometheuses"
SERVICES_PATH = "/api/v1/services"

T = TypeVar("T")


class _Continue(msgspec.Struct, gc=False, rename={"token": "continue"}):
    token: str = ""


class _Page(msgspec.Struct, Generic[T]):
    items: list[T] | None = None
    metadata: _Continue = msgspec.field(default_factory=_Continue)


@dataclass(frozen=True, slots=True)
class Found:
    """The one Prometheus that was found, and how."""

    transport: ServiceProxy
    how: str


def find(api: ApiServer) -> Found:
    """Find the one Prometheus that answers: by Prometheus objects, then by well-known Services.

    The first kind of which any answers decides. Several of that kind may be shards, or belong to
    different teams: then a person must choose.
    """
    kinds, silent = [], []
    for kind, candidates in _kinds(api):
        kinds.append(kind)
        answering = []
        for candidate in candidates:
            transport = ServiceProxy(api, *candidate)
            failure = _probe(transport)
            if failure is None:
                answering.append(transport)
            else:
                silent.append(f"{candidate} did not answer: {clean(str(failure))}")
        if len(answering) > 1:
            raise Ambiguous(f"several {kind} answer: {_listed(answering)}: {CHOOSE}")
        if answering:
            return Found(answering[0], kind)
    tried = f"; {'; '.join(silent[:LISTED_MAX])}" if silent else ""
    raise NotFound(f"no Prometheus in {api.address}: {CHOOSE}; looked for {', '.join(kinds)}{tried}")


def _kinds(api: ApiServer) -> Iterator[tuple[str, list[Candidate]]]:
    objects = _objects(api)
    _refuse_shards(objects)
    yield "services of Prometheus objects", from_objects(objects)
    services = list(_list(api, SERVICES_PATH, Service))
    for family in FAMILIES:
        yield f"{family.title} services", from_services(services, family)


def _objects(api: ApiServer) -> list[PrometheusObject]:
    try:
        return list(_list(api, OBJECTS_PATH, PrometheusObject))
    except ApiError as error:
        # Absent (no operator) or not ours to see: Services may still tell.
        if error.status in {403, 404}:
            return []
        raise


def _refuse_shards(objects: Sequence[PrometheusObject]) -> None:
    """Refuse one service before several Prometheus: each answer would come from another one."""
    names = [f"{one.metadata.namespace}/{one.metadata.name}" for one in objects]
    services = [candidate[:2] for candidate in from_objects(objects)]
    if len(set(services)) < len(services):
        listed = ", ".join(sorted(names)[:LISTED_MAX])
        raise Ambiguous(f"several Prometheus objects share one service ({listed}): {CHOOSE}")
    for one, name in zip(objects, names, strict=True):
        if (one.spec.shards or 1) > 1:
            raise Ambiguous(
                f"the Prometheus object {name} has {one.spec.shards} shards and each knows a part: "
                f"{CHOOSE} that sees all, such as a Thanos query"
            )


def _list(api: ApiServer, path: str, kind: type[T]) -> Iterator[T]:
    token = ""
    while True:
        params: dict[str, str | int | bool] = {"limit": PAGE_OBJECTS}
        if token:
            params["continue"] = token
        body = api.get(path, params, bytes_max=PAGE_BYTES_MAX)
        try:
            page = msgspec.json.decode(body, type=_Page[kind])  # type: ignore[valid-type]
        except DECODE_ERRORS as error:
            raise Malformed(f"{api.address}{path} answered something else than a list") from error
        yield from page.items or ()
        token = page.metadata.token
        if not token:
            return


def _probe(transport: ServiceProxy) -> PrometheusFailed | None:
    client = Client(transport, Limits(timeout_seconds=PROBE_SECONDS), backoff=NO_RETRIES)
    try:
        if decode_number(client.instant("1")) == 1:
            return None
    except PrometheusFailed as error:
        return error
    return Malformed("it did not answer 1 when asked for 1")


def _listed(transports: Sequence[ServiceProxy]) -> str:
    named = [f"{t.namespace}/{t.service}:{t.port}" for t in transports]
    more = f" and {len(named) - LISTED_MAX} more" if len(named) > LISTED_MAX else ""
    return ", ".join(named[:LISTED_MAX]) + more

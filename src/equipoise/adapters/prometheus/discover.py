"""Finds the cluster's Prometheus in given namespaces when no address is configured; never guesses."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import msgspec

from equipoise.adapters.http import NO_RETRIES
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.errors import ApiError
from equipoise.adapters.prometheus import errors
from equipoise.adapters.prometheus.candidates import (
    GOVERNING_SERVICE,
    Candidate,
    PrometheusObject,
    RankedCandidate,
    ServiceObject,
    aliases,
    recognise,
)
from equipoise.adapters.prometheus.client import PrometheusClient
from equipoise.adapters.prometheus.decode import decode_number
from equipoise.adapters.prometheus.errors import Reply, clean, read_error
from equipoise.adapters.prometheus.settings import QueryLimits
from equipoise.adapters.prometheus.transport import ServiceProxy
from equipoise.core.errors import DECODE_ERRORS, WorldFailed

NAMESPACES = ("monitoring",)
"""The namespaces that are searched by default."""
PAGE_OBJECTS = 500
PAGE_BYTES_MAX = 64 * 1024 * 1024
PAGES_MAX = 20
"""Pages that are read of one list."""
PROBE_SECONDS = 10.0
SEARCH_SECONDS = 30.0
"""The deadline of all candidates' answers, and of listing other namespaces."""
ASKED_MAX = 20
"""The largest number of candidates that are queried; with more, the user must choose."""
ASKED_AT_ONCE = 8
LISTED_MAX = 5
NAME = "--prometheus-namespace"
CHOOSE = "name one with --prometheus-url"
FORBIDDEN, ABSENT = 403, 404

T = TypeVar("T", PrometheusObject, ServiceObject)


class _ListToken(msgspec.Struct, gc=False, rename={"token": "continue"}):
    token: str = ""


class _Page(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: _ListToken = msgspec.field(default_factory=_ListToken)


class _Listing(NamedTuple):
    """The candidates of one namespace."""

    ranked: list[RankedCandidate]
    services: frozenset[str]
    aliases: list[str]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Candidates in other namespaces. None of them was queried."""

    services: Sequence[tuple[str, str]] = ()
    """One candidate of each namespace, as namespace and Service."""
    trouble: str = ""
    """Why candidates may be missing."""

    def __str__(self) -> str:
        shown = [
            f"{namespace}/{service} ({NAME} {namespace})" for namespace, service in self.services[:LISTED_MAX]
        ]
        more = len(self.services) - LISTED_MAX
        seen = (
            f"found in other namespaces: {', '.join(shown)}{f' and {more} more' if more > 0 else ''}"
            if shown
            else ""
        )
        return "; ".join(filter(None, [seen, self.trouble])) or "none was found in other namespaces"


@dataclass(frozen=True, slots=True)
class DiscoveredPrometheus:
    """The chosen Prometheus, and why it was chosen."""

    transport: ServiceProxy
    how: str
    others: Sequence[str] = ()
    """Candidates that were not chosen, each with its reason."""

    @property
    def candidate(self) -> Candidate:
        one = self.transport
        return Candidate(one.namespace, one.service, one.port, one.scheme, one.path_prefix)


def find(api: Client, namespaces: Sequence[str] = NAMESPACES) -> DiscoveredPrometheus:
    """Return the Prometheus of these namespaces.

    All candidates are queried. The preferred one that answers is chosen, unless one without an answer has the
    same or a higher preference: then the choice is undecided.
    """
    ends_at = time.monotonic() + SEARCH_SECONDS
    namespaces = list(dict.fromkeys(namespaces))
    listings = [_listing(api, namespace, ends_at) for namespace in namespaces]
    ranked = sorted((one for listing in listings for one in listing.ranked), key=lambda one: one.rank)
    if len(ranked) > ASKED_MAX:
        raise errors.Ambiguous(
            f"{len(ranked)} Services in {_spoken(namespaces)} may be a Prometheus, and at most {ASKED_MAX} "
            f"are queried: {CHOOSE}"
        )
    answers = _asked(api, ranked, ends_at)
    healthy = [one for one, failure in answers if failure is None]
    rank = healthy[0].rank if healthy else max((one.rank for one in ranked), default=0)
    silent = [(one, why) for one, why in answers if one.rank <= rank and _is_silent(why)]
    if silent:
        raise _undecided(silent, healthy, look_elsewhere(api, namespaces))
    if not healthy:
        raise _not_found(api, namespaces, listings, answers)
    equals = [one for one in healthy if one.rank == rank]
    if len(equals) > 1:
        is_told_by_namespace = len({one.candidate.namespace for one in equals}) > 1
        choose = f"{CHOOSE}, or one namespace with {NAME}" if is_told_by_namespace else CHOOSE
        raise errors.Ambiguous(f"several {equals[0].title} services answer: {_listed(equals)}: {choose}")
    chosen = equals[0]
    others = [f"{one.candidate} {_describe(one, why)}" for one, why in answers if one is not chosen]
    return DiscoveredPrometheus(ServiceProxy(api, *chosen.candidate), chosen.how, tuple(others))


def still(api: Client, chosen: Candidate) -> Candidate | None:
    """Return the present address of a server that was chosen before; None without its Service."""
    listing = _listing(api, chosen.namespace, time.monotonic() + SEARCH_SECONDS)
    for one in listing.ranked:
        if one.candidate.service == chosen.service:
            return one.candidate
    return chosen if chosen.service in listing.services else None


def look_elsewhere(api: Client, namespaces: Sequence[str]) -> Elsewhere:
    """Return candidates in other namespaces, as far as the rights allow; none of them is queried.

    Tenants may have created these objects, so neither a failure nor a long list is an error.
    """
    ends_at = time.monotonic() + SEARCH_SECONDS
    objects: dict[str, list[PrometheusObject]] = {}
    services: dict[str, list[ServiceObject]] = {}
    troubles = [
        _collect(_objects(api, None, ends_at), objects),
        _collect(_list(api, _services_path(None), ServiceObject, ends_at, is_strict=False), services),
    ]
    seen = []
    for namespace in (objects.keys() | services.keys()) - set(namespaces):
        found = recognise(objects.get(namespace, [])[:ASKED_MAX], services.get(namespace, [])[:PAGE_OBJECTS])
        if found:
            seen.append((found[0].rank, clean(namespace), clean(found[0].candidate.service)))
    return Elsewhere(
        tuple((namespace, service) for _, namespace, service in sorted(seen)),
        next(filter(None, troubles), ""),
    )


def _collect(items: Iterator[T], by_namespace: dict[str, list[T]]) -> str:
    """Group objects by namespace; return why some may be missing."""
    try:
        for one in items:
            by_namespace.setdefault(one.metadata.namespace, []).append(one)
    except ApiError as error:
        why = "listing their Services is forbidden" if error.status == FORBIDDEN else clean(str(error))
        return f"other namespaces were not searched: {why}"
    except WorldFailed as error:
        return f"other namespaces were not searched completely: {clean(str(error))}"
    return ""


def _listing(api: Client, namespace: str, ends_at: float) -> _Listing:
    objects = list(_objects(api, namespace, ends_at))
    services = list(_list(api, _services_path(namespace), ServiceObject, ends_at))
    _refuse_shards(objects)
    names = frozenset(service.metadata.name for service in services)
    return _Listing(
        recognise(objects, services), names, [f"{namespace}/{name}" for name in aliases(services)]
    )


def _objects(api: Client, namespace: str | None, ends_at: float) -> Iterator[PrometheusObject]:
    where = "" if namespace is None else f"/namespaces/{namespace}"
    try:
        path = f"/apis/monitoring.coreos.com/v1{where}/prometheuses"
        yield from _list(api, path, PrometheusObject, ends_at, is_strict=namespace is not None)
    except ApiError as error:
        # The kind is absent (no operator) or the right is missing: Services may be enough.
        if error.status not in {FORBIDDEN, ABSENT}:
            raise


def _services_path(namespace: str | None) -> str:
    return "/api/v1/services" if namespace is None else f"/api/v1/namespaces/{namespace}/services"


def _refuse_shards(objects: Sequence[PrometheusObject]) -> None:
    """Raise for a Service in front of several Prometheus: each answer could come from another one."""
    names = [f"{one.metadata.namespace}/{one.metadata.name}" for one in objects]
    services = [one.spec.serviceName or GOVERNING_SERVICE for one in objects]
    if len(set(services)) < len(services):
        listed = ", ".join(sorted(names)[:LISTED_MAX])
        raise errors.Ambiguous(f"several Prometheus objects share one service ({listed}): {CHOOSE}")
    for one, name in zip(objects, names, strict=True):
        if (one.spec.shards or 1) > 1:
            raise errors.Ambiguous(
                f"the Prometheus object {name} has {one.spec.shards} shards, each with a part of the data: "
                f"{CHOOSE} that sees all, such as a Thanos query"
            )


def _list(api: Client, path: str, kind: type[T], ends_at: float, *, is_strict: bool = True) -> Iterator[T]:
    """Yield a list page by page; raise where it is too long or takes too long.

    An object that cannot be decoded is an error only where `is_strict`.
    """
    token = ""
    for page_number in range(PAGES_MAX):
        params: dict[str, str | int | bool] = {"limit": PAGE_OBJECTS}
        if token:
            params["continue"] = token
        body = api.get(path, params, bytes_max=PAGE_BYTES_MAX)
        try:
            page = msgspec.json.decode(body, type=_Page)
        except DECODE_ERRORS as error:
            raise errors.Malformed(f"{api.address}{path} did not answer with a list") from error
        for item in page.items or ():
            try:
                one = msgspec.json.decode(item, type=kind)
            except DECODE_ERRORS as error:
                if is_strict:
                    raise errors.Malformed(
                        f"{api.address}{path} has an object that cannot be read"
                    ) from error
                continue
            yield one
        token = page.metadata.token
        if not token:
            return
        if time.monotonic() > ends_at:
            read = (page_number + 1) * PAGE_OBJECTS
            took = f"{read} objects took more than {SEARCH_SECONDS:g} s to list"
            raise errors.TimedOut(f"{api.address}{path}: {took}")
    raise errors.Malformed(f"{api.address}{path}: more than {PAGES_MAX * PAGE_OBJECTS} objects")


def _asked(
    api: Client, ranked: Sequence[RankedCandidate], ends_at: float
) -> list[tuple[RankedCandidate, errors.PrometheusFailed | None]]:
    """Query all candidates, several at a time; return each one's failure, None for a Prometheus."""

    def ask(one: RankedCandidate) -> errors.PrometheusFailed | None:
        left_seconds = ends_at - time.monotonic()
        if one.problem:
            return errors.PrometheusFailed(one.problem)
        if left_seconds <= 0:
            return errors.TimedOut(f"the candidates before it took {SEARCH_SECONDS:g} s to answer")
        return _probe(_Listed(api, *one.candidate), min(PROBE_SECONDS, left_seconds))

    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return list(zip(ranked, pool.map(ask, ranked), strict=True))


class _Listed(ServiceProxy):
    """The proxy to a Service that was just listed, so that a 404 of the API server means no endpoints."""

    def send(self, path: str, fields: Mapping[str, str], timeout_seconds: float, bytes_max: int) -> Reply:
        """Send once; a 404 of the API server itself is no answer of the server behind it."""
        reply = super().send(path, fields, timeout_seconds, bytes_max)
        reported = read_error(reply.body) if reply.status == ABSENT else None
        if reported is not None and reported.kind == "Status":
            raise errors.PrometheusUnreachable(f"{self.address} has no endpoints")
        return reply


def _probe(transport: ServiceProxy, seconds: float) -> errors.PrometheusFailed | None:
    client = PrometheusClient(transport, QueryLimits(timeout_seconds=seconds), backoff=NO_RETRIES)
    try:
        if decode_number(client.instant("1")) == 1:
            return None
    except errors.PrometheusFailed as error:
        return error
    return errors.Malformed("it did not answer the query 1 with 1")


def _is_silent(failure: errors.PrometheusFailed | None) -> bool:
    """Return whether a candidate is undecided: it proved neither to be a Prometheus nor something else."""
    return failure is not None and not isinstance(failure, errors.NotPrometheus | errors.Malformed)


def _undecided(
    silent: Sequence[tuple[RankedCandidate, errors.PrometheusFailed | None]],
    healthy: Sequence[RankedCandidate],
    elsewhere: Elsewhere,
) -> errors.Undecided:
    reasons = [f"{one.candidate} {_describe(one, why)}" for one, why in silent[:LISTED_MAX]]
    more = f", and {len(silent) - LISTED_MAX} more do not answer" if len(silent) > LISTED_MAX else ""
    answering = f"; {_listed(healthy)} answered" if healthy else ""
    seen = f"; {elsewhere}" if elsewhere.services else ""
    return errors.Undecided(
        f"it is unknown which Prometheus to use: {', '.join(reasons)}{more}{answering}; "
        f"wait for it, remove it, or {CHOOSE}{seen}"
    )


def _not_found(
    api: Client,
    namespaces: Sequence[str],
    listings: Iterable[_Listing],
    answers: Sequence[tuple[RankedCandidate, errors.PrometheusFailed | None]],
) -> errors.NotFound:
    lines = [f"no Prometheus in {_spoken(namespaces)}", str(look_elsewhere(api, namespaces))]
    lines += [f"{one.candidate} {_describe(one, why)}" for one, why in answers[:LISTED_MAX]]
    for alias in [alias for listing in listings for alias in listing.aliases][:LISTED_MAX]:
        lines.append(f"{alias} is of type ExternalName, which the API server's proxy does not follow")
    return errors.NotFound(f"{'; '.join(lines)}; set the address of one with --prometheus-url")


def _describe(one: RankedCandidate, why: errors.PrometheusFailed | None) -> str:
    if why is None:
        return f"({one.title}) answers too"
    if not _is_silent(why):
        return f"is not a Prometheus ({clean(str(why))})"
    verb = "refuses to answer" if isinstance(why, errors.Unauthorized) else "does not answer"
    return f"{verb} ({clean(str(why))})"


def _spoken(namespaces: Sequence[str]) -> str:
    return f"namespace{'s' if len(namespaces) > 1 else ''} {', '.join(namespaces)}"


def _listed(ranked: Sequence[RankedCandidate]) -> str:
    more = f" and {len(ranked) - LISTED_MAX} more" if len(ranked) > LISTED_MAX else ""
    return ", ".join(str(one.candidate) for one in ranked[:LISTED_MAX]) + more

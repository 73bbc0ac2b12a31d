"""List and watch one kind into a cache that misses no deletion.

A list is the state at a resource version, and a watch has every change after it. When the connection ends,
the watch resumes at the last resource version, bookmarks included. When the server no longer has that
version (410), or its answer cannot be decoded, everything is listed again, and objects that vanished in
between are reported as deleted.

An object that cannot be decoded is stored by name in `unreadable` until it can be decoded again or is
deleted: its earlier record is dropped, and the other objects of its kind are unaffected.

A dead link is detected by silence: the API server sends a bookmark about once a minute, so `silence_seconds`
(90) without one end the connection, and the attempt to resume shows whether the server is reachable. A server
without bookmarks (1.35 sends none of some kinds while nothing changes) is connected again every 90 s, so the
age of a healthy cache stays below about 95 s. `timeoutSeconds` lets the server end a watch; it is random (240
to 360), so that watches that began together do not end together. Callers use `require_fresh()`, or read
`last_contact_age_seconds`: beyond a few silences, the cache is stale.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Generic, NamedTuple, TypeVar

import msgspec
import urllib3

from equipoise.adapters.http import Backoff
from equipoise.adapters.kubernetes.cache import Cache, Change, ChangeType
from equipoise.adapters.kubernetes.client import FAILURES, Client, Parameters
from equipoise.adapters.kubernetes.connection import Lines
from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.errors import (
    ApiError,
    ApiStatus,
    BadAnswer,
    Outline,
    Unreachable,
    members,
    outline_of,
)
from equipoise.adapters.kubernetes.kinds import ResourceKind, list_kind
from equipoise.adapters.kubernetes.structs import ObjectMeta
from equipoise.core.errors import DECODE_ERRORS, EquipoiseError

R = TypeVar("R")
Listener = Callable[[ChangeType, R | None, R | None], object]

RETRY = Backoff(first_seconds=0.5, delay_max_seconds=30.0)
REFUSED = Backoff(first_seconds=5.0, delay_max_seconds=60.0)
AGE_MAX_SECONDS = 300.0
"""More than three silences of a healthy watch; an older cache is stale."""
SHORT_SECONDS = 1.0
"""A watch that ends sooner without an event is a failure, and no contact with the server.

Changes from before a watch arrive at once: so one that lasted longer shows that there were none.
"""


@dataclass(frozen=True, slots=True)
class Timings:
    """Timeouts and delays of a reflector."""

    watch_seconds: tuple[float, float] = (240.0, 360.0)
    silence_seconds: float = 90.0
    retry: Backoff = RETRY
    refused: Backoff = REFUSED
    """After a 401 or 403, which a user has to resolve."""


@dataclass(slots=True)
class ReflectorCounters:
    """Counts of a reflector's lists, watches, events and failures."""

    lists: int = 0
    watches: int = 0
    events: int = 0
    bookmarks: int = 0
    silences: int = 0
    failures: int = 0
    listener_failures: int = 0


class Stale(NamedTuple):
    """The sentences of an error about a cache that is not fresh."""

    never: str
    old: str


STALE = Stale(
    "{subject} have not been listed yet",
    "{subject} are unknown: the last answer of the API server is {age:.0f} s old; the limit is {age_max:g} s",
)


class WatchEvent(msgspec.Struct):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class WatchedMeta(msgspec.Struct):
    """The metadata of any object in an event."""

    resourceVersion: str = ""


class Marked(msgspec.Struct):
    """An object's resource version."""

    metadata: WatchedMeta


class _ListAnew(Exception):  # noqa: N818 - control flow
    """The watch cannot be resumed."""


_EVENTS = msgspec.json.Decoder(WatchEvent)
_MARKED = msgspec.json.Decoder(Marked)


class Reflector(Generic[R]):
    """Caches one kind. `start()` runs it on a thread; `step()` runs one round, for tests."""

    def __init__(
        self,
        client: Client,
        kind: ResourceKind[R],
        *,
        namespace: str | None = None,
        params: Parameters | None = None,
        on_change: Listener[R] | None = None,
        timings: Timings | None = None,
        page_size: int = 500,
    ) -> None:
        self.kind = kind
        self.cache: Cache[R] = Cache(kind)
        self.unreadable: dict[tuple[str, str], Outline] = {}
        """The objects that cannot be decoded, by namespace and name; the dict is replaced, never changed."""
        self.synced = threading.Event()
        self.counters = ReflectorCounters()
        self.decoder = Decoder()
        self.last_error: Exception | None = None
        self.resource_version = ""
        self._stopping = threading.Event()
        # Its own connections, so that stopping it does not affect other users of the session.
        self._client = client.with_own_connections(
            backoff=Backoff(attempts_max=3, total_max_seconds=15.0), sleep=self._stopping.wait
        )
        self._monotonic = client.world.monotonic
        self._rng = client.world.rng
        self._path = kind.path(namespace)
        self._namespace = namespace
        self._params = dict(params or {})
        self._on_change = on_change
        self._timings = timings or Timings()
        self._page_size = page_size
        self._contact_at = float("-inf")
        self._watching_since: float | None = None
        self._failures = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = threading.Thread(target=self.run, name=f"reflector-{self.kind.plural}", daemon=True)
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """Stop, also during a blocked read; return whether the thread has ended in time."""
        self._stopping.set()
        self._client.abort()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)
            return not self._thread.is_alive()
        return True

    def last_contact_age_seconds(self, now_monotonic: float) -> float:
        """Return the time since the server last answered; infinite before its first answer."""
        since = self._watching_since  # read before `_contact_at`, which takes its value when the watch ends
        contact_at = self._contact_at
        if since is not None and now_monotonic - since >= SHORT_SECONDS:
            contact_at = max(contact_at, since)
        return now_monotonic - contact_at

    def require_fresh(
        self, subject: str = "", *, age_max_seconds: float = AGE_MAX_SECONDS, sentences: Stale = STALE
    ) -> Cache[R]:
        """Return the cache; raise Unreachable where it was never filled or is older than allowed."""
        subject = subject or f"the {self.kind.plural}"
        why = f": {self.last_error}" if self.last_error else ""
        if not self.synced.is_set():
            raise Unreachable(sentences.never.format(subject=subject) + why)
        age_seconds = self.last_contact_age_seconds(self._monotonic())
        if age_seconds > age_max_seconds:
            sentence = sentences.old.format(subject=subject, age=age_seconds, age_max=age_max_seconds)
            raise Unreachable(sentence + why)
        return self.cache

    def run(self) -> None:
        while not self._stopping.is_set():
            delay_seconds = self.step()
            if delay_seconds > 0:
                self._stopping.wait(delay_seconds)

    def step(self) -> float:
        """List if necessary, then watch until that ends; return the seconds to wait before the next step."""
        progress, began_at = self._progress(), self._monotonic()
        error: Exception | None = None
        try:
            if not self.resource_version:
                self._list()
            self._watch()
        except Exception as failure:  # noqa: BLE001 - the thread must survive every error
            error = failure
        if self._stopping.is_set():
            return 0.0
        if error is not None:
            is_silence = isinstance(error, _Silent)
            self.counters.silences += is_silence
            self.counters.failures += not is_silence
            if _must_list_anew(error):
                self.resource_version = ""
        self.last_error = error
        lasted_seconds = self._monotonic() - began_at
        has_worked = self._progress() > progress or (error is None and lasted_seconds >= SHORT_SECONDS)
        return self._delay_seconds(error, has_worked=has_worked)

    def _progress(self) -> int:
        return self.counters.events + self.counters.bookmarks

    def _delay_seconds(self, error: Exception | None, *, has_worked: bool) -> float:
        self._failures = 0 if has_worked else self._failures + 1
        if isinstance(error, ApiError) and error.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
            return self._timings.refused.delay_seconds(self._failures, self._rng())
        if has_worked or isinstance(error, _Silent):
            return 0.0
        return self._timings.retry.delay_seconds(self._failures, self._rng())

    def _list(self) -> None:
        self.decoder = Decoder()  # with a new pool, which holds no values of deleted objects
        listing = list_kind(
            self._client,
            self.kind,
            self._namespace,
            decoder=self.decoder,
            params=self._params,
            page_size=self._page_size,
        )
        if not listing.resource_version:
            raise BadAnswer(f"{self._client.address} answered GET {self._path} with a list without a version")
        self.unreadable = {(one.meta.namespace, one.meta.name): one for one in listing.unreadable}
        changes = self.cache.replace(listing.records)
        self.resource_version = listing.resource_version
        self.counters.lists += 1
        self._touch()  # not at every page: a list that fails does not refresh the cache
        self._tell(changes)
        self.synced.set()

    def _watch(self) -> None:
        assert self.resource_version, "a watch goes on from the version of a list"
        low, high = self._timings.watch_seconds
        response = self._client.stream(
            self._path,
            {
                **self._params,
                "watch": "1",
                "allowWatchBookmarks": "true",
                "resourceVersion": self.resource_version,
                "timeoutSeconds": max(1, round(low + (high - low) * self._rng())),
            },
            read_seconds=self._timings.silence_seconds,
        )
        self._watching_since = began_at = self._monotonic()
        self.counters.watches += 1
        self.last_error = None
        lines = Lines()
        try:
            while part := response.read1(1 << 16):
                self._touch()
                for line in lines.feed(part):
                    self._take(line)
            if self._monotonic() - began_at >= SHORT_SECONDS:
                self._touch()
        except urllib3.exceptions.ReadTimeoutError as error:
            raise _Silent(f"{self._client.address}: the watch was silent for too long") from error
        except FAILURES as error:
            raise self._client.unreachable(error) from error
        finally:
            response.close()
            if self._monotonic() - began_at >= SHORT_SECONDS:
                self._contact_at = max(self._contact_at, began_at)
            self._watching_since = None

    def _take(self, line: bytes) -> None:
        event = _event(line)
        if event.type == "BOOKMARK":
            self._advance(_MARKED.decode(event.object).metadata.resourceVersion)
            self.counters.bookmarks += 1
            return
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=ApiStatus)
            raise _ListAnew(f"the watch of {self.kind.plural} ended: {status.code} {status.message or ''}")
        if event.type not in ChangeType.__members__:
            raise _ListAnew(f"an event of unknown type {event.type[:40]!r}")
        meta, record, unread = self._read(event.object)
        key = (meta.namespace, meta.name)
        if event.type == ChangeType.DELETED:
            record, unread = None, None
        if unread is not None or key in self.unreadable:
            others = {each: outline for each, outline in self.unreadable.items() if each != key}
            self.unreadable = others if unread is None else others | {key: unread}
        changes = self.cache.drop(*key) if record is None else self.cache.put(record)
        self._advance(meta.resourceVersion)
        self.counters.events += 1
        self._tell(changes)

    def _read(self, data: msgspec.Raw) -> tuple[ObjectMeta, R | None, Outline | None]:
        """Return the metadata and the record of an event's object, with its outline if undecodable."""
        try:
            raw = self.kind.decode_object(data)
            return raw.metadata, self.kind.decode(self.decoder, raw), None
        except DECODE_ERRORS as error:
            outline = outline_of(bytes(data), error)
            if not outline.meta.name:
                raise _ListAnew("an event about an object without a name") from error
            self.decoder.warnings.add(
                f"a {self.kind.name} that cannot be read", f"{outline.place} ({outline.why})"
            )
            return outline.meta, self.kind.stand_in(outline), outline

    def _advance(self, version: str) -> None:
        if not version:
            raise _ListAnew("an event without a version")
        self.resource_version = version

    def _touch(self) -> None:
        self._contact_at = self._monotonic()

    def _tell(self, changes: list[Change[R]]) -> None:
        if self._on_change is None:
            return
        for change in changes:
            try:
                self._on_change(change.type, change.old, change.new)
            except Exception as error:  # noqa: BLE001 - an error of the listener must not stop the cache
                self.counters.listener_failures += 1
                self.last_error = error


def _event(line: bytes) -> WatchEvent:
    """Return an event with its object undecoded; split by brackets where it is nested too deeply."""
    try:
        return _EVENTS.decode(line)
    except DECODE_ERRORS:
        parts = members(line)
        kind = msgspec.json.decode(parts.get("type", b""), type=str)
        return WatchEvent(kind, msgspec.Raw(parts.get("object", b"")))


class _Silent(BadAnswer):
    """The watch was silent for too long: the link may be dead, or nothing changed."""


def _must_list_anew(error: Exception) -> bool:
    """Return whether the watch cannot be resumed; an event that cannot be decoded may have been a deletion.

    To resume after an unexpected error would bring the same event for ever.
    """
    if isinstance(error, ApiError):
        too_new = any(cause.reason == "ResourceVersionTooLarge" for cause in error.causes)
        return too_new or error.status in {HTTPStatus.GONE, HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND}
    return not isinstance(error, EquipoiseError)

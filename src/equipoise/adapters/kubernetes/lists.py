"""Whole lists, page by page: a page is decoded, turned into records and dropped before the next is read.

An object that cannot be read costs itself: the others of its page are decoded one by one, and it is named.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Generic, NamedTuple, TypeVar

import msgspec

from equipoise.adapters.kubernetes.client import Client, Parameters
from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.errors import ApiError, BadAnswer, bad_answer
from equipoise.adapters.kubernetes.kinds import Kind, Page, cut_page
from equipoise.adapters.kubernetes.outline import Outline, outline_of, why_unreadable
from equipoise.adapters.kubernetes.structs import ListMeta
from equipoise.model.errors import DECODE_ERRORS

R = TypeVar("R")

PAGE_SIZE = 500
PAGE_BYTES_MAX = 256 * 1024 * 1024
PAGES_MAX = 10_000
RESTARTS_MAX = 3
"""How often a list begins anew because the server forgot its continuation."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[R]):
    """A list as it was at one resource version."""

    records: list[R]
    resource_version: str
    unreadable: list[Outline]
    """The objects that could not be read; where their kind has a stand-in, `records` has that."""


class _Read(NamedTuple, Generic[R]):
    """One page as records."""

    metadata: ListMeta
    records: list[R]
    unreadable: list[Outline]


def list_kind(
    client: Client,
    kind: Kind[R],
    namespace: str | None = None,
    *,
    decoder: Decoder | None = None,
    params: Parameters | None = None,
    page_size: int = PAGE_SIZE,
) -> Listing[R]:
    """List a kind into records; the decoder's warnings name what could not be read."""
    turner = decoder or Decoder()

    def at_once(body: bytes) -> Page[R]:
        page = kind.decode_page(body)
        records = (kind.turn(turner, raw) for raw in page.items or ())
        return Page(page.metadata, [record for record in records if record is not None])

    def one(item: bytes) -> R | None:
        return kind.turn(turner, kind.decode_object(item))

    def unread(outline: Outline) -> R | None:
        if not outline.meta.name:
            raise ValueError("an object without a name")  # no API server says such: nothing of it is believed
        return kind.stand_in(outline)

    listing = _list(client, kind.path(namespace), _reader(at_once, one, unread), params, page_size)
    for outline in listing.unreadable:
        turner.warnings.add(f"a {kind.name} that cannot be read", f"{outline.place} ({outline.why})")
    return listing


def list_items(
    client: Client,
    path: str,
    raw: type[R],
    warn: Callable[[Outline], object],
    *,
    page_size: int = PAGE_SIZE,
) -> list[R]:
    """List objects whose shape is other people's affair.

    One that cannot be read is left out, and `warn` is called with it; the others are not lost for it.
    """
    pages, items = msgspec.json.Decoder(Page[raw]), msgspec.json.Decoder(raw)  # type: ignore[valid-type]
    listing = _list(client, path, _reader(pages.decode, items.decode, lambda _: None), None, page_size)
    for outline in listing.unreadable:
        warn(outline)
    return listing.records


def _reader(
    at_once: Callable[[bytes], Page[R]],
    one: Callable[[bytes], R | None],
    stand_in: Callable[[Outline], R | None],
) -> Callable[[bytes], _Read[R]]:
    """Return what reads a page: in one go, and where that fails object by object."""

    def read(body: bytes) -> _Read[R]:
        try:
            page = at_once(body)
        except DECODE_ERRORS as error:
            try:
                return one_by_one(body)
            except DECODE_ERRORS:
                raise error from None  # no page of objects at all, and this says so best
        return _Read(page.metadata, page.items or [], [])

    def one_by_one(body: bytes) -> _Read[R]:
        page = cut_page(body)
        found: _Read[R] = _Read(page.metadata, [], [])
        for item in page.items or ():
            try:
                record = one(item)
            except DECODE_ERRORS as error:
                outline = outline_of(item, error)
                found.unreadable.append(outline)
                record = stand_in(outline)
            if record is not None:
                found.records.append(record)
        return found

    return read


def _list(
    client: Client,
    path: str,
    read: Callable[[bytes], _Read[R]],
    params: Parameters | None,
    page_size: int,
) -> Listing[R]:
    restarts = 0
    while True:
        try:
            return _list_once(client, path, read, {**(params or {}), "limit": page_size})
        except ApiError as error:
            # A continuation that expired is answered with 410; what was read is of an older state.
            restarts += 1
            if error.status != HTTPStatus.GONE or restarts > RESTARTS_MAX:
                raise


def _list_once(
    client: Client, path: str, read: Callable[[bytes], _Read[R]], params: dict[str, str | int]
) -> Listing[R]:
    listing: Listing[R] = Listing([], "", [])
    for _ in range(PAGES_MAX):
        body = client.get(path, params, bytes_max=PAGE_BYTES_MAX)
        try:
            page = read(body)
        except DECODE_ERRORS as error:
            raise bad_answer(client.address, f"GET {path}", body, why_unreadable(error)) from error
        listing.records.extend(page.records)
        listing.unreadable.extend(page.unreadable)
        if not page.metadata.continue_:
            return replace(listing, resource_version=page.metadata.resourceVersion)
        params = {**params, "continue": page.metadata.continue_}
    raise BadAnswer(f"{client.address} answered GET {path} with a list that does not end")

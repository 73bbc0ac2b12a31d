"""Whole lists, page by page: a page is decoded, turned into records and dropped before the next is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec

from equipoise.adapters.kubernetes.client import Client, Parameters
from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.errors import ApiError, BadAnswer, bad_answer
from equipoise.adapters.kubernetes.kinds import Kind, Page, name_of

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


def list_kind(
    client: Client,
    kind: Kind[R],
    namespace: str | None = None,
    *,
    decoder: Decoder | None = None,
    params: Parameters | None = None,
    page_size: int = PAGE_SIZE,
) -> Listing[R]:
    """List a kind into records."""
    turner = decoder or Decoder()

    def turn(page: Page[Any]) -> Iterable[R]:
        return (record for raw in page.items or () if (record := kind.turn(turner, raw)) is not None)

    return _list(client, kind.path(namespace), kind.decode_page, turn, params, page_size)


def list_raw(
    client: Client, path: str, params: Parameters | None = None, *, page_size: int = PAGE_SIZE
) -> list[dict[str, Any]]:
    """List anything as plain objects, for what is asked once and seldom."""
    pages = msgspec.json.Decoder(Page[dict[str, Any]])
    return _list(client, path, pages.decode, lambda page: page.items or (), params, page_size).records


def list_items(
    client: Client,
    path: str,
    raw: type[R],
    warn: Callable[[str], object],
    *,
    page_size: int = PAGE_SIZE,
) -> list[R]:
    """List objects whose shape is other people's affair.

    One that cannot be read is left out, and `warn` is told its name; the others are not lost for it.
    """
    pages = msgspec.json.Decoder(Page[msgspec.Raw])
    items = msgspec.json.Decoder(raw)

    def turn(page: Page[msgspec.Raw]) -> Iterator[R]:
        for item in page.items or ():
            try:
                yield items.decode(item)
            except msgspec.ValidationError:
                warn(name_of(item))

    return _list(client, path, pages.decode, turn, None, page_size).records


def _list(
    client: Client,
    path: str,
    decode: Callable[[bytes], Page[Any]],
    turn: Callable[[Page[Any]], Iterable[R]],
    params: Parameters | None,
    page_size: int,
) -> Listing[R]:
    restarts = 0
    while True:
        try:
            return _list_once(client, path, decode, turn, {**(params or {}), "limit": page_size})
        except ApiError as error:
            # A continuation that expired is answered with 410; what was read is of an older state.
            restarts += 1
            if error.status != HTTPStatus.GONE or restarts > RESTARTS_MAX:
                raise


def _list_once(
    client: Client,
    path: str,
    decode: Callable[[bytes], Page[Any]],
    turn: Callable[[Page[Any]], Iterable[R]],
    params: dict[str, str | int],
) -> Listing[R]:
    records: list[R] = []
    for _ in range(PAGES_MAX):
        body = client.get(path, params, bytes_max=PAGE_BYTES_MAX)
        try:
            page = decode(body)
        except (msgspec.DecodeError, ValueError) as error:
            raise bad_answer(client.address, f"GET {path}", body, str(error)) from error
        records.extend(turn(page))
        if not page.metadata.continue_:
            return Listing(records, page.metadata.resourceVersion)
        params = {**params, "continue": page.metadata.continue_}
    raise BadAnswer(f"{client.address} answered GET {path} with a list that does not end")

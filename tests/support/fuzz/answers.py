"""A session with an API server whose answers are given."""

import io
from collections.abc import Callable, Collection
from typing import Any, cast

import urllib3

from equipoise.adapters.kubernetes import Client
from tests.support.fuzz.machine import Input, NeighbourLost
from tests.support.fuzz.objects import NEIGHBOUR
from tests.support.kubernetes.server import Time, target_of

Answer = Callable[[str, str], bytes | tuple[int, bytes]]
"""What is answered to a method and a target."""


class Canned:
    """Stands where the connections of a session are, and answers from memory."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def send(self, method: str, target: str, **_: object) -> urllib3.HTTPResponse:
        found = self._answer(method, target)
        status, body = found if isinstance(found, tuple) else (200, found)
        return urllib3.HTTPResponse(io.BytesIO(body), status=status, preload_content=False)

    def cut(self) -> None:
        """Nothing is open."""

    close = cut


class Answering(Client):
    """A session of which the answers are given; so are its twins."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(target_of("http://127.0.0.1:1"), world=Time().world())
        self._canned = Canned(answer)
        self._wire = cast("Any", self._canned)

    def with_own_connections(self, **options: Any) -> Client:
        with_own_connections = super().with_own_connections(**options)
        with_own_connections._wire = cast("Any", self._canned)
        return with_own_connections


def always(data: bytes) -> Answer:
    return lambda method, target: data


def page(*items: bytes) -> bytes:
    """Return a list as a server writes it."""
    return b'{"kind":"List","metadata":{"resourceVersion":"7"},"items":[%s]}' % b",".join(items)


def beside(given: Input, neighbour: bytes) -> bytes:
    """Return a list of the given object and a healthy one; what is damaged otherwise is the list itself."""
    return (
        page(given.data, neighbour, neighbour.replace(b"neighbour", b"second"))
        if given.is_stored
        else given.data
    )


def expect(given: Input, found: Collection[object], what: str) -> None:
    """Refuse that a healthy object was lost for a damaged one that a server could have stored."""
    if given.is_stored and not any(NEIGHBOUR in str(each) for each in found):
        raise NeighbourLost(f"{what}: the healthy neighbour was not read: {str(found)[:300]}")

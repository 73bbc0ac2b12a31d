"""An API server and elections of the test's own, which end with the test."""

from collections.abc import Iterator
from contextlib import contextmanager

from equipoise.adapters.kubernetes import Client
from equipoise.adapters.kubernetes.lease import LeaseElection
from tests.support.contracts.elections import SteppedElections
from tests.support.contracts.small_api import SmallApi
from tests.support.kubernetes.server import playing, session


@contextmanager
def small_api() -> Iterator[tuple[SmallApi, Client]]:
    """Run a small API, with a session to it."""
    api = SmallApi()
    with playing(api.script) as player, session(player.url) as client:
        yield api, client


@contextmanager
def elections(kind: type[LeaseElection] = LeaseElection) -> Iterator[SteppedElections]:
    """Hold elections at a small API."""
    with small_api() as (_, client):
        held = SteppedElections(client, "equipoise-system", "operator", kind)
        try:
            yield held
        finally:
            held.close()

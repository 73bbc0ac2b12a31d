"""The reflector against a real API server that is killed, that forgets, and on a wire that is cut."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from equipoise.adapters.kubernetes.cache import Cache, Change, ChangeType
from equipoise.core.cluster import Pod
from tests.e2e.conftest import Offered
from tests.support.e2e.reflector_faults import (
    BEGIN_SECONDS,
    CHANGES_PER_SECOND,
    Disagreement,
    Watching,
    api_server,
    run,
    shuffled,
    table,
)
from tests.testbed import ControlPlane

# Python's ssl forgets to close a socket whose peer is gone between connecting and TLS (SSLSocket._create).
pytestmark = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <ssl.SSLSocket:pytest.PytestUnraisableExceptionWarning"
)

SEED = 20
EACH = 5
"""Times that each of the four kinds of cut is made: twenty cuts."""


@pytest.fixture(scope="module")
def broken(offered: Offered, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """An API server of this file's own, killed at will."""
    with ExitStack() as stack:
        with offered():
            started = stack.enter_context(api_server(tmp_path_factory.mktemp("broken")))
        yield started


def test_no_deletion_is_missed_under_200_changes_a_second_and_20_cuts(
    broken: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """After every cut the cache equals a fresh list, and each pod that went was reported once."""

    def say(text: str) -> None:
        with capsys.disabled():
            print(f"\n{text}", end="", flush=True)

    cuts = run(
        broken,
        tmp_path_factory.mktemp("watch"),
        lambda kinds: shuffled(kinds, EACH, SEED),
        seed=SEED,
        say=say,
    )
    say(f"{table(cuts)}\n")
    assert len(cuts) == 20
    assert all(cut.pace >= CHANGES_PER_SECOND for cut in cuts)
    assert all(cut.deletes_made == cut.deletes_reported + cut.unseen for cut in cuts)


class IgnoresDeleted(Watching):
    """An adapter that does not read DELETED events."""

    def _take(self, line: bytes) -> None:
        if b'"type":"DELETED"' not in line[:100]:
            super()._take(line)


class ForgetfulCache(Cache[Pod]):
    """A cache that takes a new list without telling what vanished."""

    def replace(self, records: object) -> list[Change[Pod]]:
        changes = super().replace(records)  # type: ignore[arg-type]
        return [change for change in changes if change.type is not ChangeType.DELETED]


class ListsWithoutDeletes(Watching):
    """An adapter that reports no deletion after it had to list anew."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)
        self.cache = ForgetfulCache(self.kind)


class ResumesFromNow(Watching):
    """An adapter that, after a lost connection, goes on from the present instead of where it was."""

    def step(self) -> float:
        delay = super().step()
        if self.last_error is not None:
            self.resource_version = "0"
        return delay


@pytest.mark.parametrize(
    ("adapter", "kind", "begin_seconds"),
    [
        (IgnoresDeleted, "reset", 10.0),  # it never agrees, so nobody need wait for long
        (ListsWithoutDeletes, "expired (410)", BEGIN_SECONDS),
        (ResumesFromNow, "silent", BEGIN_SECONDS),
    ],
)
def test_the_checker_catches_an_adapter_that_drops_deletes(
    broken: ControlPlane,
    tmp_path_factory: pytest.TempPathFactory,
    adapter: type[Watching],
    kind: str,
    begin_seconds: float,
) -> None:
    """The same scenario fails for adapters with a fault that loses deletions."""
    with pytest.raises(Disagreement, match="deletions missed"):
        run(
            broken,
            tmp_path_factory.mktemp("watch"),
            lambda _: [kind, kind],
            seed=SEED,
            reflector_class=adapter,
            agree_seconds=4,
            begin_seconds=begin_seconds,
        )

"""The lease election's corners; what it promises is in the contract for leadership."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from equipoise.adapters.kubernetes import Client
from equipoise.adapters.kubernetes.lease import LeaseElection, process_identity, uptime_seconds
from tests.support.contracts.elections import SteppedElections, be_patient
from tests.support.contracts.servers import small_api
from tests.support.contracts.small_api import SmallApi
from tests.support.kubernetes.server import LIMITS, Asked, Stage, playing, session

PATH = "/apis/coordination.k8s.io/v1/namespaces/equipoise-system/leases/operator"
BOUND_SECONDS = 60.0
LONG: dict[str, Any] = {"lease_seconds": 600, "renew_seconds": 400.0}
"""For elections on the machine's own clock: it may stand still for many seconds."""
FIRST = 170_000_101
"""The first epoch at the time at which these elections begin."""


@contextmanager
def _elections() -> Iterator[tuple[SmallApi, SteppedElections]]:
    with small_api() as (api, client):
        held = SteppedElections(client, "equipoise-system", "operator")
        try:
            yield api, held
        finally:
            held.close()


def test_the_record_is_what_others_expect_of_a_lease() -> None:
    """Anyone's `kubectl get lease` reads it, and so does any other election library."""
    with _elections() as (api, world):
        world.join("a")
        world.pass_seconds(1)
        assert api.objects[PATH]["spec"] == {
            "holderIdentity": "a",
            "leaseTransitions": FIRST,
            "leaseDurationSeconds": 15,
            "acquireTime": "2023-11-14T22:30:00.000000Z",
            "renewTime": "2023-11-14T22:30:00.000000Z",
        }
        world.pass_seconds(10)
        spec = api.objects[PATH]["spec"]
        assert (spec["acquireTime"], spec["renewTime"]) == (
            "2023-11-14T22:30:00.000000Z",
            "2023-11-14T22:30:10.000000Z",
        )
        world.release("a")
        assert (
            api.objects[PATH]["spec"]["holderIdentity"],
            api.objects[PATH]["spec"]["leaseTransitions"],
        ) == ("", FIRST)


def test_what_others_wrote_on_the_lease_stays_there() -> None:
    """Labels, and fields that we do not know."""
    with _elections() as (api, world):
        labels, spec = {"team": "sre"}, {"holderIdentity": "", "strategy": "OldestEmulationVersion"}
        api.put(PATH, {"metadata": {"name": "operator", "labels": labels}, "spec": spec})
        a = world.join("a")
        world.pass_seconds(5)
        assert a.epoch() == FIRST - 1
        assert api.objects[PATH]["metadata"]["labels"] == labels
        assert api.objects[PATH]["spec"]["strategy"] == "OldestEmulationVersion"


def test_somebody_who_touches_the_lease_does_not_unseat_the_leader() -> None:
    """A conflict is looked into before anything is given up."""
    with _elections() as (api, world):
        a = world.join("a")
        world.pass_seconds(1)
        api.put(PATH, api.objects[PATH])
        world.pass_seconds(2)
        assert a.epoch() == FIRST


def test_a_renewal_whose_answer_was_lost_keeps_the_epoch() -> None:
    """It was done; the next turn finds it so."""
    with _elections() as (api, world):
        a, b = world.join("a"), world.join("b")
        world.pass_seconds(1)
        api.answers_to_lose = ["PUT"]
        world.pass_seconds(30)
        assert (a.epoch(), b.epoch()) == (FIRST, None)


def test_an_acquisition_whose_answer_was_lost_is_made_anew() -> None:
    """Nobody else can have led in it, and it is not led in either."""
    with _elections() as (api, world):
        a = world.join("a")
        api.answers_to_lose = ["POST"]
        world.pass_seconds(1)
        assert a.epoch() is None
        world.pass_seconds(world.retry_seconds)
        assert a.epoch() == FIRST + 1


def test_the_wall_clock_of_the_holder_does_not_matter() -> None:
    """A record from the past is as good as one from the future: only its changing counts."""
    for renewed in ("1999-01-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z"):
        with _elections() as (api, world):
            spec = {
                "holderIdentity": "x",
                "leaseTransitions": 7,
                "leaseDurationSeconds": 30,
                "renewTime": renewed,
            }
            api.put(PATH, {"metadata": {"name": "operator"}, "spec": spec})
            a = world.join("a")
            world.pass_seconds(29)
            assert a.epoch() is None
            world.pass_seconds(4)
            assert a.epoch() == FIRST - 1


def test_a_deleted_lease_is_no_free_seat() -> None:
    """Its holder may not know yet; and the epoch goes on where it was."""
    with _elections() as (api, world):
        a, b = world.join("a"), world.join("b")
        world.pass_seconds(5)
        world.stop("a")
        del api.objects[PATH]
        world.pass_seconds(world.renew_seconds - world.retry_seconds)
        assert b.epoch() is None
        world.pass_seconds(world.lease_seconds + world.retry_seconds)
        assert (a.epoch(), b.epoch()) == (None, FIRST + 1)


def test_a_leader_makes_a_deleted_lease_again() -> None:
    """In the same epoch: nobody was in between."""
    with _elections() as (api, world):
        a, b = world.join("a"), world.join("b")
        world.pass_seconds(5)
        del api.objects[PATH]
        world.pass_seconds(world.lease_seconds * 2)
        assert (a.epoch(), b.epoch()) == (FIRST, None)


def test_epochs_go_on_after_a_lease_was_deleted_and_nobody_remembers_it() -> None:
    """After a new installation the old ledgers are still there, and must not fence the new leader off."""
    with small_api() as (api, client):
        now, epochs = [1_700_000_000.0], []
        for name in ("old", "new"):
            election = LeaseElection(
                client, "equipoise-system", "operator", name, clock=lambda: now[0], **LONG
            )
            election.step()
            epochs.append(election.epoch())
            election.stop(0)
            api.objects.clear()
            now[0] += 60
        assert epochs[0] is not None
        assert epochs[1] is not None
        assert epochs[1] > epochs[0]


def test_a_lease_of_another_name_goes_on_above_and_back_again() -> None:
    """One Lease for all balancers, one for each, and back: no ledger and no tier fences the newcomer off."""
    with small_api() as (_, client):
        now, epochs = [1_700_000_000.0], []
        for name in ("equipoise", "equipoise-rotation", "equipoise"):
            election = LeaseElection(client, "equipoise-system", name, "new", clock=lambda: now[0], **LONG)
            election.step()
            epochs.append(election.epoch() or 0)
            election.release()
            election.stop(0)
            now[0] += 60
        assert epochs == sorted(set(epochs)), epochs


def test_a_twin_with_our_name_is_somebody_else() -> None:
    """Two processes that share an identity by mistake do not share the lease."""
    with small_api() as (_, client):
        now = [0.0]
        pair = [
            LeaseElection(
                client, "equipoise-system", "operator", "same", monotonic=lambda: now[0], clock=lambda: 0.0
            )
            for _ in range(2)
        ]
        for each in pair:
            be_patient(each)
        for _ in range(30):
            for each in pair:
                each.step()
            now[0] += 1
            assert [each.epoch() for each in pair] == [1, None]
        for each in pair:
            each.stop(0)


def test_it_runs_on_its_own_and_hands_over_when_stopped() -> None:
    """Threads, callbacks, and an orderly end."""
    with small_api() as (api, client):
        told: list[int | None] = []
        leads, lost = threading.Event(), threading.Event()

        def on_change(epoch: int | None) -> None:
            told.append(epoch)
            (lost if epoch is None else leads).set()

        election = LeaseElection(
            client, "equipoise-system", "operator", process_identity("here"), on_change=on_change, **LONG
        )
        election.start()
        assert leads.wait(BOUND_SECONDS)
        assert election.holder == election.identity
        assert election.stop(BOUND_SECONDS)
        assert lost.is_set()
        assert len(told) == 2
        assert told[1] is None
        assert election.epoch() is None
        assert api.objects[PATH]["spec"]["holderIdentity"] == ""


def test_a_failing_server_is_an_error_to_look_at_and_no_end() -> None:
    """And so is a listener that fails."""

    def script(asked: Asked, stage: Stage) -> None:
        stage.refuse(403, "Forbidden", "no leases for you")

    with playing(script) as player, session(player.url) as client:
        election = LeaseElection(client, "equipoise-system", "operator", "a", **LONG)
        election.step()
        election.step()
        assert election.epoch() is None
        assert election.failures == 2
        assert "no leases for you" in str(election.last_error)
        election.stop(0)
    with small_api() as (_, client):
        election = LeaseElection(client, "n", "operator", "a", on_change=lambda _: 1 / 0, **LONG)
        election.step()
        assert election.epoch() is not None
        assert isinstance(election.last_error, ZeroDivisionError)
        election.stop(0)


def test_a_server_that_says_nothing_costs_less_than_the_belief() -> None:
    """A request ends soon enough for another one to save the lease."""
    with playing(lambda _, stage: stage.hang()) as player, session(player.url) as client:
        election = LeaseElection(
            client, "n", "operator", "a", lease_seconds=6, renew_seconds=4.0, retry_seconds=0.2
        )
        limits, times = election._client.limits, election
        assert max(limits.connect_seconds, limits.read_seconds) + times.retry_seconds < times.renew_seconds
        began = time.monotonic()
        election.step()
        assert time.monotonic() - began < LIMITS.read_seconds / 2  # which others would wait here
        assert election.failures == 1
        election.stop(0)


@pytest.mark.parametrize(
    "times",
    [
        {"lease_seconds": 10, "renew_seconds": 10},
        {"renew_seconds": 2, "retry_seconds": 2},
        {"retry_seconds": 0},
    ],
)
def test_times_that_are_not_safe_are_refused(times: dict[str, int], client: Client) -> None:
    """The belief must end before the lease does."""
    with pytest.raises(ValueError, match="retry_seconds < renew_seconds < lease_seconds"):
        LeaseElection(client, "n", "operator", "a", **times)  # type: ignore[arg-type]


def test_an_identity_is_needed_and_is_new_for_every_process(client: Client) -> None:
    """A restarted container has its old host name."""
    with pytest.raises(ValueError, match="identity"):
        LeaseElection(client, "n", "operator", "")
    assert process_identity("host") != process_identity("host")
    assert process_identity("host").startswith("host_")


def test_the_clock_goes_on_while_we_do_not() -> None:
    """At least as long as the machine is up."""
    before = time.monotonic()
    assert uptime_seconds() >= before - 1


@pytest.fixture
def client() -> Iterator[Client]:
    with session("http://127.0.0.1:9") as client:
        yield client


TOP = 2**31 - 1
"""The highest number that the API takes for `leaseTransitions`."""


def _held(transitions: object) -> dict[str, Any]:
    spec = {"holderIdentity": "x", "leaseTransitions": transitions, "leaseDurationSeconds": 15}
    return {"metadata": {"name": "operator"}, "spec": spec}


def test_at_the_end_of_all_epochs_nobody_leads_and_every_replica_says_why() -> None:
    """A lower epoch could pass for a former one, and a higher one cannot be written."""
    with _elections() as (api, world):
        api.put(PATH, _held(TOP))
        replicas: list[Any] = [world.join("a"), world.join("b")]
        world.pass_seconds(60)
        for replica in replicas:
            assert replica.epoch() is None
            said = str(replica.last_error)
            assert "leaseTransitions is 2147483647, the highest number that the API accepts" in said
            assert "kubectl delete lease -n equipoise-system operator" in said
        assert api.objects[PATH]["spec"]["leaseTransitions"] == TOP
        del api.objects[PATH]
        world.pass_seconds(60)
        (epoch,) = [replica.epoch() for replica in replicas if replica.epoch() is not None]
        assert FIRST < epoch < FIRST + 60
        assert [replica.last_error for replica in replicas] == [None, None]


def test_a_leader_whose_lease_is_edited_to_the_end_of_all_epochs_stops_leading() -> None:
    """Its record is not there any more; and the last of all epochs may be led in."""
    with _elections() as (api, world):
        api.put(PATH, _held(TOP - 1))
        a = world.join("a")
        world.pass_seconds(60)
        assert a.epoch() == TOP
        api.put(PATH, _held(TOP - 2))
        world.pass_seconds(10)
        assert a.epoch() is None
        api.put(PATH, _held(TOP))
        world.pass_seconds(60)
        assert a.epoch() is None


@pytest.mark.parametrize(
    ("transitions", "epoch"),
    [
        (None, FIRST - 1),
        (-5, FIRST - 1),
        (0, FIRST - 1),
        ("7", None),
        (1.5, None),
        (True, None),
        (10**30, None),
    ],
)
def test_whatever_stands_for_the_transitions_leads_to_a_higher_epoch_or_to_none(
    transitions: object, epoch: int | None
) -> None:
    """What an API server would not keep is not read as some number."""
    with _elections() as (api, world):
        api.put(PATH, _held(transitions))
        a: Any = world.join("a")
        world.pass_seconds(60)
        assert a.epoch() == epoch
        if epoch is None:
            said = str(a.last_error)
            assert "spec.leaseTransitions: expected a whole number of 32 bits, got" in said

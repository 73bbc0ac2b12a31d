"""Elections over any API server, on a clock that a fact moves: nobody waits, and every turn is deliberate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from equipoise.adapters.kubernetes import Client, Unreachable
from equipoise.adapters.kubernetes.client import Limits
from equipoise.adapters.kubernetes.lease import LeaseElection
from equipoise.ports import Leadership

PATIENCE_SECONDS = 120.0


class Severed:
    """Stands where the lease's records were, and reaches nobody."""

    def read(self, before: Any) -> Any:
        raise Unreachable("the link is cut (test)")

    def write(self, wanted: Any) -> Any:
        raise Unreachable("the link is cut (test)")


def be_patient(election: LeaseElection) -> None:
    """Wait for answers as long as it takes: here the clock is the test's, and a busy machine is not late."""
    election._client.limits = Limits(PATIENCE_SECONDS, PATIENCE_SECONDS, PATIENCE_SECONDS, connections_max=1)


@dataclass
class Member:
    """One process that stands for election."""

    election: LeaseElection
    records: Any
    is_stopped: bool = False
    next_turn: float = 0.0


class SteppedElections:
    """Takes everyone's turns for them. `kind` may be an election that is wrong on purpose."""

    lease_seconds = 15
    renew_seconds = 10.0
    retry_seconds = 2.0

    def __init__(
        self, client: Client, namespace: str, lease: str, kind: type[LeaseElection] = LeaseElection
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._lease = lease
        self._kind = kind
        self._now = 1000.0
        self._members: dict[str, Member] = {}

    def join(self, name: str) -> Leadership:
        election = self._kind(
            self._client,
            self._namespace,
            self._lease,
            name,
            lease_seconds=self.lease_seconds,
            renew_seconds=self.renew_seconds,
            retry_seconds=self.retry_seconds,
            monotonic=lambda: self._now,
            clock=lambda: 1_700_000_000 + self._now,
        )
        be_patient(election)
        # Turns are spread over the period, so that the order of turns is not always that of the names.
        offset = 0.3 * len(self._members)
        self._members[name] = Member(election, election._records, next_turn=self._now + offset)
        return election

    def pass_seconds(self, seconds: float) -> None:
        end = self._now + seconds
        while True:
            due = [m for m in self._members.values() if not m.is_stopped and m.next_turn <= end]
            if not due:
                break
            member = min(due, key=lambda m: m.next_turn)
            self._now = max(self._now, member.next_turn)
            member.election.step()
            member.next_turn = self._now + self.retry_seconds
        self._now = end

    def stop(self, name: str) -> None:
        self._members[name].is_stopped = True

    def go_on(self, name: str) -> None:
        self._members[name].is_stopped = False

    def cut_off(self, name: str) -> None:
        self._members[name].election._records = Severed()  # type: ignore[assignment]

    def reconnect(self, name: str) -> None:
        member = self._members[name]
        member.election._records = member.records

    def release(self, name: str) -> None:
        self._members[name].election.release()
        self.stop(name)

    def close(self) -> None:
        for member in self._members.values():
            member.election.stop(0)

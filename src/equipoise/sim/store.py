"""The objects in the simulated API server: ledgers, policies, pauses, Analytics and Recommendations.

Ledgers are written by compare-and-swap; custom resources have generations and resource versions as the API
server counts them.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from equipoise.core.cluster import ObjectRef, WorkloadRef
from equipoise.core.errors import WorldFailed
from equipoise.crd.definition import Standing
from equipoise.ports import PolicyObject, StoreConflict, Stored
from equipoise.sim import template
from equipoise.sim.faults import FaultKind
from equipoise.sim.state import SimState


@dataclass(frozen=True, slots=True)
class Commit:
    """One write: the version on which it was based, and the version that it made."""

    key: WorkloadRef
    based_on: str
    version: str


class SimStore:
    """Ledgers, stored as the bytes that were written."""

    def __init__(self, state: SimState) -> None:
        self._state = state
        self._entries: dict[WorkloadRef, tuple[bytes, str]] = {}
        self.commits: list[Commit] = []

    def read(self, workload: WorkloadRef) -> Stored:
        """Read an entry; an absent one is empty."""
        self._check_available()
        data, version = self._entries.get(workload, (b"{}", ""))
        return Stored(msgspec.json.decode(data), version)

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        """Read every entry at once."""
        self._check_available()
        return {
            workload.canonical: Stored(msgspec.json.decode(data), version)
            for workload, (data, version) in self._entries.items()
            if namespace in {None, workload.namespace}
        }

    def write(self, workload: WorkloadRef, data: Mapping[str, Any], version: str) -> Stored:
        """Write an entry if it still has this version."""
        self._check_available()
        whose = {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name}
        encoded = msgspec.json.encode({"workload": whose} | dict(data))
        if len(encoded) > self._state.settings.store_bytes_max:
            raise WorldFailed(f"ledger of {workload}: {len(encoded)} bytes are too many")
        is_beaten = self._state.faults.now(FaultKind.STORE_CONFLICT) is not None
        if is_beaten or not self.is_newest(workload, version):
            raise StoreConflict(f"ledger of {workload} is not at version {version!r}")
        written = str(self._state.next_version())
        self._entries[workload] = (encoded, written)
        self.commits.append(Commit(workload, version, written))
        self._state.log("Stored", workload, f"ledger {encoded.decode()}")
        if self._state.faults.now(FaultKind.STORE_ANSWER_LOST):
            raise WorldFailed("the answer to a write was lost (simulated)")
        return Stored(msgspec.json.decode(encoded), written)

    def is_newest(self, workload: WorkloadRef, version: str) -> bool:
        """Return whether an entry still has this version."""
        return self._entries.get(workload, (b"", ""))[1] == version

    def _check_available(self) -> None:
        for kind in (FaultKind.API_UNAVAILABLE, FaultKind.STORE_UNAVAILABLE):
            if self._state.faults.now(kind):
                raise WorldFailed("the store does not answer (simulated)")


POLICY_API_VERSION, POLICY_KIND = "equipoise.dev/v1alpha1", "RotationPolicy"


class SimPolicies:
    """Policies and their statuses."""

    def __init__(
        self, state: SimState, api_version: str = POLICY_API_VERSION, kind: str = POLICY_KIND
    ) -> None:
        self._state = state
        self._kind = (api_version, kind)
        self._objects: dict[tuple[str, str], PolicyObject] = {}
        self.writes = 0
        """How often a status was written."""

    def add(self, namespace: str, name: str, spec: Mapping[str, Any]) -> PolicyObject:
        """Create a policy, or replace the spec of an existing one."""
        before = self._objects.get((namespace, name))
        version = self._state.next_version()
        if before is None:
            ref = ObjectRef(*self._kind, namespace, name, f"policy-{version}")
            made = PolicyObject(ref, 1, str(version), copy.deepcopy(spec), {})
        else:
            made = replace(
                before,
                generation=before.generation + 1,
                version=str(version),
                spec=copy.deepcopy(spec),
            )
        self._objects[namespace, name] = made
        return made

    def remove(self, namespace: str, name: str) -> None:
        """Delete a policy."""
        del self._objects[namespace, name]

    def policies(self) -> Sequence[PolicyObject]:
        """Return the policies."""
        self._check_available()
        return list(self._objects.values())

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        """Replace a status, unless the policy has changed since it was read or was deleted."""
        self._check_available()
        key = (policy.ref.namespace, policy.ref.name)
        current = self._objects.get(key)
        if current is None or current.version != policy.version:
            raise StoreConflict(f"{policy.ref.name} is not at version {policy.version}")
        written = str(self._state.next_version())
        self._objects[key] = replace(current, version=written, status=copy.deepcopy(status))
        self.writes += 1

    def _check_available(self) -> None:
        if self._state.faults.now(FaultKind.API_UNAVAILABLE) is not None:
            raise WorldFailed("the API server does not answer (simulated)")


class SimPauses:
    """The pauses of namespaces. A namespace exists once a workload is in it."""

    def __init__(self, state: SimState) -> None:
        self._state = state
        self._paused: dict[str | None, str] = {}

    def pause(self, namespace: str | None, who: str) -> None:
        """Stop every action in a namespace, or everywhere."""
        self._paused[namespace] = who

    def resume(self, namespace: str | None) -> None:
        """Remove the pause."""
        self._paused.pop(namespace, None)

    def pause_of(self, namespace: str) -> str | None:
        """Return who or what paused this namespace, or None; raises WorldFailed if that is unknown."""
        if self._state.faults.now(FaultKind.API_UNAVAILABLE) is not None:
            raise WorldFailed("the API server does not answer (simulated)")
        if None in self._paused:
            return f"everything is paused: {self._paused[None]}"
        if namespace not in self._state.namespaces:
            raise WorldFailed(f"namespace {namespace}: not known, so nobody can say whether it is paused")
        who = self._paused.get(namespace)
        return None if who is None else f"namespace {namespace} is paused: {who}"


ANALYSIS_API_VERSION = "analysis.crane.io/v1alpha1"


class SimAnalyses:
    """Analytics and Recommendations."""

    def __init__(self, state: SimState) -> None:
        self._state = state
        self._objects: dict[str, PolicyObject] = {}
        """By UID."""
        self.whose = Standing.OURS
        self.unknown_fields: frozenset[str] = frozenset()
        """Fields of a status that the definition does not know, and so drops."""
        self.writes = 0
        """How often anything was written."""

    def ask(self, namespace: str, name: str, spec: Mapping[str, Any]) -> PolicyObject:
        """Create an Analytics, or replace the spec of an existing one."""
        for before in self.analytics():
            if (before.ref.namespace, before.ref.name) == (namespace, name):
                return self._put(replace(before, generation=before.generation + 1, spec=copy.deepcopy(spec)))
        return self._add("Analytics", namespace, name, spec, {})

    def want(self, name: str, adoption: str) -> PolicyObject:
        """Set the adoption of a Recommendation, as a user does."""
        (found,) = [one for one in self.recommendations() if one.ref.name == name]
        return self.set_adoption(found, adoption)

    def remove(self, policy: PolicyObject) -> None:
        """Delete an object, and what it owns with it."""
        self._objects = {
            uid: one
            for uid, one in self._objects.items()
            if policy.ref.uid not in {uid, one.labels.get("analysis.crane.io/analytics-uid")}
        }

    def definition_owner(self) -> tuple[Standing, str]:
        """Return who installed the definitions."""
        self._check_available()
        return self.whose, ""

    def analytics(self) -> Sequence[PolicyObject]:
        """Return all Analytics."""
        return self._of("Analytics")

    def recommendations(self) -> Sequence[PolicyObject]:
        """Return all Recommendations."""
        return self._of("Recommendation")

    def create(self, manifest: Mapping[str, Any]) -> PolicyObject:
        """Create a Recommendation with a generated name."""
        self._check_available()
        meta = manifest["metadata"]
        name = meta["generateName"] + template.suffix(self._state.rng)
        self.writes += 1
        return self._add("Recommendation", meta["namespace"], name, manifest["spec"], meta["labels"])

    def set_adoption(self, recommendation: PolicyObject, adoption: str) -> PolicyObject:
        """Set the adoption of a Recommendation."""
        current = self._current(recommendation)
        self.writes += 1
        spec = {**current.spec, "adoptionType": adoption}
        return self._put(replace(current, generation=current.generation + 1, spec=spec))

    def write_status(self, about: PolicyObject, status: Mapping[str, Any]) -> None:
        """Replace a status, unless the object has changed since it was read or was deleted."""
        current = self._current(about)
        self.writes += 1
        accepted = {key: value for key, value in status.items() if key not in self.unknown_fields}
        self._put(replace(current, status=copy.deepcopy(accepted)))

    def delete(self, recommendation: PolicyObject) -> None:
        """Delete this object, by its UID."""
        self._check_available()
        self.writes += 1
        self._objects.pop(recommendation.ref.uid, None)

    def _of(self, kind: str) -> list[PolicyObject]:
        self._check_available()
        return [one for one in self._objects.values() if one.ref.kind == kind]

    def _current(self, expected: PolicyObject) -> PolicyObject:
        self._check_available()
        current = self._objects.get(expected.ref.uid)
        if current is None or current.version != expected.version:
            raise StoreConflict(f"{expected.ref.name} is not at version {expected.version}")
        return current

    def _add(
        self, kind: str, namespace: str, name: str, spec: Mapping[str, Any], labels: Mapping[str, str]
    ) -> PolicyObject:
        ref = ObjectRef(ANALYSIS_API_VERSION, kind, namespace, name, template.uid(self._state.rng))
        made = PolicyObject(ref, 1, "", copy.deepcopy(spec), {}, dict(labels), self._state.now)
        return self._put(made)

    def _put(self, one: PolicyObject) -> PolicyObject:
        written = replace(one, version=str(self._state.next_version()))
        self._objects[one.ref.uid] = written
        return written

    def _check_available(self) -> None:
        if self._state.faults.now(FaultKind.API_UNAVAILABLE) is not None:
            raise WorldFailed("the API server does not answer (simulated)")

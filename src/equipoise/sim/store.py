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
        self._check_store()
        data, version = self._entries.get(workload, (b"{}", ""))
        return Stored(msgspec.json.decode(data), version)

    def read_all(self, namespace: str | None = None) -> Mapping[WorkloadRef, Stored]:
        self._check_store()
        return {
            workload.canonical: Stored(msgspec.json.decode(data), version)
            for workload, (data, version) in self._entries.items()
            if namespace in {None, workload.namespace}
        }

    def write(self, workload: WorkloadRef, data: Mapping[str, Any], version: str) -> Stored:
        self._check_store()
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
        return self._entries.get(workload, (b"", ""))[1] == version

    def _check_store(self) -> None:
        for kind in (FaultKind.API_UNAVAILABLE, FaultKind.STORE_UNAVAILABLE):
            if self._state.faults.now(kind):
                raise WorldFailed("the store does not answer (simulated)")


class CustomResources:
    """Objects of definitions, with generations and resource versions as the API server counts them."""

    def __init__(self, state: SimState) -> None:
        self._state = state
        self._objects: dict[str, PolicyObject] = {}
        """By UID."""
        self.writes = 0
        """How often a balancer has written anything."""
        self.unknown_fields: frozenset[str] = frozenset()
        """Fields of a status that the definition does not know, and so drops."""

    def _of(self, kind: str) -> list[PolicyObject]:
        self._state.check_api()
        return [one for one in self._objects.values() if one.ref.kind == kind]

    def _apply(self, ref: ObjectRef, spec: Mapping[str, Any], labels: Mapping[str, str]) -> PolicyObject:
        """Create an object, or replace the spec of the one with this name."""
        for before in self._objects.values():
            if ref[:-1] == before.ref[:-1]:  # all but the UID
                return self._replace_spec(before, spec)
        return self._put(PolicyObject(ref, 1, "", copy.deepcopy(spec), {}, dict(labels), self._state.now))

    def _replace_spec(self, before: PolicyObject, spec: Mapping[str, Any]) -> PolicyObject:
        return self._put(replace(before, generation=before.generation + 1, spec=copy.deepcopy(spec)))

    def _replace_status(self, seen: PolicyObject, status: Mapping[str, Any]) -> None:
        current = self._unchanged(seen)
        self.writes += 1
        accepted = {key: value for key, value in status.items() if key not in self.unknown_fields}
        self._put(replace(current, status=copy.deepcopy(accepted)))

    def _unchanged(self, seen: PolicyObject) -> PolicyObject:
        """Return an object as it is; raise StoreConflict if it changed or was deleted since it was seen."""
        self._state.check_api()
        current = self._objects.get(seen.ref.uid)
        if current is None or current.version != seen.version:
            raise StoreConflict(f"{seen.ref.name} is not at version {seen.version}")
        return current

    def _put(self, one: PolicyObject) -> PolicyObject:
        written = replace(one, version=str(self._state.next_version()))
        self._objects[one.ref.uid] = written
        return written


class SimPolicies(CustomResources):
    """Policies of one kind, and their statuses."""

    def __init__(
        self, state: SimState, api_version: str = "equipoise.dev/v1alpha1", kind: str = "RotationPolicy"
    ) -> None:
        super().__init__(state)
        self._api_version, self._kind = api_version, kind

    def add(self, namespace: str, name: str, spec: Mapping[str, Any]) -> PolicyObject:
        """Create a policy, or replace the spec of an existing one."""
        uid = f"policy-{self._state.version + 1}"
        return self._apply(ObjectRef(self._api_version, self._kind, namespace, name, uid), spec, {})

    def remove(self, namespace: str, name: str) -> None:
        key = (namespace, name)
        (uid,) = (one.ref.uid for one in self._objects.values() if (one.ref.namespace, one.ref.name) == key)
        del self._objects[uid]

    def policies(self) -> Sequence[PolicyObject]:
        return self._of(self._kind)

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        self._replace_status(policy, status)


ANALYSIS_API_VERSION = "analysis.crane.io/v1alpha1"


class SimAnalyses(CustomResources):
    """Analytics and Recommendations."""

    def __init__(self, state: SimState) -> None:
        super().__init__(state)
        self.whose = Standing.OURS
        """Who installed the definitions."""

    def ask(self, namespace: str, name: str, spec: Mapping[str, Any]) -> PolicyObject:
        """Create an Analytics, or replace the spec of an existing one."""
        return self._apply(self._ref("Analytics", namespace, name), spec, {})

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
        self._state.check_api()
        return self.whose, ""

    def analytics(self) -> Sequence[PolicyObject]:
        return self._of("Analytics")

    def recommendations(self) -> Sequence[PolicyObject]:
        return self._of("Recommendation")

    def create(self, manifest: Mapping[str, Any]) -> PolicyObject:
        """Create a Recommendation with a generated name."""
        self._state.check_api()
        meta = manifest["metadata"]
        name = meta["generateName"] + template.suffix(self._state.rng)
        self.writes += 1
        ref = self._ref("Recommendation", meta["namespace"], name)
        return self._apply(ref, manifest["spec"], meta["labels"])

    def set_adoption(self, recommendation: PolicyObject, adoption: str) -> PolicyObject:
        current = self._unchanged(recommendation)
        self.writes += 1
        return self._replace_spec(current, {**current.spec, "adoptionType": adoption})

    def write_status(self, about: PolicyObject, status: Mapping[str, Any]) -> None:
        self._replace_status(about, status)

    def delete(self, recommendation: PolicyObject) -> None:
        self._state.check_api()
        self.writes += 1
        self._objects.pop(recommendation.ref.uid, None)

    def _ref(self, kind: str, namespace: str, name: str) -> ObjectRef:
        return ObjectRef(ANALYSIS_API_VERSION, kind, namespace, name, template.uid(self._state.rng))


class SimPauses:
    """The pauses of namespaces. A namespace exists once a workload is in it."""

    def __init__(self, state: SimState) -> None:
        self._state = state
        self._paused: dict[str | None, str] = {}

    def pause(self, namespace: str | None, who: str) -> None:
        """Stop every action in a namespace, or everywhere."""
        self._paused[namespace] = who

    def resume(self, namespace: str | None) -> None:
        self._paused.pop(namespace, None)

    def pause_of(self, namespace: str) -> str | None:
        self._state.check_api()
        if None in self._paused:
            return f"everything is paused: {self._paused[None]}"
        if namespace not in self._state.namespaces:
            raise WorldFailed(f"namespace {namespace} is unknown, so it is unknown whether it is paused")
        who = self._paused.get(namespace)
        return None if who is None else f"namespace {namespace} is paused: {who}"

"""Analytics and Recommendations, with generations and versions as the API server counts them."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from equipoise.model.crd.definition import Standing
from equipoise.model.errors import WorldFailed
from equipoise.model.references import ObjectRef
from equipoise.ports import PolicyObject, StoreConflict
from equipoise.sim import names
from equipoise.sim.faults import FaultKind
from equipoise.sim.state import State

API_VERSION = "analysis.crane.io/v1alpha1"


class SimAnalyses:
    """What people asked for, and the advice that they got."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._objects: dict[str, PolicyObject] = {}
        """By UID."""
        self.whose = Standing.OURS
        self.unknown_fields: frozenset[str] = frozenset()
        """Fields of a status that the definition does not know, and so drops."""
        self.writes = 0
        """How often anything was written."""

    def ask(self, namespace: str, name: str, spec: Mapping[str, Any]) -> PolicyObject:
        """Make an Analytics, or change what an existing one asks for."""
        for before in self.analytics():
            if (before.ref.namespace, before.ref.name) == (namespace, name):
                return self._put(replace(before, generation=before.generation + 1, spec=copy.deepcopy(spec)))
        return self._add("Analytics", namespace, name, spec, {})

    def want(self, name: str, adoption: str) -> PolicyObject:
        """Change what is to become of advice, as a person does."""
        (found,) = [one for one in self.recommendations() if one.ref.name == name]
        return self.set_adoption(found, adoption)

    def remove(self, policy: PolicyObject) -> None:
        """Delete an object, and what it owns with it."""
        self._objects = {
            uid: one
            for uid, one in self._objects.items()
            if policy.ref.uid not in {uid, one.labels.get("analysis.crane.io/analytics-uid")}
        }

    def standing(self) -> tuple[Standing, str]:
        """Say whose the definitions are."""
        self._check_available()
        return self.whose, ""

    def analytics(self) -> Sequence[PolicyObject]:
        """List what was asked for."""
        return self._of("Analytics")

    def recommendations(self) -> Sequence[PolicyObject]:
        """List the advice that was given."""
        return self._of("Recommendation")

    def create(self, manifest: Mapping[str, Any]) -> PolicyObject:
        """Make a Recommendation, and name it."""
        self._check_available()
        meta = manifest["metadata"]
        name = meta["generateName"] + names.suffix(self._state.chance)
        self.writes += 1
        return self._add("Recommendation", meta["namespace"], name, manifest["spec"], meta["labels"])

    def set_adoption(self, recommendation: PolicyObject, adoption: str) -> PolicyObject:
        """Change what becomes of advice."""
        there = self._there(recommendation)
        self.writes += 1
        spec = {**there.spec, "adoptionType": adoption}
        return self._put(replace(there, generation=there.generation + 1, spec=spec))

    def write_status(self, about: PolicyObject, status: Mapping[str, Any]) -> None:
        """Replace a status, unless the object has changed since it was read or has gone."""
        there = self._there(about)
        self.writes += 1
        kept = {key: value for key, value in status.items() if key not in self.unknown_fields}
        self._put(replace(there, status=copy.deepcopy(kept)))

    def delete(self, recommendation: PolicyObject) -> None:
        """Remove exactly this one."""
        self._check_available()
        self.writes += 1
        self._objects.pop(recommendation.ref.uid, None)

    def _of(self, kind: str) -> list[PolicyObject]:
        self._check_available()
        return [one for one in self._objects.values() if one.ref.kind == kind]

    def _there(self, known: PolicyObject) -> PolicyObject:
        self._check_available()
        there = self._objects.get(known.ref.uid)
        if there is None or there.version != known.version:
            raise StoreConflict(f"{known.ref.name} is not at version {known.version}")
        return there

    def _add(
        self, kind: str, namespace: str, name: str, spec: Mapping[str, Any], labels: Mapping[str, str]
    ) -> PolicyObject:
        ref = ObjectRef(API_VERSION, kind, namespace, name, names.uid(self._state.chance))
        made = PolicyObject(ref, 1, "", copy.deepcopy(spec), {}, dict(labels), self._state.now)
        return self._put(made)

    def _put(self, one: PolicyObject) -> PolicyObject:
        written = replace(one, version=str(self._state.next_version()))
        self._objects[one.ref.uid] = written
        return written

    def _check_available(self) -> None:
        if self._state.faults.now(FaultKind.API_UNAVAILABLE) is not None:
            raise WorldFailed("the API server does not answer (simulated)")

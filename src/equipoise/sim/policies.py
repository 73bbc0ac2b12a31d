"""Custom resources of one kind of policy, with generations and versions as the API server counts them."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from equipoise.model.errors import WorldFailed
from equipoise.model.references import ObjectRef
from equipoise.ports import PolicyObject, StoreConflict
from equipoise.sim.faults import FaultKind
from equipoise.sim.state import State

API_VERSION, KIND = "equipoise.dev/v1alpha1", "RotationPolicy"


class SimPolicies:
    """What people asked for, and what was answered."""

    def __init__(self, state: State, api_version: str = API_VERSION, kind: str = KIND) -> None:
        self._state = state
        self._kind = (api_version, kind)
        self._objects: dict[tuple[str, str], PolicyObject] = {}
        self.writes = 0
        """How often a status was written."""

    def add(self, namespace: str, name: str, spec: Mapping[str, Any]) -> PolicyObject:
        """Create a policy, or change what an existing one asks for."""
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
        """Give the policies."""
        self._check_available()
        return list(self._objects.values())

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        """Replace a status, unless the policy has changed since it was read or has gone."""
        self._check_available()
        key = (policy.ref.namespace, policy.ref.name)
        there = self._objects.get(key)
        if there is None or there.version != policy.version:
            raise StoreConflict(f"{policy.ref.name} is not at version {policy.version}")
        written = str(self._state.next_version())
        self._objects[key] = replace(there, version=written, status=copy.deepcopy(status))
        self.writes += 1

    def _check_available(self) -> None:
        if self._state.faults.now(FaultKind.API_UNAVAILABLE) is not None:
            raise WorldFailed("the API server does not answer (simulated)")

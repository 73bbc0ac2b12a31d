"""Names of things in a cluster."""

from typing import NamedTuple

API_VERSIONS = {
    "Deployment": "apps/v1",
    "StatefulSet": "apps/v1",
    "ReplicaSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "ReplicationController": "v1",
}
"""The API version of each kind that needs no discovery."""


class WorkloadRef(NamedTuple):
    """A controller of pods: what an HPA scales and a policy targets."""

    api_version: str
    kind: str
    namespace: str
    name: str

    @property
    def group(self) -> str:
        """The API group; the core group is the empty text."""
        return self.api_version.rpartition("/")[0]

    @property
    def canonical(self) -> "WorkloadRef":
        """The same workload as lists name it: an old version of a built-in group names the same object."""
        version = API_VERSIONS.get(self.kind, "")
        return self._replace(api_version=version) if version.rpartition("/")[0] == self.group else self

    @property
    def subject(self) -> str:
        """How decisions name this workload."""
        return f"{self.namespace}/{self.name}"

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class PodRef(NamedTuple):
    """One incarnation of a pod: a name can be used again, a UID can't."""

    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class ObjectRef(NamedTuple):
    """Any object, as an event names it."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {f'{self.namespace}/{self.name}'.removeprefix('/')}"


class StoreKey(NamedTuple):
    """Where memory is kept: what kind of memory, and of which workload."""

    room: str
    """Such as `ledger`."""
    workload: WorkloadRef

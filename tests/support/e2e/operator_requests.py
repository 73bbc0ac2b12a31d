"""What the operator does to a cluster, done once with the operator's own adapters, as a release's account."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from equipoise.adapters.kubernetes import ApiError, CachedCluster, Client
from equipoise.adapters.kubernetes.actions import KubernetesActuator
from equipoise.adapters.kubernetes.lease import LeaseElection
from equipoise.adapters.kubernetes.pauses import NamespacePauses
from equipoise.adapters.kubernetes.policies import Definition, KubernetesAnalyses, KubernetesPolicies
from equipoise.adapters.kubernetes.reflector import Reflector
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.core.cluster import ObjectRef, PodRef, WorkloadRef
from equipoise.core.ledger import Ledger
from equipoise.crd.definition import DefinedKind, Standing
from equipoise.ports import PolicyObject
from equipoise.recommendation.analytics import new_recommendation
from equipoise.recommendation.policy import AdoptionType
from equipoise.recommendation.settings import AdviceType
from tests.support.contracts.elections import be_patient
from tests.support.e2e.pausing import said_of
from tests.support.kubernetes.reflected_kinds import stop_all
from tests.testbed import ControlPlane, wait_until
from tests.testbed.api import Api

SHOP = "shop"
"""The namespace that is looked after, with the Deployment `web` in it."""
SYNC_SECONDS = 60.0
POLICIES = f"/apis/equipoise.dev/v1alpha1/namespaces/{SHOP}/rotationpolicies"


@dataclass(frozen=True)
class Release:
    """An installed release, and a session as its service account."""

    name: str
    plane: ControlPlane
    token: str
    client: Client
    api: Api
    """The same account by the tests' own client."""
    audit: Path

    @property
    def account(self) -> str:
        return f"{self.name}-equipoise"

    @property
    def namespace(self) -> str:
        return f"{self.name}-system"

    def pod(self) -> PodRef:
        """Some pod of the shop."""
        found = self.plane.api.items("/api/v1/namespaces/shop/pods")[0]["metadata"]
        return PodRef(SHOP, found["name"], found["uid"])


def make_policy(plane: ControlPlane, name: str) -> None:
    """Ask for `web` to be looked after."""
    plane.apply(
        {
            "apiVersion": "equipoise.dev/v1alpha1",
            "kind": "RotationPolicy",
            "metadata": {"name": name, "namespace": SHOP},
            "spec": {"targetRef": {"kind": "Deployment", "name": "web"}},
        }
    )


def make_analytics(plane: ControlPlane, name: str, **more: str) -> None:
    """Ask for advice about `web`."""
    asked = {"type": "HPA", "resourceSelectors": [{"kind": "Deployment", "name": "web"}], **more}
    plane.apply(
        {
            "apiVersion": "analysis.crane.io/v1alpha1",
            "kind": "Analytics",
            "metadata": {"name": name, "namespace": SHOP},
            "spec": asked,
        }
    )


def _policies(client: Client) -> KubernetesPolicies:
    return KubernetesPolicies(
        client, DefinedKind("equipoise.dev", "v1alpha1", "RotationPolicy", "rotationpolicies", "", {})
    )


def _watching(reflectors: Sequence[Reflector[Any]]) -> bool:
    return all(one.synced.is_set() and one.counters.watches for one in reflectors)


def _problems(reflectors: Sequence[Reflector[Any]]) -> list[str]:
    """Return what was refused for lack of rights; after any other answer, a reflector asks again."""
    errors = [one.last_error for one in reflectors]
    return [str(error) for error in errors if isinstance(error, ApiError) and error.status in {401, 403}]


def live(release: Release) -> None:
    """Do everything once that the operator does, with the operator's own adapters."""
    see(release)
    say(release)
    remember(release)
    lead(release)
    advise(release)


def see(release: Release, namespace: str | None = None) -> None:
    """Fill every cache and watch, everywhere or in one namespace; nothing is paused."""
    cluster = CachedCluster(release.client, namespace=namespace)
    pauses = NamespacePauses(release.client, operator_namespace=release.namespace)
    reflectors = [*cluster.reflectors, pauses.reflector]
    for reflector in reflectors:
        reflector.start()
    try:
        wait_until(
            lambda: _watching(reflectors) or _problems(reflectors),
            "every cache filled and watched",
            SYNC_SECONDS,
        )
        assert _problems(reflectors) == []
        assert [workload.ref.name for workload in cluster.workloads(SHOP)] == ["web"]
        assert cluster.pods(SHOP)
        wait_until(lambda: said_of(pauses, SHOP) is None, "nothing paused", SYNC_SECONDS)
        assert cluster.autoscaler_pauses() == {}
    finally:
        stop_all(reflectors)


def say(release: Release) -> None:
    """Answer a policy in its status, twice against the same version, and tell of it in an event, twice."""
    name = f"{release.name}-policy"
    make_policy(release.plane, name)
    policies = _policies(release.client)
    policies.reflector.start()
    try:
        policy = wait_until(lambda: _named(policies, name), "the policy seen", SYNC_SECONDS)
        wait_until(lambda: policies.reflector.counters.watches, "the policies watched", SYNC_SECONDS)
    finally:
        policies.reflector.stop()
    policies.write_status(policy, {"observedGeneration": 1})
    policies.write_status(policy, {"observedGeneration": 1})  # as after a lost answer: it reads what is there
    assert release.plane.api.get(f"{POLICIES}/{name}")["status"] == {"observedGeneration": 1}
    actuator = KubernetesActuator(release.client)
    web = release.plane.api.get("/apis/apps/v1/namespaces/shop/deployments/web")["metadata"]
    for _ in range(2):
        actuator.record_event(
            ObjectRef("apps/v1", "Deployment", SHOP, "web", web["uid"]), "Tried", "It works."
        )
    assert (actuator.events.failures, actuator.events.last_error) == (0, None)


def _named(policies: KubernetesPolicies, name: str) -> PolicyObject | None:
    if not policies.reflector.synced.is_set():
        return None
    return next((policy for policy in policies.policies() if policy.ref.name == name), None)


def remember(release: Release, namespace: str | None = None) -> None:
    """Make a ledger, and swap it; read it alone, and with all others everywhere or in one namespace."""
    store = LedgerStore(release.client)
    key = WorkloadRef("apps/v1", "Deployment", SHOP, f"web-{release.name}")
    first = store.write(key, Ledger(epoch=1).to_data(), store.read(key).version)
    second = store.write(key, Ledger(epoch=2).to_data(), first.version)
    found = store.read(key)
    assert (found.version, Ledger.from_data(found.data).epoch) == (second.version, 2), f"{found} {second}"
    assert store.read_all(namespace)[key] == found


def lead(release: Release) -> None:
    """Make the Lease, and renew it, on a clock that stands: a stall of the machine is no lapse."""
    election = LeaseElection(
        release.client, release.namespace, release.account, "test", monotonic=lambda: 1000.0
    )
    be_patient(election)
    epochs = set()
    for _ in range(2):
        election.step()
        assert election.last_error is None, str(election.last_error)
        epochs.add(election.epoch())
    assert len(epochs - {None}) == 1, str(epochs)
    election.release()
    assert election.last_error is None
    election.stop()


def advise(release: Release) -> None:
    """Answer an Analytics with a Recommendation, in a status of its own and in one that is none."""
    name = f"{release.name}-advice"
    make_analytics(release.plane, name)
    reflectors: list[Reflector[Any]] = []
    objects = KubernetesAnalyses(release.client, reflectors.append)
    assert objects.definition_owner() == (Standing.OURS, "")
    for reflector in reflectors:
        reflector.start()
    try:
        wait_until(lambda: _watching(reflectors) or _problems(reflectors), "both kinds watched", SYNC_SECONDS)
        assert _problems(reflectors) == []
        (about,) = [one for one in objects.analytics() if one.ref.name == name]
    finally:
        for reflector in reflectors:
            reflector.stop()
    web = WorkloadRef("apps/v1", "Deployment", SHOP, "web")
    made = objects.create(new_recommendation(about, AdviceType.HPA, web, {}, AdoptionType.STATUS))
    made = objects.set_adoption(made, AdoptionType.AUTO.value)
    for one in (about, made):
        for _ in range(2):  # as after a lost answer: it reads what is there
            objects.write_status(one, {"observedGeneration": one.generation})
    without_status = KubernetesAnalyses(release.client, reflectors.append)
    without_status._definitions = {  # as Crane's are
        kind: Definition(Standing.FOREIGN, has_status=False) for kind in ("Analytics", "Recommendation")
    }
    path = f"/apis/analysis.crane.io/v1alpha1/namespaces/{SHOP}/analytics/{name}"
    version = release.plane.api.get(path)["metadata"]["resourceVersion"]
    without_status.write_status(replace(about, version=version), {})
    objects.delete(made)

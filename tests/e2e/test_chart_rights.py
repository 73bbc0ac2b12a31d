"""The operator's own adapters under exactly the roles of the chart: all that it does works, and no more."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from equipoise.adapters.kubernetes import ApiError, KubernetesCluster, connect
from equipoise.adapters.kubernetes.actions import KubernetesActuator
from equipoise.adapters.kubernetes.apply import KubernetesApplier
from equipoise.adapters.metrics_server import (
    NAMESPACES_ONE_BY_ONE_MAX,
    ResourceMetrics,
    ResourceMetricsAbsent,
)
from equipoise.adapters.prometheus.discover import find
from equipoise.adapters.prometheus.errors import Undecided
from equipoise.core.cluster import WorkloadRef
from equipoise.ports import ApplyResult, EvictionResult
from tests.support.e2e.charts import Helm, Values, rights_given, rights_used, wait_for_rights
from tests.support.e2e.operator_requests import (
    POLICIES,
    SHOP,
    Release,
    lead,
    live,
    make_analytics,
    make_policy,
    remember,
    say,
    see,
)
from tests.support.e2e.proportional_requests import is_scaled, make_scaling_policy, resize, scale
from tests.support.e2e.qos_requests import write_statuses
from tests.testbed import ControlPlane, StartPrometheus, free_port, wait_until
from tests.testbed import api as testbed
from tests.testbed.processes import is_answering
from tests.testbed.scenes import deployment, namespaced

ELSEWHERE, MONITORING = "elsewhere", "monitoring"
PLAIN: Values = {}
FULL: Values = {
    "rotation": {"evict": True},
    "recommendation": {"annotate": True, "apply": True},
    "proportional": {"resize": True, "rollout": True},
    "prometheus": {"discover": True},
    "scalableKinds": [{"apiGroup": "", "resource": "replicationcontrollers"}],
    "agent": {"enabled": True},
}
NARROW: Values = {"config": {"namespaces": [SHOP]}, "rotation": {"evict": True}}
RELEASES = {"plain": PLAIN, "full": FULL, "narrow": NARROW, "running": PLAIN, "confined": NARROW}


@pytest.fixture(scope="module")
def shop(audited: ControlPlane) -> ControlPlane:
    """A cluster of this file's own with a shop in it."""
    controller = {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": "old", "namespace": SHOP},
        "spec": {"replicas": 0, "selector": {"app": "old"}, "template": _template("old")},
    }
    audited.apply([namespaced(place) for place in (SHOP, ELSEWHERE, MONITORING)])
    audited.apply(deployment(SHOP, "web", replicas=1, request="1"))
    audited.apply([controller, _lease(ELSEWHERE, "equipoise"), _lease(SHOP, "equipoise")])
    wait_until(lambda: audited.api.items("/api/v1/namespaces/shop/pods"), "a pod of the shop", 60)
    return audited


@pytest.fixture(scope="module")
def releases(shop: ControlPlane, helm: Helm) -> Iterator[Callable[[str], Release]]:
    """Releases by name, each installed when first asked for, by Helm and with all that it installs."""
    made: dict[str, Release] = {}
    with ExitStack() as stack:

        def release(name: str) -> Release:
            if name not in made:
                made[name] = _installed(shop, helm, name)
                stack.callback(made[name].client.close)
                stack.callback(made[name].api.close)
            return made[name]

        yield release


@pytest.fixture
def plain(releases: Callable[[str], Release]) -> Release:
    """As installed without any value."""
    return releases("plain")


@pytest.fixture
def full(releases: Callable[[str], Release]) -> Release:
    """With every optional right."""
    return releases("full")


@pytest.fixture
def narrow(releases: Callable[[str], Release]) -> Release:
    """For the shop only."""
    return releases("narrow")


def _installed(plane: ControlPlane, helm: Helm, name: str) -> Release:
    namespace, account = f"{name}-system", f"{name}-equipoise"
    plane.apply(namespaced(namespace))
    helm.install(plane, name, namespace, RELEASES[name])
    token = plane.token(namespace, account)
    client = connect(str(plane.kubeconfig_for(name, {"token": token})))
    wait_for_rights(plane, namespace, account, helm.template(namespace, RELEASES[name], release=name))
    api = testbed.Api(plane.server, plane.ca, token=token)
    return Release(name, plane, token, client, api, plane.folder)


def _template(app: str) -> dict[str, Any]:
    containers = [{"name": "app", "image": "app"}]
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": containers}}


def _lease(namespace: str, name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}


def test_all_that_the_operator_does_works_as_installed(plain: Release) -> None:
    """Caches, pauses, KEDA's too, policies and their status, events, the ledgers, the Lease."""
    live(plain)
    with pytest.raises(ResourceMetricsAbsent):
        ResourceMetrics(plain.client).cpu_usage({SHOP: ["web"]}, 0.0, 300.0)


def test_no_right_is_given_that_is_not_used(full: Release, helm: Helm) -> None:
    """With every optional right: what the roles allow is what the API server saw being done."""
    live(full)
    assert (
        KubernetesActuator(full.client).evict(full.pod(), is_dry_run=True).result is EvictionResult.ACCEPTED
    )
    old = WorkloadRef("v1", "ReplicationController", SHOP, "old")
    assert KubernetesCluster(full.client).workload(old) is not None
    with pytest.raises(ResourceMetricsAbsent):
        ResourceMetrics(full.client).cpu_usage({SHOP: ["web"]}, 0.0, 300.0)
    full.plane.apply(_prometheus_without_pods())
    with pytest.raises(Undecided, match="monitoring/prometheus:web does not answer"):
        find(full.client)
    _adopt(full)
    resize(full)
    write_statuses(full)
    _read_a_week(full)
    given = rights_given(helm.template(full.namespace, FULL, release="full"), full.account)
    used = rights_used(full.audit, full.namespace, full.account)
    # An apply that makes something is a patch to the audit, and asks for the right to create all the same.
    assert used | {("create", "autoscaling", "horizontalpodautoscalers")} == given


def _adopt(release: Release) -> None:
    """Write advice to workloads of every kind, make an HPA, and bring it up to date."""
    applier = KubernetesApplier(release.client, read_seconds_max=60.0)
    web = WorkloadRef("apps/v1", "Deployment", SHOP, "web")
    assert applier.annotate(web, {"example.com/advice": "1"}).result is ApplyResult.CHANGED
    for kind, plural in (("StatefulSet", "statefulsets"), ("ReplicaSet", "replicasets")):
        absent = WorkloadRef("apps/v1", kind, SHOP, "absent")
        assert applier.annotate(absent, {"example.com/advice": "1"}).result is ApplyResult.GONE
        with pytest.raises(testbed.ApiError, match="404"):
            release.api.patch(f"/apis/apps/v1/namespaces/{SHOP}/{plural}/absent", {})
    for most, result in ((3, ApplyResult.CREATED), (4, ApplyResult.CHANGED)):
        assert applier.apply_hpa(_hpa(most)).result is result


def _hpa(replicas_max: int) -> dict[str, Any]:
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": SHOP},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "maxReplicas": replicas_max,
        },
    }


def _read_a_week(release: Release) -> None:
    """Ask a Prometheus that is not there, by POST; Services of no other namespace may be asked."""
    for place, answer in ((MONITORING, r"404|503"), (release.namespace, r"404|503"), (ELSEWHERE, "403")):
        path = f"/api/v1/namespaces/{place}/services/prometheus:9090/proxy/api/v1/read"
        with pytest.raises(testbed.ApiError, match=answer):
            release.api.request("POST", path, {})
        with pytest.raises(testbed.ApiError, match=answer):
            release.api.get(path)


@pytest.mark.parametrize("name", ["running", "confined"])
def test_the_operator_itself_runs_under_the_charts_roles(
    releases: Callable[[str], Release],
    helm: Helm,
    start_prometheus: StartPrometheus,
    tmp_path: Path,
    name: str,
) -> None:
    """Everywhere or in the shop only: a status, a graceful end; and the API server refused it nothing."""
    running = releases(name)
    make_policy(running.plane, name)
    make_scaling_policy(running.plane, name)
    make_analytics(running.plane, name, adoptionType="Status")
    objects = helm.template(running.namespace, RELEASES[name], release=name)
    config = tmp_path / "config.yaml"
    config.write_text(next(o for o in objects if o["kind"] == "ConfigMap")["data"]["config.yaml"])
    address = f"127.0.0.1:{free_port()}"
    flags = {
        "config": config,
        "kubeconfig": running.plane.kubeconfig_for(name, {"token": running.token}),
        "http-address": address,
        "metrics-from": "prometheus",
        "prometheus-url": start_prometheus().url,
    }
    settings = {"journal.path": tmp_path / "journal.db", "intervals.rotation": "1s"}
    settings["intervals.recommendation"] = settings["intervals.proportional"] = "1s"
    program = [sys.executable, "-c", "from equipoise.cli.main import main; main()", "operator"]
    program += [f"--{name}={value}" for name, value in flags.items()]
    program += [f"--set={name}={value}" for name, value in settings.items()]
    log = tmp_path / "operator.log"
    with log.open("w") as said, subprocess.Popen(program, stdout=said, stderr=said) as process:
        try:
            wait_until(lambda: is_answering(f"http://{address}/readyz") or process.poll(), "readiness", 300)
            assert process.poll() is None, log.read_text()
            wait_until(lambda: "conditions" in _status(running, name), "the status of the policy", 120)
            wait_until(lambda: is_scaled(running, name), "the status of the scaling policy", 120)
            wait_until(lambda: _is_answered(running, name), "the answer to the Analytics", 120)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
        finally:
            process.kill()
    given = rights_given(objects, running.account)
    used = rights_used(running.audit, running.namespace, running.account)
    assert used <= given
    assert ("list", "equipoise.dev", "ledgers") in used
    assert rights_used(running.audit, running.namespace, running.account, "forbid") == set(), log.read_text()


def _is_answered(release: Release, name: str) -> bool:
    path = f"/apis/analysis.crane.io/v1alpha1/namespaces/{SHOP}/analytics/{name}"
    entries = release.plane.api.get(path).get("status", {}).get("recommendations", ())
    return ["name" in entry for entry in entries] == [True]


def _status(release: Release, policy: str) -> dict[str, Any]:
    return dict(release.plane.api.get(f"{POLICIES}/{policy}").get("status", {}))


def _prometheus_without_pods() -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "prometheus", "namespace": MONITORING},
        "spec": {"ports": [{"name": "web", "port": 9090}]},
    }


REFUSED = {
    "evict": ("POST", "/api/v1/namespaces/shop/pods/{pod}/eviction"),
    "delete a pod": ("DELETE", "/api/v1/namespaces/shop/pods/{pod}"),
    "get a pod's log": ("GET", "/api/v1/namespaces/shop/pods/{pod}/log"),
    "run in a pod": ("POST", "/api/v1/namespaces/shop/pods/{pod}/exec"),
    "read secrets": ("GET", "/api/v1/secrets"),
    "read its own namespace's secrets": ("GET", "/api/v1/namespaces/plain-system/secrets"),
    "read configuration": ("GET", "/api/v1/namespaces/shop/configmaps"),
    "look for services": ("GET", "/api/v1/services"),
    "ask a service": ("GET", "/api/v1/namespaces/shop/services/web:80/proxy/"),
    "patch a workload": ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web"),
    "scale a workload": ("PATCH", "/apis/apps/v1/namespaces/shop/deployments/web/scale"),
    "pause or resume an autoscaler": ("PATCH", "/apis/keda.sh/v1alpha1/namespaces/shop/scaledobjects/web"),
    "resize a pod": ("PATCH", "/api/v1/namespaces/shop/pods/{pod}/resize"),
    "patch a node": ("PATCH", "/api/v1/nodes/any"),
    "mark a namespace": ("PATCH", "/api/v1/namespaces/shop"),
    "change what a user asked": ("PATCH", f"{POLICIES}/any"),
    "ask by itself": ("POST", POLICIES),
    "forget a ledger": ("DELETE", "/apis/equipoise.dev/v1alpha1/namespaces/shop/ledgers/any"),
    "lead elsewhere": ("POST", "/apis/coordination.k8s.io/v1/namespaces/elsewhere/leases"),
    "read a lease elsewhere": ("GET", "/apis/coordination.k8s.io/v1/namespaces/shop/leases/plain-equipoise"),
    "take another's lease": ("PUT", "/apis/coordination.k8s.io/v1/namespaces/plain-system/leases/other"),
    "give rights": ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    "get a token": ("POST", "/api/v1/namespaces/shop/serviceaccounts/default/token"),
    "make an HPA": ("POST", "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"),
    "change an HPA": ("PATCH", "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers/web"),
    "ask for advice by itself": ("POST", "/apis/analysis.crane.io/v1alpha1/namespaces/shop/analytics"),
    "read other definitions": ("GET", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/any"),
    "change definitions": ("PATCH", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/any"),
}


@pytest.mark.parametrize(("method", "path"), REFUSED.values(), ids=REFUSED)
def test_what_it_must_not_do_is_refused(plain: Release, method: str, path: str) -> None:
    """By the API server, before it looks at what was sent."""
    patch = "application/merge-patch+json" if method == "PATCH" else "application/json"
    with pytest.raises(testbed.ApiError) as refused:
        plain.api.request(method, path.format(pod=plain.pod().name), {}, content_type=patch)
    assert refused.value.status == 403


def test_an_eviction_without_the_right_is_an_answer(plain: Release) -> None:
    """The adapter says that it was refused, and why; the pod stays."""
    answer = KubernetesActuator(plain.client).evict(plain.pod())
    assert answer.result is EvictionResult.FORBIDDEN
    assert "cannot create resource" in answer.detail
    assert plain.pod()


def test_an_operator_for_one_namespace_works_there(narrow: Release) -> None:
    """With its caches of that namespace only."""
    see(narrow, SHOP)
    say(narrow)
    remember(narrow, SHOP)
    scale(narrow, SHOP)
    lead(narrow)
    assert (
        KubernetesActuator(narrow.client).evict(narrow.pod(), is_dry_run=True).result
        is EvictionResult.ACCEPTED
    )


def test_an_operator_for_one_namespace_has_no_rights_elsewhere(narrow: Release) -> None:
    """Neither to look nor to act."""
    ledgers = "/apis/equipoise.dev/v1alpha1/namespaces/elsewhere/ledgers"
    scaled = "/apis/keda.sh/v1alpha1/namespaces/elsewhere/scaledobjects"
    pods = ("/api/v1/pods", "/api/v1/namespaces/elsewhere/pods")
    for path in (*pods, "/apis/apps/v1/deployments", ledgers, scaled):
        with pytest.raises(ApiError, match="403"):
            narrow.client.get(path)
    pod = "/api/v1/namespaces/elsewhere/pods/any/eviction"
    for path in (pod, ledgers, "/api/v1/namespaces/elsewhere/events"):
        with pytest.raises(testbed.ApiError, match="403"):
            narrow.api.create(path, {})


def test_usage_of_many_namespaces_is_a_right_of_the_cluster(helm: Helm) -> None:
    """Since the operator then asks for one list of all."""
    for count, kind in ((NAMESPACES_ONE_BY_ONE_MAX, "Role"), (NAMESPACES_ONE_BY_ONE_MAX + 1, "ClusterRole")):
        values = {"config": {"namespaces": [f"n{number}" for number in range(count)]}}
        roles = [
            role["kind"]
            for role in helm.template("balance", values)
            for rule in role.get("rules", ())
            if "metrics.k8s.io" in rule["apiGroups"]
        ]
        assert set(roles) == {kind}


@pytest.mark.parametrize(
    ("role", "verb", "resource", "is_allowed"),
    [
        ("view", "list", "rotationpolicies", True),
        ("view", "get", "ledgers", True),
        ("view", "create", "rotationpolicies", False),
        ("edit", "create", "rotationpolicies", True),
        ("edit", "delete", "rotationpolicies", True),
        ("edit", "update", "ledgers", False),
        ("admin", "patch", "rotationpolicies", True),
    ],
)
def test_people_have_the_rights_of_their_namespace(
    plain: Release, role: str, verb: str, resource: str, is_allowed: bool
) -> None:
    """Whoever may view or edit a namespace may view or edit its policies; memory is the operator's alone."""
    person, api = f"person-{role}", plain.plane.api
    group = "rbac.authorization.k8s.io"
    plain.plane.apply(
        {
            "apiVersion": f"{group}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": person, "namespace": SHOP},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": group, "kind": "User", "name": person}],
        }
    )

    def may(verb: str, resource: str) -> bool:
        what = {"namespace": SHOP, "group": "equipoise.dev", "verb": verb, "resource": resource}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": person, "resourceAttributes": what},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(api.create(path, review)["status"]["allowed"])

    wait_until(lambda: may("get", "rotationpolicies"), "the roles joined", 60)
    if is_allowed:  # each of the roles is joined by itself
        wait_until(lambda: may(verb, resource), f"the right to {verb} {resource}", 60)
    assert may(verb, resource) is is_allowed

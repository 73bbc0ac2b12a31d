"""What an API server tells: lists, watches and single objects of every kind that is read."""

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, cast

from equipoise.adapters.kubernetes import Client, KubernetesActuator, KubernetesCluster
from equipoise.adapters.kubernetes.actions import NodeMarks, Taint, remove_daemon_set
from equipoise.adapters.kubernetes.apply import KubernetesApplier
from equipoise.adapters.kubernetes.cache import Warnings
from equipoise.adapters.kubernetes.cluster import HpaSpecs
from equipoise.adapters.kubernetes.keda_vpa import RecentVpas, ScaledObjects
from equipoise.adapters.kubernetes.kinds import HPAS, NODES, PDBS, PODS, WORKLOADS, ResourceKind, list_kind
from equipoise.adapters.kubernetes.lease import LeaseRecords, next_epoch
from equipoise.adapters.kubernetes.node import NODE, PODS_OF_NODE
from equipoise.adapters.kubernetes.objects import Discovery, Objects, write_status
from equipoise.adapters.kubernetes.pauses import NAMESPACES, DirectPauses, pause
from equipoise.adapters.kubernetes.policies import KubernetesAnalyses, custom_resources, look_at
from equipoise.adapters.kubernetes.reflector import Reflector, _ListAnew
from equipoise.adapters.kubernetes.sizes import KubernetesSizes
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.adapters.metrics_server import ROOT, ResourceMetrics
from equipoise.adapters.prometheus.discover import find
from equipoise.cli.checks import _groups, _ledger, _other_deployments
from equipoise.cli.manifests import KINDS, install
from equipoise.core.cluster import PodRef, WorkloadRef
from equipoise.core.errors import DECODE_ERRORS, EquipoiseError
from equipoise.ports import StoreConflict
from tests.support.fuzz.answers import Answering, always, beside, expect, page
from tests.support.fuzz.machine import Input, NeighbourLost, Reader
from tests.support.fuzz.objects import ABOUT, LEDGERED, NEIGHBOUR, SOUND, named

Look = Callable[[Client], Collection[object]]


def _listed(name: str, sound: bytes, look: Look) -> Reader:
    """Make a reader of a list: whole pages are damaged byte by byte, objects as a server could store them."""
    healthy = named(sound)

    def read(given: Input) -> None:
        try:
            found = look(Answering(always(beside(given, healthy))))
        except EquipoiseError as error:
            if given.is_stored:
                raise NeighbourLost(f"{name}: {error}") from error
            raise
        expect(given, found, name)

    return Reader(name, (page(sound, healthy),), read, (sound,))


def _of_kind(kind: ResourceKind[Any]) -> Reader:
    def look(client: Client) -> Collection[object]:
        return [kind.key(record) for record in list_kind(client, kind).records]

    return _listed(f"list of {kind.plural}{_of_node(kind)}", SOUND[kind.name], look)


def _of_node(kind: ResourceKind[Any]) -> str:
    return " (agent)" if kind in (NODE, PODS_OF_NODE) else ""


def _watched(kind: ResourceKind[Any]) -> Reader:
    """Make a reader of watch events: one that is damaged, then one of a healthy object."""
    sound = SOUND[kind.name]
    healthy = b'{"type":"ADDED","object":%s}\n' % named(sound)
    event = b'{"type":"MODIFIED","object":%s}\n'

    def read(given: Input) -> None:
        line = event % given.data if given.is_stored else given.data + b"\n"
        client = Answering(lambda _, target: line + healthy if "watch=1" in target else page(sound))
        reflector = Reflector(client, kind)
        reflector.step()
        error = reflector.last_error
        if error is not None and not isinstance(error, (EquipoiseError, _ListAnew, *DECODE_ERRORS)):
            raise error
        found = (
            [kind.key(record) for record in reflector.cache.records()] if reflector.synced.is_set() else []
        )
        expect(given, found, f"watch of {kind.plural} ({error})")
        if error is not None:
            raise EquipoiseError(" ".join(str(error).split())[:300] or type(error).__name__)

    name = f"watch of {kind.plural}{_of_node(kind)}"
    return Reader(name, (event.strip() % sound,), read, (sound,))


def _policy_kind(name: str) -> ResourceKind[Any]:
    kind = next(one for one in KINDS if one.name == name)
    return custom_resources(kind.group, kind.version, kind.name, kind.plural)


def _one(name: str, sound: bytes | tuple[bytes, ...], use: Callable[[Client], object]) -> Reader:
    """Make a reader of a single object: the answer to every request."""
    sounds = sound if isinstance(sound, tuple) else (sound,)

    def read(given: Input) -> None:
        use(Answering(always(given.data)))

    return Reader(name, (), read, sounds, refuses=name == "Namespace, paused")


WEB = WorkloadRef("apps/v1", "Deployment", "shop", "web")
POD = PodRef("shop", "web-1", "u")
RESOURCES = json.dumps(
    {
        "kind": "APIResourceList",
        "resources": [
            {"name": "deployments", "kind": "Deployment", "namespaced": True, "verbs": ["get"]},
            {"name": "deployments/scale", "kind": "Scale", "namespaced": True},
            {"name": "pods/resize", "kind": "Pod", "namespaced": True},
            {"name": "ledgers", "kind": "Ledger", "namespaced": True},
        ],
        "metadata": {"name": "x"},
    }
).encode()


def _ledger_stores(client: Client) -> Collection[object]:
    return [str(ref) for ref in LedgerStore(client).read_all()]


def _ledger_kept(client: Client) -> None:
    store, key = LedgerStore(client), LEDGERED
    stored = store.read(key)
    with suppress(StoreConflict):
        store.write(key, {"entries": []}, stored.version)


def _lease(client: Client) -> None:
    records = LeaseRecords(client, "shop", "web")
    seen = records.read(None)
    assert seen is not None, "it is there"
    records.write(seen.acquired_by("me", next_epoch(seen, 1e9, records.place), 15, 1e9))


def _analyses(client: Client) -> None:
    inner = cast("Answering", client)._canned._answer
    definition = SOUND["Definition"].replace(b'"name": "v1"', b'"name": "v1alpha1"')
    client = Answering(lambda method, target: definition if "customres" in target else inner(method, target))
    made = KubernetesAnalyses(client, lambda _: None)
    with suppress(StoreConflict):
        made.create({"metadata": {"namespace": "shop"}})


def _scaled(client: Client) -> Collection[object]:
    return [str(ref) for ref in ScaledObjects(client, Discovery(client)).pauses(None, Warnings()) or {}]


def _hpa_applied(given: Input) -> None:
    """An HPA that is to be changed, beside another of the namespace."""
    sound = SOUND["HorizontalPodAutoscaler"]

    def answer(method: str, target: str) -> bytes:
        if target.startswith("/apis/autoscaling/v2?") or target.endswith("/autoscaling/v2"):
            hpas = {"name": "horizontalpodautoscalers", "kind": "HorizontalPodAutoscaler", "namespaced": True}
            return json.dumps({"resources": [hpas]}).encode()
        if target.endswith("/horizontalpodautoscalers/web") and method == "GET":
            return given.data
        return page() if "limit=" in target else sound

    manifest = json.loads(sound) | {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler"}
    manifest["metadata"] = {"name": "web", "namespace": "shop"}
    KubernetesApplier(Answering(answer)).apply_hpa(manifest)


def _refused(given: Input) -> None:
    """What an API server says with an error status, to an eviction."""
    client = Answering(lambda *_: (429, given.data))
    KubernetesActuator(client).evict(POD)
    client = Answering(lambda *_: (409, given.data))
    KubernetesActuator(client).evict(POD)


def _metrics(client: Client) -> Collection[object]:
    found = ResourceMetrics(client).cpu_usage({"shop": ["web"], "other": [NEIGHBOUR]}, 0.0, 60.0)
    return found.pods


def _marks(client: Client) -> None:
    marks = NodeMarks(client)
    marks.add_taint("n1", Taint("a"))
    marks.remove_taint("n1", "a")
    marks.set_condition("n1", "Ready", "True", "r", "m")


def _discovered(given: Input) -> None:
    """Prometheus objects and Services of the namespaces that are named; what they lead to does not answer."""

    def answer(_: str, target: str) -> bytes | tuple[int, bytes]:
        if "/proxy/" in target:
            return 404, STATUS
        is_of_services = "/services" in target
        return page(given.data) if is_of_services == (b'"ports"' in given.data) else page()

    find(cast("Any", Answering(answer)), ["monitoring"])


SINGLE: Mapping[str, tuple[bytes | tuple[bytes, ...], Callable[[Client], object]]] = {
    "Lease": (SOUND["Lease"], _lease),
    "Ledger, read and written": (SOUND["Ledger"], _ledger_kept),
    "Deployment": (SOUND["Deployment"], lambda client: KubernetesCluster(client).workload(WEB)),
    "scale of any workload": (
        SOUND["Scale"],
        lambda client: KubernetesCluster(_scalable(client)).workload(
            WEB._replace(api_version="x.io/v1", kind="Own")
        ),
    ),
    "CustomResourceDefinition": (SOUND["Definition"], lambda client: look_at(client, "a.io", "v1", "webs")),
    "CustomResourceDefinition of ours": (
        SOUND["Definition"],
        lambda client: list(install(client, KINDS[:1], is_dry_run=True)),
    ),
    "kinds that are served": (
        RESOURCES,
        lambda client: (KubernetesSizes(client, KubernetesCluster(client)).offers_resize(), _served(client)),
    ),
    "DaemonSet, removed": (
        b'{"kind":"Status","status":"Success","metadata":{"name":"x"}}',
        lambda client: remove_daemon_set(client, "shop", "web"),
    ),
    "workload to be annotated": (
        SOUND["Deployment"],
        lambda client: KubernetesApplier(_deployments(client)).annotate(WEB, {"equipoise.dev/x": "1"}),
    ),
    "Deployments of others": (page(SOUND["Deployment"]), _other_deployments),
    "API groups and versions": (
        b'{"kind":"APIGroupList","groups":[{"name":"apps"}],"gitVersion":"v1.35.8","metadata":{"name":"x"}}',
        lambda client: (client.server_version(), _groups(client)),
    ),
    "access review": (
        b'{"kind":"SelfSubjectAccessReview","metadata":{"name":"x"},"status":{"allowed":true,"reason":"r"}}',
        lambda client: client.can_i("list", "", "pods"),
    ),
    "Node to be marked": (SOUND["Node"], _marks),
    "Namespace, asked for pauses": (SOUND["Namespace"], lambda client: DirectPauses(client).pause_of("shop")),
    "Namespace, paused": (SOUND["Namespace"], lambda client: pause(client, "shop", "me")),
    "fields of managers": (
        SOUND["Managed"],
        lambda client: KubernetesSizes(client, KubernetesCluster(client)).setter_of(
            ABOUT, "app", "requests", "cpu"
        ),
    ),
    "Recommendation, created": (SOUND["Recommendation"], _analyses),
    "status, written": (
        SOUND["RotationPolicy"],
        lambda client: write_status(client, "/apis/x.io/v1/namespaces/shop/webs/web", {"a": 1}, "7"),
    ),
    "object of any kind, read": (
        SOUND["Any"],
        lambda client: Objects(_serving(client)).read(ABOUT),
    ),
}


def _served(client: Client) -> list[object]:
    """Look whether Ledgers are served; all rights are given."""
    inner = cast("Answering", client)._canned._answer
    given = b'{"status":{"allowed":true}}'
    answering = Answering(lambda method, target: given if method == "POST" else inner(method, target))
    return list(_ledger(answering, None))


def _deployments(client: Client) -> Client:
    """Answer that Deployments are served and may be patched, and all else from the session."""
    inner = cast("Answering", client)._canned._answer
    given = b'{"status":{"allowed":true}}'
    return Answering(
        lambda method, target: (
            RESOURCES if target == "/apis/apps/v1" else given if method == "POST" else inner(method, target)
        )
    )


def _scalable(client: Client) -> Client:
    """Answer that an own kind has a scale, and all else from the session."""
    inner = cast("Answering", client)._canned._answer
    kinds = [{"name": "owns", "kind": "Own", "namespaced": True}, {"name": "owns/scale", "kind": "Scale"}]
    listed = json.dumps({"resources": kinds}).encode()
    return Answering(lambda method, target: listed if target == "/apis/x.io/v1" else inner(method, target))


def _serving(client: Client) -> Client:
    """Answer which kinds there are, and all else from the session."""
    inner = cast("Answering", client)._canned._answer
    listed = json.dumps({"resources": [{"name": "pods", "kind": "Pod", "namespaced": True}]}).encode()
    return Answering(lambda method, target: listed if target == "/api/v1" else inner(method, target))


PLAIN = (PODS, NODES, *WORKLOADS.values(), HPAS, PDBS, NAMESPACES, PODS_OF_NODE, NODE)
OURS = [
    *(_policy_kind(kind.name) for kind in KINDS if kind.name != "Ledger"),
]


def _scalers(name: str, sound: bytes, look: Look) -> Reader:
    return _listed(f"list of {name}", sound, look)


def readers() -> list[Reader]:
    """Return the readers of what an API server tells."""
    kinds: list[Any] = [*PLAIN, *OURS]
    return [
        *(_of_kind(kind) for kind in kinds),
        *(_watched(kind) for kind in kinds),
        _scalers("ScaledObjects", SOUND["ScaledObject"], _scaled),
        _scalers(
            "VerticalPodAutoscalers",
            SOUND["VerticalPodAutoscaler"],
            lambda client: RecentVpas(client).targets(),
        ),
        _scalers("HorizontalPodAutoscalers word for word", SOUND["HorizontalPodAutoscaler"], _hpa_specs),
        _scalers("Ledgers", SOUND["Ledger"], _ledger_stores),
        _scalers(f"pod metrics ({ROOT.split('/')[2]})", SOUND["Metrics"], _metrics),
        *(_one(name, *one) for name, one in SINGLE.items()),
        Reader("HPA before it is applied", (), _hpa_applied, (SOUND["HorizontalPodAutoscaler"],)),
        Reader("refusals of an API server", (), _refused, (STATUS,), refuses=True),
        Reader(
            "Services and Prometheus objects",
            (),
            _discovered,
            (SOUND["Service"], SOUND["Prometheus"]),
            refuses=True,
        ),
    ]


def _hpa_specs(client: Client) -> Collection[object]:
    return [one.target.name for one in HpaSpecs(client).specs()]


STATUS = json.dumps(
    {
        "kind": "Status",
        "metadata": {"name": "x"},
        "status": "Failure",
        "message": "conflict",
        "reason": "Conflict",
        "code": 409,
        "details": {
            "retryAfterSeconds": 1,
            "causes": [{"reason": "FieldManagerConflict", "message": "m", "field": "f"}],
        },
    }
).encode()

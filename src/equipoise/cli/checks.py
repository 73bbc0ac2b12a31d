"""The checks of `equipoise doctor`: each is one line, with the remedy if something is missing."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from equipoise.adapters.kubernetes import ApiError, Client, KubernetesCluster
from equipoise.adapters.kubernetes.kinds import ListPage
from equipoise.adapters.kubernetes.structs import RawObject
from equipoise.cli.session import ClusterRequest
from equipoise.core.errors import WorldFailed
from equipoise.ports import CpuUsage, Metrics
from equipoise.rotation.observe import SAMPLE_AGE_MAX_SECONDS
from equipoise.runtime import metrics_source

REMEDIES = {
    "metrics-server": 'Grant it: apiGroups: ["metrics.k8s.io"], resources: ["pods"], verbs: ["list"].',
    "prometheus": "Give --prometheus-url, or the rights to list services and to get services/proxy.",
}
"""The remedy when a check fails with an error."""
PART_REMEDY = (
    "Start the store that it misses (Thanos lists its stores, and what is wrong with each); "
    "until then no advice is given and nothing is rotated."
)
"""The remedy when Prometheus answers with partial data."""
SKEW_OK_SECONDS = 5.0
SKEW_MAX_SECONDS = 60.0
WINDOW_SECONDS = 300.0

READS = [
    ("list", "", "pods", ""),
    ("list", "apps", "deployments", ""),
    ("list", "apps", "statefulsets", ""),
    ("list", "apps", "replicasets", ""),
    ("get", "apps", "deployments", "scale"),
    ("list", "autoscaling", "horizontalpodautoscalers", ""),
    ("list", "policy", "poddisruptionbudgets", ""),
]
"""The permissions of `plan`: verb, group, resource, subresource."""
EVICT = ("create", "", "pods", "eviction")
LEDGERS = [(verb, "equipoise.dev", "ledgers", "") for verb in ("get", "list", "create", "update")]
"""The permissions of `apply` to write its ledgers."""
NOT_FOUND = 404
NOBODY_YET = "Ask again when one has been ready for two minutes."
GROUPS_OF_OURS = {
    "equipoise.dev": "RotationPolicy",
    "analysis.crane.io": "Analytics",
    "scalingpolicy.kope.io": "ScalingPolicy",
    "ensurance.crane.io": "NodeQOSEnsurancePolicy",
}
"""A kind of each API group that the operator reads; the last three groups may belong to other projects."""
OTHER_CONTROLLERS = {
    "keda.sh": "KEDA",
    "karpenter.sh": "Karpenter",
    "autoscaling.k8s.io": "Vertical Pod Autoscaler",
    "argoproj.io": "Argo",
}
OTHER_SCALERS = "descheduler,craned,crane-agent,koord-descheduler,cluster-autoscaler,goldilocks-controller"


class _NamedEntry(msgspec.Struct):
    name: str


class _Served(msgspec.Struct):
    groups: list[_NamedEntry] | None = None
    resources: list[_NamedEntry] | None = None


Status = Literal["ok", "warn", "fail"]


class Check(msgspec.Struct, frozen=True):
    """One line: what was found, and what to do about it."""

    name: str
    status: Status
    sentence: str
    remedy: str = ""


class CheckReport(msgspec.Struct, frozen=True):
    """What the doctor prints."""

    checks: list[Check]


def examine(request: ClusterRequest, redis: str | None = None) -> list[Check]:
    """Return the results of all checks; raises only if the cluster cannot be reached."""
    if redis is not None:
        from equipoise.adapters.redis.connect import address_of

        address_of(redis)  # rejects an invalid URL before any request
    client, namespace = request.client(), request.namespace
    version = client.server_version()
    checks = [Check("cluster", "ok", f"Kubernetes {version} at {client.address}.")]
    checks.append(_clock("clock", client.clock_ahead_seconds, "the API server"))
    parts: list[tuple[str, Callable[[], Iterable[Check]]]] = [
        ("rights", lambda: _rights(client, namespace)),
        ("kinds", lambda: _kinds(client)),
        ("ledger", lambda: _ledger(client, namespace)),
        ("controllers", lambda: _controllers(client)),
        ("metrics-server", lambda: _metrics_server(client, namespace)),
        ("prometheus", lambda: _prometheus(request.prometheus, client, namespace)),
        ("redis", lambda: _redis(redis)),
    ]
    for name, part in parts:
        try:
            checks += part()
        except WorldFailed as error:
            checks.append(Check(name, "fail", f"{error}.", REMEDIES.get(name, "Mend that first.")))
    return _with_source(checks)


def _with_source(checks: list[Check]) -> list[Check]:
    """Add a failure if no source of usage works; if one does, failures of the others become warnings."""
    sources = [check for check in checks if check.name in {"metrics-server", "prometheus"}]
    if any(check.remedy == NOBODY_YET for check in sources):
        return checks  # no pod could be measured, which proves nothing about the source
    if any(check.status == "ok" for check in sources):
        forgiven = [check for check in sources if check.status == "fail"]
        return [replace(check, status="warn") if check in forgiven else check for check in checks]
    sentence = "No source gives fresh CPU usage, so no pod can be judged."
    remedy = "Install Prometheus or metrics-server, or give --prometheus-url."
    return [*checks, Check("usage", "fail", sentence, remedy)]


def _clock(name: str, ahead_seconds: float | None, owner: str) -> Check:
    if ahead_seconds is None:
        return Check(name, "warn", f"The clock of {owner} could not be read.")
    if abs(ahead_seconds) <= SKEW_OK_SECONDS:
        agrees = f"The clock of {owner} agrees with this machine's to {SKEW_OK_SECONDS:.0f} s."
        return Check(name, "ok", agrees)
    status: Status = "warn" if abs(ahead_seconds) <= SKEW_MAX_SECONDS else "fail"
    way = "ahead" if ahead_seconds > 0 else "behind"
    sentence = f"The clock of {owner} is {abs(ahead_seconds):.0f} s {way}."
    return Check(name, status, sentence, "Run NTP on both; ages and freshness are judged by our clock.")


def _where(namespace: str | None) -> str:
    return f"in namespace {namespace}" if namespace else "in every namespace"


def _rights(client: Client, namespace: str | None) -> Iterator[Check]:
    where = _where(namespace)
    missing = [right for right in READS if not client.can_i(*right[:3], namespace, right[3])]
    if not missing:
        yield Check("rights", "ok", f"All {len(READS)} rights that a plan needs are there, {where}.")
    for right in missing:
        yield Check("rights", "fail", f"May not {_spoken(right)} {where}.", f"Grant it: {_rule(right)}.")
    if client.can_i(*EVICT[:3], namespace, EVICT[3]):
        yield Check("eviction", "ok", f"May evict pods {where}.")
    else:
        sentence = f"May not evict pods {where}; a plan does not need it."
        yield Check("eviction", "warn", sentence, f"To act: {_rule(EVICT)}.")


def _spoken(right: tuple[str, str, str, str]) -> str:
    verb, group, resource, subresource = right
    return f"{verb} {resource}{'/' + subresource if subresource else ''}{'.' + group if group else ''}"


def _rule(right: tuple[str, str, str, str]) -> str:
    verb, group, resource, subresource = right
    name = f"{resource}/{subresource}" if subresource else resource
    return f'apiGroups: ["{group}"], resources: ["{name}"], verbs: ["{verb}"]'


def _groups(client: Client) -> set[str]:
    return {group.name for group in client.get_as(_Served, "/apis").groups or ()}


def _kinds(client: Client) -> Iterator[Check]:
    found = sorted(_groups(client) & set(GROUPS_OF_OURS))
    names = ", ".join(f"{GROUPS_OF_OURS[group]} ({group})" for group in found)
    none = "No custom resource of Equipoise is installed, and a plan needs none."
    yield Check("kinds", "ok", f"Installed: {names}." if found else none)


def _ledger(client: Client, namespace: str | None) -> Iterator[Check]:
    """Yield whether `apply` can write its ledgers; without them, it holds everything."""
    try:
        served = client.get_as(_Served, "/apis/equipoise.dev/v1alpha1").resources
        is_served = any(each.name == "ledgers" for each in served or ())
    except ApiError as error:
        if error.status != NOT_FOUND:
            raise
        is_served = False
    where = _where(namespace)
    missing = [right for right in LEDGERS if not client.can_i(*right[:3], namespace)]
    if not is_served:
        sentence = "The kind Ledger is not installed, so `apply` holds everything; a plan does not need it."
        yield Check("ledger", "warn", sentence, "To act: equipoise crds apply.")
    elif missing:
        verbs = ", ".join(f'"{right[0]}"' for right in missing)
        sentence = f"May not {', '.join(right[0] for right in missing)} ledgers.equipoise.dev {where}"
        rule = f'apiGroups: ["equipoise.dev"], resources: ["ledgers"], verbs: [{verbs}]'
        yield Check("ledger", "warn", f"{sentence}; a plan does not need it.", f"To act: {rule}.")
    else:
        yield Check("ledger", "ok", f"What is done can be remembered {where}.")


def _controllers(client: Client) -> Iterator[Check]:
    others = [OTHER_CONTROLLERS[group] for group in sorted(_groups(client) & set(OTHER_CONTROLLERS))]
    if client.can_i("list", "apps", "deployments"):
        others += _other_deployments(client)
    if others:
        sentence = f"Also moves or scales pods here: {', '.join(others)}."
        yield Check("controllers", "warn", sentence, "Exclude from it what Equipoise is to look after.")
    else:
        yield Check("controllers", "ok", "Nothing else that we know moves or resizes pods here.")


def _other_deployments(client: Client) -> list[str]:
    found: set[str] = set()
    for label in ("app.kubernetes.io/name", "app", "k8s-app"):
        params: dict[str, str | int] = {"labelSelector": f"{label} in ({OTHER_SCALERS})", "limit": 50}
        page = client.get_as(ListPage[RawObject], "/apis/apps/v1/deployments", params)
        found |= {f"{one.metadata.namespace}/{one.metadata.name}" for one in page.items or ()}
    return sorted(found)


def _metrics_server(client: Client, namespace: str | None) -> Iterator[Check]:
    if "metrics.k8s.io" not in _groups(client):
        sentence = "metrics.k8s.io is not served; an HPA on CPU needs it too."
        yield Check(
            "metrics-server", "warn", sentence, "Install metrics-server, unless Prometheus is enough."
        )
        return
    yield _freshness("metrics-server", metrics_source.resource_metrics(client), client, namespace)


def _prometheus(
    options: metrics_source.PrometheusOptions, client: Client, namespace: str | None
) -> Iterator[Check]:
    from equipoise.adapters.prometheus.discover import NAMESPACES, look_elsewhere
    from equipoise.adapters.prometheus.errors import Ambiguous, NotFound, QueryFailed, Unavailable, Undecided

    try:
        found = metrics_source.find_prometheus(client, options) if options.url is None else None
    except (NotFound, Ambiguous, Undecided) as error:
        is_none = isinstance(error, NotFound)
        words = "Name its namespace or its address, unless metrics-server is enough."
        remedy = words if is_none else REMEDIES["prometheus"]
        sentence = f"{str(error)[:1].upper()}{str(error)[1:]}."
        yield Check("prometheus", "warn" if is_none else "fail", sentence, remedy)
        return
    if found is not None:
        elsewhere = look_elsewhere(client, options.namespaces or NAMESPACES)
        parts = [f"{found.candidate} is used: {found.how}", *found.others, str(elsewhere)]
        yield Check("prometheus-choice", "ok", f"{'; '.join(parts)}.")
    metrics = metrics_source.prometheus_metrics(client, options, found)
    build = metrics.client.build_info()
    yield Check("prometheus-server", "ok", f"{build.flavour} {build.version} at {metrics.client.address}.")
    yield _clock("prometheus-clock", metrics.server_time() - time.time(), "Prometheus")
    whom = "it" if build.flavour == "unknown" else build.flavour
    behind = "" if whom == "Prometheus" else f"See whether every store behind {whom} is up. "
    try:
        yield _freshness("prometheus", metrics, client, namespace, behind)
    except (QueryFailed, Unavailable) as error:
        yield Check("prometheus", "fail", f"{error}.", PART_REMEDY)


def _redis(url: str | None) -> Iterator[Check]:
    """Yield whether the pools' Redis may evict keys; nothing without a URL."""
    if url is None:
        return
    from equipoise.adapters.redis.connect import address_of, connect, eviction_of

    address = address_of(url)
    with connect(url, "{doctor}") as client:  # on a Redis Cluster a prefix needs a hash tag
        eviction = eviction_of(client, address)
    if eviction:
        remedy = "Until then, `pools serve` and the operator need --accept-eviction and pools.acceptEviction."
        yield Check("redis", "warn", f"{eviction}.", remedy)
    else:
        yield Check("redis", "ok", f"Redis at {address} keeps all keys until they expire.")


def _freshness(name: str, metrics: Metrics, client: Client, namespace: str | None, before: str = "") -> Check:
    """Return the share of running pods with a fresh sample.

    `before` is put before the remedy for missing samples.
    """
    pods_found = KubernetesCluster(client).pods(namespace)
    running = [pod for pod in pods_found if pod.phase == "Running" and pod.is_ready]
    # A younger pod has no rate of its CPU usage yet.
    pods = [pod for pod in running if time.time() - pod.created_at > SAMPLE_AGE_MAX_SECONDS]
    young = len(running) - len(pods)
    if not pods:
        few = "1 pod runs" if young == 1 else f"{young} pods run"
        sentence = f"{few}, for less than two minutes: too young to be measured." if young else ""
        return Check(name, "warn", sentence or "There is no running pod to look for.", NOBODY_YET)
    by_namespace: dict[str, list[str]] = {}
    for pod in pods:
        by_namespace.setdefault(pod.namespace, []).append(pod.name)
    now = time.time()
    usage = metrics.cpu_usage(by_namespace, now, WINDOW_SECONDS)
    if usage.partial:
        return Check(name, "fail", f"It answers in part: {usage.partial[0].rstrip('.')}.", PART_REMEDY)
    expected = {(pod.namespace, pod.name) for pod in pods}
    rows = zip(usage.namespaces, usage.pods, usage.sampled_at.tolist(), strict=True)
    sampled = {(place, pod): at for place, pod, at in rows if (place, pod) in expected}
    fresh = sum(at >= now - SAMPLE_AGE_MAX_SECONDS for at in sampled.values())
    oldest, are = max((now - at for at in sampled.values()), default=0.0), "is" if young == 1 else "are"
    sentence = (
        f"{fresh} of {len(pods)} running pods have a fresh CPU sample (the oldest is {oldest:.0f} s old)"
        f"{f'; {young} more {are} too young' if young else ''}."
    )
    if fresh < 0.9 * len(pods):
        remedy = "Scrape every kubelet (cAdvisor or /metrics/resource) at least once a minute."
        return Check(name, "warn", sentence, f"{before}{remedy}")
    partial = _partial(usage, {(pod.namespace, pod.name): pod.created_at for pod in pods}, now)
    if partial > 0.1 * len(pods):
        gap = f"{partial} of {len(pods)} have no samples over the whole window of {WINDOW_SECONDS:g} s"
        remedy = "Wait until Prometheus has run and scraped for that long; then look for scrapes that fail."
        return Check(name, "warn", f"{sentence[:-1]}, but {gap}.", remedy)
    return Check(name, "ok", sentence)


def _partial(usage: CpuUsage, created: Mapping[tuple[str, str], float], now: float) -> int:
    """Return the number of pods that are older than the window but were measured for only a part of it."""
    if usage.is_covered is None:
        return 0
    rows = zip(usage.namespaces, usage.pods, usage.is_covered.tolist(), strict=True)
    in_part = {(place, pod) for place, pod, is_covered in rows if not is_covered}
    return len(in_part & {key for key, at in created.items() if at <= now - WINDOW_SECONDS})

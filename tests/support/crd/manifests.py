"""Manifests that must pass, and manifests that must not, with who is able to tell."""

from typing import Any, NamedTuple

TARGET = {"targetRef": {"kind": "Deployment", "name": "web"}}
WINDOW = {"schedule": "0 2 * * 1-5", "duration": "2h", "timeZone": "Europe/Berlin"}
AT = "2026-01-31T08:00:00Z"
ENTRY = {
    "id": "e1",
    "balancer": "rotation",
    "action": "EvictPod",
    "pod": "web-1",
    "at": AT,
    "state": "Intent",
}
WORKLOAD = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


class Bad(NamedTuple):
    """A manifest with one mistake."""

    name: str
    document: dict[str, Any]
    path: str
    """Where we see the mistake."""
    is_seen_by_server: bool = True


def policy(spec: Any, *, name: str = "web", **others: Any) -> dict[str, Any]:
    return {
        "apiVersion": "equipoise.dev/v1alpha1",
        "kind": "RotationPolicy",
        "metadata": {"name": name},
        "spec": spec,
        **others,
    }


def ledger(data: Any, *, name: str = "deployment-web") -> dict[str, Any]:
    return {
        "apiVersion": "equipoise.dev/v1alpha1",
        "kind": "Ledger",
        "metadata": {"name": name},
        "data": data,
    }


def _spec(name: str, path: str, *, is_seen_by_server: bool = True, **spec: Any) -> Bad:
    return Bad(name, policy(TARGET | spec), f"spec{path}", is_seen_by_server)


def _select(name: str, path: str, selector: Any, *, is_seen_by_server: bool = True) -> Bad:
    return Bad(name, policy({"selector": selector}), f"spec.selector{path}", is_seen_by_server)


def _window(name: str, path: str, *, is_seen_by_server: bool = True, **window: Any) -> Bad:
    return _spec(name, f".windows[0]{path}", windows=[WINDOW | window], is_seen_by_server=is_seen_by_server)


GOOD: dict[str, dict[str, Any]] = {
    "least": policy(TARGET),
    "by labels": policy({"selector": {"matchLabels": {"tier": "web"}}}),
    "all of the namespace": policy({"selector": {}}),
    "expressions": policy(
        {
            "selector": {
                "matchExpressions": [
                    {"key": "example.com/tier", "operator": "In", "values": ["web", "api"]},
                    {"key": "canary", "operator": "DoesNotExist"},
                ]
            }
        }
    ),
    "everything": policy(
        {
            "targetRef": {"apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout", "name": "web.v2"},
            "mode": "Enforce",
            "topK": 3,
            "toleranceMultiplier": 1.25,
            "minimumImprovementPercent": 0,
            "minReplicas": 1,
            "metricsWindow": "1h30m",
            "minPodAge": 600,
            "hpaPrefix": "keda-hpa",
            "hpaMetricName": "cpu",
            "kafkaLag": {"enabled": True, "threshold": 500.5, "query": "sum(kafka_consumergroup_lag)"},
            "maxUnavailable": 2,
            "cooldown": "1d",
            "rotationsPerHour": 1,
            "windows": [WINDOW, {"schedule": "*/30 8-18 * JAN,FEB mon", "duration": 600}],
            "debounceCycles": 1,
            "includeStatefulSets": True,
            "includeLocalStorage": True,
        }
    ),
    "nulls, which count as absent": policy(
        TARGET | {"topK": None, "minPodAge": None, "selector": None, "kafkaLag": {"query": None}}
    ),
    "a query of 4096 letters, not bytes": policy(TARGET | {"kafkaLag": {"query": "ä" * 4096}}),
    "a ledger": ledger({"workload": WORKLOAD}),
    "a busy ledger": ledger(
        {
            "workload": WORKLOAD,
            "epoch": 7,
            "entries": [ENTRY | {"id": f"e{number}"} for number in range(200)],
            "entriesTotal": 5000,
            "memory": {"rotation": {"cycles": [1, 2, {"any": "thing"}]}},
        }
    ),
}

BAD: list[Bad] = [
    Bad("no target", policy({"mode": "Preview"}), "spec"),
    Bad("two targets", policy(TARGET | {"selector": {"matchLabels": {"a": "b"}}}), "spec"),
    Bad("no spec", {k: v for k, v in policy({}).items() if k != "spec"}, "spec"),
    Bad("spec is a list", policy([]), "spec"),
    Bad("unknown part", policy(TARGET, settings={}), "settings"),
    Bad("name in capitals", policy(TARGET, name="Web"), "metadata.name"),
    _spec("unknown key", ".topk", topk=3),
    _spec("snake case", ".top_k", top_k=3),
    _spec("unknown key of the target", ".targetRef.names", targetRef=TARGET["targetRef"] | {"names": "web"}),
    _spec("target without a name", ".targetRef.name", targetRef={"kind": "Deployment"}),
    _spec("target name in capitals", ".targetRef.name", targetRef={"kind": "Deployment", "name": "Web"}),
    _spec("target kind in small letters", ".targetRef.kind", targetRef={"kind": "deployment", "name": "web"}),
    _spec(
        "target version is a range",
        ".targetRef.apiVersion",
        targetRef={"apiVersion": "apps/*", "kind": "Deployment", "name": "web"},
    ),
    _spec("mode Force", ".mode", mode="Force"),
    _spec("mode in small letters", ".mode", mode="enforce"),
    _spec("text for a number", ".topK", topK="2"),
    _spec("K of 0", ".topK", topK=0),
    _spec("K of 1.5", ".topK", topK=1.5),
    _spec("K of true", ".topK", topK=True),
    _spec("K beyond all bounds", ".topK", topK=10**12),
    _spec("tolerance of 0", ".toleranceMultiplier", toleranceMultiplier=0),
    _spec("tolerance below 0", ".toleranceMultiplier", toleranceMultiplier=-1.5),
    _spec("improvement of 101 %", ".minimumImprovementPercent", minimumImprovementPercent=101),
    _spec("no replica needed", ".minReplicas", minReplicas=0),
    _spec("no pod may be away", ".maxUnavailable", maxUnavailable=0),
    _spec("a share may be away", ".maxUnavailable", maxUnavailable="25%"),
    _spec("no rotation in an hour", ".rotationsPerHour", rotationsPerHour=0),
    _spec("no cycle to debounce", ".debounceCycles", debounceCycles=0),
    _spec("span with a wrong unit", ".metricsWindow", metricsWindow="5x"),
    _spec("span below 0", ".cooldown", cooldown=-1),
    _spec("span with a sign", ".cooldown", cooldown="-5m"),
    _spec("span as a fraction", ".cooldown", cooldown=1.5),
    _spec("span as a list", ".minPodAge", minPodAge=["5m"]),
    _spec("window of no length", ".metricsWindow", metricsWindow="0s", is_seen_by_server=False),
    _spec("span beyond all bounds", ".cooldown", cooldown="9999w", is_seen_by_server=False),
    _spec("metric without a name", ".hpaMetricName", hpaMetricName=""),
    _spec("claim as text", ".includeStatefulSets", includeStatefulSets="yes"),
    _spec("another claim as text", ".includeLocalStorage", includeLocalStorage="yes"),
    _spec("lag gate without a query", ".kafkaLag", kafkaLag={"enabled": True}),
    _spec("lag below 0", ".kafkaLag.threshold", kafkaLag={"threshold": -1}),
    _spec("query without end", ".kafkaLag.query", kafkaLag={"query": "x" * 5000}),
    _spec("windows as a mapping", ".windows", windows=WINDOW),
    _spec("21 windows", ".windows", windows=[WINDOW] * 21),
    _spec("window without a duration", ".windows[0].duration", windows=[{"schedule": "0 2 * * *"}]),
    _window("schedule of four fields", ".schedule", schedule="0 2 * *"),
    _window("schedule of six fields", ".schedule", schedule="0 0 2 * * *"),
    _window("schedule by a nickname", ".schedule", schedule="@nightly"),
    _window("minute 61", ".schedule", schedule="61 2 * * *", is_seen_by_server=False),
    _window("the 31st of February", ".schedule", schedule="0 2 31 2 *", is_seen_by_server=False),
    _window("zone on Mars", ".timeZone", timeZone="Mars/Olympus", is_seen_by_server=False),
    _window("zone as an offset", ".timeZone", timeZone="+01:00"),
    _select("selector with a typo", ".matchLabel", {"matchLabel": {"a": "b"}}),
    _select("label value with a space", ".matchLabels.tier", {"matchLabels": {"tier": "the web"}}),
    _select("label as a number", ".matchLabels.tier", {"matchLabels": {"tier": 1}}),
    _select(
        "label key with a space",
        ".matchLabels.the tier",
        {"matchLabels": {"the tier": "web"}},
        is_seen_by_server=False,
    ),
    _select(
        "operator Near",
        ".matchExpressions[0].operator",
        {"matchExpressions": [{"key": "a", "operator": "Near"}]},
    ),
    _select(
        "In without values", ".matchExpressions[0]", {"matchExpressions": [{"key": "a", "operator": "In"}]}
    ),
    _select(
        "Exists with values",
        ".matchExpressions[0]",
        {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
    ),
    Bad("ledger of nobody", ledger({"epoch": 1}), "data.workload"),
    Bad("ledger with an unknown key", ledger({"workload": WORKLOAD, "notes": ""}), "data.notes"),
    Bad("epoch below 0", ledger({"workload": WORKLOAD, "epoch": -1}), "data.epoch"),
    Bad(
        "entry in no known state",
        ledger({"workload": WORKLOAD, "entries": [ENTRY | {"state": "Maybe"}]}),
        "data.entries[0].state",
    ),
    Bad(
        "entry at no known time",
        ledger({"workload": WORKLOAD, "entries": [ENTRY | {"at": "yesterday"}]}),
        "data.entries[0].at",
    ),
    Bad("one id twice", ledger({"workload": WORKLOAD, "entries": [ENTRY, ENTRY]}), "data.entries"),
    Bad(
        "201 entries",
        ledger({"workload": WORKLOAD, "entries": [ENTRY | {"id": f"e{n}"} for n in range(201)]}),
        "data.entries",
    ),
]

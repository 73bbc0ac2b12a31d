"""Scaling policies that must pass, and those that must not, with who is able to tell."""

from typing import Any

from tests.support.crd.manifests import AT, Bad

FUNCTION = {"input": "cores", "base": "100m", "slope": "10m"}
RULE = {"resource": "cpu", "function": FUNCTION}
CONTAINER = {"name": "kube-dns", "resources": {"requests": [RULE]}}
TARGET = {"scaleTargetRef": {"kind": "Deployment", "name": "kube-dns"}}
SPEC = TARGET | {"containers": [CONTAINER]}


def scaling(spec: Any, *, name: str = "kube-dns", **others: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scalingpolicy.kope.io/v1alpha1",
        "kind": "ScalingPolicy",
        "metadata": {"name": name},
        "spec": spec,
        **others,
    }


def _function(**parts: Any) -> dict[str, Any]:
    rule = {"resource": "cpu", "function": FUNCTION | parts}
    return SPEC | {"containers": [{"name": "kube-dns", "resources": {"requests": [rule]}}]}


def _levels(**parts: Any) -> dict[str, Any]:
    return SPEC | {"containers": [CONTAINER | {"quantization": [{"resource": "cpu"} | parts]}]}


SCALING_GOOD: dict[str, dict[str, Any]] = {
    "least": scaling(SPEC),
    "the seed's segments": scaling(
        TARGET
        | {
            "container": {
                "name": "kube-dns",
                "requests": {
                    "resource": "cpu",
                    "functions": FUNCTION
                    | {"input": "Cores", "segments": [{"at": 0, "every": 1}, {"at": 16, "every": 4}]},
                },
                "quantization": {"resource": "cpu", "base": "100m"},
            },
            "smoothing": {"delayScaleDown": {"inputs": {"cores": 20}}},
        }
    ),
    "the seed's percentile": scaling(
        SPEC | {"smoothing": {"percentile": {"target": 0.80, "lowThreshold": 0.60, "highThreshold": 0.95}}}
    ),
    "a percentile by default": scaling(SPEC | {"smoothing": {"percentile": {}}}),
    "maps for lists of one": scaling(
        TARGET
        | {
            "containers": {
                "name": "kube-dns",
                "resources": {
                    "limits": RULE | {"function": FUNCTION | {"segments": {"at": 0, "every": "2"}}}
                },
                "quantization": {"resource": "memory", "base": "32Mi"},
            }
        }
    ),
    "sections under containers of a list": scaling(
        TARGET
        | {"containers": [{"name": "a", "limits": [{"resource": "cpu", "functions": [FUNCTION, FUNCTION]}]}]}
    ),
    "everything": scaling(
        {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent"},
            "updateMode": "InPlace",
            "nodeSelector": {
                "matchExpressions": [{"key": "type", "operator": "NotIn", "values": ["virtual"]}]
            },
            "containers": [
                {
                    "name": "agent",
                    "resources": {
                        "requests": [
                            {
                                "resource": "memory",
                                "min": "64Mi",
                                "max": "4Gi",
                                "function": {
                                    "input": "MEMORY",
                                    "slope": "1Mi",
                                    "per": "1Gi",
                                    "segments": [{"at": "0", "every": "16Gi"}],
                                },
                            },
                            {
                                "resource": "memory",
                                "function": {"input": "pods", "base": "-1Mi", "slope": "10k"},
                            },
                        ],
                        "limits": [{"resource": "memory", "function": {"base": "8Gi"}}],
                    },
                    "quantization": [
                        {"resource": "memory", "base": 0, "step": "1Mi", "stepRatio": 1.5, "maxStep": "1Gi"},
                        {"resource": "cpu", "segments": [{"at": 0, "every": "100m"}]},
                    ],
                }
            ],
            "smoothing": {
                "delayScaleDown": {"inputs": {"memory": "20Gi", "Pods": 5}, "delaySeconds": 300},
                "delayScaleUp": {"delaySeconds": 30.5},
            },
        }
    ),
    "with a status": scaling(
        SPEC,
        status={
            "observedGeneration": 3,
            "conditions": [],
            "lastDecision": {"reason": "HeldByPercentile", "sentence": "It stays.", "at": AT},
            "resources": [
                {
                    "name": "kube-dns.requests.cpu",
                    "current": "1",
                    "target": "900m",
                    "scaleUpBelow": "900m",
                    "scaleDownAbove": 1,
                    "reason": "HeldByPercentile",
                    "lastChange": {"at": AT, "before": "900m", "after": "1"},
                }
            ],
            "window": {"observations": 30, "since": AT},
            "podsAtTarget": "3/5",
            "memory": {"windows": {"kube-dns.requests.cpu": [[0, 900]]}},
        },
    ),
}


def _bad(name: str, spec: Any, path: str, *, is_seen_by_server: bool = True) -> Bad:
    return Bad(f"scaling: {name}", scaling(spec), path, is_seen_by_server)


def _unseen(name: str, spec: Any, path: str) -> Bad:
    return _bad(name, spec, path, is_seen_by_server=False)


ONE = "spec.containers[0].resources.requests[0]"
SCALING_BAD: list[Bad] = [
    _bad("no target", {"containers": [CONTAINER]}, "spec.scaleTargetRef"),
    _bad("a Job", SPEC | {"scaleTargetRef": {"kind": "Job", "name": "a"}}, "spec.scaleTargetRef.kind"),
    _bad("a mode", SPEC | {"mode": "Enforce"}, "spec.mode"),
    _bad("update mode Recreate", SPEC | {"updateMode": "Recreate"}, "spec.updateMode"),
    _bad("snake case", SPEC | {"update_mode": "Auto"}, "spec.update_mode"),
    _bad("nameless container", SPEC | {"containers": [{"resources": {}}]}, "spec.containers[0].name"),
    _bad(
        "rule for gpu",
        SPEC | {"containers": [{"name": "a", "resources": {"requests": [RULE | {"resource": "gpu"}]}}]},
        f"{ONE}.resource",
    ),
    _bad("unknown input", _function(input="cpus"), f"{ONE}.function.input"),
    _bad("no quantity", _function(base="1x"), f"{ONE}.function.base"),
    _bad("a fraction as a number", _function(base=0.1), f"{ONE}.function.base"),
    _bad("every 0", _function(segments=[{"at": 0, "every": 0}]), f"{ONE}.function.segments[0].every"),
    _bad(
        "every below 0", _function(segments=[{"at": 0, "every": "-4"}]), f"{ONE}.function.segments[0].every"
    ),
    _bad("segment without at", _function(segments=[{"every": 1}]), f"{ONE}.function.segments[0].at"),
    _bad("ratio below 1", _levels(step="1m", stepRatio=0.5), "spec.containers[0].quantization[0].stepRatio"),
    _bad("ratio as text", _levels(step="1m", stepRatio="2"), "spec.containers[0].quantization[0].stepRatio"),
    _bad(
        "share above 1",
        SPEC | {"smoothing": {"percentile": {"target": 1.2}}},
        "spec.smoothing.percentile.target",
    ),
    _bad(
        "shares in disorder",
        SPEC | {"smoothing": {"percentile": {"target": 0.5}}},
        "spec.smoothing.percentile",
    ),
    _bad(
        "a window of 0 s",
        SPEC | {"smoothing": {"percentile": {"windowSeconds": 0}}},
        "spec.smoothing.percentile.windowSeconds",
    ),
    _bad(
        "both strategies",
        SPEC | {"smoothing": {"percentile": {}, "delayScaleUp": {"delaySeconds": 1}}},
        "spec.smoothing",
    ),
    _bad("an empty delay", SPEC | {"smoothing": {"delayScaleDown": {}}}, "spec.smoothing.delayScaleDown"),
    _bad(
        "a delay of old",
        SPEC | {"smoothing": {"delayScaleDown": {"max": 20, "delaySeconds": 1}}},
        "spec.smoothing.delayScaleDown.max",
    ),
    _unseen("no container", TARGET, "spec.containers"),
    _unseen("an empty list of containers", TARGET | {"containers": []}, "spec.containers"),
    _unseen("both spellings", SPEC | {"container": CONTAINER}, "spec.container"),
    _unseen("one container twice", TARGET | {"containers": [CONTAINER, CONTAINER]}, "spec.containers"),
    _unseen("containers as text", TARGET | {"containers": "kube-dns"}, "spec.containers"),
    _bad("a function of old", _function(roundTo=4), f"{ONE}.function.roundTo"),
    _unseen(
        "neither base nor slope",
        SPEC | {"container": {"name": "a", "requests": {"resource": "cpu", "functions": {"input": "cores"}}}},
        "spec.container",
    ),
    _unseen(
        "every 0 in quantity",
        _function(segments=[{"at": 0, "every": "0m"}]),
        f"{ONE}.function.segments[0].every",
    ),
    _unseen(
        "falling segments",
        _function(segments=[{"at": 0, "every": 5}, {"at": 16, "every": 4}]),
        f"{ONE}.function.segments",
    ),
    _unseen(
        "shorthand with a mistake",
        TARGET
        | {
            "container": {
                "name": "a",
                "limits": {"resource": "cpu", "functions": FUNCTION | {"segments": {"at": 0, "every": 0}}},
            }
        },
        "spec.container.limits.functions.segments.every",
    ),
    _unseen("ratio without a step", _levels(base="1m", stepRatio=2), "spec.containers[0].quantization[0]"),
    _unseen(
        "a shift that nobody uses",
        SPEC | {"smoothing": {"delayScaleDown": {"inputs": {"nodes": 1}}}},
        "spec.smoothing.delayScaleDown.inputs.nodes",
    ),
    _unseen(
        "an unknown shift",
        SPEC | {"smoothing": {"delayScaleDown": {"inputs": {"cpus": 1}}}},
        "spec.smoothing.delayScaleDown.inputs.cpus",
    ),
    Bad(
        "scaling: status of nothing",
        scaling(SPEC, status={"podsAtTarget": "all"}),
        "status.podsAtTarget",
        is_seen_by_server=False,  # a new object has no status yet
    ),
]

"""Crane's own definitions, as a cluster may have them: without a status of their own, and fewer fields."""

from typing import Any

from tests.testbed import ControlPlane, wait_until

GROUP = "analysis.crane.io"
TEXT = {"type": "string"}
TEXTS = {"type": "array", "items": TEXT}
WORDS = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
REFERENCE = {"type": "object", "properties": dict.fromkeys(WORDS, TEXT)}
STRATEGY = {
    "type": "object",
    "properties": {
        "completionStrategyType": {"type": "string", "enum": ["Once", "Periodical"], "default": "Once"},
        "periodSeconds": {"type": "integer", "format": "int64"},
    },
}
CONDITIONS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["lastTransitionTime", "message", "reason", "status", "type"],
        "properties": {
            "lastTransitionTime": {"type": "string", "format": "date-time"},
            "message": {"type": "string", "maxLength": 32768},
            "observedGeneration": {"type": "integer", "format": "int64", "minimum": 0},
            "reason": {"type": "string", "minLength": 1, "maxLength": 1024},
            "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
            "type": {"type": "string", "maxLength": 316},
        },
    },
}
TIME = {"type": "string", "format": "date-time"}
SELECTOR = {
    "type": "object",
    "required": ["kind"],
    "properties": {
        "kind": TEXT,
        "apiVersion": TEXT,
        "name": TEXT,
        "labelSelector": {
            "type": "object",
            "properties": {
                "matchLabels": {"type": "object", "additionalProperties": TEXT},
                "matchExpressions": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["key", "operator"],
                        "properties": {
                            "key": TEXT,
                            "operator": TEXT,
                            "values": {"type": "array", "items": TEXT},
                        },
                    },
                },
            },
        },
    },
}
ANALYTICS: dict[str, Any] = {
    "spec": {
        "type": "object",
        "required": ["type", "resourceSelectors"],
        "properties": {
            "type": TEXT,
            "resourceSelectors": {"type": "array", "items": SELECTOR},
            "completionStrategy": STRATEGY,
            "config": {"type": "object", "additionalProperties": TEXT},
        },
    },
    "status": {
        "type": "object",
        "properties": {
            "lastUpdateTime": TIME,
            "conditions": CONDITIONS,
            "recommendations": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        **dict.fromkeys(WORDS, TEXT),
                        "targetRef": REFERENCE,
                        "lastStartTime": TIME,
                        "message": TEXT,
                    },
                },
            },
        },
    },
}
RECOMMENDATION: dict[str, Any] = {
    "spec": {
        "type": "object",
        "required": ["targetRef", "type"],
        "properties": {
            "targetRef": REFERENCE,
            "type": TEXT,
            "completionStrategy": STRATEGY,
            "adoptionType": {
                "type": "string",
                "enum": ["Status", "StatusAndAnnotation", "Auto"],
                "default": "StatusAndAnnotation",
            },
        },
    },
    "status": {
        "type": "object",
        "properties": {"recommendedValue": TEXT, "conditions": CONDITIONS, "lastUpdateTime": TIME},
    },
}


def install_cranes_definitions(plane: ControlPlane) -> None:
    """Bring both kinds, and wait until they are served."""
    plane.apply(
        [
            _definition("Analytics", "analytics", "analytics", ANALYTICS),
            _definition("Recommendation", "recommendations", "recommend", RECOMMENDATION),
        ]
    )
    for plural in ("analytics", "recommendations"):
        path = f"/apis/{GROUP}/v1alpha1/{plural}"
        wait_until(lambda path=path: plane.api.answers(path), f"{plural} served", 60)  # type: ignore[misc]


def _definition(kind: str, plural: str, short: str, parts: dict[str, Any]) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {"apiVersion": TEXT, "kind": TEXT, "metadata": {"type": "object"}, **parts},
    }
    names = {
        "kind": kind,
        "listKind": f"{kind}List",
        "plural": plural,
        "singular": kind.lower(),
        "shortNames": [short],
    }
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }

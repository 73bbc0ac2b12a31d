"""Objects as the API server sends them, decoded."""

from __future__ import annotations

import json
from typing import Any

from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.kinds import ResourceKind
from tests.support.kubernetes.samples import page


def turned(kind: ResourceKind[Any], raw: object, decoder: Decoder | None = None) -> Any:
    """Decode one object as a list would."""
    body = json.dumps(page([raw])).encode()  # type: ignore[list-item] # any object
    return kind.decode(decoder or Decoder(), (kind.decode_page(body).items or [])[0])


def with_status(raw: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {**raw, "status": {**raw["status"], **status}}


def workload(**spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "5", "generation": 4},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, **spec},
        "status": {"replicas": 3, "readyReplicas": 2, "updatedReplicas": 1, "observedGeneration": 3},
    }

"""What changed while nobody watched is known after the next list, of every kind that is kept."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from equipoise.adapters.kubernetes.apply import MANAGER, OWNER_LABEL
from equipoise.adapters.kubernetes.cache import Cache, ChangeType
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.decode import Decoder
from equipoise.adapters.kubernetes.kinds import HPAS, NODES, PDBS, PODS, WORKLOADS, ResourceKind
from equipoise.adapters.kubernetes.node import NODE, PODS_OF_NODE
from equipoise.adapters.kubernetes.pauses import NAMESPACES
from equipoise.adapters.kubernetes.reflector import Reflector
from tests.support.kubernetes.reflected_kinds import KEPT, Looking
from tests.support.kubernetes.server import Asked, Stage, Time, playing, session

CORE = [PODS, NODES, HPAS, PDBS, *WORKLOADS.values(), NODE, PODS_OF_NODE, NAMESPACES]


@pytest.mark.parametrize("make", KEPT)
@pytest.mark.parametrize("is_other", [False, True], ids=["changed", "made anew"])
def test_a_policy_that_changed_while_nobody_watched_is_known_after_the_next_list(
    make: Callable[[Client], tuple[Reflector[Any], Looking]], is_other: bool
) -> None:
    """The server has forgotten the changes (410), so everything is listed anew."""
    now = {"version": "7", "uid": "uid-1", "mode": "Enforce"}

    def script(asked: Asked, stage: Stage) -> None:
        if "customresourcedefinitions" in asked.path:
            version = {"name": "v1alpha1", "served": True, "subresources": {"status": {}}}
            stage.answer({"metadata": {"labels": {OWNER_LABEL: MANAGER}}, "spec": {"versions": [version]}})
        elif asked.query.get("watch"):
            stage.refuse(410, "Expired", "too old resource version")
        else:
            metadata = {"name": "web", "namespace": "shop", "uid": now["uid"]}
            one = {"metadata": {**metadata, "resourceVersion": now["version"]}, "spec": {"mode": now["mode"]}}
            stage.answer({"metadata": {"resourceVersion": now["version"]}, "items": [one]})

    with playing(script) as player, session(player.url, world=Time().world(0.0)) as client:
        reflector, look = make(client)
        try:
            reflector.step()
            (before,) = look()
            now |= {"version": "9", "mode": "Preview"} | ({"uid": "uid-2"} if is_other else {})
            reflector.step()
            (after,) = look()
        finally:
            reflector.stop()
    assert (before.spec["mode"], before.version) == ("Enforce", "7")
    assert (after.spec["mode"], after.version, after.ref.uid) == ("Preview", "9", now["uid"])


@pytest.mark.parametrize("kind", CORE, ids=lambda kind: f"{kind.name}-{kind.raw.__name__}")
def test_every_kind_tells_how_new_its_records_are(kind: ResourceKind[Any]) -> None:
    """Otherwise a list could not replace what is older."""

    def listed(version: str) -> list[Any]:
        metadata = {"name": "web", "namespace": "shop", "uid": "uid-1", "resourceVersion": version}
        metadata["creationTimestamp"] = "2026-11-01T10:00:00Z"
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
        spec = {"scaleTargetRef": target, "maxReplicas": 3}
        one = {"metadata": metadata, "spec": spec, "status": {}}
        return [kind.decode(Decoder(), kind.decode_object(json.dumps(one).encode()))]

    cache: Cache[Any] = Cache(kind)
    cache.replace(listed("7"))
    assert cache.replace(listed("7")) == []
    (change,) = cache.replace(listed("9"))
    assert change.type is ChangeType.MODIFIED
    assert [record.resource_version for record in cache.records()] == ["9"]

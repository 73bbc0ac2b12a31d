"""The end of a DaemonSet: it is removed, and its pods are looked for until they are gone."""

from __future__ import annotations

from http import HTTPStatus
from typing import NamedTuple

import msgspec

from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.errors import ApiError, bad_answer
from equipoise.adapters.kubernetes.lists import list_items
from equipoise.adapters.kubernetes.paths import path_of
from equipoise.adapters.kubernetes.structs import RawPod


class DaemonPod(NamedTuple):
    """One pod of a DaemonSet, and where it is."""

    name: str
    node: str


class Removed(msgspec.Struct):
    """What the server says of a removal: how it went, or what goes."""

    kind: str
    status: object = None


def remove_daemon_set(client: Client, namespace: str, name: str) -> bool:
    """Remove a DaemonSet; Kubernetes ends its pods. False where there is none."""
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
    path = path_of("apps", "v1", "daemonsets", namespace, name)
    try:
        body = client.delete(path, options)
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        return False
    said = client.decode(Removed, body, f"DELETE {path}")
    if said.kind != "DaemonSet" and (said.kind, said.status) != ("Status", "Success"):
        raise bad_answer(client.address, f"DELETE {path}", body, "a Status of success was expected")
    return True


def pods_of_daemon_set(client: Client, namespace: str, name: str) -> list[DaemonPod]:
    """Give the pods that a DaemonSet of this name has, or had: they outlive it for a while."""
    pods = list_items(client, path_of("", "v1", "pods", namespace), RawPod, lambda _: None)
    return sorted(
        DaemonPod(pod.metadata.name, pod.spec.nodeName)
        for pod in pods
        if any(
            (owner.kind, owner.name) == ("DaemonSet", name) for owner in pod.metadata.ownerReferences or ()
        )
    )

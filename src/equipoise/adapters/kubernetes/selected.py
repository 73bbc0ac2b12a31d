"""The pods of one namespace that a selector names, kept up to date, and whether they have changed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from http import HTTPStatus

from equipoise.adapters.kubernetes.cache import ChangeType
from equipoise.adapters.kubernetes.client import Client
from equipoise.adapters.kubernetes.discovery import path_of
from equipoise.adapters.kubernetes.errors import ApiError, Unreachable
from equipoise.adapters.kubernetes.kinds import PODS
from equipoise.adapters.kubernetes.reflector import AGE_MAX_SECONDS, Reflector, Timings
from equipoise.adapters.kubernetes.structs import RawObject
from equipoise.core.cluster import Pod


class SelectedPods:
    """Answers from a reflector, which is started and stopped by whoever made this."""

    def __init__(self, client: Client, namespace: str, selector: str, timings: Timings | None = None) -> None:
        """Prepare; nothing is sent yet."""
        self._client = client
        self._namespace = namespace
        self._monotonic = client.world.monotonic
        self._changed = threading.Event()
        self.reflector = Reflector(
            client,
            PODS,
            namespace=namespace,
            params={"labelSelector": selector},
            on_change=self._note,
            timings=timings,
        )

    def pods(self) -> Sequence[Pod]:
        """Return the pods; a list that was not read yet, or is old, is unknown and not empty."""
        reflector = self.reflector
        why = f": {reflector.last_error}" if reflector.last_error else ""
        if not reflector.synced.is_set():
            raise Unreachable(f"the pods of the pools have not been listed yet{why}")
        age_seconds = reflector.last_contact_age_seconds(self._monotonic())
        if age_seconds > AGE_MAX_SECONDS:
            raise Unreachable(
                f"the pods of the pools are unknown: the API server last told of them "
                f"{age_seconds:.0f} s ago, expected at most {AGE_MAX_SECONDS:g} s{why}"
            )
        return reflector.cache.records()

    def is_gone(self, name: str, uid: str) -> bool:
        """Ask the server by name whether this incarnation of a pod is gone; without a UID, any."""
        try:
            found = self._client.get_as(RawObject, path_of("", "v1", "pods", self._namespace, name))
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND and error.reason == "NotFound":
                return True
            raise
        return uid not in {"", found.metadata.uid}

    def has_changed(self) -> bool:
        """Return whether somebody came, went, or became or ceased to be ready since this was last asked."""
        is_set = self._changed.is_set()
        if is_set:  # else a change of this very moment would be forgotten
            self._changed.clear()
        return is_set

    def _note(self, change: ChangeType, old: Pod | None, new: Pod | None) -> None:
        if change is not ChangeType.MODIFIED or _standing(old) != _standing(new):
            self._changed.set()


def _standing(pod: Pod | None) -> tuple[object, ...]:
    """Return what decides whether it can take calls."""
    return () if pod is None else (pod.uid, pod.phase, pod.is_ready, pod.deletion_at is None)

"""What a kubelet does for changes in place and kwok does not: it says what containers have.

The API server lets a pod be resized only where its status says that, as a sign that the node can do it.
"""

import threading
from typing import Any, Self

from tests.testbed.api import ApiError
from tests.testbed.control_plane import ControlPlane

_POLL_SECONDS = 0.1


class Granting:
    """Gives the running pods of one namespace what they ask for, until the block ends."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._api = control_plane.api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="granting", daemon=True)
        self._trouble: list[BaseException] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), "granting did not end"
        assert not self._trouble, f"granting broke: {self._trouble}"

    def _run(self) -> None:
        try:
            while not self._ended.wait(_POLL_SECONDS):
                for pod in self._api.items(self._path):
                    self._grant(pod)
        except BaseException as error:  # noqa: BLE001 - told when the block ends
            self._trouble.append(error)

    def _grant(self, pod: dict[str, Any]) -> None:
        asked = {each["name"]: each.get("resources", {}) for each in pod["spec"]["containers"]}
        statuses = pod.get("status", {}).get("containerStatuses", [])
        late = [
            {"name": each["name"], "resources": asked[each["name"]]}
            for each in statuses
            if "running" in each.get("state", {}) and each.get("resources") != asked.get(each["name"])
        ]
        if not late:
            return
        try:
            self._api.request(
                "PATCH",
                f"{self._path}/{pod['metadata']['name']}/status",
                {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"containerStatuses": late}},
                content_type="application/strategic-merge-patch+json",
            )
        except ApiError as error:
            if error.status not in {404, 409, 422}:
                raise

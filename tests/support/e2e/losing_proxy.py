"""A proxy before the API server that carries a request out and then loses the answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode

import urllib3

from equipoise.adapters.kubernetes import Client
from equipoise.adapters.kubernetes.client import Limits
from tests.support.kubernetes.server import Asked, Player, Stage, playing, target_of
from tests.testbed import ControlPlane

_PASSED_ON = ("Content-Type", "Retry-After")


class LossyProxy:
    """Speaks plain HTTP to us and TLS, with all rights, to the server."""

    def __init__(self, control_plane: ControlPlane) -> None:
        self._server = control_plane.server
        self._pool = urllib3.PoolManager(
            ca_certs=str(control_plane.ca),
            cert_file=str(control_plane.admin.certificate),
            key_file=str(control_plane.admin.key),
            retries=False,
            timeout=30.0,
        )
        self.to_lose: list[str] = []
        """Methods whose next answer is lost."""

    def script(self, asked: Asked, stage: Stage) -> None:
        url = f"{self._server}{asked.path}" + (f"?{urlencode(asked.query)}" if asked.query else "")
        headers = {"Content-Type": asked.headers.get("Content-Type", "application/json")}
        answer = self._pool.request(asked.method, url, body=asked.body or None, headers=headers)
        if asked.method in self.to_lose:
            self.to_lose.remove(asked.method)
            stage.cut()
            return
        kept = {name: answer.headers[name] for name in _PASSED_ON if name in answer.headers}
        stage.answer(answer.data, answer.status, kept)

    def close(self) -> None:
        self._pool.clear()


@contextmanager
def lossy(control_plane: ControlPlane) -> Iterator[tuple[LossyProxy, Client, Player]]:
    """Run a proxy, with a session through it."""
    proxy = LossyProxy(control_plane)
    with playing(proxy.script) as player:
        client = Client(target_of(player.url), limits=Limits(5.0, 30.0, 30.0))
        try:
            yield proxy, client, player
        finally:
            client.close()
            proxy.close()

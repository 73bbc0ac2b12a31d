"""A real Kubernetes control plane on this machine: etcd, API server, controllers and scheduler."""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.testbed import kubeconfig
from tests.testbed.api import Api, Object
from tests.testbed.build import binary
from tests.testbed.certificates import Authority
from tests.testbed.etcd import Etcd
from tests.testbed.processes import Process, free_port, with_free_ports

_HOSTS = ("localhost", "127.0.0.1", "kubernetes.default.svc", "10.0.0.1")


class ControlPlane:
    """One control plane in one folder. Use it as a context manager, or call `start` and `stop`.

    `controllers=False, scheduler=False` gives an API alone, in about three seconds. At an `address` of its
    own the API is served on port 443, and is its own first service: pods that reach the address find it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        controllers: bool = True,
        scheduler: bool = True,
        address: str | None = None,
        services: str = "10.0.0.0/24",
        hpa_sync_seconds: float = 5,
        hpa_downscale_stabilization_seconds: float = 300,
        extra_apiserver_args: Sequence[str] = (),
        extra_controller_args: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.authority = Authority(folder / "pki")
        self.ca = self.authority.certificate
        self.admin = self.authority.issue("admin", "testbed-admin", ["system:masters"])
        self.kubeconfig = folder / "admin.kubeconfig"
        self.server = ""
        self._address = address
        self._services = services
        hosts = [*_HOSTS, *([address] if address else [])]
        self._serving = self.authority.issue("apiserver", "kube-apiserver", hosts=hosts)
        self._front_proxy = self.authority.issue("front-proxy", "front-proxy")
        self._account_key = self.authority.signing_key("service-accounts")
        self._extra_apiserver_args = tuple(extra_apiserver_args)
        self._controllers = (
            [
                f"--horizontal-pod-autoscaler-sync-period={hpa_sync_seconds}s",
                f"--horizontal-pod-autoscaler-downscale-stabilization={hpa_downscale_stabilization_seconds}s",
                *extra_controller_args,
            ]
            if controllers
            else None
        )
        self._scheduler = scheduler
        self._etcd: Etcd | None = None
        self._apiserver: Process | None = None
        self._others: list[Process] = []
        self._api: Api | None = None

    @property
    def api(self) -> Api:
        """A small client with all rights."""
        assert self._api is not None, "the control plane was not started"
        return self._api

    @property
    def processes(self) -> list[Process]:
        """Everything that runs for this control plane."""
        own = [*self._others, self._apiserver, self._etcd.process if self._etcd else None]
        return [process for process in own if process is not None]

    def start(self) -> Self:
        try:
            with_free_ports(self._start_etcd)
            with_free_ports(self._start_apiserver)
            self._start_others()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End everything, the API server before etcd: without etcd it would not stop when asked."""
        for process in self._others:
            process.stop()
        if self._apiserver is not None:
            self._apiserver.stop()
        if self._etcd is not None:
            self._etcd.stop()
        if self._api is not None:
            self._api.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def kill_apiserver(self) -> None:
        """End the API server at once, as a crash would."""
        assert self._apiserver is not None, "the control plane was not started"
        self._apiserver.kill()

    def restart_apiserver(self) -> None:
        """Start the API server again on the same port and the same data, and wait until it is ready."""
        assert self._apiserver is not None, "the control plane was not started"
        self._apiserver.stop()
        self._apiserver.start()
        self._wait_until_ready()

    def compact_etcd(self) -> int:
        """Make etcd forget history, so that old versions are answered with 410; give the present revision.

        The API server has a memory of its own for watches and for `continue` tokens, which this does not
        reach: start it with `extra_apiserver_args=["--watch-cache=false"]`, or restart it, so that its memory
        begins at the present (a watch of the past is then answered with 410 even without compaction).
        """
        assert self._etcd is not None, "the control plane was not started"
        return self._etcd.compact()

    def kubectl(self, *args: str, stdin: str | None = None, seconds: float = 60) -> str:
        """Run kubectl with all rights; give what it printed."""
        done = subprocess.run(
            [binary("kubectl"), f"--kubeconfig={self.kubeconfig}", *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        if done.returncode:
            raise AssertionError(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
        return done.stdout

    def apply(self, what: str | Object | Iterable[Object]) -> list[dict[str, Any]]:
        """Apply YAML text or objects on the server's side."""
        return self.api.apply(what)

    def token(self, namespace: str, service_account: str, seconds: int = 3600) -> str:
        """Create a token for a service account, as a pod would have."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{service_account}/token"
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": seconds},
        }
        return str(self.api.create(path, request)["status"]["token"])

    def kubeconfig_for(self, name: str, user: Object) -> Path:
        """Write a kubeconfig for this server with another `user`, e.g. `{"token": …}`."""
        return kubeconfig.write(self.folder / f"{name}.kubeconfig", self.server, self.ca, user)

    def _start_etcd(self) -> None:
        self._etcd = Etcd(self.folder)
        self._etcd.start()

    def _start_apiserver(self) -> None:
        address, port = (self._address, 443) if self._address else ("127.0.0.1", free_port())
        self.server = f"https://{address}:{port}"
        self._apiserver = self._process("kube-apiserver", *self._apiserver_args(address, port))
        kubeconfig.write(self.kubeconfig, self.server, self.ca, kubeconfig.user_of(self.admin))
        self._api = Api(self.server, self.ca, client=self.admin)
        self._apiserver.start()
        self._wait_until_ready()

    def _wait_until_ready(self) -> None:
        assert self._apiserver is not None
        self._apiserver.wait_until(lambda: self.api.answers("/readyz"), "API server ready", 300)

    def _start_others(self) -> None:
        common = (f"--kubeconfig={self.kubeconfig}", "--leader-elect=false", "--secure-port=0")
        if self._controllers is not None:
            keys = (f"--service-account-private-key-file={self._account_key}", f"--root-ca-file={self.ca}")
            self._start_other("kube-controller-manager", *common, *keys, *self._controllers)
        if self._scheduler:
            self._start_other("kube-scheduler", *common)
        if self._controllers is not None:
            # Pods can be created in a namespace once the controllers have made its service account.
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            self._others[0].wait_until(lambda: self.api.answers(account), "the default service account", 120)

    def _start_other(self, name: str, *args: str) -> None:
        process = self._process(name, *args)
        self._others.append(process)
        process.start()

    def _process(self, name: str, *args: str) -> Process:
        return Process(name, [binary(name), *args], self.folder / "logs" / f"{name}.log")

    def _apiserver_args(self, address: str, port: int) -> list[str]:
        assert self._etcd is not None
        # Without controllers nobody makes service accounts, and no pod would be let in.
        lenient = [] if self._controllers is not None else ["--disable-admission-plugins=ServiceAccount"]
        return [
            f"--etcd-servers={self._etcd.url}",
            f"--bind-address={address}",
            f"--secure-port={port}",
            f"--tls-cert-file={self._serving.certificate}",
            f"--tls-private-key-file={self._serving.key}",
            f"--client-ca-file={self.ca}",
            f"--cert-dir={self.folder / 'apiserver'}",
            f"--service-cluster-ip-range={self._services}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self._account_key}",
            f"--service-account-signing-key-file={self._account_key}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged",
            "--kubelet-preferred-address-types=InternalIP",
            f"--requestheader-client-ca-file={self.ca}",
            "--requestheader-allowed-names=front-proxy",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={self._front_proxy.certificate}",
            f"--proxy-client-key-file={self._front_proxy.key}",
            *lenient,
            *self._extra_apiserver_args,
        ]

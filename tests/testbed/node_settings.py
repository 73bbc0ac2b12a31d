"""What a real node's programs are told: containerd, its network plugins, the kubelet."""

from pathlib import Path
from typing import Any

from tests.testbed.certificates import Pair


def containerd_settings(
    *, root: Path, socket: str, pause: str, runc: Path, plugins: Path, networks: Path
) -> str:
    """Write containerd's file: its data in a folder of ours, the rest where it usually is."""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{root}"
state = "/run/containerd"
[grpc]
  address = "{socket}"
[{cri}]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
[{cri}.cni]
  bin_dir = "{plugins}"
  conf_dir = "{networks}"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
  BinaryName = "{runc}"
"""


def network_settings(bridge: str, network: str) -> dict[str, Any]:
    """Describe the pods' network: the bridge that is there, the upper half of its addresses.

    The bridge has its address already, so the plugin need not make it a gateway, for which it would let the
    whole machine forward packets.
    """
    ranges = [{"subnet": f"{network}.0/24", "rangeStart": f"{network}.130", "gateway": f"{network}.1"}]
    addresses = {"type": "host-local", "ranges": [ranges], "routes": [{"dst": "0.0.0.0/0"}]}
    plugin = {"type": "bridge", "bridge": bridge, "isGateway": False, "ipMasq": False, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [plugin]}


def kubelet_settings(address: str, port: int, serving: Pair, socket: str) -> dict[str, Any]:
    """Describe a kubelet that takes any machine as it is, and evicts nothing by itself."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": False,
        "cgroupDriver": "cgroupfs",
        "failSwapOn": False,
        "enforceNodeAllocatable": [],
        "evictionHard": {},
        "makeIPTablesUtilChains": False,  # the host's tables are not ours
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "address": address,
        "port": port,
        "healthzPort": 0,
        "tlsCertFile": str(serving.certificate),
        "tlsPrivateKeyFile": str(serving.key),
        "containerRuntimeEndpoint": f"unix://{socket}",
        "resolvConf": "",
        "nodeStatusReportFrequency": "10s",
        "syncFrequency": "5s",
    }

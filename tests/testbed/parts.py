"""The list of what the testbed can build. One row per binary: adding one is adding a row."""

import re
from dataclasses import dataclass
from typing import Final

KUBERNETES: Final = "1.35.8"

_KUBERNETES_STAMP: Final = (
    f"-X k8s.io/component-base/version.gitVersion=v{KUBERNETES} "
    "-X k8s.io/component-base/version.gitMajor=1 "
    "-X k8s.io/component-base/version.gitMinor=35 "
    f"-X k8s.io/client-go/pkg/version.gitVersion=v{KUBERNETES}"
)

_HELM: Final = "helm.sh/helm/v3"
# As its own Makefile stamps it: without the last two it would take every cluster for Kubernetes 1.20.
_HELM_STAMP: Final = (
    f"-X {_HELM}/internal/version.version=v3.22.0 "
    f"-X {_HELM}/pkg/lint/rules.k8sVersionMinor=37 "
    f"-X {_HELM}/pkg/chartutil.k8sVersionMinor=37"
)


_VICTORIA_METRICS: Final = "github.com/VictoriaMetrics/VictoriaMetrics"


def _common_stamp(version: str) -> str:
    """Return the stamp of a server that says its version as Prometheus does."""
    package = "github.com/prometheus/common/version"
    return f"-X {package}.Version={version} -X {package}.Revision=v{version} -X {package}.Branch=HEAD"


@dataclass(frozen=True, kw_only=True)
class GoPart:
    """A command that is built from Go modules."""

    name: str
    version: str
    package: str
    acceptable: str
    """What the answer to `version_question` must match for a ready binary to be taken."""
    version_question: tuple[str, ...] = ("--version",)
    stamp: str = ""
    tags: str = ""
    """Build tags, which leave out what nobody needs here, or choose one of several ways to build."""
    module: str
    """The folder under `go/` whose go.mod and go.sum say what goes into it."""
    cost: str
    """How long a first build takes here, for a person who waits."""

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}"

    def accepts(self, answer: str) -> bool:
        return re.search(self.acceptable, answer) is not None


@dataclass(frozen=True, kw_only=True)
class DebianPart:
    """A file that is unpacked from a Debian package; nothing is installed on the host."""

    name: str
    package: str
    path: str
    """Where it is in the package; a pattern may stand for a version."""
    acceptable: str = ""
    """What the answer to `version_question` must match for a ready one to be taken; none is, if empty."""
    version_question: tuple[str, ...] = ("--version",)
    has_libraries: bool = False
    """Whether packages that it depends on, and the host lacks, are unpacked beside it."""
    is_named_by_dependency: bool = False
    """Whether the package is empty and only names, as what it depends on, the one of the day."""

    def accepts(self, answer: str) -> bool:
        return bool(self.acceptable) and re.search(self.acceptable, answer) is not None


def _kubernetes(name: str, cost: str) -> GoPart:
    return GoPart(
        name=name,
        version=KUBERNETES,
        package=f"k8s.io/kubernetes/cmd/{name}",
        acceptable=r"\bv1\.35\.\d+\b",
        version_question=("version", "--client") if name == "kubectl" else ("--version",),
        stamp=_KUBERNETES_STAMP,
        module="kubernetes",
        cost=cost,
    )


PARTS: Final[dict[str, GoPart | DebianPart]] = {
    part.name: part
    for part in (
        GoPart(
            name="etcd",
            version="3.6.16",
            package="go.etcd.io/etcd/server/v3",
            module="etcd",
            acceptable=r"etcd Version: 3\.[56]\.\d+",
            cost="30 s",
        ),
        _kubernetes("kube-apiserver", "4 min"),
        _kubernetes("kube-controller-manager", "1 min"),
        _kubernetes("kube-scheduler", "10 s"),
        _kubernetes("kubectl", "20 s"),
        _kubernetes("kubelet", "20 s"),
        GoPart(
            name="kwok",
            version="0.8.0",
            package="sigs.k8s.io/kwok/cmd/kwok",
            module="nodes",
            acceptable=r"\bv?0\.8\.\d+\b",
            cost="2 min",
        ),
        GoPart(
            name="metrics-server",
            version="0.9.0",
            package="sigs.k8s.io/metrics-server/cmd/metrics-server",
            module="nodes",
            acceptable=r"^v0\.9\.\d+\b",
            stamp="-X k8s.io/client-go/pkg/version.gitVersion=v0.9.0",
            cost="2 min",
        ),
        GoPart(
            name="helm",
            version="3.22.0",
            package=f"{_HELM}/cmd/helm",
            module="helm",
            acceptable=r"^v3\.(1[7-9]|[2-9]\d)\.\d+",
            version_question=("version", "--short"),
            stamp=_HELM_STAMP,
            cost="2 min",
        ),
        DebianPart(
            name="prometheus",
            package="prometheus",
            path="usr/bin/prometheus",
            acceptable=r"prometheus, version (2\.(4[2-9]|5\d)|3\.\d+)\.",
        ),
        DebianPart(
            name="promtool",
            package="prometheus",
            path="usr/bin/promtool",
            acceptable=r"promtool, version (2\.(4[2-9]|5\d)|3\.\d+)\.",
        ),
        DebianPart(
            name="redis-server",
            package="redis-server",
            path="usr/bin/redis-server",
            acceptable=r"Redis server v=7\.",
            has_libraries=True,
        ),
        DebianPart(
            name="containerd",
            package="containerd",
            path="usr/bin/containerd",
            acceptable=r"containerd \S+ v?1\.[67]\.",
        ),
        DebianPart(
            name="runc", package="runc", path="usr/sbin/runc", acceptable=r"runc version 1\.[1-9]\d*\."
        ),
        DebianPart(name="cni-bridge", package="containernetworking-plugins", path="usr/lib/cni/bridge"),
        DebianPart(name="busybox-static", package="busybox-static", path="bin/busybox"),
        DebianPart(
            name="qemu-system-x86_64",
            package="qemu-system-x86",
            path="usr/bin/qemu-system-x86_64",
            acceptable=r"QEMU emulator version ([7-9]|\d\d)\.",
            has_libraries=True,
        ),
        DebianPart(
            name="linux",
            package="linux-image-cloud-amd64",
            path="boot/vmlinuz-*",
            is_named_by_dependency=True,
        ),
        DebianPart(name="systemd", package="systemd", path="lib/systemd/systemd", has_libraries=True),
        DebianPart(
            name="chromium",
            package="chromium",
            path="usr/lib/chromium/chromium",
            acceptable=r"Chromium 1\d\d\.",
            has_libraries=True,
        ),
    )
}

COMPAT: Final[dict[str, GoPart | DebianPart]] = {
    part.name: part
    for part in (
        GoPart(
            name="victoria-metrics",
            version="1.150.0",
            package=f"{_VICTORIA_METRICS}/app/victoria-metrics",
            module="victoriametrics",
            acceptable=r"v1\.1[5-9]\d\.\d+",
            version_question=("-version",),
            stamp=f"-X {_VICTORIA_METRICS}/lib/buildinfo.Version=victoria-metrics-v1.150.0",
            cost="3 min",
        ),
        GoPart(
            name="prometheus3",
            version="3.15.0",
            package="github.com/prometheus/prometheus/cmd/prometheus",
            module="prometheus3",
            acceptable=r"prometheus, version 3\.\d+\.",
            stamp=_common_stamp("3.15.0"),
            tags="remove_all_sd",
            cost="5 min",
        ),
        GoPart(
            name="thanos",
            version="0.42.4",
            package="github.com/thanos-io/thanos/cmd/thanos",
            module="thanos",
            acceptable=r"thanos, version 0\.4[2-9]\.",
            stamp=_common_stamp("0.42.4"),
            tags="slicelabels",
            cost="10 min",
        ),
    )
}
"""Other servers that understand PromQL: built by `make compat` alone, since nothing else needs them."""

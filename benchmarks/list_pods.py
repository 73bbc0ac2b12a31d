"""List and decode pods from a paged API server, beside the official client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from subprocess import TimeoutExpired

import msgspec

from benchmarks.fleet import Fleet
from benchmarks.measuring import MEBIBYTE, Figures, in_own_process, interleaved, measure
from benchmarks.serving import Answer, serving
from benchmarks.tables import Section, Table, ratio

PODS_FEW = 10_000
PODS_MANY = 50_000
PAGE_SIZE = 500
PODS_PER_WORKLOAD = 50
PEER_MEMORY_MIN_BYTES = 12 * 1024 * MEBIBYTE
"""Free memory below which the peer's large list would be other people's trouble."""
PEER_MANY_MAX_SECONDS = 480.0


def api_server(pods: int) -> Answer:
    """Prepare the pages of a list, and an empty watch."""
    encoder = msgspec.json.Encoder()
    pages: list[bytes] = []
    items: list[bytes] = []
    for pod in Fleet(pods // PODS_PER_WORKLOAD, PODS_PER_WORKLOAD).pods():
        items.append(encoder.encode(pod))
        if len(items) == PAGE_SIZE:
            pages.append(_page(items, len(pages) + 1, pods // PAGE_SIZE))
            items = []
    assert not items

    def answer(path: str, fields: Mapping[str, str]) -> bytes:
        if "watch" in fields:
            return b""
        if path != "/api/v1/pods" or fields["limit"] != str(PAGE_SIZE):
            raise ValueError(f"not prepared: {path} {fields}")
        return pages[int(fields.get("continue", "0"))]

    return answer


def _page(items: list[bytes], following: int, pages: int) -> bytes:
    token = f',"continue":"{following}"' if following < pages else ""
    head = (
        f'{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"900000000"{token}}},"items":['
    )
    return head.encode() + b",".join(items) + b"]}"


def ours(url: str, pods: int) -> Figures:
    from equipoise.adapters.kubernetes import Client, KubernetesCluster
    from equipoise.adapters.kubernetes.kubeconfig import Endpoint, Identity, Target

    cluster = KubernetesCluster(Client(Target(Endpoint(url), Identity(), "default", "benchmark")))
    found, taken = measure(cluster.pods)
    assert len(found) == pods == len({pod.uid for pod in found})
    assert not cluster.warnings
    return taken.figures()


def official(url: str, pods: int) -> Figures:
    from kubernetes import client

    configuration = client.Configuration()
    configuration.host = url
    api = client.CoreV1Api(client.ApiClient(configuration))

    def listed() -> list[object]:
        found: list[object] = []
        token = None
        while True:
            page = api.list_pod_for_all_namespaces(limit=PAGE_SIZE, _continue=token)
            assert page.metadata is not None
            found += page.items
            token = page.metadata.var_continue
            if not token:
                return found

    found, taken = measure(listed)
    assert len(found) == pods
    return taken.figures()


def run(*, quick: bool) -> Section:
    repeats = 1 if quick else 3
    few = PODS_FEW // 10 if quick else PODS_FEW
    many = PODS_MANY // 10 if quick else PODS_MANY
    with serving(api_server, pods=few) as url:
        mine, peer = interleaved(repeats, _part(ours, url, few), _part(official, url, few))
    peer_many: Figures | None = None
    with serving(api_server, pods=many) as url:
        (mine_many,) = interleaved(repeats, _part(ours, url, many))
        if not quick and _available_bytes() > PEER_MEMORY_MIN_BYTES:
            peer_many = _once(url, many)
    table = Table(
        ("client", "pods", "wall s", "CPU s", "peak RSS MiB", "pods/s", "CPU ratio", "memory ratio")
    )
    rows = [("Equipoise", few, mine, mine), ("kubernetes (official)", few, peer, mine)]
    rows += [("Equipoise", many, mine_many, mine_many)]
    rows += [("kubernetes (official), once", many, peer_many, mine_many)] if peer_many else []
    for name, pods, figures, measure_of in rows:
        table.add(
            name,
            f"{pods:,}",
            f"{figures['wall_seconds']:.2f}",
            f"{figures['cpu_seconds']:.2f}",
            f"{figures['peak_bytes'] / MEBIBYTE:,.0f}",
            f"{pods / figures['wall_seconds']:,.0f}",
            ratio(figures["cpu_seconds"], measure_of["cpu_seconds"]),
            ratio(figures["peak_bytes"], measure_of["peak_bytes"]),
        )
    growth = mine_many["cpu_seconds"] / mine["cpu_seconds"] / (many / few)
    remarks = [f"From {few:,} to {many:,} pods, our CPU time per pod changes by a factor of {growth:.2f}."]
    if peer_many is None:
        remarks.append(
            f"The official client was not run with {many:,} pods: it takes minutes and over 5 GiB."
        )
    return Section(
        "List pods",
        [table],
        "A whole cluster is seen in seconds and tens of MiB, where full objects take minutes and GiB: "
        f"the official client needs {ratio(peer['cpu_seconds'], mine['cpu_seconds'])} the CPU time and "
        f"{ratio(peer['peak_bytes'], mine['peak_bytes'])} the memory for the same {few:,} pods.",
        remarks,
    )


def _part(part: Callable[..., Figures], url: str, pods: int) -> Callable[[], Figures]:
    return lambda: in_own_process(part, url=url, pods=pods)


def _once(url: str, pods: int) -> Figures | None:
    try:
        return in_own_process(official, seconds_max=PEER_MANY_MAX_SECONDS, url=url, pods=pods)
    except TimeoutExpired:
        return None


def _available_bytes() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0

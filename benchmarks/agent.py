"""One round of the node agent over real cgroups: CPU, what share of a core that is, memory, growth."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from benchmarks.measuring import MEBIBYTE, Figures, in_own_process, medians, memory_bytes
from benchmarks.tables import Section, Table, ratio

SIZES = (50, 250, 500)
CONTAINERS_EACH = 2
ROUNDS = 9
REST_SECONDS = 0.25
"""Between two rounds: CPU is told by an interval, and a shorter one tells nothing."""
INTERVALS = (1.0, 10.0)
CORE_SHARE_MAX = 0.01
"""Of a core, at a look every ten seconds."""
RESIDENT_MIB_MAX = 80.0


def rounds(pods: int, *, is_busy: bool) -> Figures:
    """Do rounds over real cgroups without processes; above its waterline, all pods are sorted and tried."""
    import equipoise.runtime.agent.run
    from equipoise.adapters.cgroups import connect_host
    from equipoise.ports.node import NodeContainer, NodePod
    from equipoise.qos.loop import QosLoop
    from equipoise.runtime.agent.state import StateFile
    from tests.support.agent.machines import Around, policies
    from tests.support.agent.trees import tree
    from tests.support.qos.worlds import policy, rule

    assert equipoise.runtime.agent.run.FAILURES_MAX
    waterline = 1 if is_busy else 10**9
    around = Around(asked=policies(policy(rule("cpu_total_usage", waterline, "throttle"))))
    spent: list[float] = []
    with tree() as made, tempfile.TemporaryDirectory() as folder:
        for number in range(pods):
            uid = f"pod-{number}"
            ids = [f"{number:08x}{part:024x}" for part in range(CONTAINERS_EACH)]
            for id_ in ids:
                made.add(uid, id_)
            told = tuple(NodeContainer(f"c{place}", id_) for place, id_ in enumerate(ids))
            around.all_pods.append(NodePod("d", uid, uid, containers=told))
        host = connect_host(parent=made.parent)
        keep = StateFile(Path(folder) / "state.json", host.boot_id())
        loop = QosLoop("n", host, around, around, around, keep, is_enforced=True)
        for _ in range(ROUNDS):
            before = time.thread_time()
            loop.cycle(around.now())
            spent.append(time.thread_time() - before)
            time.sleep(REST_SECONDS)
    spent.sort()
    return {"cpu_seconds": spent[len(spent) // 2], "rss_mib": memory_bytes("VmRSS") / MEBIBYTE}


def run(*, quick: bool) -> Section:
    sizes = SIZES[:2] if quick else SIZES
    repeats = 1 if quick else 3
    table = Table(("node, pods, containers", "CPU of a round", "of a core at 1 s", "at 10 s", "RSS"))
    found: dict[tuple[int, bool], Figures] = {}
    for is_busy in (False, True):
        for size in sizes:
            figures = medians([in_own_process(rounds, pods=size, is_busy=is_busy) for _ in range(repeats)])
            found[size, is_busy] = figures
            cpu = figures["cpu_seconds"]
            name = "above a waterline" if is_busy else "at rest"
            shares = [f"{cpu / seconds:.2%}" for seconds in INTERVALS]
            table.add(
                f"{name}, {size}, {size * CONTAINERS_EACH}",
                f"{cpu * 1000:.1f} ms",
                *shares,
                f"{figures['rss_mib']:.0f} MiB",
            )
    middle = found[SIZES[1], True]
    share, resident = middle["cpu_seconds"] / INTERVALS[1], middle["rss_mib"]
    met = "meets" if share < CORE_SHARE_MAX and resident < RESIDENT_MIB_MAX else "misses"
    growth = ratio(*(found[size, True]["cpu_seconds"] for size in (sizes[-1], sizes[0])))
    return Section(
        "Watching a node: one round of the agent",
        [table],
        f"At 250 pods above a waterline, {share:.2%} of a core at a look every 10 s and {resident:.0f} MiB, "
        f"which {met} the goal of under {CORE_SHARE_MAX:.0%} and {RESIDENT_MIB_MAX:.0f} MiB. "
        f"{sizes[-1] // sizes[0]} times the pods cost {growth} the CPU.",
        [
            "Real cgroups of version 1, two containers per pod, without processes in them.",
            "At rest only CPU is read of containers; above a waterline memory and quotas too.",
            "The middle of 9 rounds; everything that the agent imports is in memory, its watches are not.",
        ],
    )

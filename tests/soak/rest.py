"""A thousand policies at rest: `python -m tests.soak.rest [--minutes N] [--policies N]`.

The operator looks after a thousand calm workloads of three pods on a real API server, under exactly the
chart's role. Nothing changes, so next to nothing should be written. Figures go to docs/soak.md.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from tests.soak import write_figures
from tests.support.cli.running import equipoise_anew as equipoise
from tests.support.e2e.charts import Helm, audit_arguments
from tests.testbed import ControlPlane, Kwok, Prometheus, free_port, wait_until
from tests.testbed.processes import is_answering
from tests.testbed.scenes import deployment, hpa, namespaced

NAMESPACE, RELEASE = "rest", "equipoise"
WRITES = {"create", "update", "patch", "delete"}
READY_SECONDS = 600


class Moment(NamedTuple):
    """What has been used so far."""

    writes: dict[str, int]
    """By verb and resource."""
    reads: int
    journal_bytes: int
    cpu_seconds: float
    rss_mib: float


def main() -> int:
    """Run, and write the figures."""
    options = argparse.ArgumentParser(prog="python -m tests.soak.rest", description=__doc__)
    options.add_argument("--minutes", type=float, default=10.0)
    options.add_argument("--policies", type=int, default=1000)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="rest-") as folder, ExitStack() as stack:
        before, after = _measure(Path(folder), stack, chosen.policies, chosen.minutes)
    entry = _entry(before, after, chosen.policies, chosen.minutes)
    print(entry)
    write_figures("rest", entry)
    return 0


def _measure(folder: Path, stack: ExitStack, policies: int, minutes: float) -> tuple[Moment, Moment]:
    plane = stack.enter_context(ControlPlane(folder, extra_apiserver_args=audit_arguments(folder)))
    kwok = Kwok(plane, folder)
    stack.callback(kwok.stop)
    kwok.start()
    for number in range(1, 1 + -(-policies * 3 // 400)):
        kwok.add_node(f"kwok-{number}", cpu="10000", pods="500")
    prometheus = Prometheus(folder, kwok=kwok, scrape_interval_seconds=15)
    stack.callback(prometheus.stop)
    prometheus.start()
    _fill(plane, policies)
    prometheus.wait_for(
        f'count(rate(container_cpu_usage_seconds_total{{namespace="{NAMESPACE}"}}[5m])) >= {policies * 3}',
        1,
        READY_SECONDS,
    )
    operator = _operator(plane, folder, prometheus.url, stack)
    _wait_for_rest(plane, policies)
    before = _moment(folder, operator)
    threading.Event().wait(minutes * 60)  # this is the measurement, not a wait for something
    assert operator.poll() is None, (folder / "operator.log").read_text()[-2000:]
    return before, _moment(folder, operator)


def _fill(plane: ControlPlane, policies: int) -> None:
    done = equipoise("crds", "apply", "--kubeconfig", str(plane.kubeconfig))
    assert done.returncode == 0, done.stderr
    plane.apply(namespaced(NAMESPACE))
    account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
    wait_until(lambda: plane.api.answers(account), "the default service account", 60)

    def one(number: int) -> None:
        name = f"web-{number:04}"
        made = deployment(NAMESPACE, name, replicas=3, request="1")
        made["spec"]["template"]["metadata"]["annotations"] = {"kwok.x-k8s.io/usage-cpu": "600m"}
        plane.apply([made, hpa(NAMESPACE, name, 70, 3, 5), _policy(name)])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, range(policies)))


def _policy(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "equipoise.dev/v1alpha1",
        "kind": "RotationPolicy",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"targetRef": {"kind": "Deployment", "name": name}, "minPodAge": "0s"},
    }


def _operator(plane: ControlPlane, folder: Path, url: str, stack: ExitStack) -> subprocess.Popen[bytes]:
    """Start the operator with a token of the chart's own service account."""
    helm = Helm(folder / "helm")
    values = {"config": {"prometheus": {"url": url}}}
    helm.install(plane, RELEASE, NAMESPACE, values)
    config = plane.kubeconfig_for("operator", {"token": plane.token(NAMESPACE, RELEASE, 7200)})
    address = f"127.0.0.1:{free_port()}"
    settings = {
        "kubernetes": {"kubeconfig": str(config)},
        "lease": {"namespace": NAMESPACE, "name": RELEASE},
        "http": {"address": address},
        "prometheus": {"url": url},
        "journal": {"path": str(folder / "journal.db")},
    }
    file = folder / "operator.yaml"
    file.write_text(json.dumps(settings))
    log = stack.enter_context((folder / "operator.log").open("wb"))
    program = "from equipoise.cli.main import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "operator", "--config", str(file)], stdout=log, stderr=log
    )
    stack.callback(process.wait, 30)
    stack.callback(process.terminate)
    wait_until(lambda: is_answering(f"http://{address}/readyz"), "the operator to be ready", READY_SECONDS)
    return process


def _wait_for_rest(plane: ControlPlane, policies: int) -> None:
    path = f"/apis/equipoise.dev/v1alpha1/namespaces/{NAMESPACE}/rotationpolicies"

    def are_calm() -> bool:
        found = [item.get("status", {}).get("lastDecision", {}) for item in plane.api.items(path)]
        return len([each for each in found if each.get("reason") == "NoHotPods"]) == policies

    wait_until(are_calm, f"{policies} policies at rest", READY_SECONDS)


def _moment(folder: Path, operator: subprocess.Popen[bytes]) -> Moment:
    user = f"system:serviceaccount:{NAMESPACE}:{RELEASE}"
    writes: dict[str, int] = {}
    reads = 0
    for line in (folder / "audit.log").read_text().splitlines():
        event = json.loads(line)
        if event["user"]["username"] != user:
            continue
        if event["verb"] in WRITES:
            about = event.get("objectRef", {})
            what = f"{event['verb']} {about.get('resource')}"
            writes[what] = writes.get(what, 0) + 1
        else:
            reads += 1
    journal = sum(file.stat().st_size for file in folder.glob("journal.db*"))
    fields = Path(f"/proc/{operator.pid}/stat").read_text().rpartition(")")[2].split()
    cpu_seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    status = Path(f"/proc/{operator.pid}/status").read_text()
    rss_kib = int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))
    return Moment(writes, reads, journal, cpu_seconds, rss_kib / 1024)


def _entry(before: Moment, after: Moment, policies: int, minutes: float) -> str:
    day = datetime.now(UTC).date().isoformat()
    kinds = {what: count - before.writes.get(what, 0) for what, count in after.writes.items()}
    told = ", ".join(f"{what}: {count}" for what, count in sorted(kinds.items()) if count) or "none"
    cpu = after.cpu_seconds - before.cpu_seconds
    rows = [
        ("API writes a minute", f"{sum(kinds.values()) / minutes:.1f} ({told})"),
        ("API reads and watches opened a minute", f"{(after.reads - before.reads) / minutes:.1f}"),
        ("journal, bytes", f"{before.journal_bytes} at the start, {after.journal_bytes} at the end"),
        ("CPU, share of a core", f"{cpu / (minutes * 60):.1%}"),
        ("RSS, MiB", f"{before.rss_mib:.0f} at the start, {after.rss_mib:.0f} at the end"),
    ]
    lines = "\n".join(f"| {name} | {value} |" for name, value in rows)
    title = f"### {day}: {policies} policies, {policies * 3} pods, {minutes:g} minutes"
    return f"{title}\n\n| what | figure |\n|---|---|\n{lines}\n"


if __name__ == "__main__":
    sys.exit(main())

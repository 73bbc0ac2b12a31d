"""A replica that acts, to be stopped and killed at will: `python -m tests.support.e2e.operator_process`.

It is the production loop on the production adapters, with acting switched on. It prints one JSON line per
cycle in which it leads. `--at STEP` names a step of the fence at which it sends itself a signal, once.
`--lease-seconds` says for how long its lease holds: a successor waits for its end, a stalled leader loses it.
`--intent-seconds` says after how long an intent whose pod still runs is known to have come to nothing; in
production that is longer than a test should last.
"""

import argparse
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

from equipoise.adapters.journal import RecordIds
from equipoise.adapters.kubernetes import KubernetesCluster, connect
from equipoise.adapters.kubernetes.actions import KubernetesActuator
from equipoise.adapters.kubernetes.lease import LeaseElection
from equipoise.adapters.kubernetes.pauses import NamespacePauses
from equipoise.adapters.kubernetes.policies import KubernetesPolicies
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.adapters.prometheus.metrics import connect as connect_prometheus
from equipoise.adapters.prometheus.settings import PrometheusSettings
from equipoise.core import ledger
from equipoise.core.decision import Record
from equipoise.core.errors import WorldFailed
from equipoise.rotation.loop import RotationLoop
from equipoise.rotation.observe import Ports
from equipoise.rotation.policy import ROTATION_POLICY

CYCLE_SECONDS = 0.5


class NoDiary:
    """The successor starts with an empty disk."""

    def append(self, *records: Record, is_whole: bool = False) -> None:
        del records, is_whole


def _say(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    for name in ("kubeconfig", "prometheus", "namespace", "identity"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--at", default="")
    parser.add_argument("--intent-seconds", type=float, default=ledger.INTENT_MAX_SECONDS)
    parser.add_argument("--lease-seconds", type=int, default=3)
    parser.add_argument("--signal", default="SIGKILL", choices=["SIGKILL", "SIGSTOP"])
    return parser.parse_args()


def main() -> None:
    """Lead when it is our turn, and act."""
    asked = _arguments()
    ledger.INTENT_MAX_SECONDS = asked.intent_seconds
    client = connect(asked.kubeconfig)
    election = LeaseElection(
        client,
        *(asked.namespace, "acting", asked.identity),
        lease_seconds=asked.lease_seconds,
        renew_seconds=asked.lease_seconds * 2 / 3,
        retry_seconds=0.3,
    )
    pauses = NamespacePauses(client, operator_namespace=asked.namespace)
    kind = ROTATION_POLICY
    policies = KubernetesPolicies(
        client,
        kind,
        namespaces=(asked.namespace,),
    )
    marks = Path(asked.kubeconfig).parent / f"signalled-{asked.identity}-{asked.namespace}"

    def on_step(step: str) -> None:
        if step == asked.at and not marks.exists():
            marks.touch()
            _say(step=step)
            os.kill(os.getpid(), getattr(signal, asked.signal))

    ports = Ports(
        cluster=KubernetesCluster(client),
        metrics=connect_prometheus(PrometheusSettings(url=asked.prometheus)),
        pauses=pauses,
        leadership=election,
        store=LedgerStore(client),
        actuator=KubernetesActuator(client),
        journal=NoDiary(),
        new_id=RecordIds(os.getpid()).next,
        now=time.time,
        on_step=on_step,
    )
    loop = RotationLoop(ports, policies)
    for part in (election, pauses.reflector, policies.reflector):
        part.start()
    _run(loop, election)


def _run(loop: RotationLoop, election: LeaseElection) -> None:
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    while not stopping.wait(CYCLE_SECONDS):
        epoch = election.epoch()
        if epoch is None:
            continue
        try:
            report = loop.cycle(time.time())
        except WorldFailed as error:
            _say(error=str(error))
            continue
        _say(
            epoch=epoch,
            reasons=[decision.reason.code.value for decision in report.decisions],
            outcomes=[outcome.result for outcome in report.outcomes],
        )
    election.stop()


if __name__ == "__main__":
    main()

"""Stands for election in a process of its own, and writes down every answer of `epoch()` with its moment.

Run as a file: `python election_candidate.py KUBECONFIG NAMESPACE LEASE IDENTITY LEASE_S RENEW_S RETRY_S`.
A line is `BEFORE AFTER EPOCH`: the machine's monotonic clock around the question, and the answer or `-`.
"""

import signal
import sys
import threading
import time

from equipoise.adapters.kubernetes import connect
from equipoise.adapters.kubernetes.lease import LeaseElection

_ASK_SECONDS = 0.005


def main() -> None:
    kubeconfig, namespace, lease, identity, lease_s, renew_s, retry_s = sys.argv[1:]
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    election = LeaseElection(
        connect(kubeconfig, environment={}),
        namespace,
        lease,
        identity,
        lease_seconds=int(lease_s),
        renew_seconds=float(renew_s),
        retry_seconds=float(retry_s),
    )
    election.start()
    while not ending.wait(_ASK_SECONDS):
        before = time.monotonic()
        epoch = election.epoch()
        after = time.monotonic()
        print(f"{before:.6f} {after:.6f} {'-' if epoch is None else epoch}", flush=True)
    election.stop()


if __name__ == "__main__":
    main()

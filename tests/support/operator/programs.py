"""Run as another process: an operator with loops of the test's own.

`python -m tests.support.operator.programs MODE [STOP_SECONDS]` prints what its parts do,
and with `batch` first the worker's process id. The worker imports this
module too, so what is heavy is imported in `main`.
"""

import sys
import threading
import time


def main() -> None:
    from equipoise.ports import CycleReport
    from equipoise.runtime.logs import make_log
    from equipoise.runtime.metrics import OperatorMetrics
    from equipoise.runtime.operator.process import OperatorProcess
    from equipoise.runtime.operator.wiring import run_until_signalled
    from equipoise.runtime.operator.worker import Batches
    from equipoise.runtime.runner import HeartbeatRegistry
    from equipoise.runtime.settings import Logs
    from tests.support.operator.worker_functions import hang, worker_id
    from tests.support.operator.worlds import WAIT_SECONDS, Now, ScriptedLoop, ScriptedPart, report

    mode = sys.argv[1]
    batches, stopping = Batches(), threading.Event()

    def cycle(at: float) -> CycleReport:
        if mode == "batch":
            batches.submit(hang)
        elif mode == "slow":
            print("cycle", flush=True)
            stopping.wait(WAIT_SECONDS)  # it is under way whenever the signal comes
            time.sleep(0.5)
            print("cycle done", flush=True)
        elif mode == "stuck":
            print("cycle", flush=True)
            threading.Event().wait()
        return report()

    if mode == "batch":
        print(batches.submit(worker_id), flush=True)
    shell = OperatorProcess(
        loops=[ScriptedLoop(cycle, interval_seconds=1.0)],
        lease=ScriptedPart("lease", _Printed()),
        parts=[ScriptedPart("journal", _Printed())],
        batches=batches,
        heartbeats=HeartbeatRegistry(),
        metrics=OperatorMetrics(),
        clock=Now(),
        address="127.0.0.1:0",
        stop_seconds=float(sys.argv[2]) if len(sys.argv) > 2 else 20.0,
        stopping=stopping,
        log=make_log(Logs(format="json")),
        rng=lambda: 0.0,
    )
    run_until_signalled(shell)
    print("ended", flush=True)


class _Printed(list[str]):
    def append(self, line: str) -> None:
        print(line, flush=True)


if __name__ == "__main__":
    main()

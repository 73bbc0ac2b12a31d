"""Whether a heavy batch starves its process: a 50 ms heartbeat and /healthz, beside a worker or a thread."""

from __future__ import annotations

import random
import threading
import time
import urllib.request
from collections.abc import Callable

from benchmarks.tables import Section, Table, ratio
from equipoise.runtime.http import HttpServer, make_app
from equipoise.runtime.metrics import OperatorMetrics
from equipoise.runtime.operator.worker import Batches

BEAT_SECONDS = 0.05
ITEMS = 1_500_000


def heavy(seconds: float) -> int:
    """Sort a large list again and again: each call holds the interpreter's lock until it is done."""
    chance, turns, until = random.Random(1), 0, time.monotonic() + seconds
    values = [chance.random() for _ in range(ITEMS)]
    while time.monotonic() < until:
        sorted(values, key=float.__neg__ if turns % 2 else None)
        turns += 1
    return turns


def run(*, quick: bool) -> Section:
    seconds = 3.0 if quick else 10.0
    batches = Batches()
    batches.submit(heavy, 0.0)  # the worker starts before anything is measured
    figures = {
        "nothing": measured(lambda: time.sleep(seconds)),
        "in the worker process": measured(lambda: batches.submit(heavy, seconds)),
        "in a thread of the process": measured(lambda: heavy(seconds)),
    }
    batches.stop()
    table = Table(
        ("the batch runs", "beat late, p99 ms", "beat late, worst ms", "/healthz worst ms", "probes")
    )
    for name, (late, answers) in figures.items():
        table.add(name, _ms(_p99(late)), _ms(max(late)), _ms(max(answers)), str(len(answers)))
    worker, thread = figures["in the worker process"], figures["in a thread of the process"]
    return Section(
        "A heavy batch beside the heartbeat",
        [table],
        f"A batch in a thread makes a beat {ratio(max(thread[0]), max(worker[0]))} as late as one in "
        f"the worker process does, and /healthz takes {ratio(max(thread[1]), max(worker[1]))} as long.",
        [] if max(worker[1]) < 1.0 else ["/healthz took a second or more beside the worker on this machine."],
    )


def measured(work: Callable[[], object]) -> tuple[list[float], list[float]]:
    """Do the work while one thread beats and another probes; give the lateness and the answers' seconds."""
    door = HttpServer("127.0.0.1:0", make_app(list, list, OperatorMetrics().registry))
    door.start()
    done, late, answers = threading.Event(), [0.0], [0.0]

    def beat() -> None:
        while not done.is_set():
            due = time.monotonic() + BEAT_SECONDS
            time.sleep(BEAT_SECONDS)
            late.append(time.monotonic() - due)

    def probe() -> None:
        while not done.is_set():
            began = time.monotonic()
            urllib.request.urlopen(f"http://127.0.0.1:{door.port}/healthz", timeout=60).close()
            answers.append(time.monotonic() - began)
            done.wait(0.1)

    threads = [threading.Thread(target=beat), threading.Thread(target=probe)]
    for thread in threads:
        thread.start()
    work()
    done.set()
    for thread in threads:
        thread.join()
    door.stop(10)
    return late, answers


def _p99(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}"

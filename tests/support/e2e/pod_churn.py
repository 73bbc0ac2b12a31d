"""Pods that come, change and go at a set pace, written by threads that a test can pause."""

import random
import threading
import time
from collections import Counter, deque
from types import TracebackType
from typing import Self

import urllib3

from tests.testbed import Api, ApiError, wait_until
from tests.testbed.scenes import namespaced

_THREADS = 6
_NAMES_EACH = 40
_DELETE_SHARE = 0.4
_SPARE_SPEED = 1.35
"""How much faster than asked for the writers try to be, so that the pace holds on a busy machine."""


def pod(name: str) -> dict[str, object]:
    """Describe a pod that nobody will schedule."""
    container = {
        "name": "app",
        "image": "example/app:1",
        "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    return {"metadata": {"name": name, "labels": {"app": "churn"}}, "spec": {"containers": [container]}}


def _is_starting(error: ApiError) -> bool:
    """Whether a server refused because it has just begun and cannot judge yet, whatever it was asked."""
    return error.status == 403 and "not yet ready" in str(error)


class Churn:
    """Writers of pods in one namespace. A name is taken again and again, each time by another pod."""

    def __init__(self, api: Api, namespace: str, *, changes_per_second: float, seed: int) -> None:
        self.api = api
        self.namespace = namespace
        self.changes_per_second = changes_per_second
        self.pods_path = f"/api/v1/namespaces/{namespace}/pods"
        self.born: set[str] = set()
        """UIDs that the server gave in an answer."""
        self.counts: Counter[str] = Counter()
        """Changes that the server confirmed, by kind; and what went wrong."""
        self._unexpected: Exception | None = None
        self._recent: deque[float] = deque()
        self._lock = threading.Condition()
        self._busy = 0
        self._is_paused = False
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(number, random.Random(seed + number)), daemon=True)
            for number in range(_THREADS)
        ]

    def __enter__(self) -> Self:
        self.api.apply(namespaced(self.namespace))
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self.resume()
        for thread in self._threads:
            thread.join(90)
            assert not thread.is_alive(), "a writer has not ended"

    @property
    def changes(self) -> int:
        with self._lock:
            return sum(self.counts[kind] for kind in ("create", "patch", "delete"))

    def pace(self) -> float:
        """Give the changes of the last second."""
        self.check()
        with self._lock:
            self._trim(time.monotonic())
            return float(len(self._recent))

    def wait_for_pace(self, seconds: float = 600) -> float:
        """Wait until the pace asked for is reached; give the pace."""

        def is_enough() -> float | None:
            pace = self.pace()
            return pace if pace >= self.changes_per_second else None

        return wait_until(is_enough, f"{self.changes_per_second:g} changes in a second", seconds)

    def pause(self, seconds: float = 90) -> None:
        """Stop the writers, and return when the last answer is in."""
        with self._lock:
            self._is_paused = True
            assert self._lock.wait_for(lambda: self._busy == 0, seconds), "writes without an answer"
            self._recent.clear()  # the pace is to be reached anew
        self.check()

    def resume(self) -> None:
        with self._lock:
            self._is_paused = False
            self._lock.notify_all()

    def check(self) -> None:
        """Raise what no writer should have met."""
        if self._unexpected is not None:
            raise self._unexpected

    def create(self, name: str) -> str:
        """Make one pod; give its UID."""
        made = self.api.create(self.pods_path, pod(name))
        uid = str(made["metadata"]["uid"])
        with self._lock:
            self.born.add(uid)
        self._count("create")
        return uid

    def delete(self, name: str) -> None:
        """Remove one pod at once."""
        self.api.request("DELETE", f"{self.pods_path}/{name}", query={"gracePeriodSeconds": "0"})
        self._count("delete")

    def _write(self, number: int, chance: random.Random) -> None:
        there = dict.fromkeys((f"pod-{number}-{i}" for i in range(_NAMES_EACH)), False)
        names = list(there)
        interval = _THREADS / (self.changes_per_second * _SPARE_SPEED)
        due = time.monotonic() + interval * chance.random()
        while not self._ending.wait(max(0.0, due - time.monotonic())):
            due = max(due + interval, time.monotonic() - 0.5)  # a little is made up for, not an outage
            self._begin()
            try:
                self._change(chance.choice(names), there, chance)
            except Exception as error:  # noqa: BLE001 - told by `check`
                self._unexpected = error
            finally:
                self._done()

    def _change(self, name: str, there: dict[str, bool], chance: random.Random) -> None:
        is_there = there[name]
        try:
            if not is_there:
                self.create(name)
                there[name] = True
            elif chance.random() < _DELETE_SHARE:
                self.delete(name)
                there[name] = False
            else:
                mark = {"metadata": {"annotations": {"example/mark": str(chance.random())}}}
                self.api.patch(f"{self.pods_path}/{name}", mark)
                self._count("patch")
        except ApiError as error:
            # After a lost answer nobody knows whether the pod is there; the server does.
            if error.status in {404, 409}:
                there[name] = error.status == 409
            elif error.status < 500 and error.status != 429 and not _is_starting(error):
                raise
            self._failed()
        except urllib3.exceptions.HTTPError:
            self._failed()
            self._ending.wait(0.05)

    def _begin(self) -> None:
        with self._lock:
            self._lock.wait_for(lambda: not self._is_paused or self._ending.is_set())
            self._busy += 1

    def _done(self) -> None:
        with self._lock:
            self._busy -= 1
            self._lock.notify_all()

    def _failed(self) -> None:
        with self._lock:
            self.counts["failed"] += 1

    def _count(self, kind: str) -> None:
        now = time.monotonic()
        with self._lock:
            self.counts[kind] += 1
            self._recent.append(now)
            self._trim(now)

    def _trim(self, now: float) -> None:
        while self._recent and self._recent[0] < now - 1:
            self._recent.popleft()

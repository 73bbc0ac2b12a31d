"""Clients of `pools serve` while Redis and the service are killed: is every *no* that they are told true?

A *no* promises that nothing was changed. Each client works on calls and on a pod of its own, so what it was
told can be held against Redis: a call whose allocation was refused is unknown, one whose release was refused
is still known, a pod whose drain was refused does not drain. Redis writes each command down before it answers
(`appendfsync always`), so a kill loses nothing.
"""

import http.client
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import RedisError

from tests.support.pools.worlds import config
from tests.testbed import Process, RedisServer, free_port, wait_until

CLIENTS = 16
PODS_EACH = 4
DOWN_SECONDS = (0.0, 1.5)
"""How long Redis stays away: less and more than a service waits until it asks once more."""
UP_SECONDS = (0.2, 1.5)
SERVE_KILL_SHARE = 0.15
ANSWER_SECONDS = 30.0


@dataclass
class Report:
    """What was answered, and what of it was false."""

    seconds: float = 0.0
    redis_kills: int = 0
    serve_kills: int = 0
    answers: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    """By operation, outcome and result; `unknown` without a result is a connection that ended."""
    checked: Counter[str] = field(default_factory=Counter)
    """By operation: the *no* answers that were held against Redis."""
    false: list[str] = field(default_factory=list)

    def count(self, outcome: str, operation: str = "") -> int:
        """Return how many answers had this outcome."""
        return sum(
            number
            for (name, said, _), number in self.answers.items()
            if said == outcome and operation in ("", name)
        )


def ask_under_kills(server: RedisServer, folder: Path, seconds: float, seed: int = 1) -> Report:
    """Let the clients ask for so long, with kills at random; return what they were told."""
    chance = random.Random(seed)
    report = Report(seconds=seconds)
    pods = [f"a-{number}" for number in range(CLIENTS * PODS_EACH)]
    with server.client() as client:
        client.set("voice:tier:config", json.dumps(config(gold=len(pods))))
        for pod in pods:
            client.set(f"voice:pod:tier:{pod}", "gold")
        client.sadd("voice:pool:gold:assigned", *pods)
        client.sadd("voice:pool:gold:available", *pods)
    serve = _Serve(server.url, folder)
    serve.start()
    stopping = threading.Event()
    clients = [_Client(number, serve.port, server.port, report, stopping, seed) for number in range(CLIENTS)]
    for each in clients:
        each.start()
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(chance.uniform(*UP_SECONDS))
            if chance.random() < SERVE_KILL_SHARE:
                serve.kill()
                serve.start()
                report.serve_kills += 1
                continue
            server.kill()
            report.redis_kills += 1
            time.sleep(chance.uniform(*DOWN_SECONDS))
            server.restart()
    finally:
        stopping.set()
        for each in clients:
            each.join(4 * ANSWER_SECONDS)
        serve.kill()
    assert not any(each.is_alive() for each in clients), "a client did not end"
    for each in clients:
        if each.failure is not None:
            raise each.failure
    return report


class _Serve:
    """`equipoise pools serve` on a port that stays."""

    def __init__(self, url: str, folder: Path) -> None:
        self.port = free_port()
        words = ["pools", "serve", "--redis", url, "--address", f"127.0.0.1:{self.port}"]
        program = "from equipoise.cli.main import main; main()"
        self._process = Process("pools-serve", [sys.executable, "-c", program, *words], folder / "serve.log")

    def start(self) -> None:
        self._process.start()
        self._process.wait_until(self._answers, "the service answering", 60)

    def kill(self) -> None:
        self._process.kill()

    def _answers(self) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
        with suppress(OSError, http.client.HTTPException), closing(connection):
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        return False


class _Client(threading.Thread):
    """Allocates, renews, releases calls of its own names; drains and undrains a pod of its own."""

    def __init__(
        self, number: int, port: int, redis_port: int, report: Report, stopping: threading.Event, seed: int
    ) -> None:
        super().__init__(name=f"client-{number}", daemon=True)
        self._name = f"c{number}"
        self._pod = f"a-{number}"
        self._port = port
        self._redis = Redis(port=redis_port, decode_responses=True, socket_timeout=ANSWER_SECONDS)
        self._report = report
        self._stopping = stopping
        self._chance = random.Random(f"{seed}-{number}")
        self._connection: http.client.HTTPConnection | None = None
        self._calls = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._stopping.is_set():
                if self._chance.random() < 0.2:
                    self._drain()
                else:
                    self._call()
        except (AssertionError, RedisError, ValueError, KeyError) as error:
            self.failure = error
        finally:
            self._redis.close()
            if self._connection is not None:
                self._connection.close()

    def _call(self) -> None:
        """Serve one call; its name is never used again."""
        self._calls += 1
        call = f"{self._name}-{self._calls}"
        key = f"voice:call:{call}"
        outcome = self._asked("allocate", lambda: not self._exists(key), call=call)
        if outcome == "no":
            return
        if outcome == "unknown" and self._until_certain("allocate", call=call) != "yes":
            return
        if self._asked("heartbeat", lambda: True, call=call) == "no":
            self._expect("heartbeat", self._exists(key), call)
        outcome = self._asked("release", lambda: self._exists(key), call=call)
        if outcome != "yes":
            self._until_certain("release", call=call)

    def _drain(self) -> None:
        """Drain the pod and undrain it again: nobody else does."""
        key = f"voice:pod:draining:{self._pod}"
        for operation, is_before in (("drain", False), ("undrain", True)):
            is_unchanged = partial(self._is_drained, key, is_before)
            outcome = self._asked(operation, is_unchanged, pod=self._pod)
            while outcome != "yes":
                outcome = self._until_certain(operation, pod=self._pod)

    def _is_drained(self, key: str, is_wanted: bool) -> bool:
        return self._exists(key) == is_wanted

    def _asked(self, operation: str, is_unchanged: Callable[[], bool], **fields: str) -> str:
        """Ask once; a *no* is held against Redis."""
        outcome, result = self._ask(operation, **fields)
        self._report.answers[operation, outcome, result] += 1
        if outcome == "no":
            self._report.checked[operation] += 1
            self._expect(operation, is_unchanged(), f"{fields}: {result}")
        return outcome

    def _expect(self, operation: str, is_true: bool, about: str) -> None:
        if not is_true:
            self._report.false.append(f"{operation} {about}")

    def _until_certain(self, operation: str, **fields: str) -> str:
        """Ask again until it is certain; what the first one did is not known, so a *no* is not judged."""
        end = time.monotonic() + ANSWER_SECONDS
        while True:
            outcome, result = self._ask(operation, **fields)
            if outcome == "yes" or (outcome == "no" and result != "Unavailable"):
                return outcome
            assert time.monotonic() < end, f"{operation} {fields}: no certain answer in {ANSWER_SECONDS:g} s"
            time.sleep(0.01)

    def _ask(self, operation: str, **fields: str) -> tuple[str, str]:
        """Return outcome and result; a connection that ends after the request is an unknown."""
        body = json.dumps(fields).encode()
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=ANSWER_SECONDS)
        try:
            self._connection.request("POST", f"/v1/{operation}", body, {"Content-Type": "application/json"})
            document: Any = json.loads(self._connection.getresponse().read())
        except (OSError, http.client.HTTPException, ValueError):
            self._connection.close()
            self._connection = None
            time.sleep(0.01)
            return "unknown", ""
        return document["outcome"], document["result"]

    def _exists(self, key: str) -> bool:
        """Ask Redis itself, as soon as it is there."""
        found: list[bool] = []

        def is_answered() -> bool:
            with suppress(RedisError, OSError):
                found.append(bool(self._redis.exists(key)))
            return bool(found)

        wait_until(is_answered, "an answer of Redis", ANSWER_SECONDS)
        return found[0]

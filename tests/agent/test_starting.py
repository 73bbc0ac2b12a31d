"""The agent answers from the beginning: live while it waits for its first lists, and not ready before."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3

from equipoise.core.errors import WorldFailed
from equipoise.runtime.agent import node_api as surroundings
from equipoise.runtime.agent.run import Agent
from equipoise.runtime.http import HttpServer, make_app
from tests.support.agent.api import Api, agent_of
from tests.testbed import free_port, wait_until


class Running:
    """An agent on a thread, and what its port says."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.agent.run()
        except WorldFailed as error:
            self.error = error

    def asked(self, page: str) -> tuple[int, str]:
        with urllib3.PoolManager(timeout=30.0, retries=False) as pool:
            try:
                answer = pool.request("GET", f"http://{self.agent.settings.http_address}/{page}")
            except urllib3.exceptions.HTTPError:
                return 0, ""
            return answer.status, answer.data.decode()

    def wait_for(self, page: str, status: int) -> str:
        wait_until(lambda: self.asked(page)[0] == status, f"/{page} to answer {status}", 60)
        return self.asked(page)[1]


@contextmanager
def _running(api: Api, folder: Path, **settings: Any) -> Iterator[Running]:
    settings = {"http_address": f"127.0.0.1:{free_port()}"} | settings
    with agent_of(api, folder, **settings) as agent:
        made = Running(agent)
        try:
            yield made
        finally:
            api.are_open.set()
            agent.stopping.set()
            made.thread.join(60)


def test_it_is_live_and_not_ready_while_it_waits_for_its_first_lists(tmp_path: Path) -> None:
    """A probe that kills what does not answer leaves it alone; and it says what it waits for."""
    api = Api()
    api.are_open.clear()
    with _running(api, tmp_path) as running:
        assert running.wait_for("healthz", 200) == "ok\n"
        assert running.asked("readyz") == (503, "the nodes of n1 have not been listed yet\n")
        api.are_open.set()
        running.wait_for("readyz", 200)


def test_a_list_that_never_comes_ends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is bounded; nothing is answered any more."""
    monkeypatch.setattr(surroundings, "SYNC_SECONDS", 0.3)
    api = Api()
    api.are_open.clear()
    with _running(api, tmp_path) as running:
        running.thread.join(60)
        assert not running.thread.is_alive()
        assert str(running.error).endswith("the nodes of n1: no answer")
        assert running.asked("healthz") == (0, "")


def test_a_stop_ends_the_wait_for_lists(tmp_path: Path) -> None:
    """Without an error: there is nothing that it could give back."""
    api = Api()
    api.are_open.clear()
    with _running(api, tmp_path) as running:
        running.wait_for("healthz", 200)
        running.agent.stopping.set()
        running.thread.join(60)
        assert (running.thread.is_alive(), running.error) == (False, None)


def test_health_fails_while_the_loop_stalls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is well again when it gets on."""
    go_on = threading.Event()
    with _running(Api(), tmp_path) as running:
        running.wait_for("readyz", 200)
        running.agent.runner.heartbeat.stall_seconds = 0.5
        real: Callable[[float], Any] = running.agent.loop.cycle
        monkeypatch.setattr(type(running.agent.loop), "cycle", lambda _, at: (go_on.wait(60), real(at))[1])
        try:
            assert "loop qos has stalled" in running.wait_for("healthz", 503)
        finally:
            monkeypatch.undo()
            go_on.set()
        running.wait_for("healthz", 200)


def test_rounds_that_fail_make_it_unready_and_not_ill(tmp_path: Path) -> None:
    """A restart would give everything back, and mend nothing."""
    proc = tmp_path / "proc"  # without anything about CPUs
    boot = proc / "sys" / "kernel" / "random" / "boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("b")
    with _running(Api(), tmp_path, proc=str(proc)) as running:
        wait_until(lambda: "cycles failed: " in running.asked("readyz")[1], "failures to be said", 60)
        assert running.asked("readyz")[1].endswith("stat: expected CPU times in its first line\n")
        assert running.asked("healthz") == (200, "ok\n")


def test_a_port_that_is_taken_is_said_by_its_flag(tmp_path: Path) -> None:
    """Before anything is watched."""
    with agent_of(Api(), tmp_path) as agent:
        taken = HttpServer("127.0.0.1:0", make_app(list, list, agent.registry))
        taken.start()
        try:
            with _running(Api(), tmp_path / "b", http_address=f"127.0.0.1:{taken.port}") as running:
                running.thread.join(60)
                assert str(running.error).startswith(f"--http-address 127.0.0.1:{taken.port}: ")
        finally:
            taken.stop(2.0)

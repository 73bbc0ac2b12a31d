"""Runs heavy, pure batches in a process of their own, so that they starve neither the Lease nor `/healthz`.

One worker is started with the first batch and reused. Whatever happens to it (a crash, the kernel's OOM
killer, a hang past the deadline) fails only that batch: the next batch starts a new worker. A plain process
on a pipe does this with public APIs alone; a ProcessPoolExecutor cannot abandon a worker that hangs.
"""

import contextlib
import os
import pickle
import signal
import threading
import time
import traceback
from collections.abc import Callable
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TypeVar, TypeVarTuple

from equipoise.engine.isolation import BatchLost, WorkerBusy
from equipoise.ports.wiring import DEADLINE_SECONDS

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

NICENESS = 10
"""The worker's niceness: the process that renews the Lease comes first."""
HEARTBEAT_SECONDS = 0.5
_SPAWN = get_context("spawn")
_DONE, _FAILED = b"done", b"failed"


class Batches:
    """Runs one batch at a time in the worker; other threads wait meanwhile."""

    def __init__(self, *, heartbeat: Callable[[], None] = lambda: None) -> None:
        self._heartbeat = heartbeat
        self._lock = threading.Lock()
        self._worker: _Worker | None = None
        self._closed = threading.Event()
        self.replaced = 0
        """The number of workers that were lost."""

    def submit(
        self, function: Callable[[*Ts], T], *args: *Ts, deadline_seconds: float = DEADLINE_SECONDS
    ) -> T:
        """Call a function in the worker, and return its result or raise its exception.

        The function must be defined at the top of a module; it, its arguments and its result are pickled.
        """
        assert deadline_seconds > 0, f"a batch of {function!r} would be lost at once"
        message = pickle.dumps((function, args), pickle.HIGHEST_PROTOCOL)
        self._wait()
        try:
            tag, reply = self._exchange(message, time.monotonic() + deadline_seconds, deadline_seconds)
        finally:
            self._lock.release()
        assert tag in {_DONE, _FAILED}, f"the worker answered {tag!r}"
        if tag == _FAILED:
            raise _error(*pickle.loads(reply))  # noqa: S301 - our own worker wrote it
        result: T = pickle.loads(reply)  # noqa: S301
        return result

    def _wait(self) -> None:
        """Wait for the worker; raise WorkerBusy, no failure of this batch, if others use it for too long."""
        until = time.monotonic() + DEADLINE_SECONDS
        while not self._lock.acquire(timeout=HEARTBEAT_SECONDS):
            self._heartbeat()
            if time.monotonic() > until:
                raise WorkerBusy(f"the batch waited {DEADLINE_SECONDS:g} s for the worker, which is busy")

    def stop(self) -> None:
        """End the worker at once; the running batch is lost, which is harmless, since batches are pure."""
        self._closed.set()
        if (worker := self._worker) is not None:
            worker.end()

    def _exchange(self, message: bytes, until: float, deadline_seconds: float) -> tuple[bytes, bytes]:
        if self._closed.is_set():
            raise BatchLost("the batch was not started: the operator is stopping")
        worker = self._worker = self._worker or _Worker()
        # Ending the worker unblocks a send or a receive that would otherwise never return.
        alarm = threading.Timer(max(0.0, until - time.monotonic()), worker.end)
        alarm.daemon = True
        alarm.start()
        try:
            if self._closed.is_set():  # stopped between the check above and the worker's start
                worker.end()
            return worker.ask(message, self._heartbeat)
        except (EOFError, OSError) as error:
            raise BatchLost(self._why(worker, until, deadline_seconds)) from error
        except BaseException:
            worker.end()  # otherwise its late answer would be taken for the next batch's
            raise
        finally:
            alarm.cancel()
            if not worker.is_alive():
                worker.end()
                self._worker = None

    def _why(self, worker: "_Worker", until: float, deadline_seconds: float) -> str:
        status = worker.end()
        if self._closed.is_set():
            return "the batch was cancelled: the operator is stopping"
        self.replaced += 1
        if time.monotonic() >= until:
            return f"the batch did not finish within {deadline_seconds:g} s, and its worker was killed"
        how = f"signal {signal.Signals(-status).name}" if status and status < 0 else f"exit status {status}"
        return f"the batch's worker died ({how})"


class _Worker:
    """The worker's process, and the pipe to it."""

    def __init__(self) -> None:
        self._pipe, theirs = _SPAWN.Pipe()
        self._process: BaseProcess = _SPAWN.Process(
            target=_serve, args=(theirs,), name="batches", daemon=True
        )
        self._process.start()
        theirs.close()  # so that the worker's death is the end of the pipe
        self._ending = threading.Lock()

    def ask(self, message: bytes, heartbeat: Callable[[], None]) -> tuple[bytes, bytes]:
        self._pipe.send_bytes(message)
        while not self._pipe.poll(HEARTBEAT_SECONDS):
            heartbeat()
        return self._pipe.recv_bytes(), self._pipe.recv_bytes()

    def is_alive(self) -> bool:
        with self._ending:
            return self._process.is_alive()

    def end(self) -> int | None:
        """Kill the process and return its exit status; safe from any thread, and more than once."""
        with self._ending:
            self._process.kill()
            self._process.join()
            return self._process.exitcode


def _error(sealed: bytes | None, text: str) -> Exception:
    """Return the worker's exception with its traceback, or a RuntimeError if it cannot be pickled."""
    error: object = None
    if sealed is not None:
        with contextlib.suppress(Exception):
            error = pickle.loads(sealed)  # noqa: S301 - our own worker wrote it
    if not isinstance(error, Exception):
        error = RuntimeError(text.strip().rpartition("\n")[2])
    error.add_note(f"In the batch's worker:\n{text}")
    return error


def _serve(pipe: Connection) -> None:
    """Run in the worker: answer one batch after the other until the parent closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the whole group; the parent decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    os.nice(NICENESS)
    with contextlib.suppress(EOFError, OSError):
        while True:
            for part in _answer(pipe.recv_bytes()):
                pipe.send_bytes(part)


def _die_with_parent() -> None:
    """Exit when the parent does, even by SIGKILL and during a batch: its end of a pipe is then closed."""
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _answer(message: bytes) -> tuple[bytes, bytes]:
    try:
        function, args = pickle.loads(message)  # noqa: S301 - our own parent wrote it
        return _DONE, pickle.dumps(function(*args), pickle.HIGHEST_PROTOCOL)
    except Exception as error:  # noqa: BLE001 - every error is raised again in the caller
        sealed: bytes | None = None
        with contextlib.suppress(Exception):
            sealed = pickle.dumps(error)
        return _FAILED, pickle.dumps((sealed, "".join(traceback.format_exception(error))))

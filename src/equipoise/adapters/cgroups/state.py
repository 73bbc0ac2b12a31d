"""What the agent has throttled, on the host's disk: written before the deed, whole or not at all."""

import contextlib
import fcntl
import os
import tempfile
from pathlib import Path

import msgspec

from equipoise.model.errors import DECODE_ERRORS, WorldFailed
from equipoise.qos.keep import AgentState
from equipoise.qos.memory import QosMemory

SIZE_MAX = 16 * 1024 * 1024


class StateFile:
    """The file. One of another boot is empty: its cgroups are gone."""

    def __init__(self, path: str | Path, boot_id: str) -> None:
        self.path = Path(path)
        self.boot_id = boot_id
        self._lock: int | None = None

    def hold(self) -> None:
        """Be the only agent that keeps this file, until the process ends: two hands are too many."""
        path = self.path.with_suffix(".lock")
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise WorldFailed(f"{path}: another agent of this node is running; stop it first") from error
        except OSError as error:
            raise WorldFailed(f"{path}: {error.strerror or error}") from error

    def load(self) -> AgentState:
        """Read what was left; a damaged file is put aside, and says so by raising."""
        try:
            with self.path.open("rb") as file:
                content = file.read(SIZE_MAX)
            state = msgspec.json.decode(content, type=AgentState)
            QosMemory.from_data(state.memory)  # as the first round reads it
        except FileNotFoundError:
            return AgentState(self.boot_id)
        except OSError as error:
            raise WorldFailed(f"{self.path}: {error.strerror or error}") from error
        except DECODE_ERRORS as error:
            aside = self.path.with_suffix(".damaged")
            with contextlib.suppress(OSError):
                self.path.replace(aside)
            raise WorldFailed(
                f"{self.path}: not what was written ({error}); it is kept as {aside}"
            ) from error
        return state if state.boot_id == self.boot_id else AgentState(self.boot_id)

    def save(self, state: AgentState) -> None:
        """Write it beside, make it lasting, and put it in place."""
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=folder, prefix=f".{self.path.name}.")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(msgspec.json.encode(state))
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(self.path)
            except BaseException:
                with contextlib.suppress(OSError):
                    Path(name).unlink()
                raise
            directory = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise WorldFailed(f"{self.path}: {error.strerror or error}") from error

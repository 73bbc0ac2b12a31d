"""The agent's state file: what it has throttled, written atomically to the host's disk before each action.

The file begins with a checksum of the rest. Without one, a damaged digit of a quota would read as a quota
that another agent wrote, and the container would stay throttled. A damaged file is moved aside, and the
agent finds what is throttled from the cgroups: a container whose quota only a throttle explains counts as
throttled, and is restored in the normal way. An unclear quota is left as it is, reported once, and checked
again.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from equipoise.core.decision import Outcome, RestorePod
from equipoise.core.errors import DECODE_ERRORS, WorldFailed
from equipoise.ports.node import NodePod
from equipoise.qos.observe import refs_of
from equipoise.qos.state import NO_STATE_FILE, AgentState, LoweredQuota, find_throttled
from equipoise.qos.waterlines import QosMemory

if TYPE_CHECKING:  # the file alone is read without the agent's log and metrics
    from equipoise.qos.loop import QosLoop
    from equipoise.runtime.agent.reporting import AgentMetrics, EventReporter

SIZE_MAX = 16 * 1024 * 1024
WHY_LENGTH_MAX = 300
SUM = re.compile(rb'\{"sum":"([0-9a-f]{64})"(?=[,}])')
WITHOUT_SUM = b'{"bootId"'
"""The beginning of a file from a version that did not write a checksum yet."""


class StateFile:
    """The state file. One of another boot reads as empty: its cgroups no longer exist."""

    def __init__(
        self, path: str | Path, boot_id: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = Path(path)
        self.boot_id = boot_id
        self.lost = ""
        """Why the last `load` could not find out what is throttled; empty if it could."""
        self.unlocked = ""
        """Why the file could not be locked; empty if it could."""
        self._lock: int | None = None
        self._monotonic = monotonic

    def hold(self) -> None:
        """Lock the file until the process ends; raise if another agent holds the lock.

        A disk that is full or read-only does not prevent the start: `unlocked` is then the reason.
        """
        path = self.path.with_suffix(".lock")
        try:
            self._lock = _opened_lock(path)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise WorldFailed(f"{path}: another agent of this node is running; stop it first") from error
        except OSError as error:
            self.unlocked = f"{path}: {error.strerror or error}"

    def load(self) -> AgentState:
        """Return the stored state; move a damaged file aside and raise."""
        self.lost = ""
        try:
            state = _decoded(_content(self.path))
            is_of_this_boot = state.boot_id == self.boot_id
            implausibility = state.implausibility(self._monotonic()) if is_of_this_boot else ""
        except FileNotFoundError:
            self.lost = NO_STATE_FILE
            return AgentState(self.boot_id)
        except OSError as error:
            raise self._set_aside(error.strerror or str(error)) from error
        except DECODE_ERRORS as error:
            raise self._set_aside(str(error)) from error
        if implausibility:
            raise self._set_aside(implausibility)
        if not is_of_this_boot:
            self.lost = f"{self.path} was written before the last boot"
            return AgentState(self.boot_id)
        self.lost = state.lost
        return state

    def _set_aside(self, why: str) -> WorldFailed:
        aside = self.path.with_suffix(".damaged")
        try:
            if self.path.is_dir() and not self.path.is_symlink():
                self.path.rmdir()  # a folder with content was not made by an agent, and stays
                done = "the empty folder was removed"
            else:
                self.path.replace(aside)
                done = f"the file was renamed to {aside}"
        except OSError as error:
            done = f"it could not be renamed: {error.strerror or error}"
        self.lost = f"{self.path}: the state file is damaged ({why[:WHY_LENGTH_MAX]}); {done}"
        return WorldFailed(self.lost)

    def save(self, state: AgentState) -> None:
        """Write a temporary file, fsync it, and rename it over the old one."""
        assert state.boot_id == self.boot_id, "a state of another boot"
        folder = self.path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=folder, prefix=f".{self.path.name}.")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_encoded(state))
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


def _opened_lock(path: Path) -> int:
    """Open the lock file, creating it if need be; on a read-only disk, open the existing one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _content(path: Path) -> bytes:
    """Return the content of a regular file; raise for anything else, since reading a pipe could block."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        with open(handle, "rb", closefd=False) as file:
            content = file.read(SIZE_MAX + 1)
    finally:
        os.close(handle)
    if len(content) > SIZE_MAX:
        raise ValueError(f"larger than {SIZE_MAX} bytes")
    return content


def _encoded(state: AgentState) -> bytes:
    fields = msgspec.json.encode(state)[1:]
    rest = fields if fields == b"}" else b"," + fields
    return b'{"sum":"%s"%s' % (_sum(rest), rest)


def _decoded(content: bytes) -> AgentState:
    """Return the decoded state; raises one of `DECODE_ERRORS` if it is not valid."""
    head = SUM.match(content)
    if head is None and not content.startswith(WITHOUT_SUM):
        raise ValueError("expected a checksum at the beginning")
    if head is not None and _sum(content[head.end() :]) != head[1]:
        raise ValueError("the checksum does not match")
    state = msgspec.json.decode(content, type=AgentState)
    QosMemory.from_data(state.memory)  # the first cycle decodes it so
    return state


def _sum(rest: bytes) -> bytes:
    return hashlib.sha256(rest).hexdigest().encode()


AGAIN_SECONDS = 10.0
"""How often unclear quotas are checked again."""
NO_STATE_FILE_IN_PREVIEW = (
    "the agent runs in Preview and found no state file; equipoise agent --cleanup restores the quota"
)


@dataclass(eq=False)
class Recovery:
    """Loads the agent's state; if it was lost, searches the cgroups for what is throttled."""

    _file: StateFile
    _loop: "QosLoop"
    _reporter: "EventReporter"
    _metrics: "AgentMetrics"
    _monotonic: Callable[[], float] = time.monotonic
    unclear: tuple[LoweredQuota, ...] = ()
    """The quotas that the last search did not change."""
    _is_loaded: bool = False
    _damage: str = ""
    _unclear_uids: frozenset[str] | None = None
    _searched: tuple[str, float] = ("", float("-inf"))

    def load(self) -> None:
        """Load the state, once; if it was lost, start with an empty one and report why."""
        if self._is_loaded:
            return
        self._is_loaded = True
        try:
            state = self._loop.state
        except Exception as error:  # noqa: BLE001 - the agent starts whatever the file contains
            state, self._damage = AgentState(self._file.boot_id), str(error) or type(error).__name__
        lost = self._damage or self._file.lost
        self._metrics.state_damaged.set(bool(self._damage))
        self._reporter.report_state(lost, self._file.unlocked, is_damaged=bool(self._damage))
        if lost and not state.lost:
            self._loop.adopt(msgspec.structs.replace(state, lost=lost))

    @property
    def is_over(self) -> bool:
        """True if it is known what is throttled."""
        self.load()
        return not self._loop.state.lost

    def search(
        self, pods: Sequence[NodePod], other_agent: str, *, is_preview: bool, is_last: bool = False
    ) -> None:
        """Check the containers of these pods that are not clear yet; unclear ones are checked again."""
        if self.is_over:
            return
        if self._damage:
            self._reporter.report_damage(self._damage)
            self._damage = ""
        state = self._loop.state
        is_new = is_preview and state.lost == NO_STATE_FILE
        why_none = other_agent or (NO_STATE_FILE_IN_PREVIEW if is_new else "")
        (why_before, searched_at), now = self._searched, self._monotonic()
        if why_none == why_before and now - searched_at < AGAIN_SECONDS and not is_last:
            return
        unchecked = [pod for pod in pods if self._unclear_uids is None or pod.uid in self._unclear_uids]
        refs = [ref for ref in refs_of(unchecked) if ref.id not in state.throttled]
        found = find_throttled(unchecked, self._loop.node.read(refs, is_deep=True), state.throttled, why_none)
        self._unclear_uids, self._searched, self.unclear = found.left, (why_none, now), found.unclear
        ours = {one.container.id: one.throttled for one in found.ours}
        assert not ours.keys() & state.throttled.keys(), "what is known as throttled was judged again"
        if ours or not found.left:
            lost = state.lost if found.left else ""
            self._loop.adopt(msgspec.structs.replace(state, throttled=state.throttled | ours, lost=lost))
        self._metrics.unclear.set(len(found.unclear))
        self._reporter.report_found(found)

    def outcomes(self) -> list[Outcome]:
        actions = [(RestorePod(one.pod.key, uid=one.pod.uid), one.sentence) for one in self.unclear]
        return [Outcome(action, "Unknown", sentence) for action, sentence in actions]

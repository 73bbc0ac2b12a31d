"""What the agent has throttled, on the host's disk: written before each action, whole or not at all.

A file begins with a checksum of its rest. Without one, a damaged digit of a quota would read as a quota that
somebody else wrote, and the container would stay throttled. A damaged file is set aside, and the agent finds
what is throttled from the cgroups: a container whose quota nothing but a throttle explains is taken as
throttled, and restored in the normal way. What is unclear is left, reported once, and judged again.
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
from pathlib import Path

import msgspec

from equipoise.core.decision import Outcome, RestorePod
from equipoise.core.errors import DECODE_ERRORS, WorldFailed
from equipoise.ports.node import NodePod
from equipoise.qos.loop import QosLoop
from equipoise.qos.observe import refs_of
from equipoise.qos.state import NO_STATE_FILE, AgentState, LoweredQuota, find_throttled
from equipoise.qos.waterlines import QosMemory
from equipoise.runtime.agent.reporting import AgentMetrics, EventReporter

SIZE_MAX = 16 * 1024 * 1024
WHY_LENGTH_MAX = 300
SUM = re.compile(rb'\{"sum":"([0-9a-f]{64})"(?=[,}])')
WITHOUT_SUM = b'{"bootId"'
"""How a file of a version begins that wrote no checksum yet."""


class StateFile:
    """The file. One of another boot is empty: its cgroups are gone."""

    def __init__(
        self, path: str | Path, boot_id: str, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = Path(path)
        self.boot_id = boot_id
        self.lost = ""
        """Why the last `load` did not know what is throttled; empty where it did."""
        self.unlocked = ""
        """Why the file could not be locked; empty where it could."""
        self._lock: int | None = None
        self._monotonic = monotonic

    def hold(self) -> None:
        """Be the only agent that keeps this file, until the process ends.

        A disk that is full or read-only does not end the start: `unlocked` then says why there is no lock.
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
        """Return what was left; a damaged file is set aside, and says so by raising."""
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
            self.lost = f"{self.path} is of another boot"
            return AgentState(self.boot_id)
        self.lost = state.lost
        return state

    def _set_aside(self, why: str) -> WorldFailed:
        """Move what is there out of the way, and return what to raise."""
        aside = self.path.with_suffix(".damaged")
        try:
            if self.path.is_dir() and not self.path.is_symlink():
                self.path.rmdir()  # one that holds something is a person's, and stays
                kept = "an empty folder was removed"
            else:
                self.path.replace(aside)
                kept = f"it is kept as {aside}"
        except OSError as error:
            kept = f"it could not be set aside: {error.strerror or error}"
        self.lost = f"{self.path}: not what was written ({why[:WHY_LENGTH_MAX]}); {kept}"
        return WorldFailed(self.lost)

    def save(self, state: AgentState) -> None:
        """Write it beside, make it lasting, and put it in place."""
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
    """Open the file that is locked; on a disk that is read-only, the one that is there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _content(path: Path) -> bytes:
    """Read a regular file; anything else in its place could be waited for without end."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a file")
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
    """Read a state; an error of `DECODE_ERRORS` says what does not fit."""
    head = SUM.match(content)
    if head is None and not content.startswith(WITHOUT_SUM):
        raise ValueError("expected a checksum at its beginning")
    if head is not None and _sum(content[head.end() :]) != head[1]:
        raise ValueError("its checksum does not fit")
    state = msgspec.json.decode(content, type=AgentState)
    QosMemory.from_data(state.memory)  # as the first round reads it
    return state


def _sum(rest: bytes) -> bytes:
    return hashlib.sha256(rest).hexdigest().encode()


AGAIN_SECONDS = 10.0
"""How often what is unclear is judged again."""
NO_STATE_FILE_IN_PREVIEW = (
    "nothing is changed in Preview where no agent has kept a state file; --cleanup restores it"
)


class Recovery:
    """Loads the state of one agent, and looks for what is throttled while the state does not tell."""

    def __init__(
        self,
        file: StateFile,
        loop: QosLoop,
        reporter: EventReporter,
        metrics: AgentMetrics,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.unclear: tuple[LoweredQuota, ...] = ()
        """What the last search left as it is."""
        self._file = file
        self._loop = loop
        self._reporter = reporter
        self._metrics = metrics
        self._monotonic = monotonic
        self._is_loaded = False
        self._damage = ""
        self._left: frozenset[str] | None = None
        self._searched: tuple[str, float] = ("", float("-inf"))

    def load(self) -> None:
        """Read the state, once; where it tells nothing, begin anew and say why."""
        if self._is_loaded:
            return
        self._is_loaded = True
        try:
            state = self._loop.state
        except Exception as error:  # noqa: BLE001 - whatever is in the file, the agent starts
            state, self._damage = AgentState(self._file.boot_id), str(error) or type(error).__name__
        lost = self._damage or self._file.lost
        self._metrics.state_damaged.set(bool(self._damage))
        self._reporter.report_state(lost, self._file.unlocked, is_damaged=bool(self._damage))
        if lost and not state.lost:
            self._loop.adopt(msgspec.structs.replace(state, lost=lost))

    @property
    def is_over(self) -> bool:
        """Whether it is known what is throttled."""
        self.load()
        return not self._loop.state.lost

    def search(
        self, pods: Sequence[NodePod], other_agent: str, *, is_preview: bool, is_last: bool = False
    ) -> None:
        """Judge containers of these pods that are not judged yet; what is unclear is judged again later."""
        if self.is_over:
            return
        if self._damage:
            self._reporter.report_damage(self._damage)
            self._damage = ""
        state = self._loop.state
        why_none = other_agent or (
            NO_STATE_FILE_IN_PREVIEW if is_preview and state.lost == NO_STATE_FILE else ""
        )
        why_before, searched_at = self._searched
        now = self._monotonic()
        if why_none == why_before and now - searched_at < AGAIN_SECONDS and not is_last:
            return
        asked = [pod for pod in pods if self._left is None or pod.uid in self._left]
        refs = [ref for ref in refs_of(asked) if ref.id not in state.throttled]
        found = find_throttled(asked, self._loop.node.read(refs, is_deep=True), state.throttled, why_none)
        self._left, self._searched, self.unclear = found.left, (why_none, now), found.unclear
        ours = {one.container.id: one.throttled for one in found.ours}
        assert not ours.keys() & state.throttled.keys(), "what is known as throttled was judged again"
        if ours or not found.left:
            lost = state.lost if found.left else ""
            self._loop.adopt(msgspec.structs.replace(state, throttled=state.throttled | ours, lost=lost))
        self._metrics.unclear.set(len(found.unclear))
        self._reporter.report_found(found)

    def outcomes(self) -> list[Outcome]:
        """Return what was left as it is, as outcomes."""
        return [
            Outcome(RestorePod(one.pod.key, uid=one.pod.uid), "Unknown", one.sentence) for one in self.unclear
        ]

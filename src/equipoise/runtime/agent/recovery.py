"""After the state file was lost or damaged: what is throttled is found from the cgroups, and reported.

A container whose quota nothing but a throttle explains is taken as throttled, and restored in the normal way.
What is unclear is left, reported once, and looked at again until it is clear.
"""

import time
from collections.abc import Callable, Sequence

import msgspec

from equipoise.core.decision import Outcome, RestorePod
from equipoise.ports.node import NodePod
from equipoise.qos.loop import QosLoop
from equipoise.qos.observe import refs_of
from equipoise.qos.state import NEVER_KEPT, AgentState, Lowered, judged
from equipoise.runtime.agent.cluster import EventReporter
from equipoise.runtime.agent.metrics import AgentMetrics
from equipoise.runtime.agent.state_file import StateFile

AGAIN_SECONDS = 10.0
"""How often what is unclear is looked at again."""
PREVIEW = "nothing is changed in Preview where no agent has kept a state file; --cleanup restores it"


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
        self.unclear: tuple[Lowered, ...] = ()
        """What the last look left as it is."""
        self._file = file
        self._loop = loop
        self._reporter = reporter
        self._metrics = metrics
        self._monotonic = monotonic
        self._is_loaded = False
        self._damage = ""
        self._left: frozenset[str] | None = None
        self._looked: tuple[str, float] = ("", float("-inf"))

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
        """Look at the containers of these pods that are not judged yet; some are asked for again later."""
        if self.is_over:
            return
        if self._damage:
            self._reporter.report_damage(self._damage)
            self._damage = ""
        state = self._loop.state
        why_none = other_agent or (PREVIEW if is_preview and state.lost == NEVER_KEPT else "")
        why_before, looked_at = self._looked
        now = self._monotonic()
        if why_none == why_before and now - looked_at < AGAIN_SECONDS and not is_last:
            return
        asked = [pod for pod in pods if self._left is None or pod.uid in self._left]
        refs = [ref for ref in refs_of(asked) if ref.id not in state.throttled]
        found = judged(asked, self._loop.node.read(refs, is_deep=True), state.throttled, why_none)
        self._left, self._looked, self.unclear = found.left, (why_none, now), found.unclear
        ours = {one.part.id: one.throttled for one in found.ours}
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

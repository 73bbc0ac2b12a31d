"""What the agent says: in its log, and as events on its node and pods. Quiet where there is no news."""

import time
from collections.abc import Callable, Iterable

from equipoise.adapters.kubernetes import KubernetesActuator
from equipoise.app.agent.surroundings import NodeSurroundings
from equipoise.app.operator.logs import FailedTurnLines, Log, log_failure
from equipoise.model.decision import DisableScheduling, EnableScheduling, Outcome
from equipoise.model.errors import EquipoiseError
from equipoise.model.references import ObjectRef
from equipoise.qos.keep import Judged
from equipoise.qos.loop import Round
from equipoise.qos.outcomes import WELL, came_otherwise

PROBLEMS_SAID_MAX = 5
FOUND_SAID_MAX = 20
"""So many quotas that one look found have an event; the log has all."""
AGAIN_SECONDS = 600.0
"""How long the same failure of the same action is not told again, nor where the same bug is."""


class Teller:
    """Tells of rounds: when the reason changes, something was done, or fails that did not before."""

    def __init__(
        self,
        log: Log,
        actuator: KubernetesActuator,
        around: NodeSurroundings,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._failed_turns = FailedTurnLines(log, monotonic)
        self._actuator = actuator
        self._around = around
        self._monotonic = monotonic
        self._code = ""
        self._problems: tuple[str, ...] = ()
        self._failures: dict[tuple[object, ...], float] = {}
        self._bugs: dict[tuple[str, ...], float] = {}
        self._found: dict[str, str] = {}

    def tell(self, done: Round) -> None:
        """Say what is news of one round."""
        self._tell_problems()
        decision = done.decision
        code = decision.reason.code.value
        sentence = decision.reason.sentence + came_otherwise(decision, done.outcomes)
        news = self._news(done.outcomes)
        is_news = code != self._code or bool(news)
        self._code = code
        (self._log.info if is_news else self._log.debug)(sentence, reason=code, node=decision.subject)
        for warning in done.warnings:
            self._log.warning(warning)
        self._failed_turns.tell(done.failed_turns)
        if is_news:
            self._actuator.record_event(self._node(), code, sentence)
        for outcome in news:
            self._tell_pod(outcome, code, sentence)

    def warn(self, reason: str, sentence: str) -> None:
        """Say something that somebody has to look at, on the node too."""
        self._log.warning(sentence)
        self._actuator.record_event(self._node(), reason, sentence, is_warning=True)

    def tell_failure(self, error: Exception) -> None:
        """Log that a round failed; the traceback of a bug once in ten minutes."""
        if isinstance(error, EquipoiseError):
            self._log.warning("a round failed", error=str(error))
            return
        now, key = self._monotonic(), (type(error).__name__, str(error))
        self._bugs = {one: at for one, at in self._bugs.items() if now - at < AGAIN_SECONDS}
        if key in self._bugs:
            self._log.error("a round failed", error=f"unexpected {key[0]}: {key[1]}")
            return
        self._bugs[key] = now
        log_failure(self._log, "a round failed", error)

    def tell_state(self, lost: str, unlocked: str, *, is_damaged: bool) -> None:
        """Log what is wrong with the state file."""
        if unlocked:
            self._log.warning("the state file is not locked", error=unlocked)
        if lost:
            say = self._log.warning if is_damaged else self._log.info
            say("what is throttled is looked for in the cgroups", reason=lost)

    def tell_damage(self, sentence: str) -> None:
        """Record an event on the node that the state file was damaged; the log has it already."""
        said = f"{sentence}. What is throttled is looked for in the cgroups."
        self._actuator.record_event(self._node(), "StateFileDamaged", said, is_warning=True)

    def tell_found(self, found: Judged) -> None:
        """Log each quota that is lower than its container asks for, and record an event, once."""
        all_ = [("ThrottleFound", one) for one in found.ours] + [
            ("QuotaUnclear", one) for one in found.unclear
        ]
        news = [(reason, one) for reason, one in all_ if self._found.get(one.part.id) != one.sentence]
        for place, (reason, one) in enumerate(news):
            self._found[one.part.id] = one.sentence
            self._log.warning(one.sentence, pod=one.pod.key, reason=reason)
            if place < FOUND_SAID_MAX:
                pod = ObjectRef("v1", "Pod", one.pod.namespace, one.pod.name, one.pod.uid)
                self._actuator.record_event(pod, reason, one.sentence, is_warning=bool(one.why_left))

    def _tell_problems(self) -> None:
        """Say which policies are left out, when that has changed; on the node, since no status is written."""
        problems = self._around.problems
        if problems == self._problems:
            return
        self._problems = problems
        for place, problem in enumerate(problems):
            sentence = f"left out: {problem}"
            if place < PROBLEMS_SAID_MAX:
                self.warn("PolicyLeftOut", sentence)
            else:
                self._log.warning(sentence)

    def _news(self, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """Leave out failures that were told lately: one of every round is told every ten minutes."""
        now = self._monotonic()
        self._failures = {key: at for key, at in self._failures.items() if now - at < AGAIN_SECONDS}
        found = []
        for outcome in outcomes:
            key = (type(outcome.action), outcome.action.pod, outcome.action.uid, outcome.result)
            if outcome.result in WELL or key not in self._failures:
                found.append(outcome)
                if outcome.result not in WELL:
                    self._failures[key] = now
        return found

    def _tell_pod(self, outcome: Outcome, code: str, sentence: str) -> None:
        action = outcome.action
        if isinstance(action, DisableScheduling | EnableScheduling):
            if outcome.result not in WELL:
                self.warn("NotScheduled", f"{type(action).__name__}: {outcome.result} ({outcome.detail})")
            return
        namespace, _, name = action.pod.partition("/")
        detail = f" ({outcome.detail})" if outcome.detail else ""
        pod = ObjectRef("v1", "Pod", namespace, name, action.uid)
        said = f"{type(action).__name__}: {outcome.result}{detail}. {sentence}"
        self._actuator.record_event(pod, code, said, is_warning=outcome.result not in WELL)

    def _node(self) -> ObjectRef:
        return ObjectRef("v1", "Node", "", self._around.node, self._around.uid())

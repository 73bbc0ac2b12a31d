"""Rotation on a live cluster: `plan` and `apply`, wired."""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from equipoise.adapters.kubernetes import ApiError
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.cli.journal import CommandJournal
from equipoise.cli.session import ClusterRequest, Session
from equipoise.core.decision import Decision, Outcome, Record
from equipoise.core.errors import WorldFailed
from equipoise.core.quantity import print_seconds
from equipoise.core.reason import Code
from equipoise.ports import NotInstalled
from equipoise.rotation.command import Ports, RotateCommand, WorkloadResult, loop_by_hand, plan
from equipoise.rotation.execute import MAYBE_GONE
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.status import CycleItem
from equipoise.runtime.output import tell, warn

NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class RotationRequest:
    """Which workloads a command is about, and the policy that holds for all of them."""

    cluster: ClusterRequest
    policy: RotationPolicy
    names: Sequence[str] = ()


def _ports(session: Session) -> Ports:
    return Ports(
        actuator=session.actuator,
        store=session.store,
        now=session.now,
        pauses=session.pauses,
        journal=session.journal,
        new_id=session.new_id,
        namespaces_protected=session.namespaces_protected,
    )


def plan_rotation(request: RotationRequest) -> tuple[list[Decision], list[Record]]:
    """Observe the cluster and decide; nothing is changed."""
    session = Session(request.cluster, is_acting=False)
    namespace = request.cluster.scope(session.client)
    decisions = plan(
        request.policy,
        session.cluster,
        request.cluster.metrics(session.client),
        session.now(),
        namespace,
        request.names,
        warn=warn,
        hands=_ports(session),
    )
    if not decisions:
        _expect_namespace(session, namespace)
    return decisions, session.journal.records


def _expect_namespace(session: Session, namespace: str | None) -> None:
    """Refuse a namespace that does not exist, where nothing was found in it."""
    if namespace is None:
        return
    try:
        session.client.get(f"/api/v1/namespaces/{namespace}")
    except WorldFailed as error:
        # Who may not ask is told that nothing was found, which is true.
        if isinstance(error, ApiError) and error.status == NOT_FOUND:
            raise WorldFailed(f"namespace {namespace}: not found at {session.client.address}") from error


def warn_without_ledger(request: ClusterRequest) -> None:
    """Warn that `apply` would hold everything, where nothing can be remembered."""
    client = request.client()
    try:
        LedgerStore(client).read_all(request.scope(client))
    except NotInstalled as error:
        warn(f"apply would hold everything: {error}")
    except WorldFailed:
        return  # the plan says so itself


def apply_rotation(
    request: RotationRequest, interval_seconds: float, timeout_seconds: float, journal: CommandJournal
) -> tuple[Sequence[WorkloadResult], str]:
    """Rotate until all that was begun is verified, with a line on standard error for each wave.

    What failed meanwhile is given beside what was done, so that both can be told.
    """
    session = Session(request.cluster, is_acting=True)
    session.journal = journal
    metrics, namespace = request.cluster.metrics(session.client), request.cluster.scope(session.client)
    warned: set[str] = set()

    def warn_once(message: str) -> None:
        if message not in warned:
            warned.add(message)
            warn(message)

    rotating = RotateCommand(
        loop=loop_by_hand(session.cluster, metrics, _ports(session), session.leadership, is_acting=True),
        guest=session.leadership,
        policy=request.policy,
        namespace=namespace,
        names=request.names,
        clock=session,
        wait=_waiting(interval_seconds),
        tell=WaveProgress(request.policy.metrics_window_seconds).tell,
        warn=warn_once,
    )
    try:
        done = rotating.run(timeout_seconds)
    except KeyboardInterrupt:
        tell(f"stopped: {left_behind(rotating.done.values())}")
        raise
    except WorldFailed as error:
        if not rotating.done:
            raise
        return list(rotating.done.values()), str(error)
    if not done:
        _expect_namespace(session, namespace)
    return done, "; ".join(each.failure for each in done if each.failure)


def left_behind(done: Collection[WorkloadResult]) -> str:
    """Return what was done and what is left when somebody stops it in the middle."""
    gone = [
        f"{each.last.subject}: {', '.join(action.pod for action in each.evicted)} went"
        + ("" if each.verdict else ", not verified yet")
        for each in done
        if each.evicted
    ]
    remembered = "the ledger remembers it, and another `apply` or the operator goes on with it"
    if gone:
        return f"{'; '.join(gone)}; nothing more is evicted; {remembered}"
    return f"no eviction was answered; one that was on its way may still happen, and then {remembered}"


def _waiting(seconds: float) -> Callable[[], object]:
    never = threading.Event()
    return lambda: never.wait(seconds)


_EXPECTED = frozenset({Code.HELD_BY_HEALTH, Code.HELD_BY_COOLDOWN})
"""What holds every next wave until the last one is whole and measured."""


@dataclass(slots=True)
class WaveProgress:
    """Reports each wave in one line, and the end or the hold of a rotation."""

    window_seconds: float
    _reported: dict[str, str] = field(default_factory=dict)

    def tell(self, item: CycleItem) -> None:
        """Report what a cycle did, unless it is as before; sentences have numbers that change."""
        line = self._line(item)
        subject = item.decision.subject
        gist = line if item.outcomes else item.decision.reason.code.value
        if line and self._reported.get(subject) != gist:
            self._reported[subject] = gist
            tell(f"{time.strftime('%H:%M:%S')} {subject}: {line}")

    def _line(self, item: CycleItem) -> str:
        decision = item.decision
        has_gone = any(outcome.result in MAYBE_GONE for outcome in item.outcomes)
        if item.outcomes and not has_gone:
            return f"nothing went: {', '.join(_told(outcome) for outcome in item.outcomes)}"
        if item.outcomes:
            wave = int(decision.reason.numbers.get("wave", 0)) + 1
            went = ", ".join(_told(outcome) for outcome in item.outcomes)
            span = print_seconds(self.window_seconds)
            return f"wave {wave}: {went}; next when all are ready and {span} of usage is measured"
        if "course" in decision.memory and decision.subject not in self._reported:
            numbers = decision.reason.numbers
            gone = f"{numbers.get('evicted')} of {numbers.get('planned')} pods have gone"
            return f"a rotation is under way already ({gone}); it is gone on with"
        if "course" in decision.memory and (not decision.held or decision.reason.code in _EXPECTED):
            return ""  # the wave's own line says what it waits for
        return f"{decision.reason.code.value}: {decision.reason.sentence}"


def _told(outcome: Outcome) -> str:
    detail = f" ({outcome.detail})" if outcome.detail else ""
    return f"{outcome.action.pod} {outcome.result}{detail}"

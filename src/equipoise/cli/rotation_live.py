"""Builds `rotation plan` and `apply` for a live cluster: the ports, and the waves until the end."""

import threading
import time
from collections.abc import Collection, Sequence
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
from equipoise.rotation.command import RotateCommand, WorkloadResult, plan
from equipoise.rotation.loop import Options
from equipoise.rotation.observe import Ports
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.status import MAYBE_EVICTED, CycleItem
from equipoise.runtime.output import tell, warn

NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class RotationRequest:
    """The workloads of a command, and the policy for all of them."""

    cluster: ClusterRequest
    policy: RotationPolicy
    names: Sequence[str] = ()


def _ports(session: Session, request: ClusterRequest) -> Ports:
    return Ports(
        cluster=session.cluster,
        metrics=request.metrics(session.client),
        pauses=session.pauses,
        leadership=session.leadership,
        store=session.store,
        actuator=session.actuator,
        journal=session.journal,
        new_id=session.new_id,
        now=session.now,
    )


def plan_rotation(request: RotationRequest) -> tuple[list[Decision], list[Record]]:
    """Observe the cluster and decide; nothing is changed."""
    session = Session(request.cluster, is_acting=False)
    namespace = request.cluster.scope(session.client)
    ports, own = _ports(session, request.cluster), Options(namespaces_protected=session.namespaces_protected)
    decisions = plan(request.policy, ports, session.now(), namespace, request.names, options=own, warn=warn)
    if not decisions:
        _expect_namespace(session, namespace)
    return decisions, session.journal.records


def _expect_namespace(session: Session, namespace: str | None) -> None:
    """Raise if nothing was found because the namespace does not exist."""
    if namespace is None:
        return
    try:
        session.client.get(f"/api/v1/namespaces/{namespace}")
    except WorldFailed as error:
        # Without the permission, the answer is that nothing was found, which is true.
        if isinstance(error, ApiError) and error.status == NOT_FOUND:
            raise WorldFailed(f"namespace {namespace}: not found at {session.client.address}") from error


def warn_without_ledger(request: ClusterRequest) -> None:
    """Warn that `apply` would hold everything if no ledger can be written."""
    client = request.client()
    try:
        LedgerStore(client).read_all(request.scope(client))
    except NotInstalled as error:
        warn(f"apply would hold everything: {error}")
    except WorldFailed:
        return  # the plan reports it itself


def apply_rotation(
    request: RotationRequest, interval_seconds: float, timeout_seconds: float, journal: CommandJournal
) -> tuple[Sequence[WorkloadResult], str]:
    """Rotate until every wave is verified, with a line on standard error for each.

    What failed meanwhile is given beside what was done, so that both can be told.
    """
    session = Session(request.cluster, is_acting=True)
    session.journal = journal
    ports, namespace = _ports(session, request.cluster), request.cluster.scope(session.client)
    warned: set[str] = set()
    never = threading.Event()

    def warn_once(message: str) -> None:
        if message not in warned:
            warned.add(message)
            warn(message)

    rotating = RotateCommand(
        ports=ports,
        leadership=session.leadership,
        policy=request.policy,
        namespace=namespace,
        names=request.names,
        wait=lambda: never.wait(interval_seconds),
        report=WaveProgress(request.policy.metrics_window_seconds).tell,
        options=Options(namespaces_protected=session.namespaces_protected),
        warn=warn_once,
    )
    try:
        done = rotating.run(timeout_seconds)
    except KeyboardInterrupt:
        tell(f"stopped: {left_behind(rotating.results.values())}")
        raise
    except WorldFailed as error:
        if not rotating.results:
            raise
        return list(rotating.results.values()), str(error)
    if not done:
        _expect_namespace(session, namespace)
    return done, "; ".join(each.failure for each in done if each.failure)


def left_behind(done: Collection[WorkloadResult]) -> str:
    """Return what was done and what remains after an interruption."""
    gone = []
    for each in done:
        if each.evicted:
            pods = ", ".join(action.pod for action in each.evicted)
            gone.append(f"{each.last.subject}: {pods} went{'' if each.result else ', not verified yet'}")
    remembered = "the ledger remembers it, and another `apply` or the operator goes on with it"
    if gone:
        return f"{'; '.join(gone)}; nothing more is evicted; {remembered}"
    return f"no eviction was answered; one that was on its way may still happen, and then {remembered}"


_EXPECTED = frozenset({Code.HELD_BY_HEALTH, Code.HELD_BY_COOLDOWN})
"""The reasons that hold the next wave until the last one is ready and measured."""


@dataclass(slots=True)
class WaveProgress:
    """Reports each wave in one line, and the end or the hold of a rotation."""

    window_seconds: float
    _reported: dict[str, str] = field(default_factory=dict)

    def tell(self, item: CycleItem) -> None:
        """Report a cycle unless its reason is the same; the numbers in sentences always change."""
        line = self._line(item)
        subject = item.decision.subject
        gist = line if item.outcomes else item.decision.reason.code.value
        if line and self._reported.get(subject) != gist:
            self._reported[subject] = gist
            tell(f"{time.strftime('%H:%M:%S')} {subject}: {line}")

    def _line(self, item: CycleItem) -> str:
        decision, run = item.decision, item.details.memory.run
        is_maybe_evicted = any(outcome.result in MAYBE_EVICTED for outcome in item.outcomes)
        went = ", ".join(_describe(outcome) for outcome in item.outcomes)
        if item.outcomes and not is_maybe_evicted:
            return f"nothing went: {went}"
        if item.outcomes:
            wave = (0 if run is None else run.waves) + 1
            span = print_seconds(self.window_seconds)
            return f"wave {wave}: {went}; next when all are ready and {span} of usage is measured"
        if run is not None and decision.subject not in self._reported:
            gone = f"{run.evicted} of {run.planned} pods have gone"
            return f"a rotation is under way already ({gone}); it is gone on with"
        if run is not None and (not decision.held or decision.reason.code in _EXPECTED):
            return ""  # the wave's own line contains what it waits for
        return f"{decision.reason.code.value}: {decision.reason.sentence}"


def _describe(outcome: Outcome) -> str:
    detail = f" ({outcome.detail})" if outcome.detail else ""
    return f"{outcome.action.pod} {outcome.result}{detail}"

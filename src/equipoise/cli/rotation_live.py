"""Rotation on a live cluster: `plan` and `apply`, wired."""

import os
import secrets
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from equipoise.adapters.journal.records import CHANCE_BITS, RecordIds
from equipoise.adapters.kubernetes import ApiError, Client, KubernetesCluster
from equipoise.adapters.kubernetes.actions import KubernetesActuator
from equipoise.adapters.kubernetes.pauses import DirectPauses
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.core.cluster import WorkloadRef
from equipoise.core.decision import Decision, Outcome, Record
from equipoise.core.documents import validated
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.core.quantity import print_seconds
from equipoise.core.reason import Code
from equipoise.engine.guards import LeaselessLeadership
from equipoise.ports import Metrics, NotInstalled, Pauses
from equipoise.rotation.command import Ports, RotateCommand, WorkloadResult, loop_by_hand, plan
from equipoise.rotation.execute import MAYBE_GONE
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.status import CycleItem
from equipoise.runtime.output import tell, warn
from equipoise.runtime.session import Neighbours

NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for."""

    settings: dict[str, Any]
    neighbours: Neighbours
    namespace: str | None
    is_everywhere: bool
    names: Sequence[str]
    operator_namespace: str


@dataclass(slots=True)
class CommandJournal:
    """Keeps the records until the command writes them where the user wants them."""

    records: list[Record] = field(default_factory=list)

    def append(self, *records: Record, is_whole: bool = False) -> None:
        """Keep these."""
        del is_whole
        self.records += records


class _Clock:
    def now(self) -> float:
        return time.time()


@dataclass(frozen=True, slots=True)
class _Lenient:
    """For a plan, which does nothing: whoever may not see whether it is paused is told so."""

    inner: Pauses
    status_errors: set[str] = field(default_factory=set)

    def pause_of(self, namespace: str) -> str | None:
        """Return who paused it, or None; not knowing is a warning."""
        try:
            return self.inner.pause_of(namespace)
        except WorldFailed as error:
            if str(error) not in self.status_errors:
                warn(f"whether {namespace} is paused is unknown: {error}")
                self.status_errors.add(str(error))
            return None


@dataclass(frozen=True, slots=True)
class _Site:
    """The cluster that a request is about."""

    client: Client
    cluster: KubernetesCluster
    metrics: Metrics
    policy: RotationPolicy
    namespace: str | None
    hands: Ports


def _site(request: Request, diary: CommandJournal, *, is_lenient: bool) -> _Site:
    if request.namespace is not None and request.is_everywhere and "KUBE_NAMESPACE" not in os.environ:
        raise BadInput("-n and -A: expected one of them, not both")
    policy = validated(RotationPolicy, request.settings, "policy")
    client = request.neighbours.client()
    where = None if request.is_everywhere else request.namespace or client.namespace
    pauses: Pauses = DirectPauses(client, operator_namespace=request.operator_namespace)
    cluster = KubernetesCluster(client)
    hands = Ports(
        actuator=KubernetesActuator(client),
        store=LedgerStore(client, uid_of=lambda ref: _uid(cluster, ref)),
        now=time.time,
        pauses=_Lenient(pauses) if is_lenient else pauses,
        journal=diary,
        new_id=RecordIds(secrets.randbits(CHANCE_BITS)).next,
        namespaces_protected=("kube-system", request.operator_namespace),
    )
    metrics = request.neighbours.metrics(client)
    return _Site(client, cluster, metrics, policy, where, hands)


def plan_rotation(request: Request) -> tuple[list[Decision], list[Record]]:
    """See the cluster and decide; nothing is changed."""
    diary = CommandJournal()
    site = _site(request, diary, is_lenient=True)
    decisions = plan(
        *(site.policy, site.cluster, site.metrics, time.time(), site.namespace, request.names),
        warn=warn,
        hands=site.hands,
    )
    if not decisions:
        _check_namespace(site)
    return decisions, diary.records


def _check_namespace(site: _Site) -> None:
    """Nothing was found in a namespace: perhaps there is none of that name."""
    if site.namespace is None:
        return
    try:
        site.client.get(f"/api/v1/namespaces/{site.namespace}")
    except WorldFailed as error:
        # Who may not ask is told that nothing was found, which is true.
        if isinstance(error, ApiError) and error.status == NOT_FOUND:
            raise WorldFailed(f"namespace {site.namespace}: not found at {site.client.address}") from error


def warn_without_ledger(request: Request) -> None:
    """Say that `apply` would hold everything, where nothing can be remembered."""
    client = request.neighbours.client()
    where = None if request.is_everywhere else request.namespace or client.namespace
    try:
        LedgerStore(client).read_all(where)
    except NotInstalled as error:
        warn(f"apply would hold everything: {error}")
    except WorldFailed:
        return  # the plan says so itself


def apply_rotation(
    request: Request, interval_seconds: float, timeout_seconds: float, diary: CommandJournal
) -> tuple[Sequence[WorkloadResult], str]:
    """Rotate until all that was begun is verified, with a line on standard error for each wave.

    What failed meanwhile is given beside what was done, so that both can be told.
    """
    site = _site(request, diary, is_lenient=False)
    guest = LeaselessLeadership(time.monotonic)
    told: set[str] = set()

    def warn_once(message: str) -> None:
        if message not in told:
            told.add(message)
            warn(message)

    rotating = RotateCommand(
        loop=loop_by_hand(site.cluster, site.metrics, site.hands, guest, is_acting=True),
        guest=guest,
        policy=site.policy,
        namespace=site.namespace,
        names=request.names,
        clock=_Clock(),
        wait=_waiting(interval_seconds),
        tell=Progress(site.policy.metrics_window_seconds).tell,
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
        _check_namespace(site)
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
class Progress:
    """One line per wave, and one when a rotation is over or held."""

    window_seconds: float
    _said: dict[str, str] = field(default_factory=dict)

    def tell(self, turn: CycleItem) -> None:
        """Say what a turn did, unless the same was said before; sentences have numbers that change."""
        line = self._line(turn)
        subject = turn.decision.subject
        gist = line if turn.outcomes else turn.decision.reason.code.value
        if line and self._said.get(subject) != gist:
            self._said[subject] = gist
            tell(f"{time.strftime('%H:%M:%S')} {subject}: {line}")

    def _line(self, turn: CycleItem) -> str:
        decision = turn.decision
        has_gone = any(outcome.result in MAYBE_GONE for outcome in turn.outcomes)
        if turn.outcomes and not has_gone:
            return f"nothing went: {', '.join(_told(outcome) for outcome in turn.outcomes)}"
        if turn.outcomes:
            wave = int(decision.reason.numbers.get("wave", 0)) + 1
            went = ", ".join(_told(outcome) for outcome in turn.outcomes)
            span = print_seconds(self.window_seconds)
            return f"wave {wave}: {went}; next when all are ready and {span} of usage is measured"
        if "course" in decision.memory and decision.subject not in self._said:
            numbers = decision.reason.numbers
            gone = f"{numbers.get('evicted')} of {numbers.get('planned')} pods have gone"
            return f"a rotation is under way already ({gone}); it is gone on with"
        if "course" in decision.memory and (not decision.held or decision.reason.code in _EXPECTED):
            return ""  # the wave's own line says what it waits for
        return f"{decision.reason.code.value}: {decision.reason.sentence}"


def _told(outcome: Outcome) -> str:
    detail = f" ({outcome.detail})" if outcome.detail else ""
    return f"{outcome.action.pod} {outcome.result}{detail}"


def _uid(cluster: KubernetesCluster, ref: WorkloadRef) -> str | None:
    """Return the owner with which a ledger is to vanish."""
    workload = cluster.workload(ref)
    return None if workload is None else workload.uid

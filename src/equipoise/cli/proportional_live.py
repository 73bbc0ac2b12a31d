"""Proportional scaling on a live cluster: `plan` and `apply`, wired."""

import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from equipoise.adapters.journal.records import CHANCE_BITS, RecordIds
from equipoise.adapters.kubernetes import Client, KubernetesCluster, connect
from equipoise.adapters.kubernetes.actions import KubernetesActuator
from equipoise.adapters.kubernetes.pauses import DirectPauses
from equipoise.adapters.kubernetes.policies import KubernetesPolicies
from equipoise.adapters.kubernetes.sizes import KubernetesSizes
from equipoise.adapters.kubernetes.store import LedgerStore
from equipoise.core.cluster import ObjectRef, WorkloadRef
from equipoise.core.decision import Outcome, Record
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.core.reason import Code
from equipoise.crd.targets import Mode
from equipoise.engine.assignment import RejectedPolicy
from equipoise.engine.guards import LeaselessLeadership
from equipoise.ports import Pauses, PolicyObject
from equipoise.proportional.assignment import Assigned, Prepared, Readings, assign
from equipoise.proportional.loop import CycleItem, ProportionalLoop
from equipoise.proportional.parse import SCALING_POLICY, PolicyFile, read_policy_file
from equipoise.runtime.output import read_yaml, tell, warn

PASSING = frozenset({"Gone", "Outdated"})
"""What single pods may say while others are changed: they went, or somebody else changed them."""
FILE = "a file"
"""The UID of a policy that is in no cluster."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for."""

    names: Sequence[str]
    file: PolicyFile | None
    kubeconfig: str | None
    context: str | None
    namespace: str | None
    is_everywhere: bool
    operator_namespace: str
    takes_sizes: bool = False
    """Whether the command could do without a cluster, by `--input`."""


def request_of(said: Mapping[str, Any]) -> Request:
    """Take it from the parsed options."""
    path = said["policy"]
    if path is not None and said["policies"]:
        raise BadInput("--policy: expected it alone, without the names of policies in the cluster")
    if said["namespace"] is not None and said["all_namespaces"]:
        raise BadInput("-n and -A: expected one of them, not both")
    return Request(
        names=said["policies"] or (),
        file=None if path is None else read_policy_file(read_yaml(path), path),
        kubeconfig=said["kubeconfig"],
        context=said["context"],
        namespace=said["namespace"],
        is_everywhere=said["all_namespaces"],
        operator_namespace=said["operator_namespace"],
        takes_sizes="size" in said,
    )


@dataclass(slots=True)
class CommandJournal:
    """Keeps the records until the command writes them where the user wants them."""

    records: list[Record] = field(default_factory=list)

    def append(self, *records: Record, is_whole: bool = False) -> None:
        """Keep these."""
        del is_whole
        self.records += records


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
class _Statuses:
    """Writes the status of policies that are in the cluster; one from a file has none."""

    inner: KubernetesPolicies

    def policies(self) -> Sequence[PolicyObject]:
        """Never asked for: the command lists them itself."""
        return ()

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        """Replace what is said about a policy."""
        if policy.ref.uid != FILE:
            self.inner.write_status(policy, status)


@dataclass(slots=True)
class _Site:
    """The cluster that a request is about."""

    request: Request
    is_acting: bool
    client: Client = field(init=False)
    where: str | None = field(init=False)
    diary: CommandJournal = field(default_factory=CommandJournal)
    guest: LeaselessLeadership = field(default_factory=lambda: LeaselessLeadership(time.monotonic))
    loop: ProportionalLoop = field(init=False)
    policies: KubernetesPolicies = field(init=False)

    def __post_init__(self) -> None:
        request, kind = self.request, SCALING_POLICY
        self.client = _client(request)
        own = request.file.namespace if request.file is not None else ""
        self.where = None if request.is_everywhere else request.namespace or own or self.client.namespace
        cluster = KubernetesCluster(self.client)
        self.policies = KubernetesPolicies(
            self.client, group=kind.group, version=kind.version, name=kind.name, plural=kind.plural
        )
        pauses: Pauses = DirectPauses(self.client, operator_namespace=request.operator_namespace)

        def uid_of(ref: WorkloadRef) -> str | None:
            found = cluster.workload(ref)
            return None if found is None else found.uid

        self.loop = ProportionalLoop(
            cluster=cluster,
            sizes=KubernetesSizes(self.client, cluster, [self.where] if self.where else ()),
            policies=_Statuses(self.policies),
            pauses=pauses if self.is_acting else _Lenient(pauses),
            leadership=self.guest,
            store=LedgerStore(self.client, uid_of=uid_of),
            actuator=KubernetesActuator(self.client),
            journal=self.diary,
            new_id=RecordIds(secrets.randbits(CHANCE_BITS)).next,
            mode=Mode.ENFORCE,
            is_acting=self.is_acting,
            announce=_say,
            now=time.time,
        )

    def turn(self, names: Sequence[str], *, is_first: bool = True) -> list[CycleItem]:
        """Look once, at the policies of these names or at all."""
        self.guest.look()
        assigned, refused = self._assigned(names)
        turns = self.loop.by_hand(assigned, time.time(), self.where)
        refused += [(turn.item.policy.ref, turn.refusal) for turn in turns if turn.refusal is not None]
        decided = [turn for turn in turns if turn.decision is not None]
        is_asked_for = bool(names) or self.request.file is not None
        if refused and not decided and is_asked_for and is_first:
            raise _failure_of(*refused[0])
        for policy, refusal in refused:
            warn(_refused_words(policy, refusal))
        for turn in turns:
            for words in (turn.warning, turn.status_errors):
                if words:
                    warn(f"{turn.item.ref.subject}: {words}")
        return decided

    def _assigned(
        self, names: Sequence[str]
    ) -> tuple[list[Assigned], list[tuple[ObjectRef, RejectedPolicy]]]:
        file = self.request.file
        if file is not None:
            namespace = self.where or file.namespace or self.client.namespace
            ref = ObjectRef("", "ScalingPolicy", namespace, file.name or file.spec.target_ref.name, FILE)
            others = [
                policy
                for policy in self.policies.listed_if_installed(namespace)
                if policy.ref.name != file.name
            ]
            policies: Sequence[PolicyObject] = [PolicyObject(ref, 1, "", {}, {}), *others]
            readings = Readings().read(others) | {ref: Prepared.of(file.spec)}
        else:
            policies = self.policies.listed(self.where)
            readings = Readings().read(policies)
            known = {policy.ref.name for policy in policies}
            if missing := [name for name in names if name not in known]:
                raise BadInput(f"{missing[0]}: expected a ScalingPolicy in {self.where or 'the cluster'}")
        assigned, refused = assign(policies, readings, self.loop.sizes, Mode.ENFORCE)
        if file is not None:  # the others are only in its way
            assigned = [item for item in assigned if item.policy.ref.uid == FILE]
            refused = {ref: why for ref, why in refused.items() if ref.uid == FILE}
        return (
            [item for item in assigned if not names or item.policy.ref.name in names],
            [(ref, why) for ref, why in refused.items() if not names or ref.name in names],
        )


def _refused_words(policy: ObjectRef, refusal: RejectedPolicy) -> str:
    return f"{policy.namespace}/{policy.name}: {refusal.code}: {refusal.sentence}"


def _failure_of(policy: ObjectRef, refusal: RejectedPolicy) -> Exception:
    """Say it as an error, where it is all that was asked for."""
    words = _refused_words(policy, refusal)
    return WorldFailed(words) if refusal.code in {"NoNodes", "InputUnknown"} else BadInput(words)


def _client(request: Request) -> Client:
    try:
        return connect(request.kubeconfig, request.context)
    except BadInput as error:
        file = request.file if request.takes_sizes else None
        needed = sorted(file.spec.inputs) if file is not None else []
        if not needed:
            raise
        raise BadInput(
            f"--input: expected {needed[0]}=SIZE, since the policy's functions use {needed[0]}, "
            f"or a cluster to count it in ({error})"
        ) from error


def plan_live(request: Request) -> tuple[list[CycleItem], list[Record]]:
    """See the cluster and decide; nothing is changed."""
    site = _Site(request, is_acting=False)
    turns = site.turn(request.names)
    return [_with_message(turn) for turn in turns], site.diary.records


def apply_live(
    request: Request, interval_seconds: float, timeout_seconds: float
) -> tuple[list[CycleItem], list[Record], str]:
    """Set what is asked for, turn by turn where one is not enough; give what was done and what failed."""
    site = _Site(request, is_acting=True)
    names, until = list(request.names), time.monotonic() + timeout_seconds
    done: dict[str, CycleItem] = {}
    failure = ""
    while True:
        turns = site.turn(names, is_first=not done)
        for turn in turns:
            _tell(turn)
            _add(done, turn)
        open_ = [turn.item.policy.ref.name for turn in turns if _goes_on(turn)]
        if not open_:
            break
        if time.monotonic() + interval_seconds > until:
            failure = f"{', '.join(open_)}: not all pods have it after {timeout_seconds:g} s; apply goes on"
            break
        names = names if request.file is not None else open_
        _wait(interval_seconds)
    failed = [_failure(turn) for turn in done.values()]
    return (
        [_with_message(turn) for turn in done.values()],
        site.diary.records,
        (failure or "; ".join(words for words in failed if words)),
    )


def _goes_on(turn: CycleItem) -> bool:
    """Whether pods wait for another turn: more than one turn's share, or one restarts at a time."""
    is_restarting = turn.decision is not None and turn.decision.reason.code is Code.HELD_BY_HEALTH
    return turn.left > 0 or is_restarting


def _add(done: dict[str, CycleItem], turn: CycleItem) -> None:
    """Keep what was decided when something was done, with all that came of it."""
    subject = turn.item.ref.subject
    before = done.get(subject)
    if before is None or not before.outcomes:
        done[subject] = turn
    else:
        done[subject] = before._replace(outcomes=[*before.outcomes, *turn.outcomes])


def _failure(turn: CycleItem) -> str:
    """Return why not all could be done that should have been, or nothing."""
    bad = [each for each in turn.outcomes if each.result != "Accepted"]
    if not bad:
        return ""
    is_nothing = len(bad) == len(turn.outcomes)
    if not is_nothing and all(each.result in PASSING for each in bad):
        return ""
    what = "nothing was set" if is_nothing else "not all was set"
    return f"{turn.item.ref.subject}: {what}: {bad[-1].result}, {bad[-1].detail}"


def _with_message(turn: CycleItem) -> CycleItem:
    """Put what a change costs beside the decision."""
    if turn.decision is None or not turn.cost:
        return turn
    extra = turn.decision.extra | {"message": turn.cost}
    return turn._replace(decision=msgspec.structs.replace(turn.decision, extra=extra))


def _tell(turn: CycleItem) -> None:
    if turn.outcomes:
        line = "; ".join(_came(each) for each in turn.outcomes)
        _say(f"{turn.item.ref.subject}: {turn.cost} {line}")


def _say(words: str) -> None:
    tell(f"{time.strftime('%H:%M:%S')} {words}")


def _came(outcome: Outcome) -> str:
    return f"{outcome.result}: {outcome.detail}" if outcome.detail else outcome.result


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)

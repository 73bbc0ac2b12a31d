"""Builds `proportional plan` and `apply` for a live cluster: the ports, the loop, and its cycles."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from equipoise.adapters.kubernetes import Client
from equipoise.adapters.kubernetes.policies import KubernetesPolicies
from equipoise.adapters.kubernetes.sizes import KubernetesSizes
from equipoise.cli.journal import CommandJournal
from equipoise.cli.session import ClusterRequest, Session
from equipoise.core.cluster import ObjectRef
from equipoise.core.decision import Record
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.core.reason import Code
from equipoise.crd.targets import Mode
from equipoise.engine.policies import RejectedPolicy
from equipoise.ports import PolicyObject
from equipoise.proportional.functions import CompiledPolicy
from equipoise.proportional.loop import PolicyResult, ProportionalLoop
from equipoise.proportional.observe import Assignment, PolicyCache, assign
from equipoise.proportional.parse import PolicyFile
from equipoise.proportional.status import SCALING_POLICY
from equipoise.runtime.output import tell, warn

PASSING = frozenset({"Gone", "Outdated"})
"""Results of single pods that do not stop the others: deleted, or changed by another client."""
FILE = "a file"
"""The UID of a policy that is not in a cluster."""


@dataclass(frozen=True, slots=True)
class ProportionalRequest:
    """The policies of a command: those of these names in the cluster, or one from a file."""

    cluster: ClusterRequest
    names: Sequence[str]
    file: PolicyFile | None
    takes_sizes: bool = False
    """True if the command can run without a cluster, with `--input`."""


@dataclass(frozen=True, slots=True)
class _Statuses:
    """Writes the status of policies in the cluster; one from a file has none."""

    inner: KubernetesPolicies

    def policies(self) -> Sequence[PolicyObject]:
        """Never called: the command lists the policies itself."""
        return ()

    def write_status(self, policy: PolicyObject, status: Mapping[str, Any]) -> None:
        if policy.ref.uid != FILE:
            self.inner.write_status(policy, status)


class _Policies:
    """The policies that a request is about, and the loop that decides for them."""

    def __init__(
        self, request: ProportionalRequest, journal: CommandJournal | None = None, *, is_acting: bool
    ) -> None:
        session = Session(request.cluster, _client(request), is_acting=is_acting)
        own = request.file.namespace if request.file is not None else ""
        kind = SCALING_POLICY
        self.request = request
        self.session = session
        self.where = request.cluster.scope(session.client, own)
        self.policies = KubernetesPolicies(session.client, kind)
        self.loop = ProportionalLoop(
            cluster=session.cluster,
            sizes=KubernetesSizes(session.client, session.cluster, [self.where] if self.where else ()),
            policies=_Statuses(self.policies),
            pauses=session.pauses,
            leadership=session.leadership,
            store=session.store,
            actuator=session.actuator,
            journal=session.journal if journal is None else journal,
            new_id=session.new_id,
            mode=Mode.ENFORCE,
            is_acting=is_acting,
            announce=_report,
            now=session.now,
        )

    def run_once(self, names: Sequence[str], *, is_first: bool = True) -> list[PolicyResult]:
        """Run one cycle for the policies of these names, or for all."""
        self.session.leadership.renew()
        assigned, refused = self._assigned(names)
        items = self.loop.run_once(assigned, time.time(), self.where)
        refused += [(each.item.policy.ref, each.rejection) for each in items if each.rejection is not None]
        decided = [each for each in items if each.decision is not None]
        assert all(each.rejection is None for each in decided), "a policy is decided for or refused"
        is_asked_for = bool(names) or self.request.file is not None
        if refused and not decided and is_asked_for and is_first:
            policy, refusal = refused[0]
            is_of_cluster = refusal.code in {"NoNodes", "InputUnknown"}
            raise (WorldFailed if is_of_cluster else BadInput)(_refused_words(policy, refusal))
        for policy, refusal in refused:
            warn(_refused_words(policy, refusal))
        for each in items:
            for words in (each.warning, each.status_error):
                if words:
                    warn(f"{each.item.ref.subject}: {words}")
        return decided

    def _assigned(
        self, names: Sequence[str]
    ) -> tuple[list[Assignment], list[tuple[ObjectRef, RejectedPolicy]]]:
        file = self.request.file
        if file is not None:
            namespace = self.where or file.namespace or self.session.client.namespace
            ref = ObjectRef("", "ScalingPolicy", namespace, file.name or file.spec.target_ref.name, FILE)
            installed = self.policies.listed_if_installed(namespace)
            others = [policy for policy in installed if policy.ref.name != file.name]
            policies: Sequence[PolicyObject] = [PolicyObject(ref, 1, "", {}, {}), *others]
            readings = PolicyCache().read(others) | {ref: CompiledPolicy.of(file.spec)}
        else:
            policies = self.policies.listed(self.where)
            readings = PolicyCache().read(policies)
            known = {policy.ref.name for policy in policies}
            if missing := [name for name in names if name not in known]:
                raise BadInput(f"{missing[0]}: expected a ScalingPolicy in {self.where or 'the cluster'}")
        assigned, refused = assign(policies, readings, self.loop.sizes, Mode.ENFORCE)
        if file is not None:  # other policies do not apply
            assigned = [item for item in assigned if item.policy.ref.uid == FILE]
            refused = {ref: why for ref, why in refused.items() if ref.uid == FILE}
        chosen = [item for item in assigned if not names or item.policy.ref.name in names]
        return chosen, [(ref, why) for ref, why in refused.items() if not names or ref.name in names]


def _refused_words(policy: ObjectRef, refusal: RejectedPolicy) -> str:
    return f"{policy.namespace}/{policy.name}: {refusal.code}: {refusal.sentence}"


def _client(request: ProportionalRequest) -> Client:
    try:
        return request.cluster.client()
    except BadInput as error:
        file = request.file if request.takes_sizes else None
        needed = sorted(file.spec.inputs) if file is not None else []
        if not needed:
            raise
        raise BadInput(
            f"--input: expected {needed[0]}=SIZE, since the policy's functions use {needed[0]}, "
            f"or a cluster to count it in ({error})"
        ) from error


def plan_proportional(request: ProportionalRequest) -> tuple[list[PolicyResult], list[Record]]:
    """Observe the cluster and decide; nothing is changed."""
    policies = _Policies(request, is_acting=False)
    items = policies.run_once(request.names)
    return [_with_message(each) for each in items], policies.session.journal.records


def apply_proportional(
    request: ProportionalRequest, interval_seconds: float, timeout_seconds: float, journal: CommandJournal
) -> tuple[list[PolicyResult], str]:
    """Run cycles until all targets are set; return the actions done and the errors."""
    policies = _Policies(request, journal, is_acting=True)
    names, until = list(request.names), time.monotonic() + timeout_seconds
    done: dict[str, PolicyResult] = {}
    failure = ""
    while True:
        items = policies.run_once(names, is_first=not done)
        for each in items:
            if each.outcomes:
                lines = [f"{one.result}: {one.detail}" if one.detail else one.result for one in each.outcomes]
                _report(f"{each.item.ref.subject}: {each.cost} {'; '.join(lines)}")
            _add(done, each)
        open_ = [each.item.policy.ref.name for each in items if _goes_on(each)]
        if not open_:
            break
        if time.monotonic() + interval_seconds > until:
            failure = f"{', '.join(open_)}: not all pods have it after {timeout_seconds:g} s; apply goes on"
            break
        names = names if request.file is not None else open_
        threading.Event().wait(interval_seconds)
    failed = [_failure(each) for each in done.values()]
    return [_with_message(each) for each in done.values()], failure or "; ".join(filter(None, failed))


def _goes_on(item: PolicyResult) -> bool:
    """Return whether pods wait for another cycle: a cycle's limit, or one restart at a time."""
    is_restarting = item.decision is not None and item.decision.reason.code is Code.HELD_BY_HEALTH
    return item.pods_left > 0 or is_restarting


def _add(done: dict[str, PolicyResult], item: PolicyResult) -> None:
    """Merge the cycles' reports: the decisions that acted, with all their outcomes."""
    subject = item.item.ref.subject
    before = done.get(subject)
    if before is None or not before.outcomes:
        done[subject] = item
    else:
        done[subject] = replace(before, outcomes=[*before.outcomes, *item.outcomes])


def _failure(item: PolicyResult) -> str:
    """Return why not everything could be applied, or ""."""
    bad = [each for each in item.outcomes if each.result != "Accepted"]
    if not bad:
        return ""
    is_nothing = len(bad) == len(item.outcomes)
    if not is_nothing and all(each.result in PASSING for each in bad):
        return ""
    what = "nothing was set" if is_nothing else "not all was set"
    return f"{item.item.ref.subject}: {what}: {bad[-1].result}, {bad[-1].detail}"


def _with_message(item: PolicyResult) -> PolicyResult:
    """Return the decision with the cost of its change."""
    if item.decision is None or not item.cost:
        return item
    extra = item.decision.extra | {"message": item.cost}
    return replace(item, decision=msgspec.structs.replace(item.decision, extra=extra))


def _report(words: str) -> None:
    tell(f"{time.strftime('%H:%M:%S')} {words}")

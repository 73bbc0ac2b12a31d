"""Builds `recommendation plan` and `apply` for a live cluster, and prints their results.

Advice needs the API server, and a Prometheus with a week of samples.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from equipoise.adapters.kubernetes import Client, KubernetesCluster
from equipoise.adapters.kubernetes.apply import KubernetesApplier
from equipoise.adapters.kubernetes.cluster import HpaSpecs
from equipoise.adapters.prometheus.history import HistorySource, PrometheusHistory
from equipoise.adapters.prometheus.metrics import PrometheusOwners
from equipoise.cli.journal import CommandJournal, new_ids
from equipoise.cli.plots import expect_few
from equipoise.cli.recommendation_table import print_reasons
from equipoise.cli.session import ClusterRequest, Session
from equipoise.core.cluster import HpaSpec, Workload
from equipoise.core.decision import Decision, Outcome, Record, outcome_document, plan_document
from equipoise.core.errors import WorldFailed
from equipoise.engine.recording import failed_record
from equipoise.recommendation.adopt import DONE, Adopted, HpaAdopter, by_subject, with_current
from equipoise.recommendation.advisor import AdviceScope, Advised, DataSources, advised
from equipoise.recommendation.decide import Batch, Examined, examine_all
from equipoise.recommendation.explain import BALANCER, Facts, coverage_text, record
from equipoise.recommendation.observe import Observation, check_names
from equipoise.recommendation.settings import AdviceRequest, AdviceType
from equipoise.runtime.metrics_source import prometheus_metrics
from equipoise.runtime.output import Format, counting, print_document, reading, warn

if TYPE_CHECKING:
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class RecommendationRequest:
    """The workloads and the cluster of a command, and how histories are queried."""

    cluster: ClusterRequest
    asked: AdviceScope
    source: HistorySource = HistorySource.AUTO


class _WorkloadsOnce(KubernetesCluster):
    """Lists the workloads once: a command observes one moment."""

    def workloads(self, namespace: str | None = None) -> Sequence[Workload]:
        if not hasattr(self, "_listed"):
            self._listed = super().workloads(namespace)
        return self._listed

    def unscaled_workloads(self, namespace: str | None = None) -> Sequence[Workload]:
        if not hasattr(self, "_unscaled"):
            self._unscaled = super().unscaled_workloads(namespace)
        return self._unscaled


class _HpasOnce(HpaSpecs):
    """Lists the HPAs once, on the first use."""

    def specs(self, namespace: str | None = None) -> Sequence[HpaSpec]:
        if not hasattr(self, "_listed"):
            self._listed = super().specs(namespace)
        return self._listed


@dataclass(slots=True)
class KeptHistories:
    """The histories of a few workloads, for a plot."""

    rows: dict[tuple[str, str], Observation] = field(default_factory=dict)

    def decide(self, batch: Batch) -> list[list[Examined]]:
        for _, observation in batch:
            for row, key in enumerate(zip(observation.subjects, observation.kinds, strict=True)):
                self.rows[key] = observation.rows(slice(row, row + 1))
        return examine_all(batch)


def plan_recommendation(
    request: RecommendationRequest,
    at: float | None = None,
    kept: KeptHistories | None = None,
    journal: CommandJournal | None = None,
) -> list[Decision]:
    """Observe the cluster and its past week, and decide; nothing is changed.

    What was seen of each workload is `kept` for a plot; too many are refused before anything is read.
    """
    client = _client(request)
    where = request.cluster.scope(client)
    world = _world(request, client)
    if kept is not None:
        world = replace(world, decide=kept.decide, unscaled=None)
        scope = replace(request.asked, selector=request.cluster.selector)
        expect_few(len(scope.chosen(world.cluster.workloads(where), where)))
    found = _advised(request, world, where, at)
    if journal is not None:
        question = request.asked.request
        for batch, asked in enumerate((question, replace(question, about=AdviceType.RESOURCE))):
            record_advice(journal, asked, [one for one in found if one.batch == batch])
    decided = [(one.decision, one.ref) for one in found]
    unscaled = world.unscaled if request.asked.request.needs_containers else None
    listed = [*world.cluster.workloads(where), *(unscaled(where) if unscaled else ())]
    return with_current(decided, listed, _todays(request, world, where))


def _todays(request: RecommendationRequest, world: DataSources, where: str | None) -> Sequence[HpaSpec]:
    """Return today's HPAs, which are only printed; empty if they cannot be listed."""
    if request.asked.about is not AdviceType.HPA:
        return ()
    try:
        return world.autoscalers.specs(where)
    except WorldFailed as error:
        warn(f"today's HPAs are unknown: {error}")
        return ()


def apply_recommendation(
    request: RecommendationRequest,
    journal: CommandJournal,
    at: float | None = None,
    *,
    is_dry_run: bool = False,
) -> list[Adopted]:
    """Decide, and apply the HPAs one by one; those of others, opted out or paused, stay unchanged."""
    client = _client(request)
    where = request.cluster.scope(client)
    found = _advised(request, _world(request, client), where, at)
    session = Session(request.cluster, client, is_acting=True)

    def record_event(workload: Workload, decision: Decision, outcome: Outcome) -> None:
        sentence = f"Its HPA was {outcome.result.lower()}: {decision.reason.sentence}"
        session.actuator.record_event(workload.object_ref, decision.reason.code.value, sentence)

    adopting = HpaAdopter(
        applier=KubernetesApplier(client),
        pauses=session.pauses,
        workloads=by_subject(session.cluster.workloads(where) if found else ()),
        namespaces_protected=session.namespaces_protected if request.cluster.is_everywhere else (),
        is_dry_run=is_dry_run,
        on_applied=record_event,
    )
    done = []
    for one in counting(found, "applying", len(found)):
        each = adopting.adopt(one.decision, one.details)
        done.append(each)
        now = time.time()
        outcomes = () if each.outcome is None else (each.outcome,)
        name = session.new_id(now)
        journal.append(_record(request.asked.request, one.facts, each.decision, now, name, outcomes))
    assert len(done) == len(found), "each decision is adopted or left alone"
    return done


def record_advice(
    journal: CommandJournal, question: AdviceRequest, found: Iterable[Advised | Examined]
) -> None:
    """Add a plan's decisions and their inputs to a journal."""
    new_id, now = new_ids(), time.time()
    journal.append(*(_record(question, one.facts, one.decision, now, new_id(now)) for one in found))


def _record(
    question: AdviceRequest,
    facts: Facts | None,
    decision: Decision,
    at: float,
    record_id: str,
    outcomes: tuple[Outcome, ...] = (),
) -> Record:
    """Return the record of a decision; it has no inputs if an error ended the advice before."""
    if facts is None:
        return failed_record(BALANCER, decision, at, record_id, outcomes)
    return record(question, facts, decision, at, record_id, outcomes=outcomes)


def _client(request: RecommendationRequest) -> Client:
    """Connect, after the command's options are validated."""
    check_names(request.asked.names)
    request.cluster.expect_one_scope()
    return request.cluster.client()


def _advised(
    request: RecommendationRequest, world: DataSources, where: str | None, at: float | None
) -> list[Advised]:
    with reading("a week of usage") as on_bytes:
        world = replace(world, on_bytes=on_bytes)
        asked = replace(request.asked, namespace=where, selector=request.cluster.selector)
        found = advised(asked, world, time.time() if at is None else at)
    for warning in world.cluster.warnings if isinstance(world.cluster, KubernetesCluster) else ():
        warn(warning)
    return found


def _world(request: RecommendationRequest, client: Client) -> DataSources:
    metrics = prometheus_metrics(client, request.cluster.prometheus)
    cluster = _WorkloadsOnce(client)
    return DataSources(
        cluster=cluster,
        history=PrometheusHistory(
            metrics.client, metrics.names, metrics.extra_matchers, source=request.source
        ),
        autoscalers=_HpasOnce(client),
        owners=PrometheusOwners(metrics.client, metrics.extra_matchers),
        warn=warn,
        unscaled=cluster.unscaled_workloads,
    )


WIDTH_FOR_SENTENCES = 140
"""On a narrower terminal, the sentences are below the table."""
WOULD = {"Created": "would create", "Changed": "would change", "Unchanged": "unchanged"}


def print_adopted(done: Sequence[Adopted], form: Format, *, is_dry_run: bool) -> None:
    if form is not Format.TABLE:
        document = plan_document("recommendation", [each.decision for each in done])
        for part, each in zip(document["decisions"], done, strict=True):
            part["outcomes"] = [] if each.outcome is None else [outcome_document(each.outcome)]
            part["dry_run"] = is_dry_run
        print_document(document, form)
        return
    from equipoise.runtime.console import Console

    console = Console()
    if not done:
        console.print("There was nothing to decide.")
        return
    is_wide = console.width >= WIDTH_FOR_SENTENCES
    console.print(_table(done, is_dry_run=is_dry_run, has_sentences=is_wide))
    left = [each for each in done if not _is_done(each)]
    if not is_wide:
        print_reasons(console, [each.decision for each in left])
    results = [each.outcome.result for each in done if each.outcome is not None]
    counts = ", ".join(
        f"{results.count(name)} {name.lower()}" for name in ("Created", "Changed", "Unchanged")
    )
    end = " Nothing was changed: it was a dry run." if is_dry_run else ""
    console.print(f"{len(done)} decided: {counts}, {len(left)} left alone.{end}")


def _is_done(each: Adopted) -> bool:
    return each.outcome is not None and each.outcome.result in DONE


def _table(done: Sequence[Adopted], *, is_dry_run: bool, has_sentences: bool) -> "Table":
    from rich.text import Text

    from equipoise.runtime.console import table

    numbers, whole = ("NOW", "MIN", "MAX", "TARGET"), ("HPA", "REASON")
    laid_out = table("WORKLOAD", *numbers, *whole, right=numbers, folded=("WORKLOAD",))
    if has_sentences:
        laid_out.add_column("WHY", ratio=1, overflow="fold")
    for each in done:
        decision = each.decision
        recommended = decision.extra["recommended"] or {}
        target = recommended.get("targetUtilization")
        style = "" if _is_done(each) else "yellow" if recommended else "dim"
        laid_out.add_row(
            Text(decision.subject),
            str(decision.reason.numbers["replicas"]),
            *(str(recommended.get(name, "-")) for name in ("minReplicas", "maxReplicas")),
            "-" if target is None else f"{target} %",
            _result(each, is_dry_run=is_dry_run),
            Text(decision.reason.code.value, style=style),
            *([Text(decision.reason.sentence)] if has_sentences else []),
        )
    return laid_out


def _result(each: Adopted, *, is_dry_run: bool) -> str:
    if each.outcome is None:
        return "held" if each.decision.held else "-"
    if each.is_not_ours:
        return "left alone"
    result = each.outcome.result
    return WOULD.get(result, result) if is_dry_run else result


def surprises(done: Sequence[Adopted]) -> Iterator[str]:
    """Return what an HPA does at once, and what it was made from little."""
    for each in done:
        decision = each.decision
        numbers, recommended = decision.reason.numbers, decision.extra["recommended"]
        if not decision.actions:
            continue
        if numbers["replicas"] > recommended["maxReplicas"]:
            yield (
                f"{decision.subject}: the HPA scales the workload down at once, from {numbers['replicas']} "
                f"replicas to its maximum of {recommended['maxReplicas']}"
            )
        if numbers["confidence"] == "low":
            share = coverage_text(numbers["coverage"])
            yield (
                f"{decision.subject}: confidence is low, because only {share} of the samples of the past "
                "seven days are known"
            )

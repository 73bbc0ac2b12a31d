"""Files of usage as people have them, and whatever else is given to a command."""

from collections.abc import Callable

from equipoise.adapters.sample_files import read_samples
from equipoise.core.file_forms import form_of_document, form_of_text, refuse_other_form
from equipoise.recommendation.decide import decide
from equipoise.recommendation.doubts import doubts_of_advice, doubts_of_samples, doubts_of_usage
from equipoise.recommendation.files import FileDefaults, observe, observe_many, series_of
from equipoise.recommendation.series import per_replica, with_owners
from equipoise.recommendation.settings import AdviceRequest, RecommendationPolicy
from equipoise.rotation import usage_file
from equipoise.rotation.decide import decide as decide_rotation
from equipoise.rotation.policy import RotationPolicy
from equipoise.runtime.output import document_of, read_text
from equipoise.stats.samples import Shape
from tests.support.fuzz.files import file_of
from tests.support.fuzz.machine import Input, Reader
from tests.support.recommendation.people_files import FORMS
from tests.support.source_tree import ROOT

POLICY = RecommendationPolicy()
LINES_MAX = 30
"""Of each form; damage would seldom meet its beginning in more."""


def _contents(*names: str) -> tuple[bytes, ...]:
    by_name = {file.name: file.content for file in FORMS}
    found = [by_name[name] for name in names]
    return tuple(one if isinstance(one, bytes) else one.encode() for one in found)


def _short(*names: str) -> tuple[bytes, ...]:
    return tuple(b"\n".join(one.split(b"\n")[:LINES_MAX]) for one in _contents(*names))


def _usage(workloads: list[str]) -> Callable[[Input], None]:
    """Return what the commands do with a file of usage."""

    def read_it(given: Input) -> None:
        path = str(file_of(given, "usage"))
        samples = with_owners(read_samples(path), workloads, path)
        if samples.is_of_many:
            found = observe_many(samples, FileDefaults(path), workloads)
        else:
            found = [observe(samples, FileDefaults(path), "web")]
        if samples.shape is Shape.TOTALS:
            found = [per_replica(one) for one in found]
        list(doubts_of_samples(samples, path))
        for observation in found:
            list(doubts_of_usage(observation))
            decided = decide(AdviceRequest(POLICY, algorithm=None), observation)
            list(doubts_of_advice([one.decision for one in decided]))
        if workloads:
            series_of(samples, workloads[0], path)

    return read_it


def _pods(given: Input) -> None:
    """A file of the usage of pods, as `rotation plan --from` reads it."""
    path = str(file_of(given, "top"))
    text = read_text(path)
    has_top = usage_file.is_top(text)
    document = None if has_top else document_of(text, path)
    target = usage_file.read_target("1", "70", path)
    if has_top:
        found = usage_file.read_top(text, path)
    elif usage_file.is_pod_metrics(document):
        found = usage_file.read_pod_metrics(document, path)
    else:
        refuse_other_form(form_of_document(document), path, ())
        return
    seen = usage_file.observations(found, target, [], path)
    list(usage_file.doubts(seen))
    for observation in seen:
        decide_rotation(RotationPolicy(), observation)


def _forms(given: Input) -> None:
    """A file that a command cannot use."""
    refuse_other_form(form_of_text(given.data.decode("utf-8", "replace")), "file", ())


def readers() -> list[Reader]:
    """Return the readers of usage as others write it."""
    answers = ("query_range, by pod", "query_range, by container", "query, one sample for each pod")
    csv = ("extra columns", "cpu and memory", "rows of containers", "Grafana, series joined by time")
    examples = [ROOT / "examples" / name for name in ("06-qos-plan.yaml", "08-pools-tiers.json")]
    return [
        Reader("saved answers of Prometheus", _contents(*answers), _usage(["web"]), is_slow=True),
        Reader("CSV as people have it", _short(*csv, "wide, with text"), _usage(["web"]), is_slow=True),
        Reader("CSV whose columns are workloads", _short("wide, without WORKLOAD"), _usage([]), is_slow=True),
        Reader("kubectl top pod", _contents("kubectl top pod -A", "kubectl top pod --containers"), _pods),
        Reader("pod metrics in a file", _contents("PodMetricsList", "kubectl get podmetrics -o yaml"), _pods),
        Reader(
            "files for another command", tuple(one.read_bytes() for one in examples), _forms, refuses=True
        ),
    ]

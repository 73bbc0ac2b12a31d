"""Logs: one line per decision, loud only when it is news."""

import io
import json
import logging

import pytest

from equipoise.core.errors import WorldFailed
from equipoise.core.reason import Code
from equipoise.runtime.logs import LISTED_MAX, DecisionLines, ErrorReporter, log_failure, make_log
from equipoise.runtime.settings import Logs
from tests.support.operator.worlds import decision, logged, report


def test_a_decision_is_one_line_with_its_sentence_reason_and_numbers() -> None:
    """The same words as everywhere else."""
    log, lines = logged()
    DecisionLines(log, "rotation").log(
        report(decision("shop/web", Code.ROTATE, "a", threshold_cores=1.05), done="Accepted")
    )
    (line,) = lines()
    assert line.pop("at").endswith("Z")
    assert line == {
        "level": "info",
        "message": "shop/web is Rotate.",
        "balancer": "rotation",
        "subject": "shop/web",
        "reason": "Rotate",
        "numbers": {"threshold_cores": 1.05},
        "actions": [{"kind": "EvictPod", "pod": "a", "namespace": "shop", "uid": "uid-a"}],
        "outcomes": [
            {
                "action": {"kind": "EvictPod", "pod": "a", "namespace": "shop", "uid": "uid-a"},
                "result": "Accepted",
                "detail": "",
            }
        ],
    }


def test_a_line_is_info_only_when_something_was_done_or_the_reason_changed() -> None:
    """At rest there is nothing to read."""
    log, lines = logged()
    told = DecisionLines(log, "rotation")
    told.log(report(decision()))
    told.log(report(decision()))
    told.log(report(decision(code=Code.METRICS_INCOMPLETE)))
    told.log(report(decision("shop/web", Code.ROTATE, "a")))
    told.log(report(decision("shop/web", Code.ROTATE, "a"), done="Blocked"))
    told.log(report(decision("shop/web", Code.ROTATE, "a")))
    assert [line["level"] for line in lines()] == ["info", "debug", "info", "info", "info", "debug"]


def test_a_line_lists_the_first_of_many_and_how_many_there_are() -> None:
    """Ten thousand pods that are registered at once must not make a line of megabytes."""
    log, lines = logged("info")
    names = [f"agent-{number}" for number in range(10_000)]
    made = decision("voice/pods", Code.RECONCILE, *names)
    DecisionLines(log, "pools").log(report(made, done="Registered"))
    (line,) = lines()
    assert (len(line["actions"]), line["actions_total"]) == (LISTED_MAX, 10_000)
    assert (len(line["outcomes"]), line["outcomes_total"]) == (LISTED_MAX, 10_000)
    assert line["results"] == {"Registered": 10_000}
    assert len(json.dumps(line)) < 10_000


def test_a_subject_that_came_back_is_news() -> None:
    """What has vanished is forgotten."""
    log, lines = logged("info")
    told = DecisionLines(log, "rotation")
    for cycle in (report(decision()), report(), report(decision())):
        told.log(cycle)
    assert len(lines()) == 2


def test_a_warning_is_told_once_while_it_lasts() -> None:
    """And again when it comes back."""
    log, lines = logged("info")
    told = DecisionLines(log, "rotation")
    for warnings in (["partial"], ["partial"], [], ["partial"]):
        told.log(report(warnings=warnings))
    assert [line["message"] for line in lines()] == ["partial", "partial"]


@pytest.mark.parametrize(
    ("error", "level", "severity", "has_traceback"),
    [
        (WorldFailed("no answer"), "info", "warning", False),
        (WorldFailed("no answer"), "debug", "warning", True),
        (ZeroDivisionError("a bug"), "info", "error", True),
    ],
)
def test_a_traceback_is_for_bugs_and_for_debug(
    error: Exception, level: str, severity: str, has_traceback: bool
) -> None:
    """The world's failures are one line."""
    log, lines = logged(level)  # type: ignore[arg-type]
    log_failure(log, "the cycle failed", error)
    (line,) = lines()
    assert line["level"] == severity
    assert str(error) in line["message"]
    assert ("traceback" in line) == has_traceback


def test_what_libraries_log_has_our_form() -> None:
    """From the level that is asked for, and never below a warning."""
    _, lines = logged("debug")
    logging.getLogger("urllib3").warning("connection %d dropped", 5)
    logging.getLogger("urllib3").info("nobody wants to know")
    (line,) = lines()
    assert (line["message"], line["library"]) == ("connection 5 dropped", "urllib3")


@pytest.mark.parametrize(("form", "is_json"), [("auto", True), ("json", True), ("console", False)])
def test_a_pipe_gets_json_unless_told_otherwise(form: str, is_json: bool) -> None:
    """Machines read pipes."""
    stream = io.StringIO()
    make_log(Logs.model_validate({"format": form}), stream).info("hello", n=1)
    assert stream.getvalue().startswith("{") == is_json
    assert "hello" in stream.getvalue()
    if is_json:
        assert json.loads(stream.getvalue())["n"] == 1


def test_a_lasting_complaint_is_told_once_and_its_end_too() -> None:
    """Its words may change with every attempt; a minute later they are told."""
    log, lines = logged("info")
    wrong: dict[str, str] = {"lease": "refused"}
    now = [0.0]
    complaints = ErrorReporter(log, lambda: wrong, lambda: now[0])
    complaints.report()
    wrong["lease"] = "refused again"
    complaints.report()
    now[0] = 61.0
    complaints.report()
    wrong.clear()
    complaints.report()
    complaints.report()
    assert [line["message"] for line in lines()] == [
        "lease: refused",
        "lease: refused again",
        "lease: recovered",
    ]

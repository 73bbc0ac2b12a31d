"""Advice and what became of it, as people read it: at 80 columns and at 120."""

import csv
import io
import json
from typing import Any

import jsonschema
import pytest
from msgspec import structs

from equipoise.cli.recommendation_documents import AdviceNumbersDocument
from equipoise.cli.recommendation_live import print_adopted, surprises
from equipoise.cli.recommendation_options import AdviceOutput
from equipoise.cli.recommendation_output import print_advice
from equipoise.cli.schemas import json_schema
from equipoise.core.decision import Decision, Outcome
from equipoise.core.reason import Code, Reason
from equipoise.recommendation.adopt import Adopted, proposed
from equipoise.recommendation.explain import AdviceDetails
from equipoise.runtime.output import Format
from tests.support.cli.decisions import NUMBERS, decision
from tests.support.cli.running import terminal
from tests.support.cli.terminal import on_terminal

LONG = "payments-production/checkout-frontend-deployment"
REQUESTS = {
    "containers": [
        {"name": "app", "requests": {"cpu": "1500m", "memory": "1610612736"}},
        {"name": "proxy", "requests": {"cpu": "20m"}},
    ]
}
CURRENT = {
    "replicas": 12,
    "hpas": [{"name": "web", "minReplicas": 3, "maxReplicas": 9, "targetUtilization": 60}],
    "containers": [{"name": "app", "requests": {"cpu": "2", "memory": "1Gi"}}],
}


ALL = [
    decision(LONG, current=CURRENT),
    decision("shop/young", numbers={"coverage": 0.099, "confidence": "low"}),
    decision("shop/hurt", Code.TOO_FEW_AVAILABLE_PODS),
]


def _table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, what: Any) -> str:
    text = on_terminal(capsys, monkeypatch, width, lambda: print_advice(what, [60.0], AdviceOutput()))
    # The next command is one line wherever it is copied from.
    assert max(len(line) for line in text.splitlines() if not line.startswith("Next: ")) <= width
    return text


def test_a_table_of_replicas_has_every_number_at_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is cut off; only a long name goes on in the next line."""
    lines = _table(capsys, monkeypatch, 80, ALL).splitlines()
    assert lines[0].split() == ["WORKLOAD", "REPLICAS", "TARGET", "COVERAGE", "REASON"]
    words = [line.replace("\N{NO-BREAK SPACE}", " ").replace(" %", "%").split() for line in lines]
    assert words[2][1:] == ["12", "→", "2-128", "75%", "100%", "high", "Recommend"]
    young = next(line for line in words if line[:1] == ["shop/young"])
    assert young[1:] == ["12", "→", "2-128", "75%", "9.9%", "low", "Recommend"]
    assert ["shop/hurt", "12", "100%", "high", "TooFewAvailablePods"] in words
    assert "3 looked at, advice for 2. Nothing was changed." in lines
    assert "shop/hurt: Because." in lines


def test_todays_hpa_is_beside_the_advice_where_there_is_room(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where any workload has one; the sentences are in the table when there is room for them, too."""
    text = _table(capsys, monkeypatch, 120, ALL)
    assert "3-9 at 60%" in text
    assert "WHY" in text
    assert "HPA" not in _table(capsys, monkeypatch, 120, ALL[1:])
    assert "WHY" not in _table(capsys, monkeypatch, 80, ALL)


def test_requests_have_a_row_for_each_container(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Today's beside the advised, in units that people read; a file knows only the pod."""
    pod = {"containers": [{"name": "*", "requests": {"cpu": "3"}}]}
    advised = [
        decision(recommended=REQUESTS, current=CURRENT),
        decision("shop/file", recommended=pod, numbers={"request_cores": 3.0}),
        decision("shop/idle", Code.LOW_USAGE),
    ]
    text = _table(capsys, monkeypatch, 120, advised)
    lines = {tuple(line.split())[:4]: line.split() for line in text.splitlines()}
    app = lines["shop/web", "app", "2", "→"]
    assert app[2:8] == ["2", "→", "1500m", "-6", "1Gi", "→"]
    assert lines["proxy", "none", "→", "20m"]
    assert lines["shop/file", "(pod)", "3", "0"]
    print_advice(advised, [60.0], AdviceOutput("csv", "name"), is_resource=True)
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["container"] for row in rows] == ["*", "", "app", "proxy"]
    assert (rows[2]["memory"], rows[2]["currentMemory"]) == ("1610612736", "1Gi")


def _proposed(subject: str) -> Decision:
    made = decision(subject)
    return proposed(made, AdviceDetails.of(made))


def _done(result: str, code: Code = Code.RECOMMEND, subject: str = "shop/web") -> Adopted:
    wanted = _proposed(subject)
    outcome = Outcome(wanted.actions[0], result, "it is so")
    if code is not Code.RECOMMEND:
        wanted = wanted.hold(Reason(code, f"{code.value}: it is so."))
    return Adopted(wanted, outcome)


def test_what_was_applied_is_one_line_for_each_workload(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was left alone says why; a dry run says that it was one."""
    done = [
        _done("Created"),
        _done("NotOurs", Code.NOT_OURS, LONG),
        _done("Forbidden", Code.NOT_APPLIED, "shop/api"),
        Adopted(_proposed("shop/paused").hold(Reason(Code.HELD_BY_PAUSE, "Stop was said."))),
        Adopted(decision("shop/idle", Code.LOW_USAGE)),
    ]
    for width in (80, 120):
        for name, value in terminal(width).items():
            monkeypatch.setenv(name, value)
        print_adopted(done, Format.TABLE, is_dry_run=False)
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= width
        lines = [" ".join(line.split()) for line in text.splitlines()]
        assert "shop/web 12 2 128 75 % Created Recommend" in lines
        assert "shop/api 12 2 128 75 % Forbidden NotApplied" in lines
        assert "shop/paused 12 2 128 75 % held HeldByPause" in lines
        assert "shop/idle 12 - - - - LowUsage" in lines
        assert f"{LONG}: NotOurs: it is so." in lines
        assert lines[-1] == "5 decided: 1 created, 0 changed, 0 unchanged, 4 left alone."
    print_adopted(done[:1], Format.TABLE, is_dry_run=True)
    text = " ".join(capsys.readouterr().out.split())
    assert "would create" in text
    assert text.endswith("Nothing was changed: it was a dry run.")


def test_what_was_applied_is_a_plan_for_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    """Actions are those that were carried out; what came of each one tried is beside them."""
    print_adopted([_done("Changed"), _done("NotOurs", Code.NOT_OURS)], Format.JSON, is_dry_run=True)
    document = json.loads(capsys.readouterr().out)
    schema = json_schema("recommendation-apply")
    jsonschema.Draft202012Validator.check_schema(schema)
    for part in document["decisions"]:
        part["numbers"] |= dict.fromkeys(AdviceNumbersDocument.__struct_fields__[:6], 1.0)
        part["prediction"] |= {"period_seconds": None, "model": "flat", "error": 1, "baseline_error": 1}
    jsonschema.validate(document, schema)
    changed, foreign = document["decisions"]
    assert document["balancer"] == "recommendation"
    assert [action["kind"] for action in changed["actions"]] == ["ApplyHpa"]
    assert changed["actions"][0]["manifest"]["spec"]["maxReplicas"] == 128
    assert changed["outcomes"][0]["result"] == "Changed"
    assert changed["dry_run"] is True
    assert (foreign["reason"], foreign["actions"]) == ("NotOurs", [])
    assert foreign["held"][0]["reason"] == foreign["outcomes"][0]["result"] == "NotOurs"


def test_an_hpa_that_will_surprise_is_announced() -> None:
    """It scales down at once, or it was made from little; not where nothing is applied."""
    quiet = _done("Created")
    few = structs.replace(quiet.decision.reason, numbers=NUMBERS | {"replicas": 200})
    little = structs.replace(few, numbers=few.numbers | {"coverage": 0.1, "confidence": "low"})
    loud = Adopted(structs.replace(quiet.decision, reason=little), quiet.outcome)
    assert list(surprises([quiet, _done("NotOurs", Code.NOT_OURS)])) == []
    down, low = surprises([loud])
    assert down == (
        "shop/web: the HPA scales the workload down at once, from 200 replicas to its maximum of 128"
    )
    assert low == (
        "shop/web: confidence is low, because only 10% of the samples of the past seven days are known"
    )

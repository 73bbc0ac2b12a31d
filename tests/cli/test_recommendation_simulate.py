"""`equipoise recommendation simulate`: the past week under today's settings and the advised ones."""

import json
import math
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import yaml

from equipoise.cli.recommendation_replay import HpaBounds, replayed
from equipoise.core.decision import Decision
from equipoise.recommendation.observe import Observation
from equipoise.recommendation.settings import read_policy
from tests.support.cli.running import equipoise, terminal
from tests.support.recommendation.worlds import decisions

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "03-recommendation-usage.csv")
USUAL = ("--from", EXAMPLE, "--request", "1000m", "--replicas", "12")
HOURS = 168
FEW = ("--no-forecast",)


def _simulate(*arguments: str, stdin: str = "") -> dict[str, Any]:
    done = equipoise("recommendation", "simulate", *arguments, "-o", "json", stdin=stdin)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(document, _schema())
    return document


@cache
def _schema() -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(equipoise("schema", "recommendation-simulation").stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


@cache
def _many() -> str:
    rows = ["timestamp,namespace,workload,pod,value,request"]
    for tick in range(2 * 288):
        swing = 1.2 + math.sin(2 * math.pi * tick / 288)
        for name, cores in (("api", 4 * swing), ("tiny", 0.01), ("web", 8 * swing)):
            request = "" if name == "api" else "1"
            rows += [f"{300 * tick},shop,{name},{name}-{pod},{cores / 2:.4f},{request}" for pod in range(2)]
    return "\n".join(rows)


def test_replicas_that_nothing_scales_are_compared_with_the_advice() -> None:
    """12 replicas for a week, and the HPA that would follow the load."""
    document = _simulate(*USUAL)
    assert (document["interval_seconds"], document["minutes"]) == (900, HOURS * 60)
    (workload,) = document["workloads"]
    now, then = workload["current"], workload["recommended"]
    assert now["settings"] == {"replicas": 12}
    assert (now["replica_hours"], now["scalings"], now["replicas_highest"]) == (12 * HOURS, 0, 12)
    lines = Path(EXAMPLE).read_text().splitlines()[1:]
    above = sum(float(line.partition(",")[2]) > 12 for line in lines)
    assert now["minutes_above_request"] == 15 * above > 0
    assert set(then["settings"]) == {"minReplicas", "maxReplicas", "targetUtilization"}
    assert then["replica_hours"] < now["replica_hours"]
    assert then["minutes_above_request"] < now["minutes_above_request"]
    assert then["scalings"] > 14
    assert document["total"]["current"]["replica_hours"] == now["replica_hours"]


def test_the_advised_settings_are_the_plans() -> None:
    """With all of its options."""
    options = [*USUAL, *FEW, "--set", "ehpa.max-cpu-target-utilization=50"]
    plan = json.loads(equipoise("recommendation", "plan", *options, "-o", "json").stdout)
    (workload,) = _simulate(*options)["workloads"]
    recommended = plan["decisions"][0]["recommended"]
    assert workload["recommended"]["settings"] == {
        key: recommended[key] for key in ("minReplicas", "maxReplicas", "targetUtilization")
    }
    assert workload["sentence"] == plan["decisions"][0]["sentence"]


def test_todays_hpa_is_replayed_too() -> None:
    """Set like the advice, it does the same."""
    (first,) = _simulate(*USUAL, *FEW)["workloads"]
    low, high, target = map(str, first["recommended"]["settings"].values())
    today = ("--current-min", low, "--current-max", high, "--current-target", target)
    (second,) = _simulate(*USUAL, *FEW, *today)["workloads"]
    assert second["current"] == second["recommended"] == first["recommended"]


def test_many_workloads_are_replayed_at_once() -> None:
    """One without advice keeps its row, one without a request has no minutes above it."""
    document = _simulate("--from", "-", "--current-max", "9", "--current-target", "80", *FEW, stdin=_many())
    assert document["minutes"] == 2 * 1440
    api, tiny, web = document["workloads"]
    assert [each["subject"] for each in (api, tiny, web)] == ["shop/api", "shop/tiny", "shop/web"]
    assert [each["reason"] for each in (api, tiny, web)] == ["LowUsage", "LowUsage", "Recommend"]
    assert api["recommended"] is tiny["recommended"] is None
    assert api["current"]["settings"] == {"replicas": 2}
    assert api["current"]["minutes_above_request"] is None
    assert tiny["current"]["replica_hours"] == pytest.approx(48, abs=0.5)
    assert web["current"]["replicas_highest"] == 9
    assert web["recommended"]["minutes_above_request"] < web["current"]["minutes_above_request"]
    assert document["total"]["advised"] == 1
    assert document["total"]["current"]["replica_hours"] == web["current"]["replica_hours"]


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit(width: int) -> None:
    """Two rows for each workload, one where there is no advice, and what they add up to."""
    names = ("--from", "-", *FEW)
    done = equipoise("recommendation", "simulate", *names, stdin=_many(), environment=terminal(width))
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, done.stdout.splitlines())) <= width
    assert "advice for 1: 96 → " in done.stdout
    assert ("MINUTES ABOVE REQUEST" in done.stdout) == (width == 120)
    assert re.search(r"advice \d+-\d+ at \d+ %", done.stdout)
    for said in ("now    2 fixed", "LowUsage", "Nothing was changed."):
        assert said in done.stdout


def test_yaml_says_the_same() -> None:
    """As everywhere."""
    done = equipoise("recommendation", "simulate", *USUAL, *FEW, "-o", "yaml")
    assert yaml.safe_load(done.stdout) == _simulate(*USUAL, *FEW)


def test_what_is_not_known_is_not_above() -> None:
    """A file without samples, or with none that is a number, is an answer."""
    for text in ("timestamp,value\n", "timestamp,value\n60,NaN\n120,NaN\n"):
        (workload,) = _simulate("--from", "-", "--replicas", "2", "--request", "1", stdin=text)["workloads"]
        assert (workload["reason"], workload["recommended"]) == ("NoSamples", None)
        assert (workload["minutes_known"], workload["current"]["minutes_above_request"]) == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--from"),
        ([*USUAL, "--current-max", "9"], "--current-target: expected it too"),
        ([*USUAL, "--current-target", "9"], "--current-max: expected it too"),
        (
            [*USUAL, "--current-min", "9", "--current-max", "8", "--current-target", "50"],
            "--current-max: expected at least --current-min (9), got 8",
        ),
        ([*USUAL, "--current-max", "0"], "--current-max"),
        ([*USUAL, "--available", "13"], "--available: expected at most --replicas (12), got 13"),
        ([*USUAL, "--set", "ehpa.nonsense=1"], "--set: ehpa.nonsense: unknown key"),
    ],
)
def test_wrong_words_get_one_error_line(arguments: list[str], message: str) -> None:
    """Naming the option and what was expected."""
    done = equipoise("recommendation", "simulate", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
    assert message in done.stderr


def _fleet(count: int) -> tuple[Observation, list[Decision]]:
    chance = np.random.default_rng(7)
    day = 6 + 5 * np.sin(np.arange(1440) / 1440 * 2 * np.pi)
    history = np.tile(day, 2) * chance.uniform(2, 4, (count, 1)) + chance.normal(0, 0.3, (count, 2880))
    seen = Observation(
        subjects=[f"shop/w{number}" for number in range(count)],
        kinds=["Deployment"] * count,
        replicas=np.full(count, 30),
        pods=np.full(count, 30),
        available=np.full(count, 30),
        request_cores=np.full(count, 1.0),
        history=history,
        interval_seconds=60.0,
        at=2880 * 60.0,
    )
    return seen, decisions(read_policy({}, "test"), seen, None)


def test_a_workload_alone_and_in_a_fleet_has_the_same_week() -> None:
    """Side by side or one by one: the same numbers."""
    seen, decisions = _fleet(100)
    today = HpaBounds(2, 50, 60)
    together = list(replayed(seen, decisions, today))
    for row in (0, 57, 99):
        (alone,) = replayed(seen.rows(slice(row, row + 1)), decisions[row : row + 1], today)
        assert alone == together[row]
        assert alone.recommended is not None

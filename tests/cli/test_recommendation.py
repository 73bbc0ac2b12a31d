"""`equipoise recommendation plan --from` and `equipoise forecast`, as scripts and people use them."""

import csv
import io
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.support.cli.running import equipoise, terminal

ROOT = Path(__file__).parents[2]
EXAMPLE = str(ROOT / "examples" / "03-recommendation-usage.csv")
README = str(ROOT / "README.md")
USUAL = ("--from", EXAMPLE, "--request", "1000m", "--replicas", "12")
DAY = 86400


@cache
def _schema(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(equipoise("schema", name).stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    return schema


def _plan(*arguments: str, stdin: str = "") -> dict[str, Any]:
    done = equipoise("recommendation", "plan", *arguments, "-o", "json", stdin=stdin)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(document, _schema("recommendation-plan"))
    jsonschema.validate(document, _schema("plan"))
    return document


def _forecast(*arguments: str) -> dict[str, Any]:
    done = equipoise("forecast", *arguments, "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    document: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(document, _schema("forecast-backtest" if "--backtest" in arguments else "forecast"))
    return document


def test_the_example_gets_advice() -> None:
    """One document, with everything that scripts rely on."""
    (decision,) = _plan(*USUAL)["decisions"]
    assert decision["subject"] == "03-recommendation-usage"
    assert decision["reason"] == "Recommend"
    assert decision["actions"] == decision["held"] == []
    assert decision["prediction"]["predictable"] is True
    assert decision["prediction"]["period_seconds"] == DAY
    assert decision["numbers"]["coverage"] == 1.0
    recommended = decision["recommended"]
    assert 2 <= recommended["minReplicas"] < recommended["maxReplicas"]
    assert (
        recommended["metrics"][0]["resource"]["target"]["averageUtilization"]
        == recommended["targetUtilization"]
    )


def test_without_a_forecast_only_the_past_counts() -> None:
    """And the answer says that nothing was predicted."""
    (decision,) = _plan(*USUAL, "--source", "metrics-file", "--no-forecast")["decisions"]
    assert decision["prediction"] == {
        "predictable": False,
        "period_seconds": None,
        "model": "none",
        "error": None,
        "baseline_error": None,
    }
    assert decision["numbers"]["p95_cores"] == decision["numbers"]["p95_past_cores"]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--set", "ehpa.deployment-min-replicas=13"], "TooFewReplicas"),
        (["--kind", "StatefulSet", "--set", "ehpa.deployment-min-replicas=13"], "Recommend"),
        (["--available", "5"], "TooFewAvailablePods"),
        (["--set", "ehpa.min-cpu-usage-threshold=50"], "LowUsage"),
        (["--request", "0"], "NoRequest"),
        (
            [
                *("--replicas", "0"),
                *("--set", "ehpa.deployment-min-replicas=0"),
                *("--set", "ehpa.workload-min-replicas=0"),
            ],
            "NoPods",
        ),
    ],
)
def test_refusals_are_answers(arguments: list[str], reason: str) -> None:
    """Exit status 0, a reason, no advice."""
    (decision,) = _plan(*USUAL, *arguments)["decisions"]
    assert decision["reason"] == reason
    assert (decision["recommended"] is None) == (reason != "Recommend")


def test_a_file_without_samples_is_an_answer_too() -> None:
    """Only a header, or only what is no usage."""
    for text in ("timestamp,value\n", "timestamp,value\n1,NaN\n2,-1\n3,+Inf\n"):
        (decision,) = _plan("--from", "-", "--replicas", "2", "--request", "1", stdin=text)["decisions"]
        assert decision["reason"] == "NoSamples"
        assert decision["numbers"]["coverage"] == 0


def test_pods_may_have_a_file_of_their_own(tmp_path: Path) -> None:
    """Their P99 makes the target; they are the replicas when nothing else is said."""
    path = tmp_path / "pods.csv"
    path.write_text("timestamp,pod,value\n" + "".join(f"{60 * n},p{n % 4},{n / 200}\n" for n in range(101)))
    (decision,) = _plan("--from", EXAMPLE, "--request", "1", "--pod-usage", str(path))["decisions"]
    assert decision["numbers"]["pod_p99_cores"] == 0.495
    assert decision["numbers"]["replicas"] == 4
    assert decision["recommended"]["targetUtilization"] == 50


def test_many_workloads_come_from_one_file() -> None:
    """A decision each, by name; a column may have the request; some can be picked."""
    rows = [
        f"{600 * t},shop,{name},{name}-{p},{(2 + t % 144 / 24) * size},{size}"
        for t in range(7 * 144)
        for name, size in (("web", 1), ("api", 2))
        for p in range(2)
    ]
    text = "timestamp,namespace,workload,pod,value,request\n" + "\n".join(rows)
    decisions = _plan("--from", "-", stdin=text)["decisions"]
    assert [decision["subject"] for decision in decisions] == ["shop/api", "shop/web"]
    assert [decision["numbers"]["request_cores"] for decision in decisions] == [2, 1]
    assert [decision["numbers"]["replicas"] for decision in decisions] == [2, 2]
    assert decisions[0]["recommended"] == decisions[1]["recommended"]
    (one,) = _plan("shop/web", "--from", "-", stdin=text)["decisions"]
    assert one == decisions[1]


def test_manifests_can_be_applied_as_they_are() -> None:
    """A native HPA, and Crane's with its prediction."""
    native = equipoise("recommendation", "plan", "shop/web", *USUAL, "-o", "hpa")
    assert (native.returncode, native.stderr) == (0, "")
    hpa = yaml.safe_load(native.stdout)
    assert (hpa["apiVersion"], hpa["kind"]) == ("autoscaling/v2", "HorizontalPodAutoscaler")
    assert hpa["metadata"] == {"name": "web", "namespace": "shop"}
    assert hpa["spec"]["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    assert set(hpa["spec"]) == {"scaleTargetRef", "minReplicas", "maxReplicas", "metrics"}
    ehpa = yaml.safe_load(equipoise("recommendation", "plan", "shop/web", *USUAL, "-o", "ehpa").stdout)
    assert (ehpa["apiVersion"], ehpa["kind"]) == (
        "autoscaling.crane.io/v1alpha1",
        "EffectiveHorizontalPodAutoscaler",
    )
    assert ehpa["spec"]["scaleStrategy"] == "Preview"
    assert ehpa["spec"]["prediction"] == {
        "predictionWindowSeconds": 3600,
        "predictionAlgorithm": {
            "algorithmType": "dsp",
            "dsp": {"sampleInterval": "900s", "historyLength": "7d"},
        },
    }


def test_a_refusal_makes_no_manifest() -> None:
    """The reason goes to standard error."""
    done = equipoise("recommendation", "plan", *USUAL, "-o", "hpa", "--available", "0")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith("warning: 03-recommendation-usage: TooFewAvailablePods: 0 of 12 pods")


def test_tables_and_spreadsheets_show_the_same() -> None:
    """For people, and for what people paste elsewhere."""
    (row,) = csv.DictReader(io.StringIO(equipoise("recommendation", "plan", *USUAL, "-o", "csv").stdout))
    table = equipoise("recommendation", "plan", *USUAL, environment=terminal(100)).stdout
    for value in (
        row["minReplicas"],
        row["maxReplicas"],
        f"{row['targetUtilization']}%",
        row["reason"],
        "high",
    ):
        assert value in table
    assert "Nothing was changed." in table
    header, _, first = table.splitlines()[:3]
    assert (header.split()[0], first.split()[0]) == ("WORKLOAD", row["workload"])


def test_requests_are_advised_too() -> None:
    """The other type: P99 of a pod and 15 %."""
    (decision,) = _plan(*USUAL, "--type", "Resource")["decisions"]
    milli = int(decision["recommended"]["containers"][0]["requests"]["cpu"].removesuffix("m"))
    assert milli == pytest.approx(decision["numbers"]["pod_p99_cores"] * 1150, abs=1)
    asked = ("recommendation", "plan", *USUAL, "--type", "Resource", "--available", "0", "-o", "csv")
    (row,) = csv.DictReader(io.StringIO(equipoise(*asked).stdout))
    assert (row["container"], row["reason"]) == ("*", "Recommend")
    assert row["cpu"] == f"{milli}m"


def test_a_plan_shows_the_advice_that_an_inspection_refuses() -> None:
    """The reason stays and nothing is recommended; the sentence has the flag with which it would be."""
    limits = ("--set", "ehpa.min-cpu-usage-threshold=1000")
    (refused,) = _plan(*USUAL, *limits)["decisions"]
    assert (refused["reason"], refused["recommended"]) == ("LowUsage", None)
    (flag,) = [word for word in refused["sentence"].replace(":", " ").split() if "=" in word]
    (advised,) = _plan(*USUAL, *limits, "--set", flag)["decisions"]
    assert advised["recommended"] == refused["wouldRecommend"]
    assert "containers" not in refused


@pytest.mark.parametrize("algorithm", ["profile", "dsp"])
@pytest.mark.parametrize(("horizon", "count"), [("1d", 96), ("7d", 672)])
def test_a_forecast_starts_one_interval_after_the_last_sample(
    algorithm: str, horizon: str, count: int
) -> None:
    """One value per interval, a band above it."""
    document = _forecast("--from", EXAMPLE, "--horizon", horizon, "--algorithm", algorithm)
    assert document["predictable"] is True
    assert document["period_seconds"] == DAY
    assert document["interval_seconds"] == 900
    assert len(document["values"]) == len(document["upper"]) == len(document["timestamps"]) == count
    assert document["timestamps"][:2] == [1773014400, 1773015300]  # 2026-03-09T00:00:00Z
    assert all(upper >= value > 0 for value, upper in zip(document["values"], document["upper"], strict=True))


def test_a_backtest_says_how_right_it_was() -> None:
    """Error, the flat line's, and the share below the band; nothing saw the held-out day."""
    document = _forecast("--from", EXAMPLE, "--backtest", "1d")
    assert 0 < document["error"] < document["baseline_error"]
    assert 0.5 < document["coverage"] <= 1
    assert document["timestamps"][-1] == 1773014400 - 900
    odd = _forecast("--from", EXAMPLE, "--backtest", "1h5m")["timestamps"]
    assert odd == [1773014400 - 900 * n for n in (4, 3, 2, 1)], "whole intervals, whatever was said"


def test_too_little_before_what_is_held_out_is_said() -> None:
    """A few seconds, two days of nothing, and then what is held out."""
    text = "timestamp,value\n" + "".join(f"{n},1\n" for n in (*range(5), *range(172800, 172900)))
    done = equipoise("forecast", "--from", "-", "--backtest", "1d", stdin=text)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: -: expected more samples before the forecast: too few are known\n"


def test_a_forecast_can_be_a_spreadsheet() -> None:
    """Three columns; what a backtest says of the whole goes beside them."""
    done = equipoise("forecast", "--from", EXAMPLE, "-o", "csv")
    lines = done.stdout.splitlines()
    assert lines[0] == "timestamp,value,upper"
    assert (len(lines), done.stderr) == (97, "")
    held_out = equipoise("forecast", "--from", EXAMPLE, "--backtest", "1d", "-o", "csv")
    assert len(held_out.stdout.splitlines()) == 97
    told = r"held out: error 0\.\d+, baseline_error 1\.\d+, repeat_day_error 0\.\d+, .*coverage [01]\.\d+\n"
    assert re.fullmatch(told, held_out.stderr)


def test_a_forecast_for_people_ends_in_a_sentence(tmp_path: Path) -> None:
    """Whether it can be trusted, with both numbers; too short a past says so, and nothing is called nan."""
    said = " ".join(equipoise("forecast", "--from", EXAMPLE, "--backtest", "1d").stdout.split())
    assert re.search(r"Predictable: on days .* its error is 0\.\d+, that of a flat line 1\.\d+\. The", said)
    assert re.search(r"error of repeating the last day 0\.\d+", said)
    short, flat = tmp_path / "short.csv", tmp_path / "flat.csv"
    short.write_text("timestamp,value\n" + "".join(f"{60 * n},{n % 7}\n" for n in range(90)))
    flat.write_text("timestamp,value\n" + "".join(f"{900 * n},3\n" for n in range(7 * 96)))
    for file, words in (
        (short, "there are too few whole days"),
        (flat, "and at least 20 % less is asked for"),
    ):
        done = equipoise("forecast", "--from", str(file))
        assert (done.returncode, done.stderr) == (0, "")
        assert f"Not predictable: {words}" in " ".join(done.stdout.split()).replace(
            "on days of its past that it had not seen its error is 0, that of a flat line 0, ", ""
        )
        assert "nan" not in done.stdout.lower()


def test_what_is_not_predictable_still_gets_values() -> None:
    """A flat line, and it says so."""
    text = "timestamp,value\n" + "".join(f"{60 * n},2.5\n" for n in range(5000))
    done = equipoise("forecast", "--from", "-", "-o", "json", stdin=text)
    document = json.loads(done.stdout)
    assert (document["predictable"], document["period_seconds"], document["model"]) == (False, None, "flat")
    assert set(document["values"]) == {2.5}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recommendation", "plan"], "no cluster: --kubeconfig and KUBECONFIG are not set"),
        (["recommendation", "plan", "--request", "1"], "--request: expected it beside --from FILE only"),
        (["recommendation", "plan", "a/b/c"], "workload 'a/b/c': expected NAME, KIND/NAME"),
        (["recommendation", "plan", "--source", "carrier-pigeon"], "--source"),
        (["recommendation", "plan", "-n", "shop", "-A"], "-n and -A: expected one of them"),
        (["recommendation", "plan", *USUAL, "-n", "shop"], "--from: expected it without --namespace"),
        (["recommendation", "plan", *USUAL, "--source", "promql"], "--from: expected it without --source"),
        (["recommendation", "plan", *USUAL, "--set", "ehpa.nonsense=1"], "--set: ehpa.nonsense: unknown key"),
        (
            ["recommendation", "plan", *USUAL, "--set", "topK=1"],
            "--set: topK: expected a key that starts with ehpa.",
        ),
        (["recommendation", "plan", *USUAL, "--set", "ehpa.x"], "--set ehpa.x: expected ehpa.KEY=VALUE"),
        (["recommendation", "plan", *USUAL, "--request", "1x"], "--request: expected cores such as 1000m"),
        (["recommendation", "plan", *USUAL, "--replicas", "9" * 20], "--replicas"),
        (["recommendation", "plan", *USUAL, "--kind", "statefulset"], "--kind: expected a kind such as"),
        (
            ["recommendation", "plan", *USUAL, "--request", "1Gi"],
            "--request: expected cores such as 1000m or 1.5, got '1Gi', which is an amount of memory",
        ),
        (
            ["recommendation", "simulate", *USUAL, "--request", "2e9"],
            "--request: expected at most 1,000,000 cores for a pod, got '2e9'",
        ),
        (["recommendation", "plan", *USUAL, "--replicas", "-1"], "--replicas"),
        (
            ["recommendation", "plan", *USUAL, "--available", "13"],
            "--available: expected at most --replicas (12), got 13",
        ),
        (
            ["recommendation", "plan", "--from", EXAMPLE, "--available", "2"],
            "--available: expected at most the replicas (1), got 2",
        ),
        (
            ["recommendation", "plan", *USUAL, "--pod-usage", EXAMPLE],
            "expected the columns timestamp,pod,value",
        ),
        (["recommendation", "plan", "a", "b", *USUAL], "expected at most one WORKLOAD"),
        (["recommendation", "plan", *USUAL, "--algorithm", "magic"], "'magic'"),
        (
            ["recommendation", "plan", *USUAL, "--type", "Resource", "-o", "ehpa"],
            "-o ehpa: expected --type HPA, since requests are no autoscaler",
        ),
        (["recommendation", "plan", "--kind", "StatefulSet"], "the cluster knows; KIND/NAME chooses"),
        (
            ["recommendation", "plan", "--source", "metrics-file"],
            "--source metrics-file: expected --from FILE",
        ),
        (
            ["recommendation", "apply", "--source", "metrics-file"],
            "value for '--source': 'metrics-file' is not one of 'auto', 'remote-read', 'promql'.",
        ),
        (["recommendation", "apply"], "no cluster: --kubeconfig and KUBECONFIG are not set"),
        (["recommendation", "apply", "a/b/c"], "workload 'a/b/c': expected NAME, KIND/NAME"),
        (["recommendation", "apply", "-n", "shop", "-A"], "-n and -A: expected one of them"),
        (["recommendation", "apply", "--from", EXAMPLE], "--from"),
        (["recommendation", "apply", "--set", "ehpa.x=1"], "--set: ehpa.x: unknown key"),
        (["forecast"], "--from"),
        (["forecast", "--from", "no/such.csv"], "no/such.csv: No such file or directory"),
        (["forecast", "--from", "n" * 300], "nnn: File name too long"),
        (["recommendation", "plan", "--from", README], "README.md: line 1: expected a header"),
        (["forecast", "--from", EXAMPLE, "--horizon", "0"], "--horizon: expected a span above 0"),
        (["forecast", "--from", EXAMPLE, "--horizon", "soon"], "--horizon: expected seconds or a span"),
        (["forecast", "--from", EXAMPLE, "--backtest", "8d"], "expected samples before the held-out"),
        (
            ["forecast", "--from", EXAMPLE, "--backtest", "1s"],
            "--backtest: expected at least one interval, which",
        ),
    ],
)
def test_wrong_words_get_one_error_line(arguments: list[str], message: str) -> None:
    """Naming the option and what was expected."""
    done = equipoise(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
    assert message in done.stderr


def test_more_values_than_anybody_reads_are_refused() -> None:
    """Four weeks of tenths of a second would fill memory."""
    text = "timestamp,value\n" + "".join(f"{n / 10},{n % 7}\n" for n in range(100))
    done = equipoise("forecast", "--from", "-", "--horizon", "28d", stdin=text)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: -: expected at most 2,500,000 values ahead, got 24,192,000, one every 0.1 s\n"
    )


def test_parquet_says_which_extra_it_needs(tmp_path: Path) -> None:
    """Where its reader is not installed."""
    (tmp_path / "pyarrow.py").write_text("raise ImportError('not installed')\n")
    done = equipoise("forecast", "--from", "usage.parquet", environment={"PYTHONPATH": str(tmp_path)})
    assert done.returncode == 2
    assert done.stderr == (
        "error: usage.parquet: Parquet needs the extra `parquet`: "
        "pip install 'equipoise[parquet]', or give CSV\n"
    )


def test_help_loads_no_arrays() -> None:
    """The doors stay light: numpy is for those who ask for numbers."""
    import subprocess
    import sys

    code = "import sys, equipoise.cli.commands; print('numpy' in sys.modules, 'pyarrow' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]

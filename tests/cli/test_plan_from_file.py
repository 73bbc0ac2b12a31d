"""`equipoise rotation plan --from FILE`, as scripts use it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.cli.running import equipoise

EXAMPLES = Path(__file__).parents[2] / "examples"
SEED = (EXAMPLES / "01-rotation-plan.yaml").read_text()
BARE = """
pods:
- {name: a, cpu: 1.2, request: 1}
- {name: b, cpu: 1.1, request: 1}
- {name: c, cpu: 800m, request: 1}
- {name: d, cpu: 600m, request: 1}
- {name: e, cpu: 400m, request: 1}
- {name: f, cpu: 300m, request: 1}
hpa: {name: keda-hpa-web, target: {type: Utilization, value: 70}}
"""


def _pods(plan: dict[str, object]) -> list[str]:
    decisions = plan["decisions"]
    assert isinstance(decisions, list)
    return [action["pod"] for action in decisions[0]["actions"]]


def test_the_seeds_example_gives_a_b_f_e_and_34_8_percent() -> None:
    """The example file, through the whole command, as JSON."""
    done = equipoise("rotation", "plan", "--from", str(EXAMPLES / "01-rotation-plan.yaml"), "-o", "json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["balancer"] == "rotation"
    assert _pods(plan) == ["a", "b", "f", "e"]
    decision = plan["decisions"][0]
    assert decision["subject"] == "shop/web"
    assert decision["reason"] == "Rotate"
    assert round(decision["numbers"]["improvement_percent"], 1) == 34.8
    assert decision["held"] == []
    assert done.stderr == ""


def test_yaml_says_the_same_as_json_and_a_dash_is_standard_input() -> None:
    """One document, two notations."""
    as_json = equipoise("rotation", "plan", "--from", "-", "-o", "json", stdin=SEED)
    as_yaml = equipoise("rotation", "plan", "--from", "-", "--output", "yaml", stdin=SEED)
    assert yaml.safe_load(as_yaml.stdout) == json.loads(as_json.stdout)


def test_the_table_shows_the_order_and_says_that_nothing_was_changed() -> None:
    """For people."""
    done = equipoise("rotation", "plan", "--from", "-", stdin=SEED)
    assert done.returncode == 0
    for word in ("shop/web", "Rotate", "34.8%", "Nothing was changed"):
        assert word in done.stdout


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, ["a", "b", "f", "e"]),
        ({"REBALANCE_TOP_K_PODS": "1"}, ["a", "f"]),
        ({"TOLERANCE_MULTIPLIER": "1.6"}, ["a", "f", "e"]),
        ({"MINIMUM_IMPROVEMENT_PERCENT": "35"}, []),
        ({"MINIMUM_PODS_REQUIRED": "7"}, []),
        ({"HPA_PREFIX": "keda-hpa"}, ["a", "b", "f", "e"]),
        ({"HPA_PREFIX": "other"}, []),
        ({"HPA_METRIC_NAME": "memory"}, []),
        ({"REBALANCE_TOP_K_PODS": ""}, ["a", "b", "f", "e"]),
        ({"KAFKA_LAG_ENABLED": "true", "KAFKA_LAG_THRESHOLD": "5"}, ["a", "b", "f", "e"]),
    ],
    ids=str,
)
def test_the_seeds_variables_set_the_policy(variables: dict[str, str], expected: list[str]) -> None:
    """Each variable, where the file is silent; the lag gate asks a live cluster only."""
    done = equipoise("rotation", "plan", "--from", "-", "-o", "json", stdin=BARE, environment=variables)
    assert _pods(json.loads(done.stdout)) == expected


def test_set_wins_over_the_file_and_the_environment() -> None:
    """What was typed last is meant most."""
    done = equipoise(
        "rotation",
        "plan",
        "--from",
        "-",
        "-o",
        "json",
        "--set",
        "topK=1",
        "--set",
        "toleranceMultiplier=1.2",
        stdin=SEED,
    )
    assert _pods(json.loads(done.stdout)) == ["a", "f"]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("topK", "--set topK: expected KEY=VALUE"),
        ("topk=1", "policy: topk: unknown key"),
        ("topK=x", "policy: topK: expected a valid integer"),
        ("kafkaLag..x=1", "expected KEY=VALUE"),
    ],
)
def test_a_bad_setting_is_refused(setting: str, message: str) -> None:
    """One line, exit status 2."""
    done = equipoise("rotation", "plan", "--from", "-", "--set", setting, stdin=SEED)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_value_in_the_file_wins_over_the_environment() -> None:
    """The file says K = 2."""
    done = equipoise(
        "rotation", "plan", "--from", "-", "-o", "json", stdin=SEED, environment={"REBALANCE_TOP_K_PODS": "1"}
    )
    assert _pods(json.loads(done.stdout)) == ["a", "b", "f", "e"]


POD = "pods: [{name: a, cpu: 1, request: 1}]\n"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("pods: 3", "pods: expected a list, got 3"),
        ("pods: " + "[" * 40_000, "expected at most 100 levels, got more in line 1"),
        ('{"pods": ' + "[" * 40_000, "expected at most 100 levels"),
        (POD + "workload: a\nworkload: b", "the key 'workload' occurs twice"),
        ('{"pods": [], "pods": []}', "the key 'pods' occurs twice"),
        ("pods: null", "pods: missing"),
        ("- a", "document: expected a mapping, got a list"),
        ("", "document: expected a mapping, got None"),
        ("pods: [1", "expected one YAML document, but at line 2, column 1"),
        ("foo: 1\n" + POD, "foo: unknown key"),
        ("pods: [{cpu: 1}]", "pods[0].name: missing"),
        (
            "pods: [{name: a, cpu: 12x}]",
            "pods[0].cpu: expected a quantity such as 250m, 1.5 or 1Gi, got '12x'",
        ),
        ("pods: [{name: a, cpu: -1}]", "pods[0].cpu: expected a quantity of 0 or more, got -1"),
        ("pods: [{name: a, cpu: .nan}]", "pods[0].cpu: expected a quantity of 0 or more, got nan"),
        ("pods: [{name: a, cpu: 1.0e+308}]", "pods[0].cpu: expected less than or equal to 1000000000000"),
        ("pods: [{name: a, mem: 1}]", "pods[0].mem: unknown key"),
        ("pods: [{name: a}, {name: a}]", "pods: expected unique names, got 'a' twice"),
        (
            "pods: [{name: a, age: 5x}]",
            "pods[0].age: expected seconds or a span such as 90s, 5m or 1h30m, got '5x'",
        ),
        (
            "pods: [{name: a, age: 12:30:00}]",
            "pods[0].age: expected seconds or a span such as 90s, 5m or 1h30m, got '12:30:00'",
        ),
        (
            "pods: [{name: a, cpu: 1:30}]",
            "pods[0].cpu: expected a quantity such as 250m, 1.5 or 1Gi, got '1:30'",
        ),
        ("pods: [{name: a, ready: !!bool maybe}]", "line 1, column 25: expected true, false or null, got"),
        ('{"pods": [{"name": "a", "cpu": ' + "9" * 5000 + "}]}", "expected a number that fits a float"),
        ("pods: [{name: a, restarts: -1}]", "pods[0].restarts: expected greater than or equal to 0, got -1"),
        (
            POD + "hpa: {target: {type: Utilization, value: 0}}",
            "hpa.target.value: expected a target above 0, got 0",
        ),
        (POD + "hpa: {target: {type: Utilization}}", "hpa.target.value: missing"),
        (POD + "hpa: 3", "hpa: expected a mapping, got 3"),
        (POD + "workload: a/b/c", "workload: expected NAMESPACE/NAME or NAME, got 'a/b/c'"),
        (POD + "policy: {topK: 0}", "policy: topK: expected greater than or equal to 1, got 0"),
        (POD + "policy: {topK: true}", "policy: topK: expected a number, got true"),
        (POD + "policy: {topk: 1}", "policy: topk: unknown key"),
        (
            POD + "policy: {toleranceMultiplier: 0}",
            "policy: toleranceMultiplier: expected greater than 0, got 0",
        ),
        (
            POD + "policy: {minimumImprovementPercent: 101}",
            "minimumImprovementPercent: expected less than or equal to 100",
        ),
        (POD + "policy: 7", "policy: expected a mapping, got 7"),
    ],
)
def test_bad_input_gets_one_line_with_the_path_and_exit_status_2(document: str, message: str) -> None:
    """And nothing on standard output."""
    done = equipoise("rotation", "plan", "--from", "-", "-o", "json", stdin=document)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: -: ")
    assert message in done.stderr


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("REBALANCE_TOP_K_PODS", "two"),
        ("TOLERANCE_MULTIPLIER", "-1"),
        ("MINIMUM_IMPROVEMENT_PERCENT", "200"),
        ("KAFKA_LAG_ENABLED", "maybe"),
        ("METRICS_TIME_WINDOW", "5x"),
    ],
)
def test_a_bad_variable_is_named(name: str, value: str) -> None:
    """A user looks for the word they wrote."""
    done = equipoise("rotation", "plan", "--from", "-", stdin=SEED, environment={name: value})
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: environment variable {name}: ")
    assert value in done.stderr


def test_a_null_counts_as_absent_and_json_escapes_are_read() -> None:
    """As Kubernetes reads them."""
    document = {
        "workload": None,
        "policy": None,
        "hpa": {"name": None, "target": {"type": "AverageValue", "value": "700m"}},
        "pods": [{"name": f"\U0001f4a5{n}", "cpu": n, "restarts": None, "ready": None} for n in range(4)],
    }
    done = equipoise("rotation", "plan", "--from", "-", "-o", "json", stdin=json.dumps(document))
    assert done.returncode == 0, done.stderr
    assert _pods(json.loads(done.stdout)) == ["\U0001f4a53", "\U0001f4a52", "\U0001f4a50", "\U0001f4a51"]


@pytest.mark.parametrize(
    "beside", [["web"], ["-n", "x"], ["-A"], ["--kubeconfig", "x"], ["--prometheus-url", "http://x"]]
)
def test_what_would_have_no_effect_beside_a_file_is_refused(beside: list[str]) -> None:
    """A variable may be there for other runs; a word that was typed is meant."""
    done = equipoise("rotation", "plan", *beside, "--from", "-", stdin=SEED)
    assert done.returncode == 2
    assert done.stderr.startswith("error: --from: expected it alone")
    calm = equipoise("rotation", "plan", "--from", "-", stdin=SEED, environment={"KUBE_NAMESPACE": "x"})
    assert calm.returncode == 0


def test_closed_streams_get_one_line() -> None:
    """Standard input closed, a full disk behind standard output."""
    program = [
        sys.executable,
        "-c",
        "from equipoise.cli.main import main; main()",
        "rotation",
        "plan",
        "--from",
    ]
    example = str(EXAMPLES / "01-rotation-plan.yaml")
    closed = _in_shell('"$@" - <&-', *program)
    assert (closed.returncode, closed.stderr) == (2, "error: -: standard input is closed\n")
    full = _in_shell('"$@" >/dev/full', *program, example)
    assert (full.returncode, full.stderr) == (1, "error: standard output: No space left on device\n")


def _in_shell(line: str, *program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", line, "sh", *program], capture_output=True, text=True, check=False, timeout=60
    )


def test_an_endless_file_is_refused() -> None:
    """64 MiB are enough for anybody."""
    done = equipoise("rotation", "plan", "--from", "/dev/zero")
    assert (done.returncode, done.stderr) == (2, "error: /dev/zero: expected at most 64 MiB\n")


def test_a_missing_file_is_named() -> None:
    """Exit status 2, one line."""
    done = equipoise("rotation", "plan", "--from", "no/such.yaml")
    assert (done.returncode, done.stderr) == (2, "error: no/such.yaml: No such file or directory\n")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    """A binary file by mistake."""
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    done = equipoise("rotation", "plan", "--from", str(path))
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {path}: expected UTF-8 text")

"""`equipoise proportional`, as scripts and people use it."""

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
EXAMPLE = ROOT / "examples" / "04-scalingpolicy.yaml"
TEN = """
scaleTargetRef: {kind: Deployment, name: kube-dns}
container:
  name: kube-dns
  requests: {resource: cpu, functions: {input: Cores, slope: 10m}}
"""
SEED = TEN.replace("slope: 10m", "base: 100m, slope: 10m, segments: [{at: 0, every: 1}, {at: 16, every: 4}]")
SHIFT = TEN + "smoothing: {delayScaleDown: {inputs: {cores: 20}}}\n"
PERCENTILE = TEN + "smoothing: {percentile: {}}\n"
CPU = "kube-dns.requests.cpu"


@cache
def _schema(name: str) -> dict[str, Any]:
    schema: dict[str, Any] = json.loads(equipoise("schema", name).stdout)
    return schema


def _plan(policy: str, *arguments: str) -> dict[str, Any]:
    done = equipoise("proportional", "plan", "--policy", "-", "-o", "json", *arguments, stdin=policy)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, _schema("plan"))
    jsonschema.validate(document, _schema("proportional-plan"))
    assert document["balancer"] == "proportional"
    (decision,) = document["decisions"]
    assert isinstance(decision, dict)
    return decision


def _observed(folder: Path, *lines: str, head: str = "timestamp,cores") -> str:
    path = folder / "sizes.csv"
    path.write_text("\n".join([head, *lines]) + "\n")
    return str(path)


def test_the_seeds_18_cores_give_300m() -> None:
    """Its first example, in its own spelling."""
    decision = _plan(SEED, "--input", "cores=18", "--current", f"{CPU}=250m")
    assert decision["reason"] == "Set"
    assert decision["containers"] == [{"name": "kube-dns", "requests": {"cpu": "300m"}, "limits": {}}]
    assert [action["kind"] for action in decision["actions"]] == ["SetResources"]


def test_a_held_value_is_shown_as_it_is_in_force() -> None:
    """And without one nothing is shown: unknown is not zero."""
    held = _plan(SHIFT, "--input", "cores=90", "--current", f"{CPU}=1000m")
    assert (held["reason"], held["actions"]) == ("HeldByHysteresis", [])
    assert held["containers"][0]["requests"] == {"cpu": "1"}
    new = _plan(PERCENTILE, "--input", "CORES=90")
    assert (new["reason"], new["containers"][0]["requests"]) == ("WarmingUp", {})
    same = _plan(SHIFT, "--input", "cores=90", "--current", f"{CPU}=0.9")
    assert (same["reason"], same["containers"][0]["requests"]) == ("Unchanged", {"cpu": "900m"})


def test_observations_tell_the_seeds_story_step_by_step(tmp_path: Path) -> None:
    """One step for each line; the value in force is null until it is known."""
    file = _observed(tmp_path, "0,100", "10,90", "20,95", "30.5,75")
    steps = _plan(SHIFT, "--observations", file, "--current", f"{CPU}=1")["steps"]
    assert [step["timestamp"] for step in steps] == [0, 10, 20, 30.5]
    assert [step["reason"] for step in steps] == ["Unchanged", "HeldByHysteresis", "HeldByHysteresis", "Set"]
    assert [step["target"][CPU] for step in steps] == ["1", "900m", "950m", "750m"]
    assert [step["applied"][CPU] for step in steps] == ["1", "1", "1", "750m"]
    first = _plan(PERCENTILE, "--observations", file)["steps"]
    assert [step["applied"][CPU] for step in first] == [None, None, "1", "1"]
    assert [step["reason"] for step in first] == ["WarmingUp", "WarmingUp", "Set", "HeldByPercentile"]


def test_times_may_be_written_as_dates_and_sizes_as_quantities(tmp_path: Path) -> None:
    """And an input without a column may be given once."""
    policy = TEN.replace(
        "functions: {input: Cores, slope: 10m}",
        "functions: [{input: memory, slope: 1m, per: 1Gi}, {input: pods, slope: 1m}]",
    )
    file = _observed(
        tmp_path, "2026-01-31T08:00:00Z,16Gi", "2026-01-31 09:00:10+01:00,20Gi", head="ts,Memory"
    )
    steps = _plan(policy, "--observations", file, "--input", "pods=4")["steps"]
    assert [(step["timestamp"], step["target"][CPU]) for step in steps] == [
        ("2026-01-31T08:00:00Z", "20m"),
        ("2026-01-31 09:00:10+01:00", "24m"),
    ]


@pytest.mark.parametrize(
    ("lines", "head", "message"),
    [
        (["0,x"], "timestamp,cores", "line 2: cores: expected a number"),
        (["0,"], "timestamp,cores", "line 2: cores: expected a number"),
        (["0,nan"], "timestamp,cores", "line 2: cores: expected a number"),
        (["0,-1"], "timestamp,cores", "line 2: cores: expected an amount of 0 or more"),
        (["x,1"], "timestamp,cores", "line 2: timestamp: expected seconds or a time"),
        (["0,1", "0,2"], "timestamp,cores", "line 3: timestamp: expected times that grow"),
        (["0,1,2"], "timestamp,cores", "line 2: expected 2 cells, got 3"),
        (['0,"1'], "timestamp,cores", "expected CSV"),
        ([], "timestamp,cores", "expected at least one line"),
        (["0,1"], "timestamp,cpus", "line 1: expected columns of timestamp, cores"),
        (["0,1"], "timestamp,nodes", "line 1: expected a column cores"),
        (["1"], "cores", "line 1: expected timestamp"),
        (["0,1,1"], "timestamp,cores,Cores", "each column once"),
    ],
)
def test_bad_observations_are_named_by_line(
    tmp_path: Path, lines: list[str], head: str, message: str
) -> None:
    """One line, exit status 2."""
    file = _observed(tmp_path, *lines, head=head)
    done = equipoise("proportional", "plan", "--policy", "-", "--observations", file, stdin=TEN)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
    assert message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan"], "no cluster: --kubeconfig and KUBECONFIG are not set"),
        (["plan", "--input", "cores=1"], "--policy: expected a file beside --input"),
        (["plan", "dns", "--policy", "-"], "--policy: expected it alone, without the names"),
        (["apply", "-n", "shop", "-A"], "-n and -A: expected one of them, not both"),
        (["apply", "--interval", "0s"], "--interval: expected at least 1s"),
        (["apply", "--kubeconfig", "/nonexistent/config"], "/nonexistent/config"),
        (["apply", "--policy", "-", "--kubeconfig", "none"], "error: --kubeconfig none: no such file"),
    ],
)
def test_what_needs_a_cluster_says_so(arguments: list[str], message: str) -> None:
    """Exit status 2, before anything is asked."""
    done = equipoise("proportional", *arguments, stdin=TEN)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
    assert message in done.stderr


def test_a_policy_that_follows_nothing_needs_neither_size_nor_cluster() -> None:
    """It is its base, whatever the cluster."""
    rule = "{resource: cpu, function: {base: 250m}}"
    policy = f"scaleTargetRef: {{kind: Deployment, name: a}}\ncontainer: {{name: a, requests: {rule}}}\n"
    done = equipoise("proportional", "plan", "--policy", "-", "-o", "json", stdin=policy)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["decisions"][0]["containers"][0]["requests"] == {"cpu": "250m"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--input: expected cores=SIZE"),
        (["--input", "cores"], "--input cores: expected NAME=VALUE, such as cores=18"),
        (["--input", "cores=x"], "--input cores: expected a number or a quantity"),
        (["--input", "cpus=1"], "--input cpus: expected one of cores, memory, nodes, pods"),
        (["--input", "cores=1", "--input", "Cores=2"], "expected Cores once"),
        (["--input", "cores=1", "--current", "a=1"], f"--current a: expected one of {CPU}"),
        (["--input", "cores=1", "--current", f"{CPU}=1x"], f"--current {CPU}: expected a number"),
        (["dns", "--input", "cores=1"], "--policy: expected it alone, without the names"),
        (["--observations", "no.csv", "--journal", "diary"], "--journal: expected it without --observations"),
        (["--observations", "-"], "--observations: expected a file"),
        (["--observations", "no/such.csv"], "no/such.csv: No such file"),
    ],
)
def test_bad_options_get_one_line(arguments: list[str], message: str) -> None:
    """Exit status 2, nothing on standard output."""
    done = equipoise("proportional", "plan", "--policy", "-", *arguments, stdin=TEN)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
    assert message in done.stderr


def test_a_bad_policy_is_named_by_what_was_written() -> None:
    """The path of the shorthand."""
    done = equipoise(
        "proportional",
        "plan",
        "--policy",
        "-",
        "--input",
        "cores=1",
        stdin=SEED.replace("every: 4", "every: 0"),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: -: container.requests.functions.segments[1].every: expected an amount above 0, got 0\n"
    )


def test_what_has_no_effect_or_would_be_refused_is_a_warning() -> None:
    """On standard error; the plan is printed all the same."""
    policy = TEN + "  limits: {resource: cpu, functions: {base: 50m}}\n"
    done = equipoise(
        "proportional", "plan", "--policy", "-", "--input", "cores=10", "--input", "pods=3", stdin=policy
    )
    assert done.returncode == 0
    assert "warning: --input pods: no function of the policy uses it" in done.stderr
    assert "warning: kube-dns: the cpu request 100m is above the limit 50m" in done.stderr


@pytest.mark.parametrize("columns", [80, 120])
def test_the_tables_fit_the_terminal(tmp_path: Path, columns: int) -> None:
    """The example, and a series."""
    width = terminal(columns)
    sizes = ["--input", "cores=18", "--input", "nodes=5"]
    done = equipoise("proportional", "plan", "--policy", str(EXAMPLE), *sizes, environment=width)
    file = _observed(tmp_path, *[f"{number * 10},{number % 7 * 10}" for number in range(60)])
    more = equipoise(
        "proportional", "plan", "--policy", "-", "--observations", file, stdin=TEN, environment=width
    )
    for text in (done.stdout, more.stdout):
        assert max(map(len, text.splitlines())) <= columns
        assert "Nothing was changed." in text
    assert "kube-system/kube-dns: The cluster has 18 cores and 5 nodes. " in " ".join(done.stdout.split())
    assert "60 steps, 60 changes" in more.stdout


SMALL = ["--seeds", "2", "--hours", "0.2", "--nodes", "20"]


def test_a_simulation_compares_every_strategy() -> None:
    """In every kind of history; the same words give the same numbers."""
    runs = [equipoise("proportional", "simulate", *SMALL, "-o", "json") for _ in range(2)]
    assert runs[0].stdout == runs[1].stdout
    document = json.loads(runs[0].stdout)
    jsonschema.validate(document, _schema("proportional-simulation"))
    names = ["random-walk", "rolling-update", "node-flap", "autoscaler-burst"]
    assert [history["name"] for history in document["histories"]] == names
    ways = [
        "none",
        "segments",
        "quantization",
        "delay by inputs",
        "delay by time",
        "delay by both",
        "percentile",
    ]
    for history in document["histories"]:
        assert [strategy["name"] for strategy in history["strategies"]] == ways
        assert (history["seeds"], history["hours"]) == (2, 0.2)
    with_policy = equipoise(
        "proportional", "simulate", *SMALL, "--policy", str(EXAMPLE), "--scene", "node-flap", "-o", "yaml"
    )
    (flap,) = yaml.safe_load(with_policy.stdout)["histories"]
    assert [strategy["name"] for strategy in flap["strategies"]] == [*ways, "as written"]


def test_a_recorded_history_is_simulated_too(tmp_path: Path) -> None:
    """A node that is away for 20 s costs two changes, and none with smoothing."""
    file = _observed(
        tmp_path, *[f"{number * 10},{96 if number in (40, 41) else 100}" for number in range(90)]
    )
    done = equipoise(
        "proportional", "simulate", "--policy", "-", "--observations", file, "-o", "json", stdin=TEN
    )
    (history,) = json.loads(done.stdout)["histories"]
    changes = {strategy["name"]: strategy["changes"] for strategy in history["strategies"]}
    assert (changes["none"], changes["percentile"], changes["delay by inputs"]) == (2, 0, 0)
    assert history["hours"] == 0.25


@pytest.mark.parametrize("columns", [80, 120])
def test_the_simulation_fits_the_terminal(columns: int) -> None:
    """With what the words mean."""
    done = equipoise("proportional", "simulate", *SMALL, environment=terminal(columns))
    assert max(map(len, done.stdout.splitlines())) <= columns
    assert "percentile       0.6/0.8/0.95 of 5m" in done.stdout


@pytest.mark.parametrize(("suffix", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_plot_is_drawn(tmp_path: Path, suffix: str, begins: bytes) -> None:
    """Vectors or points; standard output stays what it is."""
    path = tmp_path / f"plot.{suffix}"
    done = equipoise(
        "proportional", "simulate", *SMALL, "--scene", "node-flap", "--plot", str(path), "-o", "json"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert path.read_bytes().startswith(begins)
    assert json.loads(done.stdout)["policy"] == "kube-dns"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--plot", "x.pdf"], "--plot x.pdf: expected a file that ends in .svg or .png"),
        (["--plot", "no/such/x.svg"], "--plot no/such/x.svg: expected a folder that exists"),
        (["--interval", "0.5s"], "--interval: expected a span between 1s and 1h"),
        (["--interval", "x"], "--interval: expected seconds"),
        (["--node-memory", "1x"], "--node-memory: expected a quantity"),
        (["--scene", "storm"], "'storm'"),
        (["--observations", "x.csv", "--scene", "node-flap"], "--observations: expected it alone"),
        (["--seeds", "0"], "--seeds"),
        (["--hours", "1000", "--interval", "1s"], "--hours: expected at most"),
    ],
)
def test_bad_words_for_a_simulation_get_one_line(arguments: list[str], message: str) -> None:
    """Before anything is run."""
    done = equipoise("proportional", "simulate", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
    assert message in done.stderr


def test_without_matplotlib_the_extra_is_named(tmp_path: Path) -> None:
    """Nothing is simulated in vain."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nreal = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'matplotlib' else real(name, *more)\n"
    )
    done = equipoise("proportional", "simulate", "--plot", "x.svg", environment={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (
        2,
        "error: --plot: expected the extra plot to be installed: pip install 'equipoise[plot]'\n",
    )

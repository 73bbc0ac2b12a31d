"""Files as people have them are read for what they say, and what is doubtful about them is said."""

# ruff: noqa: E501 - tables with a file on each line

import json
import math
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.documents import dump, read_document
from equipoise.core.quantity import plain_number
from equipoise.runtime.output import json_text
from tests.support.cli.running import ROOT, equipoise
from tests.support.recommendation.people_files import (
    ABSURD,
    ADVICE,
    FORMS,
    HOURS,
    ROTATE,
    SERIES,
    TOP,
    PeopleFile,
    answer,
    totals,
    wide,
)

USED = ("lowest_median_cores", "highest_median_cores", "p95_cores", "peak_cores", "coverage")
EXPONENT = re.compile(r"(?<![\w.])-?\d+(\.\d+)?[eE][-+]?\d+")
MEMORY = 223 * 2**20 / 2 * 1.15
"""The most that the file has, for each of two pods, and a margin."""


def _decisions(printed: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(printed)["decisions"]
    return found


@cache
def _reference() -> dict[str, Any]:
    """Return what the form gives that has a column for everything."""
    with TemporaryDirectory() as folder:
        (found,) = _decisions(FORMS[0].run(Path(folder))[1])
    return found


def _expect(file: PeopleFile, found: list[dict[str, Any]]) -> None:
    first, expected = found[0], _reference()
    numbers = first["numbers"]
    subjects = {"the pods of shop": ["shop/web"], "two workloads": ["api", "web"]}.get(file.gives, ["web"])
    if file.gives == "the rotation":
        assert [one["pod"] for one in first["actions"]] == ["web-0", "web-1", "web-3", "web-2"]
        assert first["subject"].removeprefix("shop/") == "web"
        return
    assert [one["subject"] for one in found] == subjects
    if file.gives in {"the pods", "the pods of shop", "the total"}:
        assert {key: numbers[key] for key in USED} == pytest.approx({k: expected["numbers"][k] for k in USED})
        assert first["recommended"] == expected["recommended"]
        assert (numbers["replicas"], numbers["confidence"]) == (2, "high")
    match file.gives:
        case "the pods":
            assert numbers["pod_p99_cores"] == pytest.approx(expected["numbers"]["pod_p99_cores"])
        case "the total":
            assert numbers["pod_p99_cores"] == pytest.approx(numbers["peak_cores"] / 2)
        case "the memory":
            (container,) = first["recommended"]["containers"]
            assert float(container["requests"]["memory"]) == pytest.approx(MEMORY, rel=1e-5)
        case "one sample":
            assert (numbers["samples"], numbers["confidence"]) == (1, "low")
        case "two workloads":
            assert [one["numbers"]["peak_cores"] for one in found] == [17.5, 14.0]
        case "the second pod":
            assert numbers["peak_cores"] == 17.5


@pytest.mark.parametrize("file", FORMS, ids=lambda file: file.name)
def test_a_file_as_people_have_it_gives_what_it_says(file: PeopleFile, tmp_path: Path) -> None:
    """The same week in each form gives the same advice; what was ignored or guessed is said."""
    status, printed, said = file.run(tmp_path)
    assert status == 0, said
    _expect(file, _decisions(printed))
    assert len(said) == len(file.warnings)
    assert all(part in line for part, line in zip(file.warnings, said, strict=True)), said
    assert all(line.startswith("warning: ") for line in said)


@pytest.mark.parametrize("file", ABSURD, ids=lambda file: file.name)
def test_an_absurd_file_is_doubted(file: PeopleFile, tmp_path: Path) -> None:
    """A warning names the guess, the confidence is low, and no number is in scientific notation."""
    status, printed, said = file.run(tmp_path)
    assert status == 0, said
    assert len(said) == len(file.warnings), said
    assert all(part in line for part, line in zip(file.warnings, said, strict=True)), said
    assert all(line.startswith("warning: ") for line in said)
    assert not EXPONENT.search("\n".join(said))
    document = json.loads(printed)
    without_text = re.sub(r'"(?:[^"\\]|\\.)*"', "", printed)
    assert not EXPONENT.search(without_text)
    if file.gives == "low":
        assert [one["numbers"]["confidence"] for one in document["decisions"]] == ["low"]
        assert [one["confidence"] for one in document["decisions"]] == ["low"]


OTHERS = {
    "a rotation plan": ("01-rotation-plan.yaml", "rotation plan --from"),
    "a ScalingPolicy": ("04-scalingpolicy.yaml", "proportional plan --policy"),
    "a qos plan": ("06-qos-plan.yaml", "qos plan --from"),
    "tiers of pools": ("08-pools-tiers.json", "pools config set --from"),
    "samples of CPU usage": ("03-recommendation-usage.csv", "recommendation plan --from"),
    "a manifest of the kind Analytics": ("05-analytics.yaml", "validate"),
}
COMMANDS = (
    ("rotation", "plan", "--from"),
    ("recommendation", "plan", "--from"),
    ("recommendation", "simulate", "--from"),
    ("forecast", "--from"),
    ("qos", "plan", "--from"),
    ("proportional", "plan", "--input", "cores=1", "--policy"),
)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("what", OTHERS)
def test_a_file_of_another_balancer_is_recognised(
    what: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    """Each example, given to each command that reads another form, under a name that says nothing."""
    example, takes = OTHERS[what]
    path = tmp_path / "file"
    path.write_bytes((ROOT / "examples" / example).read_bytes())
    done = equipoise(*command, str(path))
    own = {"recommendation", "forecast"} if "samples" in what else {takes.split()[0]}
    if command[0] in own:
        assert "this looks like" not in done.stderr
        return
    if "manifest" in what and command[0] in {"rotation", "qos", "proportional"}:
        assert done.returncode == 2  # two documents, of which these commands take one
        return
    assert done.returncode == 2
    assert done.stderr == f"error: {path}: this looks like {what}: use `equipoise {takes} {path}`\n"


REFUSED = {
    "an error of Prometheus": ('{"status":"error","errorType":"bad_data","error":"parse error"}', ADVICE, "Prometheus answered with an error: parse error"),
    "a JSON that is cut": (answer(SERIES)[:-40], ADVICE, "expected an answer of Prometheus"),
    "any JSON": ('{"a": 1}', ADVICE, "expected an answer of Prometheus (query_range or query), or CSV, got JSON without data.result"),
    "nothing that matches": (answer([]), ADVICE, "the query matches nothing; look at its namespace and pods"),
    "a string": (answer([1, "x"], "string"), ADVICE, "got a string"),
    "nothing of the workload": (wide("timestamp,api,db"), ADVICE, "expected pods or columns named web or web-…, got api, db"),
    "memory alone": ("timestamp,memory\n1,2\n", ADVICE, "without value; memory alone is not enough"),
    "text alone": ("timestamp,web\n1,good\n", ADVICE, "value: expected a number, got 'good'"),
    "a name that moves the cursor": ('Time,"web-\x1b[31m"\n1,2\n', ADVICE, "printable characters"),
    "observations": ("timestamp,cores,nodes\n1,2,3\n", ADVICE, "looks like the observations of a cluster's size: use `equipoise proportional plan"),
    "kubectl top pod": (TOP, ADVICE, "looks like the usage of pods at one time: use `equipoise rotation plan --from"),
    "kubectl top node": ("NAME   CPU(cores)   CPU%   MEMORY(bytes)   MEMORY%\nn1   100m   1%   2Gi   3%\n", ROTATE, "got that of `kubectl top node`"),
    "no target": (TOP, ("rotation", "plan", "--from", "FILE", "--request", "1"), "expected --target beside it"),
    "percent without a request": (TOP, ("rotation", "plan", "--from", "FILE", "--target", "70"), "expected --request beside it"),
    "a share as target": (TOP, ("rotation", "plan", "--from", "FILE", "--request", "1", "--target", "0.7"), "expected percent of the request such as 70"),
    "a pod without cores": (TOP.replace("300m", "much"), ROTATE, "line 4: expected cores such as 250m, got 'much'"),
    "a workload of no pod": (TOP, (*ROTATE, "api"), "expected pods of api, and no name begins with it"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_says_nothing_of_use_is_refused(name: str, tmp_path: Path) -> None:
    """One line, with the way out, and exit 2."""
    content, words, part = REFUSED[name]
    status, printed, said = PeopleFile(name, content, words=words).run(tmp_path)
    assert (status, printed, len(said)) == (2, "", 1), said
    assert said[0].startswith("error: ")
    assert part in said[0]


@pytest.mark.parametrize("name", ["request", "target"])
def test_what_a_cluster_knows_is_not_given_beside_it(name: str) -> None:
    """The options of a file of usage need that file, and a plan file has its own."""
    done = equipoise("rotation", "plan", f"--{name}", "1")
    assert (done.returncode, done.stderr) == (
        2,
        f"error: --{name}: expected it beside --from FILE only: the cluster knows\n",
    )
    plan = str(ROOT / "examples/01-rotation-plan.yaml")
    done = equipoise("rotation", "plan", "--from", plan, f"--{name}", "1")
    assert (done.returncode, done.stderr[:46]) == (
        2,
        f"error: --from: expected it alone, without --{name}"[:46],
    )


def test_standard_input_takes_every_form(tmp_path: Path) -> None:
    """What comes through a pipe has no name, and is read by its content."""
    for content, words in ((answer(SERIES), ADVICE), (wide("Time,web-a,web-b"), ADVICE), (TOP, ROTATE)):
        done = equipoise(*("-" if word == "FILE" else word for word in words), stdin=content)
        assert done.returncode == 0, done.stderr
        path = tmp_path / "file"
        path.write_text(content)
        assert equipoise(*(str(path) if word == "FILE" else word for word in words)).stdout == done.stdout


def test_a_forecast_takes_the_same_files(tmp_path: Path) -> None:
    """The sum of the pods is forecast, the same from each form."""
    printed = set()
    for content in (answer(SERIES), wide("Time,web-a,web-b"), totals("timestamp,cpu")):
        path = tmp_path / "web.csv"
        path.write_text(content)
        words = [] if "cpu" in content[:20] else ["web"]
        done = equipoise("forecast", *words, "--from", str(path), "-o", "json")
        document = json.loads(done.stdout)
        assert document["timestamps"][0] == HOURS[-1] + 3600
        printed.add(tuple(round(value, 6) for value in document["values"]))
    assert len(printed) == 1


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FLOATS), st.text())
def test_json_has_no_exponents_and_says_the_same(numbers: list[float], text: str) -> None:
    """Also where a text looks like such a number."""
    document = {"numbers": numbers, "text": text, "1e-05": 'a \\" 1e-05'}
    printed = json_text(document, indent=2)
    assert json.loads(printed) == document
    assert not EXPONENT.search(re.sub(r'"(?:[^"\\]|\\.)*"', "", printed))


@given(FLOATS)
def test_yaml_has_no_exponents_and_says_the_same(number: float) -> None:
    """As JSON has none."""
    printed = dump({"number": number})
    assert not EXPONENT.search(printed)
    assert read_document(printed)["number"] == number


@given(st.floats(1e-30, 1e30))
def test_a_plain_number_is_close_and_has_no_exponent(number: float) -> None:
    """Three significant digits, or more where it is large."""
    printed = plain_number(number)
    assert "e" not in printed
    assert math.isclose(float(printed.replace(",", "")), number, rel_tol=0.006)

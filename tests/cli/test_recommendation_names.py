"""What files call workloads, in manifests that are to be applied and in spreadsheets."""

import csv
import io
import json
from pathlib import Path

import pytest
import yaml

from equipoise.cli.recommendation_options import AdviceFormat, AdviceOutput
from equipoise.cli.recommendation_output import print_advice
from equipoise.core.errors import BadInput
from equipoise.recommendation.files import named_subject
from equipoise.recommendation.observe import without_kind
from tests.support.cli.decisions import decision
from tests.support.cli.running import equipoise

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "03-recommendation-usage.csv")
UNASKED = ("--from", EXAMPLE, "--replicas", "12")
USUAL = (*UNASKED, "--request", "1")
UNKNOWN_VERSION = (
    "warning: the apiVersion of a Rollout is not known: add it to scaleTargetRef before you apply this\n"
)


@pytest.mark.parametrize("form", ["hpa", "ehpa"])
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Web_1", "workload 'Web_1': expected a name that Kubernetes takes, of at most 253 small letters"),
        ("-web", "workload '-web': expected a name"),
        ("w..b", "workload 'w..b': expected a name"),
        ("w" * 254, f"workload '{'w' * 60}': expected a name"),
        ("Shop/web", "namespace 'Shop': expected a name that Kubernetes takes, of at most 63 small letters"),
        ("a.b/web", "namespace 'a.b': expected a name"),
        ("a/b/web", "namespace 'a/b': expected a name"),
    ],
)
def test_a_name_that_no_server_takes_makes_no_manifest(
    name: str, message: str, form: AdviceFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is printed, of the others neither."""
    with pytest.raises(BadInput) as caught:
        print_advice([decision(), decision(name)], [60.0] * 2, AdviceOutput(form))
    assert str(caught.value).startswith(f"-o {form}: {message}")
    assert capsys.readouterr().out == ""


def test_a_bad_name_is_one_line() -> None:
    """As a user meets it."""
    done = equipoise(
        *("recommendation", "plan", "Web_1", "--from", EXAMPLE),
        *("--request", "1000m", "--replicas", "12", "--no-forecast", "-o", "hpa"),
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: -o hpa: workload 'Web_1': expected a name that Kubernetes takes, "
        "of at most 253 small letters, digits, - and .\n"
    )


@pytest.mark.parametrize("name", ["y", "n", "1e3", "0o14", "12", "null"])
def test_a_name_stays_text_for_every_reader_of_yaml(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Go takes `y` for a claim and `1e3` for a number; Python does not."""
    print_advice([decision(f"shop/{name}")], [60.0], AdviceOutput("hpa"))
    printed = capsys.readouterr().out
    assert printed.count(f"name: '{name}'\n") == 2
    assert yaml.safe_load(printed)["metadata"] == {"name": name, "namespace": "shop"}


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("CPU usage_0.csv", "cpu-usage-0"),
        ("runs/--web--.csv", "web"),
        ("___.csv", "workload"),
        ("-", "workload"),
        (f"{'a' * 62}_b.csv", "a" * 62),
    ],
)
def test_a_file_lends_its_name_as_kubernetes_takes_it(file: str, name: str) -> None:
    """Nobody said what the workload is called."""
    assert named_subject([], file) == name
    assert named_subject(["As_Said"], file) == "As_Said"


@pytest.mark.parametrize("is_resource", [False, True])
def test_no_name_is_a_formula(capsys: pytest.CaptureFixture[str], *, is_resource: bool) -> None:
    """A spreadsheet calculates what begins with a sign; whoever sent the file may have meant it to."""
    pod = {"containers": [{"name": "*", "requests": {"cpu": "3"}}]} if is_resource else None
    names = ["=1+1", "+1", "-1", "@sum", "web"]
    advised = [decision(name, recommended=pod) if pod else decision(name) for name in names]
    print_advice(advised, [60.0], AdviceOutput("csv"), is_resource=is_resource)
    rows = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert [row["workload"] for row in rows] == ["'=1+1", "'+1", "'-1", "'@sum", "web"]


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("web", "Deployment", "web"),
        ("deploy/web", "Deployment", "web"),
        ("Deployment/web", "Deployment", "web"),
        ("deployments.apps/web", "Deployment", "web"),
        ("sts/web", "StatefulSet", "web"),
        ("shop/web", "Deployment", "shop/web"),
        ("rs/web", "Deployment", "rs/web"),
    ],
)
def test_a_kind_before_a_name_is_no_namespace(text: str, kind: str, name: str) -> None:
    """Unless the file has a namespace of that name."""
    assert without_kind(text, kind, ["rs"]) == name


def test_a_kind_never_becomes_a_manifests_namespace() -> None:
    """An HPA in a namespace called deploy would scale nobody."""
    usual = ("--from", EXAMPLE, "--request", "1000m", "--replicas", "12", "--no-forecast", "-o", "hpa")
    done = equipoise("recommendation", "plan", "deploy/web", *usual)
    assert yaml.safe_load(done.stdout)["metadata"] == {"name": "web"}
    refused = equipoise("recommendation", "plan", "sts/web", *usual)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert (
        refused.stderr == "error: workload sts/web: expected --kind StatefulSet beside it, got Deployment\n"
    )


@pytest.mark.parametrize("form", ["hpa", "ehpa"])
@pytest.mark.parametrize(
    ("kind", "target", "said"),
    [
        ("StatefulSet", {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}, ""),
        ("ReplicationController", {"apiVersion": "v1", "kind": "ReplicationController", "name": "web"}, ""),
        (
            "Rollout",
            {"kind": "Rollout", "name": "web"},
            UNKNOWN_VERSION,
        ),
        ("DaemonSet", None, "error: -o {form}: --kind: expected one that an HPA can scale, got DaemonSet\n"),
    ],
)
def test_a_manifest_names_a_kind_that_can_be_scaled(
    form: str, kind: str, target: dict[str, str] | None, said: str
) -> None:
    """What the reader has to add is said; what cannot work is not printed."""
    done = equipoise("recommendation", "plan", "web", *USUAL, "--kind", kind, "-o", form)
    assert (done.returncode, done.stderr) == (0 if target else 2, said.format(form=form))
    if target:
        assert yaml.safe_load(done.stdout)["spec"]["scaleTargetRef"] == target
    else:
        assert done.stdout == ""


def test_a_request_that_was_not_given_is_asked_for() -> None:
    """Only where it is why nothing is advised."""
    for command in ("plan", "simulate"):
        done = equipoise("recommendation", command, "web", *UNASKED)
        assert done.returncode == 0
        assert "warning: --request was not given, and no row has one" in done.stderr
        assert "--request" not in equipoise("recommendation", command, "web", *USUAL).stderr


@pytest.mark.parametrize(("days_late", "is_told"), [(0, False), (30, True), (-30, True)])
def test_pods_of_another_week_are_told(tmp_path: Path, days_late: int, is_told: bool) -> None:
    """They are taken as they are, for want of better ones."""
    total, pods = tmp_path / "total.csv", tmp_path / "pods.csv"
    hours = [1_772_409_600 + 3600 * hour for hour in range(168)]
    total.write_text("timestamp,value\n" + "".join(f"{at},{1 + at // 3600 % 24 / 2}\n" for at in hours))
    late = 86400 * days_late
    pods.write_text("timestamp,pod,value\n" + "".join(f"{at + late},a,0.5\n" for at in hours))
    words = (
        "--from",
        str(total),
        "--pod-usage",
        str(pods),
        "--request",
        "1",
        "--replicas",
        "1",
        "-o",
        "json",
    )
    done = equipoise("recommendation", "plan", *words)
    assert json.loads(done.stdout)["decisions"][0]["numbers"]["pod_p99_cores"] == 0.5
    warning = f"warning: {pods}: no sample is of the week with which {total} ends; its own is taken\n"
    assert done.stderr == warning * is_told

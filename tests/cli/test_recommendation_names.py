"""What files call workloads, in manifests that are to be applied and in spreadsheets."""

import csv
import io
from pathlib import Path

import pytest
import yaml

from equipoise.app.recommendation_options import AdviceFormat
from equipoise.app.recommendation_output import print_advice
from equipoise.model.errors import BadInput
from equipoise.recommendation.choose import without_kind
from equipoise.recommendation.history_file import named_subject
from tests.cli.running import equipoise
from tests.cli.test_recommendation_tables import decision

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "03-recommendation-usage.csv")


@pytest.mark.parametrize("form", [AdviceFormat.HPA, AdviceFormat.EHPA])
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
        print_advice([decision(), decision(name)], 60.0, form)
    assert str(caught.value).startswith(f"-o {form.value}: {message}")
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
    print_advice([decision(f"shop/{name}")], 60.0, AdviceFormat.HPA)
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
    print_advice(advised, 60.0, AdviceFormat.CSV, is_resource=is_resource)
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

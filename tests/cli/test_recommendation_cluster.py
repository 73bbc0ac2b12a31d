"""The table of a whole cluster: requests, limits, replicas and money, in each form that it is printed in."""

import html
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.cli.recommendation_documents import AdviceNumbersDocument
from equipoise.cli.recommendation_options import (
    HOURS_PER_MONTH,
    AdviceFormat,
    AdviceOrder,
    AdviceOutput,
    Price,
    opencost_price,
    parse_price,
    price_of,
)
from equipoise.cli.recommendation_output import Invocation, next_step, print_advice
from equipoise.cli.recommendation_rows import Severity, ordered, rows_of, total_of
from equipoise.cli.schemas import json_schema
from equipoise.cli.session import ClusterRequest
from equipoise.core.decision import Decision
from equipoise.core.errors import BadInput
from equipoise.core.reason import Code, Reason
from equipoise.recommendation.explain import AdviceDetails
from equipoise.runtime.metrics_source import PrometheusOptions
from tests.support.cli.decisions import CLUSTER, container, decision, fleet, refused
from tests.support.cli.running import equipoise
from tests.support.cli.terminal import on_terminal
from tests.support.prometheus.server import Request, Response, failed, serving, vector
from tests.support.prometheus.usage import metrics

GOLDEN = Path(__file__).parents[1] / "fixtures" / "advice"
PRICE = Price(0.03, 0.004, "EUR")
AT = 1_800_000_000.0
ORDERS: tuple[AdviceOrder, ...] = ("worth", "severity", "cpu", "memory", "replicas", "name")


def _printed(
    form: AdviceFormat, price: Price | None = PRICE, order: AdviceOrder | None = None
) -> Callable[[], None]:
    typed = Invocation(("recommendation", "plan", "-A"))
    return lambda: print_advice(CLUSTER, [60.0] * len(CLUSTER), AdviceOutput(form, order), price, typed)


@pytest.mark.parametrize("width", [80, 120, 200])
def test_a_terminal_shows_what_fits(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Golden; no line but the next command is wider, and nothing is cut off."""
    text = on_terminal(capsys, monkeypatch, width, _printed("table"))
    assert text == (GOLDEN / f"terminal-{width}.txt").read_text().rstrip("\n")
    assert max(len(line) for line in text.splitlines() if not line.startswith("Next: ")) <= width
    assert "…" not in text


@pytest.mark.parametrize(
    ("form", "file"),
    [
        ("table", "pipe.txt"),
        ("wide", "wide.txt"),
        ("csv", "rows.csv"),
        ("json", "plan.json"),
        ("html", "page.html"),
    ],
)
def test_a_pipe_gets_every_column(
    form: AdviceFormat, file: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Golden: one line a row, with complete names, whatever the width of the terminal is."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(time, "time", lambda: AT)
    _printed(form)()
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == (GOLDEN / file).read_text().splitlines()
    if form in {"table", "wide"}:
        rows = [line.split()[0] for line in lines if re.match(r"[a-z-]+/", line)]
        assert rows == [each.subject for each in _by_worth() for _ in rows_of(each)]


def _by_worth() -> list[Decision]:
    return [CLUSTER[place] for place in ordered(CLUSTER, "worth", PRICE)]


@pytest.mark.parametrize("form", ["table", "wide", "name", "json", "yaml", "csv", "html", "hpa", "ehpa"])
def test_a_decision_that_an_error_ended_is_printed_with_the_others(
    form: AdviceFormat, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no numbers at all; its workload is named all the same."""
    failed_one = Decision(
        "shop/broken", Reason(Code.INTERNAL_ERROR, "An error."), extra=AdviceDetails("Job").document
    )
    for others in ([], [decision()], CLUSTER):
        print_advice([failed_one, *others], [60.0] * (len(others) + 1), AdviceOutput(form), PRICE)
        printed = capsys.readouterr()
        assert "broken" in printed.out + printed.err


def test_a_page_loads_nothing_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """What a name or a sentence contains is shown, never interpreted; the page is one file."""
    name = "shop/<script>alert(1)</script>&\"'"
    strange = refused(name, containers=[container("<img src=x>", ("1", "1Gi"), ("2", "1Gi"))])
    print_advice([strange], [60.0], AdviceOutput("html"), Price(1, 1, "<b>"))
    page = capsys.readouterr().out
    assert re.findall(r"<(script|img|b|link|iframe)\b|\b(?:src|href)=\"", page) == []
    assert "url(" not in page
    assert "default-src 'none'" in page
    assert html.unescape(re.sub(r"<[^>]*>", " ", page)).count(name) == 1


def test_a_table_without_a_price_has_no_money(capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a column nor a sum: nothing is invented."""
    for form in ("table", "wide", "csv", "json", "html"):
        _printed(form, price=None)()
        assert "month" not in capsys.readouterr().out.lower()


def test_requests_of_a_daemon_set_are_beside_the_replicas_of_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What no HPA scales has a row like any other, counts in the total, and has no bounds of replicas."""
    sizes = [container("app", ("100m", "1Gi"), ("50m", "512Mi"))]
    requests = {"containers": [{"name": "app", "requests": {"cpu": "50m", "memory": "512Mi"}}]}
    agent = decision(
        "kube-system/agent", recommended=requests, kind="DaemonSet", containers=sizes, numbers={"replicas": 4}
    )
    mixed, alone = total_of([*CLUSTER, agent], PRICE), total_of(CLUSTER, PRICE)
    assert (mixed.workloads, mixed.advised) == (alone.workloads + 1, alone.advised + 1)
    assert mixed.cpu[1] - alone.cpu[1] == pytest.approx(0.2)
    assert mixed.memory[1] - alone.memory[1] == 2 * 1024**3
    for form in ("csv", "wide"):
        print_advice([*CLUSTER, agent], [60.0] * 6, AdviceOutput(form), PRICE)
        text = capsys.readouterr().out
        (line,) = (line for line in text.splitlines() if line.startswith("kube-system/agent"))
        row = line.split(",") if form == "csv" else re.split(r"  +", line)
        if form == "csv":
            assert row[1:6] == ["app", "50m", "512Mi", "100m", "1Gi"]
            assert row[10:18] == ["DaemonSet", "4", "", "", "", "", "", ""]
        else:
            assert row[1:4] == ["DaemonSet", "app", "100m → 50m"]
            assert "2-128" in text, "the replicas of others"
            assert "→" not in "".join(row[row.index("critical") + 1 :])
    print_advice([*CLUSTER, agent], [60.0] * 6, AdviceOutput("html"), PRICE)
    assert "kube-system/agent<small>DaemonSet</small>" in capsys.readouterr().out


def test_names_are_those_of_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    """In the asked order; what has a group in Kubernetes has it here."""
    _printed("name", order="name")()
    names = capsys.readouterr().out.splitlines()
    assert names[1:3] == ["deployment.apps/checkout-frontend-deployment", "deployment.apps/cart"]
    assert names[0] == "cronjob.batch/nightly"


def test_what_would_be_advised_is_dim_and_in_parentheses(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beside the reason; what is advised is neither."""
    text = on_terminal(capsys, monkeypatch, 200, _printed("table"), has_styles=True)
    assert "\x1b[2m3 → (3-9)" in text
    assert "\x1b[2m (60%)" in text or "\x1b[2m(60%)" in text
    assert "\x1b[2m12 → 2-128" not in text
    assert "12 → 2-128" in text


def test_the_json_keeps_its_shape_and_adds_severity_total_and_money(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What `plan` promised is there as before; a plan without requests gets nothing new."""
    _printed("json")()
    document = json.loads(capsys.readouterr().out)
    cart = next(each for each in document["decisions"] if each["subject"] == "shop/cart")
    assert cart["recommended"] is None
    assert cart["wouldRecommend"]["maxReplicas"] == 9
    assert [each["severity"] for each in cart["containers"]] == ["critical", "good"]
    assert document["price"]["hours_per_month"] == HOURS_PER_MONTH
    for part in document["decisions"]:
        part["numbers"] |= dict.fromkeys(AdviceNumbersDocument.__struct_fields__[:6], 1.0)
        part["prediction"] |= {"period_seconds": None, "model": "flat", "error": 1, "baseline_error": 1}
    jsonschema.validate(document, json_schema("recommendation-plan"))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document | {"price": {}}, json_schema("recommendation-plan"))
    print_advice([decision()], [60.0], AdviceOutput("json"), PRICE)
    plain = json.loads(capsys.readouterr().out)
    assert set(plain) == {"balancer", "decisions"}
    assert "monthly_cost" not in plain["decisions"][0]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from([None, PRICE, Price(1.5, 0.0)]))
def test_the_total_is_the_sum_of_the_rows(seed: int, count: int, price: Price | None) -> None:
    """Of requests and of money, before and after; what is unknown counts as it is now."""
    decisions = fleet(count, seed)
    rows = [row for each in decisions for row in rows_of(each)]
    total = total_of(decisions, price)
    assert total.cpu[0] == pytest.approx(sum(row.replicas * row.cpu.before for row in rows))
    assert total.cpu[1] - total.cpu[0] == pytest.approx(sum(row.cpu_difference for row in rows), abs=1e-9)
    assert total.memory[1] - total.memory[0] == pytest.approx(
        sum(row.memory_difference for row in rows), abs=1
    )
    if price is not None and total.cost is not None:
        costs = [row.cost(price) for row in rows]
        assert total.cost.current == pytest.approx(sum(each.current for each in costs))
        assert total.cost.difference == pytest.approx(sum(each.difference for each in costs), abs=1e-6)
        assert total.cost.current == pytest.approx(price.per_month(total.cpu[0], total.memory[0]))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 40), st.sampled_from(ORDERS))
def test_sorting_is_stable_and_loses_nothing(seed: int, count: int, order: AdviceOrder) -> None:
    """Workloads that are equal in what is sorted by stay in their order, twice the same."""
    decisions = fleet(count, seed)
    places = ordered(decisions, order, PRICE)
    assert sorted(places) == list(range(count))
    doubled = ordered([*decisions, *decisions], order, PRICE)
    assert [place for place in doubled if place < count] == places
    first = {place: at for at, place in enumerate(doubled)}
    assert all(first[place] < first[place + count] for place in range(count))


def test_each_order_has_its_first() -> None:
    """What saves most, is furthest off, changes a resource most, has most replicas, or the first name."""
    firsts = {order: CLUSTER[ordered(CLUSTER, order, PRICE)[0]].subject for order in ORDERS}
    assert firsts == {
        "worth": "shop/cart",
        "severity": "shop/cart",
        "cpu": "shop/cart",
        "memory": "shop/cart",
        "replicas": "shop/idle",
        "name": "batch/nightly",
    }
    worth = [sum(row.cost(PRICE).difference for row in rows_of(each)) for each in _by_worth()]
    assert worth == sorted(worth)


@pytest.mark.parametrize(
    ("now", "advised", "severity"),
    [
        (("1", None), ("1099m", None), Severity.GOOD),
        (("1", None), ("1100m", None), Severity.OK),
        (("1", None), ("750m", None), Severity.WARNING),
        (("1", None), ("500m", None), Severity.CRITICAL),
        ((None, "1Gi"), (None, "925Mi"), Severity.GOOD),
        ((None, "1Gi"), (None, "924Mi"), Severity.OK),
        ((None, "1Gi"), (None, "774Mi"), Severity.WARNING),
        ((None, "1Gi"), (None, "1524Mi"), Severity.CRITICAL),
        ((None, None), ("10m", None), Severity.WARNING),
        (("1", "1Gi"), (None, None), Severity.UNKNOWN),
    ],
)
def test_severity_has_the_bounds_of_krr(now: Any, advised: Any, severity: Severity) -> None:
    """0.1, 0.25 and 0.5 cores; 100, 250 and 500 MiB; a request that is missing is a warning."""
    (row,) = rows_of(refused("a/b", containers=[container("c", now, advised)]))
    assert row.severity is severity


def test_a_limit_without_advice_is_removed_only_beside_an_advised_request(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Where no usage is known, the limit stays as it is."""
    known = container("known", ("1", None), ("2", None), ("4", None))
    unknown = container("unknown", ("1", None), (None, None), ("4", None))
    print_advice([refused("a/b", containers=[known, unknown])], [60.0], AdviceOutput())
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:3]]
    assert lines[0][2:8] == ["1", "→", "2", "4", "→", "none"]
    assert lines[1][2:4] == ["1", "4"]


@pytest.mark.parametrize(
    ("values", "price"),
    [
        ({"node_cpu_hourly_cost": 0.031611, "node_ram_hourly_cost": 0.004237}, (0.031611, 0.004237)),
        ({"node_cpu_hourly_cost": 0.03}, None),
        ({}, None),
        ({"node_cpu_hourly_cost": 0.0, "node_ram_hourly_cost": 0.0}, None),
        ({"node_cpu_hourly_cost": "NaN", "node_ram_hourly_cost": 0.1}, None),
    ],
)
def test_opencosts_prices_are_taken_where_they_are(values: dict[str, Any], price: Any) -> None:
    """The average over nodes, with the matchers of every query; half a price is none."""

    def answer(request: Request) -> Response:
        name = request.fields["query"].removeprefix("avg(").partition("{")[0]
        return vector([({}, values[name])] if name in values else [])

    with serving(answer) as server:
        found = opencost_price(metrics(server.url, extra={"cluster": "eu-1"}))
        queries = [request.fields["query"] for request in server.asked]
    assert (None if found is None else found[:2]) == price
    assert queries[0] == 'avg(node_cpu_hourly_cost{cluster="eu-1"})'


def test_prices_that_cannot_be_read_cost_no_advice(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A line on standard error, and no money."""
    kubeconfig = tmp_path / "config"
    user = {"name": "u", "user": {"token": "t"}}
    context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
    with serving(lambda _: failed(422, "execution", "too expensive")) as server:
        at = {"name": "c", "cluster": {"server": server.url}}
        config = {"clusters": [at], "users": [user], "contexts": [context], "current-context": "c"}
        kubeconfig.write_text(json.dumps(config))
        asked = ClusterRequest(str(kubeconfig), prometheus=PrometheusOptions(url=server.url))
        assert price_of(asked) is None
    assert capsys.readouterr().err.startswith("warning: OpenCost's prices are unknown: ")


HERE = Invocation(("recommendation", "plan"), context="prod")


def test_the_next_step_is_a_command_for_the_first_workload() -> None:
    """Of a cluster what changes the most valuable one; of a file the manifests; of nothing none."""
    one = refused("shop/web", containers=[container("app", ("1", "1Gi"), ("500m", "1Gi"), (None, "2Gi"))])
    assert next_step([one], HERE) == (
        "kubectl set resources deployment/web -n shop --context prod -c app --requests=cpu=500m"
        " --dry-run=server"
    )
    removed = refused("shop/web", containers=[container("app", ("1", None), ("500m", None), ("2", None))])
    patch = next_step([removed], HERE)
    assert patch.startswith("kubectl patch deployment/web -n shop --context prod -p '{")
    assert json.loads(patch.split("'")[1])["spec"]["template"]["spec"]["containers"] == [
        {"name": "app", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": None}}}
    ]
    assert next_step([decision()], HERE) == (
        "equipoise recommendation apply deployment/web -n shop --context prod --dry-run"
    )
    file = Invocation(
        ("recommendation", "plan", "a b", "--from", "f.csv", "-o", "wide", "--sort-by=cpu"), "f.csv"
    )
    assert next_step([decision()], file) == (
        "equipoise recommendation plan 'a b' --from f.csv -o hpa | kubectl apply --dry-run=server -f -"
    )
    assert next_step([decision("x", Code.LOW_USAGE)], file) == ""
    assert (
        next_step([refused("shop/same", containers=[container("c", ("1", "1Gi"), ("1", "1Gi"))])], HERE) == ""
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.03", "--price: expected cpu=NUMBER,memory=NUMBER, per core-hour and per GiB-hour"),
        ("cpu=0.03", "got 'cpu=0.03' without memory"),
        ("cpu=1,cpu=2,memory=1", "got 'cpu=2'"),
        ("cpu=x,memory=1", "--price: cpu: expected a number from 0 to 1,000,000, got 'x'"),
        ("cpu=1,memory=-1", "--price: memory: expected a number"),
        ("cpu=nan,memory=1", "--price: cpu: expected a number"),
        ("cpu=1,memory=1,disk=2", "got 'disk=2'"),
        ("cpu=1,memory=1,currency=US Dollar", "--price: currency: expected at most 8 characters"),
    ],
)
def test_a_price_that_is_none_is_refused(text: str, message: str) -> None:
    """With what was expected, and the units."""
    with pytest.raises(BadInput) as caught:
        parse_price(text)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("-l", "team=="), "--selector"),
        (
            ("-l", "team in (a"),
            "--selector: expected labels such as team=shop,tier!=test: expected more at the end",
        ),
        (("--price", "cpu=1,memory=1", "--type", "HPA"), "--price: expected --type Resource"),
        (("--sort-by", "luck"), "--sort-by"),
        (("-o", "xml"), "html"),
    ],
)
def test_a_wrong_option_is_one_line(words: tuple[str, ...], message: str) -> None:
    """Exit 2 before a cluster is looked for."""
    done = equipoise("recommendation", "plan", "--kubeconfig", "/nonexistent", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr or words[0] == "-l"
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_a_selector_is_for_a_cluster() -> None:
    """A file has no labels."""
    done = equipoise("recommendation", "plan", "--from", "x.csv", "-l", "a=b")
    assert (done.returncode, done.stderr) == (
        2,
        "error: --from: expected it without --selector: the file says what to decide for\n",
    )

"""Alerts and the dashboard ask only for what there is: metrics, labels, reasons; without Prometheus."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from equipoise.core.reason import Code
from equipoise.runtime.allocator.operations import openapi
from equipoise.runtime.settings import OPERATED
from tools.metric_table import metric_table, series_names

FILES = Path(__file__).parents[2] / "charts" / "equipoise" / "files"
ALERTS = yaml.safe_load((FILES / "alerts.yaml").read_text())
DASHBOARD = json.loads((FILES / "dashboard.json").read_text())
TABLE = metric_table()
LABELS = {name: set(shown.labels) for shown in TABLE for name in series_names(shown)}
OF_TARGETS = {"namespace", "job", "pod", "le"}
"""Labels that the scrape adds, and that of a histogram's buckets."""
METRIC = re.compile(r"\b(?:equipoise|rebalancer)_[a-z_]+\b")


def _rules() -> Iterator[dict[str, Any]]:
    for group in ALERTS["groups"]:
        yield from group["rules"]


def _queries() -> Iterator[tuple[str, str]]:
    for rule in _rules():
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


@pytest.mark.parametrize(("title", "query"), list(_queries()))
def test_every_metric_and_label_that_is_asked_for_exists(title: str, query: str) -> None:
    """By the names under which processes show them."""
    asked = METRIC.findall(query)
    assert asked, title
    assert [name for name in asked if name not in LABELS] == []
    known = OF_TARGETS | {label for name in asked for label in LABELS[name]}
    grouped = {label.strip() for part in re.findall(r"by \(([^)]*)\)", query) for label in part.split(",")}
    chosen = set(re.findall(r"[{,]\s*(\w+)(?:=~|!=|!~|=)", query))
    assert (grouped | chosen) - known == set()


def test_every_reason_and_balancer_that_is_asked_for_exists() -> None:
    """In the closed lists."""
    for _, query in _queries():
        for label, text in re.findall(r"(reason|balancer)=~?\"([^\"]*)\"", query):
            right = {code.value for code in Code} if label == "reason" else set(OPERATED)
            assert set(text.split("|")) <= right, query


def test_requests_are_asked_for_by_statuses_that_are_counted() -> None:
    """Their result is the status of the answer: by any other word, an alert would never ring."""
    queries = "\n".join(query for _, query in _queries())
    asked = set(re.findall(r'equipoise_pool_requests_total\{result="([^"]+)"', queries))
    assert asked == {"503"}
    assert asked <= set(openapi()["paths"]["/v1/allocate"]["post"]["responses"])


def test_what_every_replica_shows_is_not_added_up() -> None:
    """Two operators that see the same would make twice as much of it; leaders alone are counted."""
    same = {shown.name for shown in TABLE if (shown.process, shown.type) == ("operator", "gauge")}
    for title, query in _queries():
        added = set(METRIC.findall(query)) if "sum" in query else set()
        assert added & same <= {"equipoise_leader"}, title


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    """One name each, one of three severities, a summary and a description."""
    names = [rule["alert"] for rule in _rules()]
    assert len(names) == len(set(names)) > 15
    for rule in _rules():
        assert rule["labels"]["severity"] in {"critical", "warning", "info"}
        assert set(rule["annotations"]) == {"summary", "description"}


def test_the_dashboard_has_panels_for_every_balancer_and_no_two_overlap() -> None:
    """Each in its own place, with a title."""
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ["Equipoise", "Rotation", "Recommendation", "Proportional scaling", "Nodes", "Pools"]
    places: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & places, panel["title"]
        assert max(x for x, _ in own) < 24
        places |= own


def test_every_metric_is_in_the_table_once_for_each_process() -> None:
    """With a meaning; what all processes have in common is left out."""
    assert len(TABLE) == len({(shown.process, shown.name) for shown in TABLE}) > 50
    assert {shown.process for shown in TABLE} == {"operator", "agent", "pools serve"}
    assert all(shown.meaning.endswith(".") for shown in TABLE)

"""Each page from records of real runs, and from whatever else a journal may hold."""

import copy
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from equipoise.core.decision import Record, Streak
from equipoise.dashboard.page import COLOURS, SECTIONS_MAX, STANDINGS, Page, painted
from equipoise.engine.isolation import failed_decision
from equipoise.engine.recording import failed_record
from equipoise.ports import FailedTurn
from tests.support.web.golden_pages import GOLDEN, PAGES, document, maker, records_of

HOSTILE = (
    ":formatter",
    "<script>alert(1)</script>",
    "a\nb\x00\u202e",
    "{a|b} {c}",
    "x" * 5000,
    "",
    "ü" * 200,
)
NUMBERS = (-1, 0, 1e308, -1e308, float("nan"), 10**30)
JUNK: tuple[Any, ...] = (None, True, *NUMBERS, "1Gi", "12e9999", *HOSTILE, [], {}, [[]], {"a": 1})


def _charts(page: Page) -> Iterator[Any]:
    for section in page.sections:
        yield from section.charts


def _mappings(part: Any) -> Iterator[dict[str, Any]]:
    if isinstance(part, dict):
        yield part
        for inner in part.values():
            yield from _mappings(inner)
    elif isinstance(part, list | tuple):
        for inner in part:
            yield from _mappings(inner)


def check(page: Page) -> None:
    """Assert all that whoever draws relies on."""
    data = dataclasses.asdict(page)
    json.dumps(data, allow_nan=False)
    assert len(page.sections) <= SECTIONS_MAX
    for chart in _charts(page):
        assert chart.title
        assert chart.description
        assert chart.options["series"]
        for part in _mappings(chart.options):
            assert all(key.isalpha() and key.isascii() for key in part), "a name from outside is no key"
            assert part.get("color", "hot") in COLOURS
    for section in page.sections:
        assert section.standing in STANDINGS
        for table in section.tables:
            assert {len(row) for row in table.rows} <= {len(table.columns)}
            assert set(table.figures) <= set(table.columns)
            assert all(cell.isprintable() for row in table.rows for cell in row)
        assert (section.subject + section.sentence).isprintable()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_real_records_is_the_golden_one(name: str) -> None:
    """Figures, pictures and tables of what end-to-end runs decided."""
    page = maker(name)(records_of(name))
    check(page)
    assert document(page) == (GOLDEN / f"{name}.json").read_text()


PICTURES = {
    "rotation": {"CPU per pod before and after the last rotation", "Improvement, predicted and realised"},
    "recommendation": {"Usage and forecast, by the hour", "Recommended replicas, by the hour"},
    "proportional": {"app.requests.cpu"},
    "qos": {"Usage against waterlines", "Gap of cpu_total_usage after each step"},
    "pools": {"Tiers and their targets", "Pods over time"},
    "overview": {"New decisions over time"},
}


@pytest.mark.parametrize("name", PAGES)
def test_real_records_give_every_picture_that_a_page_has(name: str) -> None:
    """None is left out for want of a key."""
    titles = {chart.title for chart in _charts(maker(name)(records_of(name)))}
    assert titles >= PICTURES[name]


@pytest.mark.parametrize("name", PAGES)
def test_without_inputs_a_page_says_what_the_decision_alone_says(name: str) -> None:
    """Subjects, reasons and sentences stay; of the pictures those that numbers alone can make."""
    records = records_of(name)
    whole, bare = (maker(name)(some) for some in (records, [one.without_inputs() for one in records]))
    check(bare)
    assert [(one.subject, one.reason, one.sentence) for one in whole.sections] == [
        (one.subject, one.reason, one.sentence) for one in bare.sections
    ]


@pytest.mark.parametrize("name", PAGES)
def test_a_turn_that_failed_is_trouble_and_hides_nothing_that_came_before(name: str) -> None:
    """Its record has neither inputs nor numbers; the pictures are of the older ones."""
    records = records_of(name)
    first = records[0]
    decision = failed_decision(FailedTurn(first.decision.subject, "KeyError: 'x'"))
    failed = failed_record(first.balancer, decision, 9e9, "f")
    page = maker(name)([failed, *records])
    check(page)
    assert "InternalError" in json.dumps(dataclasses.asdict(page))


@pytest.mark.parametrize("name", PAGES)
def test_no_record_gives_an_empty_page(name: str) -> None:
    """Which says so."""
    page = maker(name)([])
    check(page)
    assert page.summary == "No decisions yet."


@pytest.mark.parametrize("name", PAGES)
def test_thousands_of_subjects_give_a_bounded_page(name: str) -> None:
    """Those come first that want a look, and the page says how many there are."""
    one = records_of(name)[0]
    many = [_about(one, f"shop/web-{number}") for number in range(3000)]
    page = maker(name)(many)
    check(page)
    assert "3,000" in page.summary
    assert len(document(page)) < 2_000_000


def _about(record: Record, subject: str) -> Record:
    decision = msgspec.structs.replace(record.decision, subject=subject)
    return msgspec.structs.replace(record, decision=decision)


@st.composite
def mutilated(draw: st.DrawFn, name: str) -> list[Record]:
    """Take some of the records, and break some of what each holds."""
    records = draw(st.lists(st.sampled_from(records_of(name)), min_size=1, max_size=4))
    return [_broken(draw, record) for record in records]


def _broken(draw: st.DrawFn, record: Record) -> Record:
    decision = record.decision
    inputs = {key: _hurt(draw, getattr(record, key)) for key in ("policy", "observation", "memory")}
    numbers = _hurt(draw, decision.reason.numbers)
    reason = copy.copy(decision.reason)
    # As no journal gives it: its numbers would be refused where they do not survive JSON.
    msgspec.structs.force_setattr(reason, "numbers", numbers)
    decision = msgspec.structs.replace(
        decision,
        subject=draw(st.sampled_from((decision.subject, *HOSTILE))),
        memory=_hurt(draw, decision.memory),
        extra=_hurt(draw, decision.extra),
        held=draw(st.sampled_from((decision.held, ()))),
        actions=draw(st.sampled_from((decision.actions, ()))),
    )
    msgspec.structs.force_setattr(decision, "reason", reason)
    at = draw(st.sampled_from((record.at, 0.0, 1e300, -1e300)))
    streak = draw(st.sampled_from((None, Streak(3, at, reason))))
    outcomes = draw(st.sampled_from((record.outcomes, ())))
    return msgspec.structs.replace(
        record, decision=decision, at=at, streak=streak, outcomes=outcomes, **inputs
    )


def _hurt(draw: st.DrawFn, part: dict[str, Any]) -> dict[str, Any]:
    """Take keys away, put junk in, at any depth."""
    found: dict[str, Any] = copy.deepcopy(part)
    for _ in range(draw(st.integers(0, 4))):
        holders = [one for one in _holders(found) if one]
        if not holders:
            break
        holder = draw(st.sampled_from(holders[:200]))
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = draw(st.sampled_from(keys[:60]))
        if draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = copy.deepcopy(draw(st.sampled_from(JUNK)))
    return found


def _holders(part: Any) -> Iterator[Any]:
    if isinstance(part, dict | list):
        yield part
        for inner in part.values() if isinstance(part, dict) else part:
            yield from _holders(inner)


@pytest.mark.parametrize("name", PAGES)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_whatever_a_record_holds_a_page_comes_of_it(name: str, data: st.DataObject) -> None:
    """Missing keys, other types, huge numbers, hostile names: a picture is left out, and nothing fails."""
    check(maker(name)(data.draw(mutilated(name))))


@pytest.mark.parametrize("hostile", HOSTILE)
def test_names_are_one_line_of_bounded_length(hostile: str) -> None:
    """Wherever they come from."""
    page = maker("rotation")([_about(record, hostile) for record in records_of("rotation")])
    check(page)
    (section,) = page.sections
    assert 0 < len(section.subject) <= 600


def test_a_theme_replaces_the_words_for_colours_and_nothing_else() -> None:
    """At any depth; a colour that it lacks stays a word."""
    options = {
        "series": [{"itemStyle": {"color": "hot"}, "name": "hot", "data": [1, None]}],
        "color": ["hot"],
    }
    assert painted(options, {"hot": "#f00"}) == {
        "series": [{"itemStyle": {"color": "#f00"}, "name": "hot", "data": [1, None]}],
        "color": ["hot"],
    }
    assert painted({"color": "cold"}, {"hot": "#f00"}) == {"color": "cold"}


def test_pages_need_neither_a_browser_nor_a_client() -> None:
    """They are data: whoever imports them gets no server, no arrays and no connection."""
    modules = ", ".join(maker(name).__module__ for name in PAGES)
    program = (
        f"import sys, {modules}; "
        "print(*sorted({'nicegui', 'urllib3', 'redis', 'numpy', 'rich', 'sqlite3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []

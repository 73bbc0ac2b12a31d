"""Whatever a record holds, it is shown as text."""

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from equipoise.core.decision import Decision, EvictPod, Held, Outcome, Record, Streak
from equipoise.core.reason import Code, Reason
from equipoise.dashboard import render
from equipoise.dashboard.page import Chart, Fact, Page, Section, Table

HOSTILE = "<img src=x onerror=alert(1)>\"'`{{7*7}}</textarea><script>alert(2)</script>"
TAGS = {
    *("a", "b", "button", "code", "datalist", "dd", "details", "div", "dl", "dt", "form", "h1", "h2", "h3"),
    *("input", "label", "li", "nav", "option", "p", "select", "small", "span", "summary", "table", "tbody"),
    *("td", "th", "thead", "time", "tr", "ul"),
}
texts = st.one_of(st.just(HOSTILE), st.text(max_size=40))


class Tags(HTMLParser):
    """What a browser would make of it."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag != "input":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(*parts: render.Markup) -> Tags:
    """Read it, and hold it to our own tags, each closed, none with a script in an attribute."""
    seen = Tags()
    seen.feed("".join(part.html for part in parts))
    seen.close()
    assert seen.open == []
    assert seen.tags <= TAGS
    assert not {name for name in seen.attributes if name.startswith("on")}
    return seen


def hostile(text: str) -> Record:
    """A record that says this wherever a text may stand."""
    reason = Reason(Code.ROTATE, text, {text: text, "list": [text, 1.5, None, True], "map": {text: 3}})
    decision = Decision(
        text, reason, (EvictPod(text, text),), (Held(EvictPod(text), Code.HELD_BY_LAG, text),)
    )
    streak = Streak(3, 7200.0, reason)
    outcome = Outcome(EvictPod(text), text, text)
    return Record(text, text, 0.0, {}, {}, {}, decision, (outcome,), text, text, streak)


@given(texts)
def test_a_section_is_text(text: str) -> None:
    """Names, sentences, figures and tables."""
    section = Section(
        text, text, text, (Fact(text, text, text),), (), (Table(text, (text,), ((text,),), (text,)),), at=0.0
    )
    drawn = render.drawing(section, "/x?" + text, "/y?" + text)
    page = Page(text, text, (Fact(text, text, text),))
    parsed(
        render.heading(page, [text], text),
        drawn.head,
        drawn.tail,
        render.figure_heading(Chart(text, {}, text)),
        render.subject_form(text, [text, text], "/rotation"),
    )


@given(texts)
def test_a_record_is_text(text: str) -> None:
    """Every field of it."""
    parsed(render.whole(hostile(text)))


def test_a_hostile_name_can_be_read() -> None:
    """It is not dropped either: who wrote it is found by it."""
    seen = parsed(render.whole(hostile(HOSTILE)))
    assert seen.text.count("<img src=x onerror=alert(1)>") >= 8


def test_a_record_says_all_that_is_known_of_it() -> None:
    """Sentence, numbers, actions, held, outcomes, streak and where it comes from."""
    numbers = {"threshold_cores": 1.05, "hot": ["a", "b"], "pods": 12345, "unknown": None}
    decision = Decision(
        "shop/web",
        Reason(Code.ROTATE, "a is hot.", numbers),
        (EvictPod("a", "shop"),),
        (Held(EvictPod("b", "shop"), Code.HELD_BY_BUDGET, "No room."),),
    )
    streak = Streak(2, 3600.0, Reason(Code.ROTATE, "a is hot.", numbers | {"pods": 7}))
    made = Record(
        "0abc", "rotation", 0.0, {}, {}, {}, decision, (Outcome(EvictPod("a"), "Accepted"),), "h", "1", streak
    )
    seen = parsed(render.whole(made)).text
    for said in (
        "1970-01-01 00:00:00Z",
        "Rotate",
        "shop/web",
        "a is hot.",
        "3 times until",
        "1.05",
        "a, b",
        "12,345",
        "7",
    ):
        assert said in seen
    for said in (
        "EvictPod",
        "shop/a",
        "shop/b",
        "HeldByBudget",
        "No room.",
        "Accepted",
        "journal explain 0abc",
    ):
        assert said in seen


def test_a_record_without_end_is_cut() -> None:
    """Ten thousand actions are a hundred rows and a number."""
    actions = tuple(EvictPod(f"pod-{number}") for number in range(10_000))
    decision = Decision("shop/web", Reason(Code.ROTATE, "Many."), actions)
    seen = render.whole(Record("1", "rotation", 0.0, {}, {}, {}, decision))
    assert "Planned: the first 100 of 10,000" in seen.html
    assert len(seen.html) < 30_000


def test_a_page_is_patched_while_its_shape_stays() -> None:
    """Other figures fit into the same places; another chart, part of one, or subject does not."""

    def shape(subject: str, title: str, **series: object) -> object:
        chart = Chart(title, {"series": [series]}, "")
        return render.drawing(Section(subject, "Rotate", "A.", charts=(chart,))).shape

    first = shape("shop/web", "CPU", data=[1, 2])
    assert shape("shop/web", "CPU", data=[3, 4, {"value": 5}]) == first
    assert shape("shop/web", "CPU", data=[1, 2], markLine={"data": []}) != first
    assert shape("shop/web", "Memory", data=[1, 2]) != first
    assert shape("shop/other", "CPU", data=[1, 2]) != first

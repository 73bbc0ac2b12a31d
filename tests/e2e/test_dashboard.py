"""The dashboard in a real Chromium: figures, live updates, both themes, narrow windows, and who may look."""

import re
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from equipoise.adapters.journal import SqliteJournal
from tests.e2e.conftest import Offered
from tests.support.e2e.journals import HOSTILE, diary, later
from tests.testbed.browser import Island, Window, chromium, open_window
from tests.testbed.processes import Process

PAGES = ("/", "/rotation", "/recommendation", "/proportional", "/qos", "/pools", "/journal")
TOKEN = "a-token-for-this-test"
SECONDS = 60.0
NewPage = Callable[..., Window]
expect.set_options(timeout=SECONDS * 1000)


@dataclass
class Now:
    """The time of the test, for the journal."""

    def now(self) -> float:
        return time.time()


@dataclass
class Dashboard:
    """One that runs, on a journal that can be written."""

    process: Process
    url: str
    path: Path
    journal: SqliteJournal = field(repr=False)


Start = Callable[..., Dashboard]


@pytest.fixture(scope="module")
def island(bed: Path) -> Iterator[Island]:
    """Where browser and dashboards live."""
    made = Island(bed / "logs")
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def browser(offered: Offered, bed: Path, island: Island) -> Iterator[Browser]:
    """One browser for all."""
    with ExitStack() as stack:
        with offered():
            started = stack.enter_context(chromium(bed / "browser", island))
        yield started


@pytest.fixture
def new_page(browser: Browser) -> Iterator[NewPage]:
    """Open windows, each with its own cookies; at the end none has complained or gone elsewhere."""
    windows: list[Window] = []
    with ExitStack() as stack:

        def make(**options: object) -> Window:
            context, window = open_window(browser, **options)
            context.set_default_timeout(SECONDS * 1000)
            stack.callback(context.close)
            windows.append(window)
            return window

        yield make
        for window in windows:
            assert window.complaints == []
            assert {urlsplit(url).hostname for url in window.asked} <= {"127.0.0.1"}


@pytest.fixture(scope="module")
def start(bed: Path, island: Island) -> Iterator[Start]:
    """Start dashboards on journals of their own."""
    with ExitStack() as stack:

        def make(name: str, *options: str, is_filled: bool = True) -> Dashboard:
            path = bed / f"{name}.db"
            journal = SqliteJournal(path, age_max_seconds=1e9, bytes_max=1 << 26, clock=Now())
            stack.callback(journal.close)
            if is_filled:
                journal.append(*diary(time.time() - 600), is_whole=True)
            words = ("dashboard", "--journal", str(path), "--port", "0", "--no-open", *options)
            process = Process(name, island.command(_program(), *words), bed / "logs" / f"{name}.log")
            process.start()
            stack.callback(process.stop)
            return Dashboard(process, _address(process), path, journal)

        yield make


def _program() -> str:
    return str(Path(sys.executable).with_name("equipoise"))


def _address(process: Process) -> str:
    def found() -> bool:
        return "dashboard http" in process.tail()

    process.wait_until(found, "the dashboard answers", 120.0)
    said = re.search(r"dashboard (http://\S+)/", process.tail())
    assert said is not None
    return said.group(1)


@pytest.fixture(scope="module")
def shown(start: Start) -> Dashboard:
    """The dashboard that most tests look at."""
    return start("dashboard")


def _ended(process: Process) -> int | None:
    """End it politely; give its exit status."""
    process._end(signal.SIGTERM, 60.0)
    assert process._popen is not None
    return process._popen.poll()


def _overflow(page: Page) -> int:
    found: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found


def test_every_page_shows_its_figures(shown: Dashboard, new_page: NewPage) -> None:
    """Headings in order, sentences, drawn charts with words for them; at 400 pixels nothing sticks out."""
    window = new_page(viewport={"width": 400, "height": 900})
    page = window.page
    charts = 0
    for path in PAGES:
        page.goto(shown.url + path)
        expect(page.locator("h1")).to_have_count(1)
        expect(page.locator("nav a[aria-current=page]")).to_have_count(1)
        assert _overflow(page) <= 0, path
        if path == "/journal":
            expect(page.locator("details.record").first).to_be_visible()
            continue
        expect(page.locator("section.section").first).to_be_visible()
        for place in range(page.locator("figure.chart").count()):
            figure = page.locator("figure.chart").nth(place)
            expect(figure.locator("svg path").first).to_be_attached()
            label = figure.locator("[role=img]").get_attribute("aria-label") or ""
            assert len(label) > 10
            charts += 1
        levels = page.locator("h1,h2,h3").evaluate_all("all => all.map(one => +one.tagName[1])")
        assert levels[0] == 1
        assert all(after - before <= 1 for before, after in pairwise(levels)), path
    assert charts >= 5


def test_what_is_decided_appears_without_a_reload(shown: Dashboard, new_page: NewPage) -> None:
    """On the balancer's page, on the overview and in the journal, where what was opened stays open."""
    pages = [new_page().page for _ in range(3)]
    for page, path in zip(pages, ("/rotation", "/", "/journal"), strict=True):
        page.goto(shown.url + path)
        page.evaluate("window.isSame = true")
    opened = pages[2].locator("details.record").nth(1)
    opened.locator("summary").click()
    expect(opened.get_by_role("heading", name="Origin")).to_be_visible()
    shown.journal.append(later(time.time()), is_whole=True)
    for page in pages:
        expect(page.get_by_text("late/arrival").first).to_be_visible()
        assert page.evaluate("window.isSame") is True
    expect(pages[2].locator("details[open]")).to_have_count(1)
    expect(pages[2].locator("details.record").first).to_contain_text("late/arrival")


def test_names_from_outside_are_text(shown: Dashboard, new_page: NewPage) -> None:
    """A workload called like a script is shown, and does not run; in tables, charts, forms and records."""
    page = new_page().page
    for path in ("/rotation", "/", "/journal"):
        page.goto(shown.url + path)
        expect(page.get_by_text(HOSTILE).first).to_be_attached()
        assert page.locator("main img").count() == 0
    page.goto(shown.url + "/rotation")
    page.get_by_role("link", name=HOSTILE).click()
    expect(page.locator("input[name=subject]")).to_have_value(HOSTILE)
    expect(page.locator("section.section")).to_have_count(1)
    page.locator("figure.chart svg").first.hover(position={"x": 120, "y": 150})
    assert page.evaluate("window.hit") is None


def test_the_journal_is_narrowed_and_opened_by_keyboard(shown: Dashboard, new_page: NewPage) -> None:
    """By balancer, reason and subject; a record opens with Enter."""
    page = new_page().page
    page.goto(shown.url + "/journal")
    page.locator("select[name=balancer]").select_option("rotation")
    page.locator("select[name=reason]").select_option("Rotate")
    page.get_by_label("Subject").fill("shop/*")
    page.get_by_label("Subject").press("Enter")
    expect(page).to_have_url(re.compile("reason=Rotate"))
    expect(page.locator("details.record").first).to_contain_text("shop/")
    expect(page.locator(".badge", has_not_text="Rotate")).to_have_count(0)
    assert {text.split()[0] for text in page.locator(".badge").all_inner_texts()} == {"Rotate"}
    page.locator("details.record summary").first.focus()
    page.keyboard.press("Enter")
    inside = page.locator("details[open]")
    for said in ("Numbers", "Planned", "EvictPod"):
        expect(inside.get_by_text(said).first).to_be_visible()


def test_both_themes(shown: Dashboard, new_page: NewPage) -> None:
    """As the system has it; the button changes it, the next page remembers, and charts follow at once."""
    colours = {}
    for scheme in ("light", "dark"):
        page = new_page(color_scheme=scheme).page
        page.goto(shown.url + "/rotation")
        expect(page.locator("figure.chart svg").first).to_be_visible()
        colours[scheme] = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert colours["light"] != colours["dark"]
    button = page.locator("[data-theme-button]")
    expect(button).to_have_text("Theme: system")
    button.click()
    button.click()
    expect(button).to_have_text("Theme: light")
    expect(page.locator("body")).to_have_css("background-color", colours["light"])
    ink = page.locator("figure.chart svg text").first.evaluate("one => getComputedStyle(one).fill")
    page.goto(shown.url + "/pools")
    expect(page.locator("[data-theme-button]")).to_have_text("Theme: light")
    assert ink == "rgb(81, 96, 107)"


def test_a_journal_may_come_late_break_and_come_back(start: Start, new_page: NewPage) -> None:
    """One line says so, and the page mends itself; asked to end, it does so with status 0."""
    late = start("late", is_filled=False)
    late.journal.close()
    for suffix in ("", "-wal", "-shm"):
        Path(f"{late.path}{suffix}").unlink(missing_ok=True)
    page = new_page().page
    page.goto(late.url)
    expect(page.locator(".troubles")).to_contain_text("No such file")
    late.path.write_bytes(b"not a journal at all" * 100)
    expect(page.locator(".troubles")).to_contain_text("expected a journal")
    late.path.unlink()
    with SqliteJournal(late.path, age_max_seconds=1e9, bytes_max=1 << 26, clock=Now()) as journal:
        journal.append(later(time.time()), is_whole=True)
        expect(page.get_by_text("late/arrival").first).to_be_visible()
        expect(page.locator(".troubles")).to_have_count(0)
    assert _ended(late.process) == 0, late.process.tail()
    assert "Traceback" not in late.process.tail(100)


def test_a_token_keeps_others_out(start: Start, new_page: NewPage, browser: Browser, bed: Path) -> None:
    """Pages, assets and the socket are closed without it; the address loses it, and the page is live."""
    file = bed / "tokens"
    file.write_text(f"{TOKEN}\n")
    guarded = start("guarded", "--host", "0.0.0.0", "--token-file", str(file))
    url = guarded.url.replace("0.0.0.0", "127.0.0.1")
    context, stranger = open_window(browser)
    with context:
        answer = stranger.page.goto(url + "/rotation")
        assert answer is not None
        assert answer.status == 401
        opened = stranger.page.evaluate(
            """address => new Promise(done => { const socket = new WebSocket(address);
               socket.onopen = () => done('open'); socket.onerror = () => done('closed') })""",
            url.replace("http", "ws") + "/_nicegui_ws/socket.io/?EIO=4&transport=websocket",
        )
        assert opened == "closed"
    page = new_page().page
    page.goto(f"{url}/rotation?token={TOKEN}")
    expect(page.locator("section.section").first).to_be_visible()
    expect(page).to_have_url(f"{url}/rotation")
    guarded.journal.append(later(time.time()), is_whole=True)
    expect(page.get_by_text("late/arrival").first).to_be_visible()
    assert page.evaluate("document.cookie") == ""

"""A real Chromium without a window: Debian's, driven by Playwright, which downloads nothing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.testbed.build import binary

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--font-render-hinting=none",
)
_FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>{folders}<cachedir>{cache}</cachedir>{rules}</fontconfig>
"""
_RULE = """<match><test name="family"><string>{asked}</string></test>
<edit name="family" mode="prepend" binding="strong"><string>{given}</string></edit></match>"""
_GIVEN = {"system-ui": "DejaVu Sans", "sans-serif": "DejaVu Sans", "monospace": "DejaVu Sans Mono"}


@dataclass
class Window:
    """A page with its own cookies, and what happened on it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    """What the console warned of, and errors that nobody caught."""
    asked: list[str] = field(default_factory=list)
    """Every address that was fetched, or a socket opened to."""


@contextmanager
def chromium(work: Path) -> Iterator[Browser]:
    """Start the browser."""
    program = binary("chromium")
    work.mkdir(parents=True, exist_ok=True)
    env: dict[str, str | float | bool] = {**os.environ} | {
        "HOME": str(work),
        "FONTCONFIG_FILE": str(_fonts(program, work)),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(_FLAGS), env=env)
        try:
            yield browser
        finally:
            browser.close()


def _fonts(program: Path, work: Path) -> Path:
    """Name the fonts that were unpacked beside the browser, and the host's."""
    folders = [program.parent / "usr/share/fonts", Path("/usr/share/fonts")]
    file = work / "fonts.conf"
    places = "".join(f"<dir>{one}</dir>" for one in folders)
    rules = "".join(_RULE.format(asked=asked, given=given) for asked, given in _GIVEN.items())
    file.write_text(_FONTS.format(folders=places, cache=work / "fonts", rules=rules))
    return file


def open_window(browser: Browser, **options: Any) -> tuple[BrowserContext, Window]:
    """Open a page that keeps a diary."""
    context = browser.new_context(**options)
    window = Window(context.new_page())
    page = window.page
    page.on("console", lambda said: _heard(window, said.type, said.text))
    page.on("pageerror", lambda error: window.complaints.append(f"error: {error}"))
    page.on("request", lambda request: window.asked.append(request.url))
    page.on("websocket", lambda socket: window.asked.append(socket.url))
    return context, window


def _heard(window: Window, kind: str, text: str) -> None:
    if kind in {"error", "warning", "assert"}:
        window.complaints.append(f"{kind}: {text}")

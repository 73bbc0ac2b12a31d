"""A real Chromium without a window: Debian's, driven by Playwright, which downloads nothing.

With root it lives on an island: a network of its own that has a loopback device and nothing else. What it
looks at lives there too. So nothing can leave, and links that come and go on the host (the real node's, say)
are no change of the browser's network, for which it would drop what it is loading.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.testbed.build import binary
from tests.testbed.processes import Process

_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--font-render-hinting=none",
)
_HOST_FONTS = Path("/etc/fonts/fonts.conf")
_FONTS = """<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig><dir>{folder}</dir><cachedir>{cache}</cachedir></fontconfig>
"""
_ISLAND = "ip link set lo up && echo afloat && exec sleep infinity"


class Island:
    """A network with a loopback device only; where we may not make one, the host's own."""

    def __init__(self, work: Path) -> None:
        self._work = work
        self._process: Process | None = None

    def start(self) -> None:
        tools = [shutil.which(name) for name in ("unshare", "nsenter", "ip", "sh")]
        if os.geteuid() != 0 or None in tools:
            return
        words = [str(tools[0]), "--net", str(tools[3]), "-c", _ISLAND]
        self._process = Process("island", words, self._work / "island.log")
        self._process.start()
        self._process.wait_until(self._is_afloat, "a network of our own", 60.0)

    def _is_afloat(self) -> bool:
        assert self._process is not None
        return "afloat" in self._process.tail()

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()

    def command(self, *words: str | Path) -> list[str | Path]:
        """Give the words that run a command there."""
        if self._process is None:
            return [*words]
        return [str(shutil.which("nsenter")), f"--net=/proc/{self._process.pid}/ns/net", "--", *words]


@dataclass
class Window:
    """A page with its own cookies, and what happened on it."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    """What the console warned of, and errors that nobody caught."""
    asked: list[str] = field(default_factory=list)
    """Every address that was fetched, or a socket opened to."""


@contextmanager
def chromium(work: Path, island: Island | None = None) -> Iterator[Browser]:
    """Start the browser."""
    program = binary("chromium")
    work.mkdir(parents=True, exist_ok=True)
    env: dict[str, str | float | bool] = {**os.environ, "HOME": str(work)}
    if not _HOST_FONTS.exists():
        env["FONTCONFIG_FILE"] = str(_fonts(program, work))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=_on(island, program, work), args=list(_FLAGS), env=env, timeout=120_000
        )
        try:
            yield browser
        finally:
            browser.close()


def _on(island: Island | None, program: Path, work: Path) -> Path:
    """Give a file that starts the browser on the island."""
    if island is None:
        return program
    file = work / "chromium"
    words = " ".join(f"'{word}'" for word in island.command(program))
    file.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    file.chmod(0o755)
    return file


def _fonts(program: Path, work: Path) -> Path:
    """Name the fonts that were unpacked beside the browser."""
    file = work / "fonts.conf"
    file.write_text(_FONTS.format(folder=program.parent / "usr/share/fonts", cache=work / "fonts"))
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

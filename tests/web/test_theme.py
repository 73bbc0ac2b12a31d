"""Colours that can be read, in both themes."""

import re
from pathlib import Path

import pytest

import equipoise.dashboard
from equipoise.dashboard import layout, page

TEXTS = ("ink", "ink-soft", "link", "hot", "cold", "good", "bad", "held")
LINES = ("target", "limit", "actual", "muted")
GROUNDS = ("ground", "panel", "raised")
STYLE = (Path(equipoise.dashboard.__file__).parent / "style.css").read_text()


def luminance(colour: str) -> float:
    """As WCAG has it."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """From 1 to 21."""
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("ground", GROUNDS)
def test_text_and_lines_stand_out(is_dark: bool, ground: str) -> None:
    """Text by 4.5 to 1 and lines by 3 to 1, on every surface there is."""
    below = layout.COLOURS[ground][is_dark]
    for names, least in ((TEXTS, 4.5), (LINES, 3.0)):
        for name in names:
            found = contrast(layout.COLOURS[name][is_dark], below)
            assert found >= least, f"{name} on {ground}: {found:.2f}"


def test_every_word_for_a_colour_has_one() -> None:
    """What pages may say, the theme knows; and what the style asks for."""
    assert set(page.COLOURS) <= set(layout.COLOURS)
    assert set(layout.STANDING_COLOURS) == set(page.STANDINGS)
    assert set(layout.STANDING_COLOURS.values()) <= set(layout.COLOURS)
    assert set(re.findall(r"var\(--([a-z-]+)\)", STYLE)) <= {*layout.COLOURS, "fonts"}
    for standing, colour in layout.STANDING_COLOURS.items():
        assert f".by-{standing}{{color:var(--{colour})}}" in STYLE


def test_a_colour_is_written_once() -> None:
    """The rules name none themselves, and load nothing from anywhere."""
    assert not re.search(r"#[0-9a-fA-F]{3,8}\b(?!popup)", STYLE.replace("#popup", ""))
    assert "url(" not in layout.style_sheet()
    assert "@import" not in layout.style_sheet()


def test_charts_take_the_themes_colours() -> None:
    """Words become variables; what was not a word for a colour stays."""
    options = layout.chart_options({"series": [{"name": "hot", "itemStyle": {"color": "hot"}}]})
    assert options["series"] == [{"name": "hot", "itemStyle": {"color": "var(--hot)"}}]
    assert options["animation"] is False

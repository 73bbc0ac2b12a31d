"""What a person sees on a terminal of some width, without its colours."""

import re
from collections.abc import Callable

import pytest

CODES = re.compile(r"\x1b\[[0-9;]*m")


def on_terminal(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    width: int,
    show: Callable[[], None],
    *,
    has_styles: bool = False,
) -> str:
    """Return what is printed on a terminal of this width; with `has_styles` also how."""
    with monkeypatch.context() as patch:
        patch.setenv("COLUMNS", str(width))
        patch.setenv("FORCE_COLOR", "1")
        patch.setenv("TERM", "xterm")
        patch.delenv("NO_COLOR", raising=False)
        show()
    text = capsys.readouterr().out
    return text if has_styles else "\n".join(line.rstrip() for line in CODES.sub("", text).splitlines())

"""Plots in files: their style and their formats; matplotlib is imported when one is drawn."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from equipoise.cli.options import option
from equipoise.core.errors import BadInput, WorldFailed

Plot = Annotated[str | None, option("FILE", "Draw usage, forecast and replicas: .svg or .png.")]
DAYS_NAMED_MAX = 16
WORKLOADS_MAX = 4
INK, FAINT, RULE = "#24292f", "#6e7781", "#d8dee4"
GREY, BLUE, BAND, RED = "#8c959f", "#0969da", "#b6d7ff", "#cf222e"
STYLE: dict[Any, Any] = {
    "font.size": 8,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#d0d7de",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#eaeef2",
    "grid.linewidth": 0.6,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.frameon": False,
    "legend.fontsize": 7,
    "svg.hashsalt": "equipoise",
}


def check_plot(path: str | None) -> None:
    """Raise BadInput if matplotlib is missing or the file's format is unknown, before anything is read."""
    from importlib.util import find_spec

    if path is None:
        return
    if not path.lower().endswith((".svg", ".png")):
        raise BadInput(f"--plot {path}: expected a file that ends in .svg or .png")
    if not Path(path).absolute().parent.is_dir():
        raise BadInput(f"--plot {path}: expected a folder that exists")
    if find_spec("matplotlib") is None:
        raise BadInput("--plot: expected the extra plot to be installed: pip install 'equipoise[plot]'")


def expect_few(count: int) -> None:
    """Raise BadInput unless so many workloads fit in one plot."""
    if not 0 < count <= WORKLOADS_MAX:
        expected = f"expected 1 to {WORKLOADS_MAX} workloads, got {count}"
        raise BadInput(f"--plot: {expected}; name those to draw")


def save(figure: Callable[[], Any], path: str, style: Mapping[str, Any] | None = None) -> None:
    """Make a figure in our style, and `style` over it, and write it; the same figure makes the same file."""
    import warnings

    import matplotlib as mpl

    mpl.use("Agg")
    with mpl.rc_context(STYLE | dict(style or {})), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+")  # of a name, which is drawn as boxes then
        made = figure()
        metadata = {"Date": None} if path.lower().endswith(".svg") else None
        try:
            made.savefig(path, dpi=150, metadata=metadata, facecolor="white")
        except OSError as error:
            raise WorldFailed(f"--plot {path}: {error.strerror or error}") from error


def dates(times: Any) -> Any:
    """Return seconds since 1970 as days, which a date axis takes."""
    return times / 86400


def mark_days(axes: Any, zone: str = "UTC") -> None:
    """Put a tick at every midnight of axes that share it, and the day's name into its middle.

    Of many days, only Mondays have room for a name.
    """
    from zoneinfo import ZoneInfo

    from matplotlib import dates as known
    from matplotlib.ticker import NullFormatter

    calendar: Any = known  # has no types
    where = ZoneInfo(zone)
    axes[-1].xaxis.set_major_locator(calendar.DayLocator(tz=where))
    axes[-1].xaxis.set_major_formatter(NullFormatter())
    noons = calendar.HourLocator(byhour=12, tz=where)
    first, last = axes[-1].get_xlim()
    if last - first > DAYS_NAMED_MAX:
        mondays = calendar.rrulewrapper(
            calendar.WEEKLY, byweekday=calendar.MO, byhour=12, byminute=0, bysecond=0
        )
        noons = calendar.RRuleLocator(mondays, tz=where)
    axes[-1].xaxis.set_minor_locator(noons)
    axes[-1].xaxis.set_minor_formatter(calendar.DateFormatter("%a %-d %b", tz=where))
    axes[-1].set_xlabel(f"days in {zone}", loc="right", fontsize=6, color=FAINT)
    for axis in axes:
        axis.tick_params(axis="x", which="minor", length=0)
        axis.tick_params(axis="x", which="major", length=3)

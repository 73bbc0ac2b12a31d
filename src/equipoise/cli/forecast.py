"""`equipoise forecast`: the next days of one workload's CPU usage, from a file."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from equipoise.cli.options import USAGE_FORMS, Algorithm, option, parse_span
from equipoise.cli.plots import Plot, check_plot
from equipoise.core.errors import BadInput
from equipoise.core.quantity import plain_number, print_seconds, written_out
from equipoise.runtime.output import Format, escaped, json_text, print_document, tell

if TYPE_CHECKING:
    from equipoise.recommendation.forecast import WorkloadSeries

HORIZON_DAYS_MAX = 28
ForecastFormat = Literal["table", "json", "yaml", "csv"]


def forecast(
    file: Annotated[
        str,
        option("FILE", f"{USAGE_FORMS}; - is standard input.", "--from"),
    ],
    workload: Annotated[
        str, typer.Argument(metavar="[WORKLOAD]", help="Which one, of a file with many.")
    ] = "",
    horizon: Annotated[str, option("DURATION", "Length of the forecast, such as 7d.")] = "1d",
    backtest: Annotated[
        str | None, option("DURATION", "Forecast the end of the file from the rest, and print the error.")
    ] = None,
    algorithm: Algorithm = "profile",
    plot: Plot = None,
    output: Annotated[ForecastFormat, typer.Option("-o", "--output", help="Output format.")] = "table",
) -> None:
    """Forecast CPU usage with a safety margin and a 95% band, and tell whether it is predictable."""
    from equipoise.recommendation.forecast import backtested, forecast_document
    from equipoise.stats.predict import Algorithm as Named

    check_plot(plot)
    ahead = _span("--horizon", horizon)
    held_out = None if backtest is None else _span("--backtest", backtest)
    series = _series(file, workload)
    if held_out is None:
        document = forecast_document(series, ahead, Named(algorithm))
    else:
        document = backtested(series, held_out, Named(algorithm))
    if plot is not None:
        from equipoise.cli.recommendation_plot import draw_forecast

        draw_forecast(series, document, plot)
    _print(document, output)


def _span(option: str, text: str) -> float:
    seconds = parse_span(option, text)
    if not 0 < seconds <= HORIZON_DAYS_MAX * 86400:
        raise BadInput(f"{option}: expected a span above 0 and up to {HORIZON_DAYS_MAX}d, got {text!r}")
    return seconds


def _series(file: str, workload: str) -> "WorkloadSeries":
    from equipoise.cli.usage_files import samples_of, warn_of_doubts
    from equipoise.recommendation.doubts import Doubts, doubts_of_samples, doubts_of_series
    from equipoise.recommendation.files import series_of

    samples, names = samples_of(file, [workload] if workload else [], None)
    series = series_of(samples, names[0] if names else "", file)
    doubts = [*doubts_of_samples(samples, file), *doubts_of_series(series.subject, series.values)]
    warn_of_doubts(Doubts(doubts))
    return series


def _print(document: dict[str, Any], form: ForecastFormat) -> None:
    match form:
        case "json":  # arrays on single lines: they have thousands of numbers
            print(escaped(json_text(document)))
        case "yaml":
            print_document(document, Format.YAML)
        case "csv":
            print("timestamp,value,upper")
            for row in zip(document["timestamps"], document["values"], document["upper"], strict=True):
                print(",".join(written_out(text) if "e" in (text := str(one)) else text for one in row))
            found = [f"{name} {document[name]}" for name in FOUND if document.get(name) is not None]
            if found:  # it is not one of the columns
                tell(f"held out: {', '.join(found)}")
        case "table":
            _print_table(document)


COARSE_SECONDS = 86400 / 8
"""The maximum step between samples from which a daily pattern can be learned."""
FOUND = ("error", "baseline_error", "repeat_day_error", "repeat_week_error", "coverage")
"""The fields of a backtest about the whole period."""


SHOWN = {
    "model": "model",
    "period_seconds": "period",
    "interval_seconds": "a sample every",
    "margin": "safety margin",
    "held_out_seconds": "held out",
    "error": "error",
    "baseline_error": "error of a flat line",
    "repeat_day_error": "error of repeating the last day",
    "repeat_week_error": "error of repeating the last week",
    "coverage": "share below the band's upper end",
}
"""The fields that are printed as text, and their labels."""


def _print_table(document: dict[str, Any]) -> None:
    from equipoise.runtime.console import Console, table

    times = document["timestamps"]
    laid_out = table("FIGURE", "VALUE")
    for key, name in SHOWN.items():
        if document.get(key) is not None:
            laid_out.add_row(name, _shown(key, document[key]))
    laid_out.add_row("ahead", f"{_moment(times[0])} to {_moment(times[-1])} UTC")
    for key, name in (("values", "forecast"), ("upper", "95 % should stay below")):
        laid_out.add_row(name, _range_of(document[key], times))
    console = Console()
    console.print(laid_out)
    console.print()
    for sentence in (_sentence(document), *document["notes"]):
        console.print(sentence)


def _range_of(numbers: list[float], times: list[float]) -> str:
    low, high = min(numbers), max(numbers)
    if low == high:
        return f"{plain_number(low, 4)} cores"
    highest = _moment(times[numbers.index(high)])[-11:]
    return f"{plain_number(low, 4)} to {plain_number(high, 4)} cores, highest {highest}"


def _moment(time: float) -> str:
    import numpy as np

    # A forecast may reach beyond the years that datetime supports.
    return str(np.datetime64(int(time // 60), "m")).replace("T", " ")


def _shown(key: str, value: Any) -> str:
    if key.endswith("_seconds"):
        return print_seconds(value)
    if key == "margin":
        return f"times {plain_number(value, 4)}"
    return plain_number(value, 4) if isinstance(value, float) else str(value)


def _sentence(document: dict[str, Any]) -> str:
    """Return a sentence on whether the forecast can be trusted, with both numbers."""
    error, flat = document["backtest_error"], document["backtest_baseline_error"]
    if document["interval_seconds"] > COARSE_SECONDS:
        return "Not predictable: a sample every 3 hours or more often is needed to see the course of a day."
    if error is None or flat is None:
        return "Not predictable: there are too few whole days to try it on days that it has not seen."
    both = (
        f"on days of its past that it had not seen its error is {plain_number(error)}, "
        f"that of a flat line {plain_number(flat)}"
    )
    if document["predictable"]:
        return f"Predictable: {both}."
    return f"Not predictable: {both}, and at least 20 % less is asked for."

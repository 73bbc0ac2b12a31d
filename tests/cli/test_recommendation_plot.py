"""`--plot` of `recommendation plan` and `forecast`: a picture in a file, and the same answer as without."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs

from equipoise.cli.recommendation_plot import draw_advice, draw_forecast
from equipoise.core.errors import BadInput, WorldFailed
from equipoise.recommendation.forecast import WorkloadSeries, backtested, forecast_document
from equipoise.recommendation.observe import Observation
from equipoise.recommendation.settings import AdviceType, read_policy
from equipoise.stats.predict import Algorithm
from equipoise.stats.ranks import Floats
from tests.support.cli.running import equipoise
from tests.support.recommendation.worlds import decisions

EXAMPLE = str(Path(__file__).parents[2] / "examples" / "03-recommendation-usage.csv")
USUAL = ("--from", EXAMPLE, "--request", "1000m", "--replicas", "12")
POLICY = read_policy({"ehpa.time-zone": "Europe/Berlin"}, "test")
STEP = 900.0
WEEK = 7 * 96


def _seen(history: Floats, request: float = 1.0) -> Observation:
    count = len(history)
    return Observation(
        subjects=[f"shop/w{number}" for number in range(count)],
        kinds=["Deployment"] * count,
        replicas=np.full(count, 12),
        pods=np.full(count, 12),
        available=np.full(count, 12),
        request_cores=np.full(count, request),
        history=history,
        interval_seconds=STEP,
        at=1_773_000_000.0,
    )


def _waves(count: int) -> Floats:
    one = 10 + 6 * np.sin(np.arange(WEEK) / 96 * 2 * np.pi)
    return np.asarray(one * np.linspace(0.05, 1, count)[::-1, None])


def _rows(seen: Observation) -> list[Observation]:
    return [seen.rows(slice(row, row + 1)) for row in range(len(seen.subjects))]


def _drawn(seen: Observation, path: Path, algorithm: Algorithm | None = Algorithm.PROFILE) -> str:
    draw_advice(POLICY, _rows(seen), decisions(POLICY, seen, algorithm), algorithm, str(path))
    return path.read_text()


@pytest.mark.parametrize(("suffix", "begins"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_plan_is_drawn(tmp_path: Path, suffix: str, begins: bytes) -> None:
    """Vectors or points; standard output stays what it is."""
    path = tmp_path / f"plot.{suffix}"
    done = equipoise("recommendation", "plan", *USUAL, "--plot", str(path), "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    assert path.read_bytes().startswith(begins)
    assert json.loads(done.stdout)["balancer"] == "recommendation"


def test_a_forecast_is_drawn(tmp_path: Path) -> None:
    """With what came of it, where the end was held out; a name is no formula, and no font has to have it."""
    path, name = tmp_path / "forecast.svg", r"a$\frac$b日"
    options = ("--backtest", "1d", "--plot", str(path), "-o", "json")
    done = equipoise("forecast", name, "--from", EXAMPLE, *options)
    assert (done.returncode, done.stderr) == (0, "")
    assert "<!-- held out -->" in path.read_text()
    assert f"<!-- {name} -->" in path.read_text()
    assert json.loads(done.stdout)["predictable"] is True


def test_the_same_picture_is_the_same_file(tmp_path: Path) -> None:
    """No date and no chance inside."""
    first, second = (_drawn(_seen(_waves(1)), tmp_path / name) for name in ("a.svg", "b.svg"))
    assert first == second
    assert "<dc:date>" not in first


def test_a_picture_says_what_it_shows(tmp_path: Path) -> None:
    """Units, days in the policy's zone, today and the advice, and why there is none."""
    text = _drawn(_seen(_waves(2)), tmp_path / "two.svg")
    for said in (
        "CPU usage",
        "95 % band",
        "today: 12 fixed",
        "advice, on the forecast",
        "shop/w0",
        "shop/w1",
        "no advice: LowUsage",
        "today's pods above their request",
        "days in Europe/Berlin",
        "replicas",
        "CPU cores",
        "now",
    ):
        assert f"<!-- {said} -->" in text
    assert re.search(r"<!-- advice: \d+ to \d+ at \d+ % -->", text)


def test_of_many_days_only_mondays_have_a_name(tmp_path: Path) -> None:
    """Five weeks of names would lie upon each other."""
    series = WorkloadSeries("usage.csv", _waves(1)[0], STEP, 1_773_000_000.0, "web")
    path = tmp_path / "weeks.svg"
    draw_forecast(series, forecast_document(series, 28 * 86400.0, Algorithm.PROFILE), str(path))
    names = re.findall(r"<!-- (\w{3}) \d+ \w{3} -->", path.read_text())
    assert names == ["Mon"] * 5


def test_without_a_forecast_only_the_past_is_drawn(tmp_path: Path) -> None:
    """Nothing is made up."""
    text = _drawn(_seen(_waves(1)), tmp_path / "past.svg", None)
    assert "forecast" not in text
    assert "<!-- now -->" not in text


@pytest.mark.parametrize("width", [0, 1, 5])
def test_little_or_nothing_can_be_drawn(tmp_path: Path, width: int) -> None:
    """Holes, one sample, no request: a picture all the same."""
    history = np.full((1, 40), np.nan)
    history[0, :width] = 20.0
    assert "no advice" in _drawn(_seen(history, np.nan), tmp_path / "little.svg")


def test_what_can_not_be_drawn_is_refused(tmp_path: Path) -> None:
    """Too many, none, requests instead of replicas, a place where nothing can be written."""
    for count in (0, 5):
        with pytest.raises(BadInput, match=f"--plot: expected 1 to 4 workloads, got {count}"):
            _drawn(_seen(_waves(5)[:count]), tmp_path / "many.svg")
    (tmp_path / "folder.svg").mkdir()
    series = WorkloadSeries("test", _waves(1)[0], STEP, 1_773_000_000.0)
    with pytest.raises(WorldFailed, match=r"folder.svg: Is a directory"):
        draw_forecast(series, backtested(series, 86400, Algorithm.PROFILE), str(tmp_path / "folder.svg"))
    done = equipoise("recommendation", "plan", *USUAL, "--type", AdviceType.RESOURCE.value, "--plot", "x.svg")
    assert done.stderr == "error: --plot: expected --type HPA, whose replicas can be drawn\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["recommendation", "plan", *USUAL, "--plot", "x.pdf"], "--plot x.pdf: expected a file that ends in"),
        (["forecast", "--from", EXAMPLE, "--plot", "no/x.svg"], "--plot no/x.svg: expected a folder that"),
        (["recommendation", "plan", "--plot", "no/x.svg"], "--plot no/x.svg: expected a folder that"),
    ],
)
def test_bad_places_get_one_line(arguments: list[str], message: str) -> None:
    """Before anything is read."""
    done = equipoise(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", done.stderr)
    assert message in done.stderr


def test_without_matplotlib_the_extra_is_named(tmp_path: Path) -> None:
    """And nothing is read in vain."""
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nreal = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'matplotlib' else real(name, *more)\n"
    )
    done = equipoise(
        "forecast", "--from", "no.csv", "--plot", "x.svg", environment={"PYTHONPATH": str(tmp_path)}
    )
    assert (done.returncode, done.stderr) == (
        2,
        "error: --plot: expected the extra plot to be installed: pip install 'equipoise[plot]'\n",
    )


def test_todays_hpa_is_drawn_beside_the_advice(tmp_path: Path) -> None:
    """Where the cluster has one; several nobody can tell apart, and one without a CPU target says nothing."""
    seen = _seen(_waves(1))
    (decision,) = decisions(POLICY, seen, None)
    hpa = {"name": "web", "minReplicas": 3, "maxReplicas": 9, "targetUtilization": 60}
    for hpas, words in (
        ([hpa], "today: 3 to 9 at 60 %"),
        ([hpa, hpa], "today: 12 fixed"),
        ([hpa | {"targetUtilization": None}], "today: 12 fixed"),
    ):
        current = {"replicas": 12, "hpas": hpas, "containers": []}
        with_today = structs.replace(decision, extra={**decision.extra, "current": current})
        draw_advice(POLICY, _rows(seen), [with_today], None, str(tmp_path / "x.svg"))
        assert f"<!-- {words} -->" in (tmp_path / "x.svg").read_text()

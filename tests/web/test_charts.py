"""The pictures' common parts: what a line across stands for can be seen, and nothing is counted by halves."""

import pytest

from equipoise.dashboard.charts import Bar, Level, Line, bars, by_name, over_time


@pytest.mark.parametrize(
    ("values", "level", "top"),
    [
        ([0.4, 0.7], 1.05, 1.2),
        ([58.0], 100.0, 120),
        ([0.0], 1000.0, 1200),
        ([None], 0.93, 1.2),
        ([1.4, 0.7], 1.05, None),
        ([-3.0, None], 0.0, None),
        ([2.0], None, None),
    ],
)
def test_a_picture_goes_up_to_its_lines(
    values: list[float | None], level: float | None, top: float | None
) -> None:
    """Also where all that is measured is far below them; elsewhere the browser finds the height by itself."""
    levels = [Level("line", level, "limit"), Level("far", 9e9, "limit", is_reached=False)]
    names = [str(place) for place in range(len(values))]
    row = [Bar(name, value) for name, value in zip(names, values, strict=True)]
    drawn = [
        by_name("cores", names, [bars("usage", "actual", row, levels=levels[:1])]),
        over_time("cores", [Line("usage", "actual", list(enumerate(values)))], levels),
    ]
    assert [options["yAxis"][0].get("max") for options in drawn] == [top, top]


def test_what_is_on_the_axis_at_the_right_does_not_lift_the_one_at_the_left() -> None:
    """Each has its own scale."""
    lines = [Line("usage", "actual", [(0.0, 1.0)]), Line("input", "muted", [(0.0, 500.0)], on_right=True)]
    assert over_time("cores", lines, [Level("line", 2.0, "limit")])["yAxis"][0]["max"] == 2.5


def test_pods_and_decisions_are_not_counted_by_halves() -> None:
    """There are no ticks between whole numbers of them; cores have such."""
    for unit, least in (("decisions", 1), ("pods", 1), ("replicas", 1), ("cores", None)):
        drawn = [by_name(unit, [], [bars("all", "actual", [])]), over_time(unit, [])]
        assert [options["yAxis"][0].get("minInterval") for options in drawn] == [least, least]

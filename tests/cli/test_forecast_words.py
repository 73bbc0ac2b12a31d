"""What `equipoise forecast` says beside its numbers."""

import json
import math
from pathlib import Path

import pytest

from tests.support.cli.running import equipoise


@pytest.mark.parametrize(("days", "has_note"), [(8, True), (9, False)])
def test_a_quiet_weekend_is_told_to_be_forecast_high_while_weekdays_are_not_known(
    days: int, has_note: bool
) -> None:
    """The last two of seven days use half; the note goes when last week again is there to be repeated."""
    is_busy = [(day - days) % 7 < 5 for day in range(days)]
    course = [10 + 4 * math.sin(hour * math.pi / 12) for hour in range(24)]
    used = [cores if busy else cores / 2 for busy in is_busy for cores in course]
    text = "timestamp,value\n" + "".join(f"{3600 * hour},{cores}\n" for hour, cores in enumerate(used))
    words = ("forecast", "--from", "-", "--horizon", "7d")
    document = json.loads(equipoise(*words, "-o", "json", stdin=text).stdout)
    friday, saturday = (sum(document["values"][24 * day :][:24]) for day in (4, 5))
    assert (saturday > 0.9 * friday) is has_note
    note = (
        f"The history has {days} days, and weekdays can be told apart from 9 on: quieter days, such as a "
        "weekend, may be forecast as high as the others."
    )
    assert document["notes"] == [note] * has_note
    shown = " ".join(equipoise(*words, stdin=text).stdout.split())
    assert shown.endswith(note) is has_note


def test_days_of_which_nothing_is_known_do_not_count(tmp_path: Path) -> None:
    """Rows without a number before the first known week tell no weekday apart."""
    file = tmp_path / "usage.csv"
    hours = [10 + 4 * math.sin(hour * math.pi / 12) for hour in range(24 * 7)]
    known = [f"{3600 * (hour + 24 * 7)},{cores}\n" for hour, cores in enumerate(hours)]
    unknown = [f"{3600 * hour},\n" for hour in range(24 * 7)]
    file.write_text("".join(["timestamp,value\n", *unknown, *known]))
    document = json.loads(equipoise("forecast", "--from", str(file), "-o", "json").stdout)
    assert [note[:24] for note in document["notes"]] == ["The history has 7 days, "]


@pytest.mark.parametrize("word", ["web", "deploy/web", "sts/web", "shop/web"])
def test_a_workload_is_named_as_kubectl_names_it(tmp_path: Path, word: str) -> None:
    """A file tells no kinds, so any is right; a namespace that it has is a namespace."""
    file = tmp_path / "many.csv"
    rows = [f"{60 * n},shop,{name},p-{name},1\n" for n in range(60) for name in ("web", "api")]
    file.write_text("".join(["timestamp,namespace,workload,pod,value\n", *rows]))
    done = equipoise("forecast", word, "--from", str(file), "--horizon", "1h", "-o", "json")
    assert (done.returncode, done.stderr) == (0, "")
    nobody = equipoise("forecast", "deploy/", "--from", str(file))
    wanted = "expected NAME, KIND/NAME or NAMESPACE/NAME, such as web or deploy/web"
    assert (nobody.returncode, nobody.stderr) == (2, f"error: workload 'deploy/': {wanted}\n")


def test_a_hint_names_only_options_that_the_command_has(tmp_path: Path) -> None:
    """A forecast has no --pod-usage."""
    file = tmp_path / "pods.csv"
    file.write_text("timestamp,pod,value\n0,a,1\n")
    problem = f"error: {file}: line 1: expected a column workload beside pod"
    assert equipoise("forecast", "--from", str(file)).stderr == f"{problem}\n"
    planned = equipoise("recommendation", "plan", "--from", str(file)).stderr
    assert planned == f"{problem}, or the file as --pod-usage\n"


def test_a_step_that_is_too_coarse_is_named(tmp_path: Path) -> None:
    """Twenty whole days are not too few; with a value every four hours a day has no course."""
    file = tmp_path / "usage.csv"
    rows = [f"{14400 * n},{10 + 5 * math.sin(n * math.pi / 3)}\n" for n in range(20 * 6)]
    file.write_text("".join(["timestamp,value\n", *rows]))
    shown = " ".join(equipoise("forecast", "--from", str(file)).stdout.split())
    assert shown.endswith(
        "Not predictable: a sample every 3 hours or more often is needed to see the course of a day."
    )


@pytest.mark.parametrize(("times", "has_note"), [(3.0, True), (1.2, False)])
def test_a_last_day_that_is_far_from_the_forecast_is_told(
    tmp_path: Path, times: float, has_note: bool
) -> None:
    """It may be an exception, or the first day of a new habit."""
    file = tmp_path / "usage.csv"
    used = [10 + 5 * math.sin(hour * math.pi / 12) for hour in range(24 * 14)]
    used[-24:] = [cores * times for cores in used[-24:]]
    file.write_text(
        "timestamp,value\n" + "".join(f"{3600 * hour},{cores}\n" for hour, cores in enumerate(used))
    )
    words = ("forecast", "--from", str(file), "-o", "json")
    document = json.loads(equipoise(*words).stdout)
    assert document["predictable"]
    hour = json.loads(equipoise(*words, "--horizon", "1h").stdout)
    assert len(hour["notes"]) == has_note, "the same hour of the last day is what counts"
    assert [note.startswith("The last day used 30 cores on average") for note in document["notes"]] == [
        True
    ] * has_note


def test_the_table_says_when(tmp_path: Path) -> None:
    """From when to when, and when most is used; at a constant level there is no such moment."""
    file = tmp_path / "usage.csv"
    used = [10 + 5 * math.sin(hour * math.pi / 12) for hour in range(24 * 8)]
    file.write_text(
        "timestamp,value\n" + "".join(f"{3600 * hour},{cores}\n" for hour, cores in enumerate(used))
    )
    shown = equipoise("forecast", "--from", str(file)).stdout
    assert "1970-01-09 00:00 to 1970-01-09 23:00 UTC" in shown
    assert "cores, highest 01-09 06:00" in shown
    file.write_text("timestamp,value\n" + "".join(f"{3600 * hour},7\n" for hour in range(24 * 8)))
    constant = [line.split() for line in equipoise("forecast", "--from", str(file)).stdout.splitlines()]
    assert ["forecast", "7", "cores"] in constant

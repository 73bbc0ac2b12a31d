"""When a new target is followed, and when it is not."""

import json
from itertools import pairwise
from typing import Any

import pytest

from equipoise.core.reason import Code
from equipoise.proportional.decide import assess
from equipoise.proportional.functions import CompiledPolicy
from equipoise.proportional.policy import UpdateMode
from equipoise.proportional.smoothing import (
    Percentile,
    ProportionalMemory,
    SmoothingInput,
    by_percentile,
    value_at,
)
from tests.support.proportional.policies import CPU, applied, policy, run

TEN = {"input": "cores", "slope": "10m"}
SHIFT = {"delayScaleDown": {"inputs": {"cores": 20}}}


def _codes(steps: list[Any]) -> list[Code]:
    return [taken.code for taken in steps]


def test_the_seeds_story_of_100_90_95_and_75_cores() -> None:
    """1000m stays through 90 and 95 cores, and becomes 750m at 75."""
    steps = run(policy(TEN, smoothing=SHIFT), [100, 90, 95, 75], current=1000)
    assert applied(steps) == [1000, 1000, 1000, 750]
    assert _codes(steps) == [Code.UNCHANGED, Code.HELD_BY_HYSTERESIS, Code.HELD_BY_HYSTERESIS, Code.SET]
    assert [taken.smoothed[CPU].high for taken in steps] == [1200, 1100, 1150, 950]


@pytest.mark.parametrize(("cores", "value"), [(80, 1000), (79.99, 1000), (79.9, 799), (79, 790)])
def test_a_scale_down_needs_more_than_the_shift(cores: float, value: int) -> None:
    """Exactly 20 cores less is not more; and values are compared as they would be written, in millicores."""
    assert applied(run(policy(TEN, smoothing=SHIFT), [cores], current=1000)) == [value]


def test_scaling_up_is_never_delayed_unless_asked() -> None:
    """The seed's words."""
    assert applied(run(policy(TEN, smoothing=SHIFT), [100.1, 130], current=1000)) == [1001, 1300]


def test_the_shift_is_added_before_segments_and_levels() -> None:
    """The whole policy is asked again for the larger cluster."""
    asked = policy(
        TEN | {"segments": [{"at": 0, "every": 50}]},
        smoothing=SHIFT,
        quantization={"resource": "cpu", "base": "300m"},
    )
    (taken,) = run(asked, [85], current=2000)
    assert (taken.targets[CPU], taken.smoothed[CPU].high, taken.code) == (1200, 1500, Code.SET)


def test_without_anything_in_force_the_target_is_set_at_once() -> None:
    """There is nothing to flap from."""
    steps = run(policy(TEN, smoothing=SHIFT), [90, 85])
    assert applied(steps) == [900, 900]
    assert _codes(steps) == [Code.SET, Code.HELD_BY_HYSTERESIS]


def test_a_lower_target_is_followed_once_it_has_lasted() -> None:
    """The time decay that the seed found missing: 1000m at 90 cores does not stay for ever."""
    smoothing = {"delayScaleDown": {"inputs": {"cores": 20}, "delaySeconds": 60}}
    steps = run(policy(TEN, smoothing=smoothing), [100, 95, 90, 95, *[90] * 6, 88], current=1000)
    assert applied(steps)[:7] == [1000] * 7
    assert applied(steps)[7:] == [950, 950, 950, 900]
    assert _codes(steps)[7:] == [Code.SET, Code.HELD_BY_HYSTERESIS, Code.HELD_BY_HYSTERESIS, Code.SET]


def test_the_delay_counts_from_the_first_target_ever_seen() -> None:
    """Before targets have been seen that long, nobody knows what the highest was."""
    smoothing = {"delayScaleDown": {"delaySeconds": 30}}
    steps = run(policy(TEN, smoothing=smoothing), [90] * 5, current=1000)
    assert applied(steps) == [1000, 1000, 1000, 900, 900]


def test_a_delay_without_inputs_follows_the_highest_of_its_time() -> None:
    """Up at once, down to the highest of the last 20 seconds."""
    smoothing = {"delayScaleDown": {"delaySeconds": 20}}
    steps = run(policy(TEN, smoothing=smoothing), [50, 80, 40, 60, 30, 30, 30, 30], current=500)
    assert applied(steps) == [500, 800, 800, 800, 600, 600, 300, 300]


def test_delay_scale_up_is_the_mirror() -> None:
    """Up only when far enough or long enough; down at once."""
    smoothing = {"delayScaleUp": {"inputs": {"cores": 20}, "delaySeconds": 30}}
    asked = policy(TEN, smoothing=smoothing)
    assert applied(run(asked, [119, 120, 121, 90], current=1000)) == [1000, 1000, 1210, 900]
    assert applied(run(asked, [110, 118, 105, 110, 110, 110, 110], current=1000)) == [
        *(1000, 1000, 1000),
        *(1050, 1050, 1050, 1100),
    ]
    assert applied(run(asked, [10, 15], current=100)) == [100, 100]


def test_both_delays_make_a_band() -> None:
    """What is inside of it stays."""
    smoothing = {"delayScaleUp": {"inputs": {"cores": 10}}, "delayScaleDown": {"inputs": {"cores": 20}}}
    steps = run(policy(TEN, smoothing=smoothing), [109, 81, 110, 80, 111, 90], current=1000)
    assert applied(steps) == [1000, 1000, 1000, 1000, 1110, 900]


@pytest.mark.parametrize(
    ("targets", "current", "code", "value"),
    [
        ([1000] * 12 + [1100] * 8, 1000, Code.SET, 1100),  # 8 of 20 bigger: up
        ([1000] * 13 + [1100] * 7, 1000, Code.HELD_BY_PERCENTILE, 1000),  # 7 of 20 are not enough
        ([900] * 19 + [1000], 1000, Code.UNCHANGED, 1000),  # 1 of 20 equal blocks the way down
        ([1000] + [900] * 19, 1000, Code.HELD_BY_PERCENTILE, 1000),
        ([1100] + [900] * 19, 1000, Code.HELD_BY_PERCENTILE, 1000),  # 1 of 20 bigger, too
        ([999] + [900] * 19, 1000, Code.SET, 900),
        ([900] * 10 + [950] * 10, 1000, Code.SET, 950),
        ([1000] * 20, 1000, Code.UNCHANGED, 1000),
        ([1000] * 20, None, Code.SET, 1000),
        ([1, 2], 5, Code.WARMING_UP, 5),
        ([1, 2], None, Code.WARMING_UP, None),
        ([1, 2, 3], None, Code.SET, 3),
    ],
)
def test_the_seeds_statements_about_80_60_and_95(
    targets: list[int], current: int | None, code: Code, value: int | None
) -> None:
    """8 of every 20 bigger scale up; 1 of every 20 bigger or equal keeps it from scaling down."""
    window = tuple((number, value) for number, value in enumerate(targets))
    judged = by_percentile(Percentile(), SmoothingInput(0, targets[-1], current, window))
    assert (judged.code, judged.applied) == (code, value)


def test_the_index_is_cut_off_and_never_past_the_end() -> None:
    """trunc(n x share), exactly: 0.29 of 100 is 29, whatever floats make of it."""
    values = list(range(100))
    assert [value_at(values, share) for share in (0, 0.29, 0.57, 0.8, 0.95, 1)] == [0, 29, 57, 80, 95, 99]
    assert [value_at([1, 2, 3], share) for share in (0.33, 0.34, 0.66, 0.67)] == [1, 2, 2, 3]


def test_targets_leave_the_window_by_age() -> None:
    """Younger than windowSeconds: at one look each 10 s, 30 of them."""
    asked = policy(TEN, smoothing={"percentile": {}})
    steps = run(asked, [100] * 40)
    assert [len(taken.memory.windows[CPU]) for taken in steps[28:32]] == [29, 30, 30, 30]
    assert _codes(steps)[:4] == [Code.WARMING_UP, Code.WARMING_UP, Code.SET, Code.UNCHANGED]


def test_a_step_up_is_followed_after_twelve_of_thirty_looks() -> None:
    """Percentile delays the way up as well: by 120 s; and the way down by all but one target."""
    asked = policy(TEN, smoothing={"percentile": {}})
    up = applied(run(asked, [100] * 30 + [200] * 30, current=1000))
    assert (up.index(2000) - 30, up[-1]) == (11, 2000)
    down = applied(run(asked, [100] * 30 + [50] * 40, current=1000))
    assert down.index(500) - 30 == 28


def test_a_rolling_update_of_all_nodes_changes_nothing() -> None:
    """One node after the other is away for 20 s; without smoothing each costs two changes."""
    walk = [100] * 30 + [96, 96, 100, 100, 100] * 25
    smooth = applied(run(policy(TEN, smoothing={"percentile": {}}), walk, current=1000))
    assert set(smooth) == {1000}
    bare = applied(run(policy(TEN), walk, current=1000))
    assert sum(a != b for a, b in pairwise(bare)) == 50


def test_a_policy_edit_empties_the_window_and_keeps_the_last_change() -> None:
    """Old targets say nothing about a new rule; any edit is one."""
    before = run(policy(TEN, smoothing={"percentile": {}}), [100] * 5)[-1].memory
    edited = CompiledPolicy.of(policy(TEN | {"base": "5m"}, smoothing={"percentile": {}}))
    taken = assess(edited, 60_000, {"cores": 10**11}, {CPU: 1000}, before)
    assert (taken.code, len(taken.memory.windows[CPU])) == (Code.WARMING_UP, 1)
    assert taken.memory.changes == before.changes
    rolled = policy(TEN, smoothing={"percentile": {}}).model_copy(update={"update_mode": UpdateMode.ROLLOUT})
    assert (
        len(assess(CompiledPolicy.of(rolled), 60_000, {"cores": 10**11}, {}, before).memory.windows[CPU]) == 1
    )


def test_memory_survives_json() -> None:
    """What comes back decides the same."""
    smoothing = {"delayScaleDown": {"delaySeconds": 60}, "delayScaleUp": {"delaySeconds": 30}}
    every: list[dict[str, Any]] = [{"percentile": {}}, smoothing]
    for wanted in every:
        asked = policy(TEN, smoothing=wanted)
        memory = run(asked, [100, 120, 90, 95])[-1].memory
        again = ProportionalMemory.from_data(json.loads(json.dumps(memory.to_data())))
        assert again == memory
        taken = [
            assess(CompiledPolicy.of(asked), 50_000, {"cores": 10**10}, {CPU: 1000}, one)
            for one in (memory, again)
        ]
        assert taken[0] == taken[1]


def test_the_memory_of_a_long_delay_stays_small() -> None:
    """Only what can still be the highest or the lowest is kept."""
    smoothing = {"delayScaleDown": {"delaySeconds": 86400}, "delayScaleUp": {"delaySeconds": 86400}}
    steps = run(policy(TEN, smoothing=smoothing), [100 + number % 7 for number in range(500)], current=1000)
    assert len(steps[-1].memory.windows[CPU]) <= 14


def test_a_second_look_at_the_same_moment_counts_once() -> None:
    """A cycle that is repeated after a crash fills no window."""
    asked = CompiledPolicy.of(policy(TEN, smoothing={"percentile": {}}))
    memory = ProportionalMemory()
    for _ in range(5):
        memory = assess(asked, 1000, {"cores": 10**10}, {}, memory).memory
    assert len(memory.windows[CPU]) == 1

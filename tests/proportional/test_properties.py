"""What holds for every cluster and every policy, not only for those somebody thought of."""

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from equipoise.core.quantity import NANO
from equipoise.core.reason import Code
from equipoise.proportional.decide import assess
from equipoise.proportional.functions import CompiledPolicy
from equipoise.proportional.policy import ScalingPolicySpec
from tests.support.proportional.policies import CPU, applied, policy, run

_INPUTS = st.fixed_dictionaries({"cores": st.integers(0, 60)})
_DELAYS = st.fixed_dictionaries(
    {}, optional={"inputs": _INPUTS, "delaySeconds": st.sampled_from([10, 60, 300])}
).filter(bool)
_SHARES = st.lists(st.sampled_from([0, 0.1, 0.5, 0.6, 0.8, 0.95, 1]), min_size=3, max_size=3).map(sorted)
_PERCENTILES = st.builds(
    lambda shares, seconds: {
        "percentile": {
            "lowThreshold": shares[0],
            "target": shares[1],
            "highThreshold": shares[2],
            "windowSeconds": seconds,
        }
    },
    _SHARES,
    st.sampled_from([35, 100, 300]),
)
_SMOOTHINGS: st.SearchStrategy[dict[str, Any]] = (
    st.just({})
    | _PERCENTILES
    | st.fixed_dictionaries({}, optional={"delayScaleDown": _DELAYS, "delayScaleUp": _DELAYS})
)
_LEVELS = st.none() | st.sampled_from(
    [
        {"resource": "cpu", "base": "100m"},
        {"resource": "cpu", "step": "10m", "stepRatio": 1.7, "maxStep": "300m"},
        {"resource": "cpu", "segments": [{"at": 0, "every": "50m"}, {"at": 1, "every": "250m"}]},
    ]
)
_SEGMENTS = st.sampled_from([[], [{"at": 0, "every": 1}, {"at": 16, "every": 4}], [{"at": 10, "every": 10}]])


def _policies(smoothings: st.SearchStrategy[Any] = _SMOOTHINGS) -> st.SearchStrategy[ScalingPolicySpec]:
    return st.builds(
        lambda base, slope, segments, levels, smoothing: policy(
            {"input": "cores", "base": f"{base}m", "slope": f"{slope}m", "segments": segments},
            min="150m",
            max="1500m",
            quantization=levels,
            smoothing=smoothing,
        ),
        st.integers(-100, 500),
        st.integers(-5, 30),
        _SEGMENTS,
        _LEVELS,
        smoothings,
    )


_WALKS = st.lists(st.integers(0, 120), min_size=1, max_size=45)
_CURRENT = st.none() | st.integers(0, 3000)
_LASTING = _PERCENTILES | st.fixed_dictionaries(
    {},
    optional={
        "delayScaleDown": st.fixed_dictionaries(
            {"delaySeconds": st.sampled_from([10, 60, 300])}, optional={"inputs": _INPUTS}
        ),
        "delayScaleUp": st.fixed_dictionaries(
            {"delaySeconds": st.sampled_from([10, 60, 300])}, optional={"inputs": _INPUTS}
        ),
    },
)


@settings(deadline=None, max_examples=40)
@given(_policies(_LASTING), _WALKS, _CURRENT, st.integers(0, 120))
def test_a_constant_input_is_followed_in_the_end(
    asked: ScalingPolicySpec, walk: list[int], current: int | None, cores: int
) -> None:
    """Whatever came before: percentile, or delays with delaySeconds."""
    steps = run(asked, walk + [cores] * 35, current)
    assert applied(steps)[-1] == steps[-1].targets[CPU]
    assert steps[-1].code is Code.UNCHANGED


@settings(deadline=None, max_examples=40)
@given(_policies(), _WALKS, _CURRENT)
def test_what_is_set_is_a_target_of_the_window_and_within_the_bounds(
    asked: ScalingPolicySpec, walk: list[int], current: int | None
) -> None:
    """Otherwise what is in force stays; nothing is invented."""
    seen: list[int] = []
    in_force = current
    for taken in run(asked, walk, current):
        seen.append(taken.targets[CPU])
        judged = taken.smoothed[CPU]
        if judged.code is Code.SET:
            window = [value for _, value in taken.memory.windows.get(CPU, ())]
            assert judged.applied in [*window, taken.targets[CPU]]
            assert judged.applied in seen
            assert 150 <= (judged.applied or 0) <= 1500
        else:
            assert judged.applied == in_force
        assert 150 <= taken.targets[CPU] <= 1500
        in_force = judged.applied


@settings(deadline=None, max_examples=40)
@given(_policies(), _WALKS, _CURRENT)
def test_deciding_again_at_once_changes_nothing(
    asked: ScalingPolicySpec, walk: list[int], current: int | None
) -> None:
    """With what was decided in force: the same value, the same memory, no second change."""
    last = run(asked, walk, current)[-1]
    at = (len(walk) - 1) * 10_000
    again = assess(CompiledPolicy.of(asked), at, {"cores": walk[-1] * NANO}, last.applied, last.memory)
    assert again.applied == last.applied
    assert again.code is not Code.SET
    assert again.memory == last.memory


@settings(deadline=None, max_examples=40)
@given(_policies(), _WALKS)
def test_without_a_change_of_the_target_nothing_is_changed_twice(
    asked: ScalingPolicySpec, walk: list[int]
) -> None:
    """A reason to set is always a difference."""
    steps = run(asked, walk)
    for before, after in pairwise(steps):
        if after.code is Code.SET:
            assert before.applied != after.applied

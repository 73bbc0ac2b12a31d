"""The picture of advice: small, true to the hour, and of no weight in any decision."""

import msgspec
import numpy as np
import pytest

from equipoise.cli.replay import compare
from equipoise.core.decision import Record
from equipoise.recommendation.decide import decide
from equipoise.recommendation.explain import record
from equipoise.recommendation.forecast import HOURS_AHEAD, HOURS_PAST, hourly_usages
from equipoise.recommendation.observe import Observation
from equipoise.recommendation.settings import AdviceRequest, RecommendationPolicy
from equipoise.stats.predict import Algorithm, predict

AT = 1_789_603_200.0
MINUTES = 7 * 24 * 60
BYTES_MAX = 2000


def _seen(count: int = 1) -> Observation:
    """Days with a hill in them, large enough for advice."""
    minutes = np.arange(MINUTES)
    course = 6 + 4 * np.sin(minutes * 2 * np.pi / 1440)
    noise = np.random.default_rng(4).gamma(100, 0.01, (count, MINUTES))
    return Observation(
        subjects=[f"shop/web-{number}" for number in range(count)],
        kinds=["Deployment"] * count,
        replicas=np.full(count, 4),
        pods=np.full(count, 4),
        available=np.full(count, 4),
        request_cores=np.full(count, 2.0),
        history=course * noise,
        interval_seconds=60.0,
        at=AT,
    )


def _made(seen: Observation) -> Record:
    question = AdviceRequest(RecommendationPolicy())
    ((decision, _, facts), *_) = decide(question, seen, has_hours=True)
    assert decision.reason.code == "Recommend", decision.reason.sentence
    return record(question, facts, decision, AT, "id")


def test_a_picture_has_the_means_of_hours_and_the_forecast_of_a_day_with_its_band() -> None:
    """To three digits of the peak."""
    seen = _seen()
    picture = _made(seen).observation["picture"]
    used, ahead, upper = (np.array(picture[key]) for key in ("used_cores", "forecast_cores", "upper_cores"))
    assert (len(used), len(ahead), len(upper)) == (HOURS_PAST, HOURS_AHEAD, HOURS_AHEAD)
    assert used == pytest.approx(seen.history[0].reshape(-1, 60).mean(axis=1), abs=0.05)
    future = predict(seen.history, 60.0, 7 * 86400, algorithm=Algorithm.PROFILE, has_band=True)
    assert ahead == pytest.approx(future.values[0, :1440].reshape(-1, 60).mean(axis=1), abs=0.05)
    assert (upper >= ahead).all()
    assert (picture["until"], picture["step_seconds"]) == (AT, 3600.0)


def test_a_picture_decides_nothing() -> None:
    """A record decides to the same without it, and with another one."""
    made = _made(_seen())
    assert compare(made) is None
    for other in (None, {"until": 0, "step_seconds": 1, "used_cores": [1.0, None]}):
        changed = msgspec.structs.replace(
            made, observation=made.observation | {"picture": other}, inputs_hash=""
        )
        assert compare(changed) is None
    older = {name: part for name, part in made.observation.items() if name != "picture"}
    assert compare(msgspec.structs.replace(made, observation=older, inputs_hash="")) is None


def test_a_picture_is_small_and_only_where_there_is_advice() -> None:
    """A batch of twenty thousand fits into a journal."""
    made = _made(_seen())
    assert len(msgspec.json.encode(made.observation["picture"])) < BYTES_MAX
    seen = _seen()
    idle = [
        facts.hourly_usage
        for *_, facts in decide(AdviceRequest(RecommendationPolicy()), _scaled(seen, 1e-6), has_hours=True)
    ]
    assert idle == [None]


def _scaled(seen: Observation, factor: float) -> Observation:
    from dataclasses import replace

    return replace(seen, history=seen.history * factor)


@pytest.mark.parametrize(
    ("interval", "samples"), [(60.0, 90), (7200.0, 40), (15.0, 240), (1.0, 3), (60.0, 0)]
)
def test_any_step_and_any_length_can_be_drawn(interval: float, samples: int) -> None:
    """A step is an hour where samples are closer, else a sample; holes stay holes."""
    history = np.full((2, samples), 2.5)
    history[1] = np.nan
    made = hourly_usages(history, interval, AT, None)
    known, unknown = made.of(0), made.of(1)
    step = max(1, round(3600 / interval)) * interval
    assert known.step_seconds == step
    assert known.used_cores == [2.5] * (samples // max(1, round(3600 / interval)))
    assert set(unknown.used_cores) <= {None}
    assert (known.forecast_cores, known.upper_cores) == ([], [])

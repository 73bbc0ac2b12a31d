"""A forecast by the seed's signal processing, in the shape that the profile's has."""

import numpy as np

from equipoise.stats.arrays import Floats, chunks
from equipoise.stats.band import FLAT_BAND, rise
from equipoise.stats.dsp import WEEK, waves
from equipoise.stats.forecast import CHUNK_SAMPLES, CLEARLY, Forecast, Model, joined
from equipoise.stats.loss import flat_lines
from equipoise.stats.ranks import percentiles


def dsp_forecast(days: Floats, horizon_days: int, *, step_seconds: float, has_band: bool = False) -> Forecast:
    """Forecast (series, day, sample); a series without a period gets the flat line."""
    flattened = days.reshape(len(days), -1)
    return joined(
        [
            _forecast(days[part], horizon_days, step_seconds, has_band=has_band)
            for part in chunks(flattened, CHUNK_SAMPLES)
        ]
    )


def _forecast(days: Floats, horizon_days: int, step_seconds: float, *, has_band: bool) -> Forecast:
    series, _, samples = days.shape
    flattened = days.reshape(series, -1)
    made = waves(flattened, samples, step_seconds)
    is_wave = made.period > 0
    lately = flattened[:, -WEEK * samples :]
    cycles = np.tile(made.cycle, (1, -(-horizon_days // WEEK)))[:, : horizon_days * samples]
    values = np.where(is_wave[:, None], cycles, flat_lines(lately)[:, None]).astype(np.float32)
    upper = values[:, :0]
    if has_band:
        risen = np.tile(rise(made.ratios.reshape(series, WEEK, samples)), (1, horizon_days))
        flat_upper = np.maximum(values, percentiles(lately, (FLAT_BAND,)))
        upper = np.where(is_wave[:, None], values * risen, flat_upper).astype(np.float32)
    return Forecast(
        values=values,
        upper=upper,
        margin=made.margin,
        model=np.where(is_wave, Model.DSP, Model.FLAT).astype(np.intp),
        period_days=made.period // samples,
        is_predictable=is_wave & (made.error <= CLEARLY * made.baseline_error),
        error=np.where(is_wave, made.error, made.baseline_error),
        baseline_error=made.baseline_error,
    )

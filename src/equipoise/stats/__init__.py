"""Percentiles, periods and forecasts on batches of series. Pure: arrays in, arrays out."""

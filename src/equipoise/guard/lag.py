"""Is the consumer group keeping up? A rotation stops consumption, so a lagging group is left alone."""

from equipoise.model.reason import Code, Reason


def held_by_lag(lag: float | None, threshold: float, query: str = "?") -> Reason | None:
    """Hold at or above the threshold, and while the lag is unknown."""
    if lag is None:
        why = "its query has no answer" if query else "no query says how to read it (kafkaLag.query)"
        return Reason(
            Code.HELD_BY_LAG,
            f"The Kafka consumer lag is unknown, since {why}; a rotation would stop consumption.",
            {"kafka_lag": None, "kafka_lag_threshold": threshold},
        )
    if lag >= threshold:
        return Reason(
            Code.HELD_BY_LAG,
            f"The Kafka consumer lag is {lag:g}, and rotation waits until it is below {threshold:g}.",
            {"kafka_lag": lag, "kafka_lag_threshold": threshold},
        )
    return None

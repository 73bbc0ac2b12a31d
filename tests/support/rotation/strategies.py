"""Hypothesis strategies: policies and observations of a rotation."""

from hypothesis import strategies as st

from equipoise.core.cluster import HpaMetric
from equipoise.rotation.policy import RotationPolicy
from equipoise.rotation.preconditions import PodLoad
from tests.support.rotation.worlds import UTILIZATION_70, world

CORES = st.floats(0, 64, allow_nan=False).map(lambda cores: round(cores, 3))


PODS = st.lists(
    st.builds(
        PodLoad,
        name=st.integers(0, 999).map(lambda number: f"web-{number}"),
        cpu_cores=st.none() | CORES,
        request_cores=st.sampled_from([0.25, 0.5, 1.0, 1.3]),
        is_ready=st.booleans() | st.just(True),
        age_seconds=st.none() | st.floats(0, 5000),
        has_restarted=st.sampled_from([False, False, False, True]),
    ),
    max_size=14,
    unique_by=lambda pod: pod.name,
)


POLICIES = st.builds(
    RotationPolicy,
    top_k=st.integers(1, 5),
    tolerance_multiplier=st.sampled_from([1.0, 1.2, 1.5]),
    improvement_percent_min=st.sampled_from([0, 10, 30]),
    replicas_min=st.integers(1, 4),
)


METRICS = st.sampled_from([UTILIZATION_70, HpaMetric("Resource", "cpu", "AverageValue", 0.7)])


WORLDS = st.builds(lambda pods, metric: world(*pods, metric=metric), PODS, METRICS)

"""Conditions have the shape and the times that Kubernetes' own have; a lost race is no error."""

from collections.abc import Mapping
from typing import Any

import pytest

from equipoise.core.cluster import ObjectRef
from equipoise.core.errors import WorldFailed
from equipoise.engine.policies import (
    StatusWrite,
    condition,
    condition_of,
    has_condition,
    keep_transition_time,
    timestamp,
    write_status,
)
from equipoise.ports import PolicyObject, StoreConflict

POLICY = PolicyObject(ObjectRef("v1", "RotationPolicy", "shop", "web"), 1, "7", {}, {})
READY = condition("Ready", "Accepted", "It is followed.", is_true=True, generation=2)
OLD = {"conditions": [keep_transition_time(READY, {}, "2026-01-01T00:00:00Z")]}


def test_a_time_is_printed_as_the_api_server_does() -> None:
    """To the second, in UTC."""
    assert timestamp(1_767_225_600.9) == "2026-01-01T00:00:00Z"


def test_a_condition_names_the_generation_only_where_there_is_one() -> None:
    """Some kinds have it on the status alone."""
    assert READY["observedGeneration"] == 2
    assert "observedGeneration" not in condition("Ready", "Accepted", "", is_true=True)


@pytest.mark.parametrize("status", [{}, {"conditions": None}, {"conditions": [7, {"type": "Applied"}]}])
def test_an_absent_condition_is_empty(status: Mapping[str, Any]) -> None:
    """Whatever else is there."""
    assert condition_of(status, "Ready") == {}


def test_the_time_of_a_condition_stays_until_its_status_changes() -> None:
    """Another reason alone is no transition."""
    other = condition("Ready", "Conflicting", "Another is older.", is_true=True)
    assert keep_transition_time(other, OLD, "later")["lastTransitionTime"] == "2026-01-01T00:00:00Z"
    false = condition("Ready", "Conflicting", "Another is older.", is_true=False)
    assert keep_transition_time(false, OLD, "later")["lastTransitionTime"] == "later"


def test_a_condition_is_there_as_far_as_the_fields_asked_for_go() -> None:
    """The message counts only where it is asked for."""
    reworded = {**READY, "message": "Followed."}
    assert has_condition(OLD, reworded)
    assert not has_condition(OLD, reworded, ("status", "message"))
    assert not has_condition({}, READY)


def test_a_lost_race_is_no_error_and_a_failure_names_the_object() -> None:
    """Either way nothing was written."""

    def raising(error: Exception) -> StatusWrite:
        def write(policy: PolicyObject, status: Mapping[str, Any]) -> None:
            del policy, status
            raise error

        return write_status(write, POLICY, {})

    assert raising(StoreConflict("not at version 7")) == (False, "")
    failed = raising(WorldFailed("no answer"))
    assert failed == (False, "the status of RotationPolicy shop/web could not be written: no answer")
    assert write_status(lambda *_: None, POLICY, {}) == (True, "")

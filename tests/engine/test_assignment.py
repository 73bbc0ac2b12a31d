"""A policy that cannot be followed says why, and costs no other policy anything."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from equipoise.core.cluster import ObjectRef
from equipoise.core.errors import BadInput
from equipoise.engine.isolation import Isolation
from equipoise.engine.policies import RejectedPolicy, assign_each, parse_policy
from equipoise.ports import PolicyObject


class _Spec(BaseModel):
    share: float


def _policy(name: str, spec: Mapping[str, Any], unreadable: str = "") -> PolicyObject:
    ref = ObjectRef("v1", "RotationPolicy", "shop", name, name)
    return PolicyObject(ref, 1, "7", spec, {}, unreadable=unreadable)


def test_a_spec_is_parsed_or_rejected_with_the_path_of_the_field() -> None:
    """The object that cannot be read at all comes first."""
    assert parse_policy(_policy("a", {"share": 0.5}), _Spec.model_validate) == _Spec(share=0.5)
    rejected = parse_policy(_policy("a", {"share": "half"}), _Spec.model_validate)
    assert isinstance(rejected, RejectedPolicy)
    assert rejected.code == "InvalidSpec"
    assert rejected.sentence.startswith("spec.share: expected")
    unreadable = parse_policy(_policy("a", {"share": 0.5}, "too deep"), _Spec.model_validate)
    assert unreadable == ("Unreadable", "The object cannot be read: too deep")


def test_a_parser_may_word_the_whole_sentence_itself() -> None:
    """Where it knows more than the field."""

    def parse(spec: Mapping[str, Any]) -> _Spec:
        raise BadInput(f"spec: expected shares, got {len(spec)}")

    assert parse_policy(_policy("a", {}), parse) == ("InvalidSpec", "spec: expected shares, got 0")


def test_an_error_about_one_policy_rejects_that_one() -> None:
    """Whatever it is; the others keep their order."""

    def assign_one(policy: PolicyObject) -> float | RejectedPolicy:
        if policy.ref.name == "b":
            raise ZeroDivisionError
        if policy.ref.name == "c":
            return RejectedPolicy("NoWorkload", "there is none")
        return float(policy.spec["share"])

    isolation = Isolation()
    policies = [_policy(name, {"share": 0.5}) for name in "dabc"]
    found, rejected = assign_each(policies, assign_one, isolation)
    assert {ref.name: share for ref, share in found.items()} == {"d": 0.5, "a": 0.5}
    assert [ref.name for ref in found] == ["d", "a"]
    assert {ref.name: one.code for ref, one in rejected.items()} == {"b": "InternalError", "c": "NoWorkload"}
    assert [failed.subject for failed in isolation.failed] == ["RotationPolicy shop/b"]

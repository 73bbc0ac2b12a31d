"""The tiers' config: three shapes, and what is refused."""

import json
from typing import Any

import pytest

from equipoise.core.errors import BadInput
from equipoise.core.pools import PoolsSnapshot, TierKeys
from equipoise.pools.policy import (
    TierPolicy,
    apply_changes,
    config_document,
    read_changes,
    read_policy,
    tiers_to_empty,
)

GOLD = {"type": "exclusive", "target": 4}
BASIC = {"type": "shared", "target": 2, "max_concurrent": 7}


def _read(document: Any) -> TierPolicy:
    return read_policy(json.dumps(document), "voice:tier:config")


def test_the_three_shapes_are_read() -> None:
    """An envelope with a chain, the inner map alone, and bare numbers."""
    whole = _read({"tiers": {"gold": GOLD, "basic": BASIC}, "default_chain": ["basic", "gold"]})
    assert whole.chain == ("basic", "gold")
    assert whole.tiers["basic"].concurrent_max == 7
    assert whole.tiers["gold"].concurrent_max == 5
    inner = _read({"zinc": GOLD, "basic": BASIC, "gold": GOLD})
    assert inner.chain == ("gold", "zinc", "basic")
    assert inner.pods_targeted == 10
    bare = _read({"gold": 4, "basic": 2})
    assert bare.chain == ("basic", "gold")
    assert not bare.tiers["basic"].is_shared


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "missing; write it with `equipoise pools config set"),
        ("{", "expected JSON"),
        ('{"gold": 1, "gold": 2}', "the key 'gold' occurs twice"),
        ("[]", "expected a mapping of tiers"),
        ("{}", "expected at least one tier"),
        ('{"gold": "4"}', "gold: expected a mapping, got '4'"),
        ('{"gold": true}', "gold: expected a mapping, got True"),
        ('{"gold": -1}', "gold.target: expected greater than or equal to 0, got -1"),
        ('{"gold": {"target": 1}}', "gold.type: missing"),
        ('{"gold": {"type": "golden", "target": 1}}', "gold.type: expected 'exclusive' or 'shared'"),
        ('{"gold": {"type": "shared", "target": 1.5}}', "gold.target: expected a valid integer"),
        ('{"gold": {"type": "shared", "target": 1, "max": 1}}', "gold.max: unknown key"),
        ('{"gold": {"type": "shared", "target": 1, "max_concurrent": 0}}', "gold.max_concurrent: expected"),
        ('{"a:b": 1}', "a:b: expected letters, digits"),
        ('{"tiers": {"gold": {"type": "shared", "target": -1}}}', "tiers.gold.target: expected"),
        (
            '{"tiers": {"gold": {"type": "shared", "target": 1}}, "default_chain": ["gold", "silver"]}',
            "default_chain[1]: expected one of the tiers, got 'silver'",
        ),
        (
            '{"tiers": {"gold": {"type": "shared", "target": 1}}, "default_chain": ["gold", "gold"]}',
            "default_chain[1]: expected each tier once",
        ),
    ],
)
def test_a_bad_config_is_refused_with_the_path_of_the_field(text: str | None, message: str) -> None:
    """One clear message each."""
    with pytest.raises(BadInput) as refused:
        read_policy(text, "voice:tier:config")
    assert str(refused.value).startswith("voice:tier:config: ")
    assert message in str(refused.value)


def test_a_change_keeps_the_shape_and_the_tiers_it_does_not_name() -> None:
    """Whoever else reads the config still understands it."""
    settings = read_changes(["gold=6,basic=3"])
    envelope = {"tiers": {"gold": GOLD, "basic": BASIC}, "default_chain": ["gold", "basic"]}
    after = apply_changes(json.dumps(envelope), settings)
    assert after["tiers"] == {"gold": GOLD | {"target": 6}, "basic": BASIC | {"target": 3}}
    assert after["default_chain"] == ["gold", "basic"]
    assert apply_changes('{"gold": 1, "basic": 1, "zinc": 1}', settings) == {"gold": 6, "basic": 3, "zinc": 1}
    assert apply_changes(None, settings) == {"gold": 6, "basic": 3}


def test_a_new_tier_says_its_type_and_joins_the_chain() -> None:
    """A misspelt name is no new tier."""
    text = json.dumps({"tiers": {"gold": GOLD}, "default_chain": ["gold"]})
    after = apply_changes(text, read_changes(["economy=shared:2:9"]))
    assert after["tiers"]["economy"] == {"type": "shared", "target": 2, "max_concurrent": 9}
    assert after["default_chain"] == ["gold", "economy"]
    with pytest.raises(BadInput, match="glod: expected one of gold"):
        apply_changes(text, read_changes(["glod=4"]))
    assert apply_changes('{"gold": 4}', read_changes(["basic=shared:1"])) == {
        "gold": {"type": "exclusive", "target": 4},
        "basic": {"type": "shared", "target": 1},
    }


@pytest.mark.parametrize("words", ["", "gold", "gold=", "gold=-1", "gold=x", "gold=1,gold=2", "gold=odd:1"])
def test_settings_that_make_no_sense_are_refused(words: str) -> None:
    """Before anything is read or written."""
    with pytest.raises(BadInput, match="config set"):
        read_changes([words])


def test_tiers_that_go_or_change_their_type_must_be_empty() -> None:
    """Their pods would be stranded, and their keys of a wrong type."""
    old = _read({"gold": GOLD, "basic": BASIC, "zinc": GOLD})
    pools = (TierKeys("gold", "set", "set"), TierKeys("basic", "set", "zset"), TierKeys("zinc", "set", "set"))
    seen = PoolsSnapshot("voice", None, "", None, pools)
    assert tiers_to_empty(old, _read({"gold": GOLD, "basic": GOLD}), seen) == ["basic", "zinc"]
    assert tiers_to_empty(None, _read({"gold": 1, "basic": 1, "zinc": 1}), seen) == ["basic"]
    aside = _read({"tiers": {"gold": GOLD, "basic": BASIC, "zinc": GOLD}, "default_chain": ["gold", "basic"]})
    assert tiers_to_empty(old, aside, seen) == ["zinc"]
    assert tiers_to_empty(old, old, seen) == []


def test_what_config_get_prints_is_a_config() -> None:
    """So it can be edited and set again."""
    policy = _read({"gold": GOLD, "basic": BASIC})
    assert read_policy(json.dumps(config_document(policy)), "x").tiers == policy.tiers

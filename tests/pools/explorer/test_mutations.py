"""Every check in a script is there for a reason: without it, the explorer finds what breaks."""

from typing import Any

import pytest

from equipoise.adapters.redis import scripts as running
from equipoise.adapters.redis.scripts import source
from tests.support.explorer.running import explore
from tests.support.explorer.scenes import SMALL

WORLDS = {world.name: world for world in SMALL}
MUTANTS = {
    "a move that does not ask whether the pod is held": (
        "move",
        "if is_leased or free_calls(from, pod) ~= 0 or has_calls(pod) then",
        "if false then",
        "move, allocate",
    ),
    "a move that does not count": (
        "move",
        (
            "if redis.call('SCARD', from.assigned) <= from.target then return {'SourceNotOver'} end\n"
            "if redis.call('SCARD', to.assigned) >= to.target then return {'DestinationFull'} end"
        ),
        "",
        "two leaders",
    ),
    "a move that does not look at the config": (
        "move",
        "if config_changed() then return {'ConfigChanged'} end",
        "",
        "move, config",
    ),
    "an allocation that does not know its own call": (
        "allocate",
        "if redis.call('EXISTS', record) == 1 then",
        "if false then",
        "two leaders",
    ),
    "an allocation without a record": (
        "allocate",
        "redis.call('SADD', calls, call)",
        "",
        "move, two calls",
    ),
    "an allocation that counts a call where it is counted already": (
        "allocate",
        "has_place and 0 or 1",
        "1",
        "the record runs out, the same call comes again to the same pod",
    ),
    "a registration that takes a call for alive where any record of it exists": (
        "register",
        "redis.call('HGET', (prefix .. ':call:' .. call), 'pod_name') == pod",
        "redis.call('EXISTS', (prefix .. ':call:' .. call)) == 1",
        "the record runs out, the same call comes again, the pod is replaced",
    ),
    "a release that does not ask whether the pod drains": (
        "release",
        "if draining then",
        "if false then",
        "move, drain, undrain",
    ),
    "a release that goes where the pod was marked for, wanted or not": (
        "release",
        (
            "and redis.call('SCARD', tier.assigned) > tier.target and "
            "redis.call('SCARD', to.assigned) < to.target"
        ),
        "",
        "pending, config",
    ),
    "an undrain that does not ask whether the pod is held": (
        "undrain",
        "elseif not is_leased and #alive == 0 then",
        "else",
        "move, drain, undrain",
    ),
    "a drain that leaves the pod where it is": (
        "drain",
        "for _, tier in ipairs(free) do unpublish(tier, pod) end",
        "",
        "move, drain, undrain",
    ),
    "a sweep that does not ask who holds the pod": (
        "recover",
        "or calls ~= nil or is_held",
        "or calls ~= nil",
        "move, allocate, sweeps, expiry",
    ),
    "a sweep that does not wait": (
        "recover",
        "or #alive > 0",
        "",
        "move, allocate, sweeps, expiry",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_without_any_one_check_the_explorer_finds_what_breaks(
    client: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """So the checker sees, and no check is idle."""
    writer, check, instead, world = MUTANTS[name]
    assert check in source(writer)

    def mutated(asked: str) -> str:
        text = source(asked)
        return text.replace(check, instead) if asked == writer else text

    monkeypatch.setattr(running, "source", mutated)
    running._sha.cache_clear()
    try:
        found = explore(client, WORLDS[world], stops_early=True)
    finally:
        running._sha.cache_clear()
    assert found.violations, "the explorer saw nothing"

"""What the damage generator promises to the tests that use it."""

from tests.support.damage import HOSTILE, damages

SOUND = b'{"version": 1, "pods": [{"name": "a", "quota": 20000, "at": "2026-01-01T00:00:00Z"}], "is": true}'


def test_the_same_seed_gives_the_same_damage_and_every_variant_is_damaged() -> None:
    """A find is repeated from its seed and number; nothing sound is passed off as damaged."""
    first, second = (list(damages(SOUND, 300, seed=7)) for _ in range(2))
    assert first == second
    assert all(each.data != SOUND for each in first)
    assert [each.data for each in first] != [each.data for each in damages(SOUND, 300, seed=8)]


def test_every_hostile_value_comes_up() -> None:
    """A few thousand variants contain each value at least once, so that no reader is spared one."""
    variants = [each.data for each in damages(SOUND, 4000, seed=1)]
    assert [value[:40] for value in HOSTILE if not any(value in data for data in variants)] == []


def test_an_empty_file_can_be_damaged() -> None:
    """A state file that is created but not yet written is one to expect as well."""
    assert all(each.data for each in damages(b"", 50, seed=1))

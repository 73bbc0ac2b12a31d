"""The embedded server: shared by whoever needs it, gone with the last."""

from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from equipoise.adapters.redis.connect import embedded
from equipoise.core.errors import WorldFailed


def _client(url: str) -> Any:
    return Redis.from_url(url, decode_responses=True)


def test_two_users_share_one_server_and_the_last_turns_it_off(tmp_path: Path) -> None:
    """What one writes, the other reads; the data stays."""
    with embedded(tmp_path) as first:
        with embedded(tmp_path) as second, _client(second) as client:
            assert first == second
            client.set("key", "value")
        with _client(first) as client:
            assert client.get("key") == "value"
    assert not Path(first.removeprefix("unix://")).exists()
    with embedded(tmp_path) as again, _client(again) as client:
        assert client.get("key") == "value"


def test_a_folder_with_a_long_name_works_too(tmp_path: Path) -> None:
    """The kernel's limit for sockets is not the user's problem."""
    with embedded(tmp_path / ("long" * 30)) as url, _client(url) as client:
        assert client.ping()


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    """And --redis is offered instead."""
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(WorldFailed, match=r"file/pools: .*--redis"),
        embedded(tmp_path / "file" / "pools"),
    ):
        pass

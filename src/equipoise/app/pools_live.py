"""Opens the pools that a command is about: a server by its URL, or the embedded one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from equipoise.adapters.redis import RedisPools, connect
from equipoise.adapters.redis.connect import address_of
from equipoise.model.errors import BadInput
from equipoise.model.names import expect_name
from equipoise.pools.policy import tiers_for_scripts

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

CALL_LENGTH_MAX = 256


@contextmanager
def opened(url: str | None, prefix: str, *, is_dry: bool = False) -> Iterator[RedisPools]:
    """Give the pools under a prefix, for as long as the block lasts."""
    with _url(url) as found:
        pools = RedisPools(
            connect(found, prefix), prefix, address_of(found), is_dry=is_dry, read_tiers=tiers_for_scripts
        )
        try:
            yield pools
        finally:
            pools.close()


def _url(url: str | None) -> "AbstractContextManager[str]":
    if url is not None:
        return nullcontext(url)
    from equipoise.adapters.redis.embedded import embedded

    return embedded(state_folder())


def state_folder() -> Path:
    """Give the folder of the embedded server's data."""
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(state) / "equipoise" / "pools"


def pod_name(text: str, field: str = "POD") -> str:
    """Check a pod's name."""
    try:
        return expect_name(text)
    except ValueError as error:
        raise BadInput(f"{field}: {error}") from error


def call_id(text: str, field: str = "CALL") -> str:
    """Check the name of a call."""
    if not text or len(text) > CALL_LENGTH_MAX or not text.isprintable() or " " in text:
        raise BadInput(
            f"{field}: expected 1 to {CALL_LENGTH_MAX} printable characters without spaces, got {text[:60]!r}"
        )
    return text

"""`equipoise pools watch`: the tiers, again whenever they change."""

import time
from typing import TYPE_CHECKING, Any

from equipoise.app.console import Console
from equipoise.app.pools_live import opened
from equipoise.app.pools_output import status_table
from equipoise.model.errors import EquipoiseError
from equipoise.pools.documents import status_document
from equipoise.pools.policy import read_policy

if TYPE_CHECKING:
    from equipoise.adapters.redis import RedisPools


def watch_pools(redis: str | None, prefix: str, seconds: float, times: int) -> None:
    """Look again and again, until so many looks or Ctrl-C."""
    with opened(redis, prefix) as pools:
        try:
            _watch(pools, prefix, seconds, times)
        except KeyboardInterrupt:
            return


def _watch(pools: "RedisPools", prefix: str, seconds: float, times: int) -> None:
    """Show what has changed. A server or a config that goes away later is said, and waited for."""
    console = Console()
    before: Any = None
    looks = 0
    while True:
        try:
            seen = pools.snapshot()
            now: Any = status_document(read_policy(seen.config, f"{prefix}:tier:config"), seen)["tiers"]
        except EquipoiseError as error:
            if before is None:
                raise
            now = str(error)
        if now != before:
            console.print(time.strftime("%H:%M:%S"), style="dim")
            console.print(now if isinstance(now, str) else status_table(now))
            console.file.flush()
            before = now
        looks += 1
        if looks == times:
            return
        time.sleep(seconds)

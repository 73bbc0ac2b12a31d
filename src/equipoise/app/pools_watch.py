"""`equipoise pools watch`: the tiers, again whenever they change."""

import time
from typing import Any

from rich.console import Console

from equipoise.app.pools_live import opened
from equipoise.app.pools_output import status_document, status_table
from equipoise.model.errors import WorldFailed
from equipoise.pools.policy import read_policy


def watch_pools(redis: str | None, prefix: str, seconds: float, times: int) -> None:
    """Look again and again. A server that is away for a while is said, and waited for."""
    console = Console(highlight=False)
    before: Any = None
    looks = 0
    with opened(redis, prefix) as pools:
        while True:
            try:
                seen = pools.snapshot()
                now: Any = status_document(read_policy(seen.config, f"{prefix}:tier:config"), seen)["tiers"]
            except WorldFailed as error:
                now = str(error)
            if now != before:
                console.print(time.strftime("%H:%M:%S"), style="dim")
                console.print(now if isinstance(now, str) else status_table(now))
                before = now
            looks += 1
            if looks == times:
                return
            try:
                time.sleep(seconds)
            except KeyboardInterrupt:
                return

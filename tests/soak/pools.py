"""Every way through the large worlds of pools: `python -m tests.soak.pools`. Ends with 1 at a violation."""

import sys

from redis import Redis

from tests.support.explorer.running import explore
from tests.support.explorer.scenes import FOREIGN, LARGE
from tests.support.pools.servers import server


def main() -> int:
    """Explore each; it says how many ways there were."""
    broken = 0
    with server() as url, Redis.from_url(url, decode_responses=True) as client:
        for world in (*LARGE, *FOREIGN):
            broken += len(explore(client, world).violations)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

"""Options that every command on the pools has."""

from typing import Annotated

import typer

RedisUrl = Annotated[
    str | None,
    typer.Option(
        "--redis",
        metavar="URL",
        envvar="EQUIPOISE_REDIS_URL",
        show_envvar=False,
        help="redis://, rediss:// or unix://; by default an embedded server of your own.",
    ),
]
Prefix = Annotated[
    str, typer.Option(metavar="TEXT", help="What every key begins with; {voice} on a Redis Cluster.")
]
AcceptEviction = Annotated[
    bool,
    typer.Option(
        "--accept-eviction",
        envvar="EQUIPOISE_ACCEPT_EVICTION",
        show_envvar=False,
        help="Serve from a Redis that may evict keys: calls that go on could lose their pods.",
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]

"""One Lua script per writer: each reads and checks everything before its first write."""

from functools import cache
from importlib.resources import files

WRITERS = (
    "allocate",
    "drain",
    "fsck",
    "heartbeat",
    "move",
    "recover",
    "register",
    "release",
    "set_config",
    "snapshot",
    "undrain",
    "unregister",
)
_WITH_METADATA = {"fsck", "move", "register", "release"}


@cache
def source(writer: str) -> str:
    """Give the whole text of one script, as the server gets it."""
    parts = ["prelude", *(["metadata"] if writer in _WITH_METADATA else ()), writer]
    return "\n".join((files(__name__) / f"{part}.lua").read_text() for part in parts)

"""Names that become part of a Redis key."""

import re

NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
LENGTH_MAX = 253
ORDINAL = re.compile(r"(.*?)(\d{1,18})")


def expect_name(name: str) -> str:
    """Refuse what would not stay one part of a key; a ValueError says what is expected."""
    if len(name) > LENGTH_MAX or not NAME.fullmatch(name):
        raise ValueError(f"expected letters, digits, '-', '_' and '.', got {name[:60]!r}")
    return name


def by_ordinal(name: str) -> tuple[str, int, str]:
    """Order names as a StatefulSet counts: agent-2 before agent-10."""
    found = ORDINAL.fullmatch(name)
    return (name, -1, name) if found is None else (found[1], int(found[2]), name)


def ordinal_of(name: str) -> int | None:
    """Give the number at the end of a StatefulSet's pod, or None."""
    found = re.fullmatch(r".*-(\d{1,18})", name)
    return None if found is None else int(found[1])

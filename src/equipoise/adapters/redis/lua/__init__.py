"""One Lua script per writer: each reads and checks everything before its first write."""

import re
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
READERS = ("snapshot",)
_WRITER = """local function answer()
{text}
end

local answered, has_written = answer()
if not has_written then redis.call('GETEX', KEYS[1]) end
return answered
"""
"""GETEX without a time reads as GET does. But it counts as a write, and a replica refuses it: whatever a
writer answers, the primary has said it. The writers that are called most say themselves that they wrote."""
_NAMES_A_KEY = re.compile(r"(^local function (\w+_key)\((\w+)\) return (.+) end\n\n)", re.MULTILINE)
_DEFINES = re.compile(r"^local (?:function )?([\w, ]+?)(?: =|\()", re.MULTILINE)


@cache
def source(writer: str) -> str:
    """Return the whole text of one script, as the server gets it: with what it uses of the common parts."""
    text = _read(writer) if writer in READERS else _WRITER.format(text=_read(writer).strip())
    for part in reversed([*_parts("prelude"), *_parts("metadata")]):
        found = _DEFINES.search(part)
        names = "|".join(found[1].split(", ")) if found else ""
        if re.search(rf"\b({names})\b", text):
            text = f"{part}\n\n{text}"
    return _written_out(text)


def _written_out(text: str) -> str:
    """Put what names a key where it is used: a function costs time at every call of the script."""
    for whole, name, argument, value in _NAMES_A_KEY.findall(text):
        text = text.replace(whole, "")
        for used in set(re.findall(rf"\b{name}\((\w+)\)", text)):
            said = value.replace(f".. {argument}", f".. {used}")
            text = text.replace(f"{name}({used})", f"({said})")
    return text


def _read(name: str) -> str:
    return (files(__name__) / f"{name}.lua").read_text()


def _parts(name: str) -> list[str]:
    """Split a file at its blank lines: each part defines one thing."""
    return _read(name).strip().split("\n\n")

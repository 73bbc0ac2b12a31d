"""Container images made by hand, so that a node needs no registry."""

import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.testbed.build import binary

BUSYBOX = "equipoise.test/busybox:1"
"""An image with busybox and its commands in /bin."""
PAUSE = "equipoise.test/pause:1"
"""What holds a pod's namespaces: it sleeps."""


def write_image(
    target: Path,
    name: str,
    *,
    layers: Sequence[Path] = (),
    command: Sequence[str] = ("/bin/sh",),
    environment: Mapping[str, str] | None = None,
    has_busybox: bool = True,
    settings: Mapping[str, Any] | None = None,
) -> Path:
    """Write a docker archive with busybox and, above it, layers, which are tar archives.

    `settings` are more of an image's own, such as its `User` and `Entrypoint`.
    """
    contents = [*([_busybox_layer()] if has_busybox else []), *(layer.read_bytes() for layer in layers)]
    variables = {"PATH": "/usr/local/bin:/usr/bin:/bin", **(environment or {})}
    own = {"Cmd": list(command), "Env": [f"{key}={value}" for key, value in variables.items()]}
    digests = [f"sha256:{hashlib.sha256(content).hexdigest()}" for content in contents]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": own | dict(settings or {}),
        "rootfs": {"type": "layers", "diff_ids": digests},
    }
    names = [f"layer-{number}.tar" for number in range(len(contents))]
    manifest = [{"Config": "config.json", "RepoTags": [name], "Layers": names}]
    with tarfile.open(target, "w") as archive:
        _add(archive, "manifest.json", json.dumps(manifest).encode(), 0o644)
        _add(archive, "config.json", json.dumps(config).encode(), 0o644)
        for file, content in zip(names, contents, strict=True):
            _add(archive, file, content, 0o644)
    return target


def busybox_commands() -> list[str]:
    """Give the names that busybox answers to, except its own."""
    listed = subprocess.run(
        [binary("busybox-static"), "--list"], capture_output=True, text=True, timeout=60, check=True
    )
    return [name for name in listed.stdout.split() if name != "busybox"]


def _busybox_layer() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as layer:
        for name in ("bin", "etc", "proc", "sys", "dev", "tmp", "run", "var"):
            layer.addfile(_folder(name, 0o1777 if name == "tmp" else 0o755))
        _add(layer, "bin/busybox", binary("busybox-static").read_bytes(), 0o755)
        _add(layer, "etc/passwd", b"root:x:0:0:root:/:/bin/sh\n", 0o644)
        for command in busybox_commands():
            link = tarfile.TarInfo(f"bin/{command}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            layer.addfile(link)
    return buffer.getvalue()


def _folder(name: str, mode: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.mode = tarfile.DIRTYPE, mode
    return member


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    archive.addfile(member, io.BytesIO(content))

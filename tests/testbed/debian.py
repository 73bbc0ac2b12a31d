"""Takes files out of Debian packages into the cache: no service is set up or started on the host."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.testbed.cache import Unavailable, folder, put, say, scratch
from tests.testbed.parts import DebianPart

_SECONDS = 300.0
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib", "lib")
# The libraries beside it are for this command alone: the host's own do not change.
_LAUNCHER = """#!/bin/sh
here=${{0%/*}}
LD_LIBRARY_PATH={libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}} exec "$here/{path}" "$@"
"""


def cached(part: DebianPart) -> Path | None:
    """Give the file if its package was unpacked before."""
    path = _launcher(part) if part.has_libraries else part.path
    found = sorted((folder() / "debian").glob(f"{_folder_pattern(part)}/{path}"))
    return found[-1] if found else None


def unpacked(part: DebianPart) -> Path:
    """Download the package, and what it needs, and take it apart in the cache."""
    advice = f"there is no {part.name} here: install one, e.g. `apt-get install {part.package}`"
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Unavailable(advice)
    say(f"unpacking Debian's {part.package} into the cache")
    with scratch() as work:
        packages = _downloaded(part, work)
        if not packages:
            raise Unavailable(advice)
        for package in packages:
            if _said(work, "dpkg", "-x", package.name, "root") is None:
                raise Unavailable(f"{package.name} could not be unpacked; {advice}")
        if part.has_libraries:
            _write_launcher(part, work / "root")
        put(work / "root", folder() / "debian" / packages[0].stem)
    made = cached(part)
    if made is None:
        raise Unavailable(f"{packages[0].name} has no {part.path}; {advice}")
    return made


def _folder_pattern(part: DebianPart) -> str:
    name = part.package
    if part.is_named_by_dependency:  # linux-image-cloud-amd64 names e.g. linux-image-6.1.0-54-cloud-amd64
        name = name.replace("linux-image-", "linux-image-*-")
    return f"{name}_*"


def _downloaded(part: DebianPart, work: Path) -> list[Path]:
    """Download the packages, the main one first; where there is no list yet, only root can fetch one."""

    def download() -> list[Path]:
        names = _names(part, work)
        if not names or _said(work, "apt-get", "download", *names) is None:
            return []
        return [next(work.glob(f"{name}_*.deb")) for name in names]

    found = download()
    if not found and os.geteuid() == 0 and _said(work, "apt-get", "update") is not None:
        found = download()
    return found


def _names(part: DebianPart, work: Path) -> list[str]:
    """Give the names of the packages to take, the main one first."""
    if part.is_named_by_dependency:
        answer = _said(work, "apt-cache", "depends", "--important", part.package) or ""
        return re.findall(r"Depends: (\S+)", answer)[:1]
    if not part.has_libraries:
        return [part.package]
    plan = _said(work, "apt-get", "--simulate", "--no-install-recommends", "install", part.package)
    missing = re.findall(r"^Inst (\S+)", plan or "", flags=re.MULTILINE)
    # Where the package is installed there is nothing to plan, and its libraries are the host's.
    return [part.package, *sorted(set(missing) - {part.package})] if plan is not None else []


def _launcher(part: DebianPart) -> str:
    return f"run-{part.name}"


def _write_launcher(part: DebianPart, root: Path) -> None:
    libraries = ":".join(f"$here/{name.relative_to(root)}" for name in _library_folders(root))
    file = root / _launcher(part)
    file.write_text(_LAUNCHER.format(libraries=libraries, path=part.path))
    file.chmod(0o755)


def _library_folders(root: Path) -> Iterator[Path]:
    """Give where libraries are: some packages keep what only they need one folder deeper."""
    for name in _LIBRARIES:
        yield from sorted(folder for folder in (root / name).glob("*/") if any(folder.glob("lib*.so*")))
        if (root / name).is_dir():
            yield root / name


def _said(work: Path, *command: str) -> str | None:
    """Run a command; give what it printed, or nothing if it failed or took too long."""
    try:
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None

"""Finds a neighbour's binary: ready on this machine, in the cache, or built once into the cache."""

import os
import shutil
import subprocess
import time
from pathlib import Path

from tests.testbed import debian
from tests.testbed.cache import Unavailable, folder, lock, put, say, scratch
from tests.testbed.parts import COMPAT, PARTS, DebianPart, GoPart

_VERSION_SECONDS = 60.0
_BUILD_SECONDS = 3600.0
_MODULES = Path(__file__).parent / "go"


def binary(name: str) -> Path:
    """Give the path of a neighbour's binary, building it first when there is none."""
    part = (PARTS | COMPAT)[name]
    return (
        _ready(part, os.environ.get("KUBEBUILDER_ASSETS"))
        or _cached(part)
        or _ready(part, os.environ.get("PATH"))
        or _made(part)
    )


def kwok_stages() -> Path:
    """Give one file with kwok's own fast stages and its metrics, taken out of its module."""
    part = PARTS["kwok"]
    assert isinstance(part, GoPart)
    target = folder() / "share" / f"kwok-stages-{part.version}.yaml"
    with lock("kwok-stages"):
        if not target.exists():
            _go(part.module, "mod", "download", "sigs.k8s.io/kwok")
            module = _go(part.module, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok").strip()
            source = Path(module) / "kustomize"
            texts = [(source / name).read_text() for name in _STAGES]
            with scratch() as work:
                (work / "stages.yaml").write_text("\n---\n".join(texts))
                put(work / "stages.yaml", target)
    return target


_STAGES = (
    "stage/node/fast/node-initialize.yaml",
    "stage/node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "stage/pod/fast/pod-ready.yaml",
    "stage/pod/fast/pod-complete.yaml",
    "stage/pod/fast/pod-delete.yaml",
    "metrics/resource/metrics-resource.yaml",
    "metrics/usage/usage-from-annotation.yaml",
)


def _cached(part: GoPart | DebianPart) -> Path | None:
    if isinstance(part, DebianPart):
        return debian.cached(part)
    path = folder() / "bin" / part.file_name
    return path if path.exists() else None


def _ready(part: GoPart | DebianPart, search_path: str | None) -> Path | None:
    """Give a binary that is already there, if it answers in time with a version that will do."""
    found = shutil.which(part.name, path=search_path) if search_path else None
    if found is None:
        return None
    try:
        answer = subprocess.run(
            [found, *part.version_question],
            capture_output=True,
            text=True,
            timeout=_VERSION_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Path(found).absolute() if part.accepts(answer.stdout + answer.stderr) else None


def _made(part: GoPart | DebianPart) -> Path:
    # One Go build at a time: it uses every core by itself, and the next one finds its packages ready.
    with lock("go" if isinstance(part, GoPart) else part.package):
        # Another process may have made it while we waited for the lock.
        return _cached(part) or (_built(part) if isinstance(part, GoPart) else debian.unpacked(part))


def _built(part: GoPart) -> Path:
    _go_tool()
    say(f"building {part.name} {part.version} (about {part.cost} the first time)")
    began = time.monotonic()
    stamp = f"-s -w {part.stamp}".strip()
    target = folder() / "bin" / part.file_name
    with scratch() as work:
        made = work / part.name
        options = ["-trimpath", "-tags", part.tags, "-ldflags", stamp]
        _go(part.module, "build", *options, "-o", str(made), part.package)
        put(made, target)
    say(f"built {part.name} {part.version} in {time.monotonic() - began:.0f} s")
    return target


def _go_tool() -> str:
    go = shutil.which("go")
    if go is None:
        raise Unavailable("the testbed needs Go 1.26.4 or newer to build with, and there is no `go` on PATH")
    return go


def _go(module: str, *args: str) -> str:
    """Run the Go tool in one of our modules. Flags of the user's own must not change what is built."""
    env = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false -mod=readonly", "GOWORK": "off"}
    try:
        done = subprocess.run(
            [_go_tool(), *args],
            cwd=_MODULES / module,
            env=env,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise Unavailable(f"`go {' '.join(args)}` did not end within {_BUILD_SECONDS:.0f} s") from late
    if done.returncode:
        raise Unavailable(f"`go {' '.join(args)}` failed: {done.stderr[-2000:].strip()}")
    return done.stdout

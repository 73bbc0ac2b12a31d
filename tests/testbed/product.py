"""The product's image without a container engine: a Python, the pinned requirements, and our own wheel.

It is what the Containerfile makes, on this machine's Python instead of a published one: no shell, no
package tool, nothing that is needed only to build or to test.
"""

import configparser
import hashlib
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.testbed.cache import Unavailable
from tests.testbed.guest import LIBRARIES, PYTHON, add_libraries, add_python, kept, translate, write_tar
from tests.testbed.images import write_image
from tests.testbed.node import RealNode

REPOSITORY = Path(__file__).parents[2]
NAME = "equipoise.test/equipoise:tree"
USER = 65532
"""Who runs it, unless the pod says otherwise: nobody that the host knows."""
_SOURCES = ("pyproject.toml", "README.md", "LICENSE", "src")
_PACKAGES = f"{PYTHON}/lib/{Path(sysconfig.get_path('stdlib')).name}/site-packages"
_FOLDERS = ("dev", "etc", "proc", "sys", "tmp", "var/lib", "run")
_SCRIPT = """#!/{python}/bin/python3
import sys
from {module} import {function}
sys.exit({function}())
"""
_BUILD_SECONDS = 300.0
_DAY_SECONDS = 86400.0


def write_product_image(target: Path) -> Path:
    """Write the image of the tree as it is now; what has not changed comes from the cache."""
    return write_image(
        target,
        NAME,
        layers=[_base_layer(), _product_layer()],
        command=["--help"],
        environment={"PATH": f"/{PYTHON}/bin", "LD_LIBRARY_PATH": f"/{LIBRARIES}", "PYTHONUNBUFFERED": "1"},
        has_busybox=False,
        settings={
            "User": f"{USER}:{USER}",
            "Entrypoint": ["equipoise"],
            "WorkingDir": "/",
            "Labels": {"org.opencontainers.image.title": "equipoise"},
        },
    )


def add_product_image(node: RealNode) -> str:
    """Give a node the image; give its name."""
    file = write_product_image(node.folder / "equipoise.tar")
    try:
        node.ctr("images", "import", file, seconds=120)
    finally:
        file.unlink()
    return NAME


def _base_layer() -> Path:
    """Everything but our own code: it changes with the requirements."""
    pinned = REPOSITORY / "requirements" / "run.txt"

    def make(work: Path) -> None:
        root = work / "root"
        for name in _FOLDERS:
            (root / name).mkdir(parents=True)
        (root / "tmp").chmod(0o1777)
        (root / "etc/passwd").write_text(f"root:x:0:0::/:\nequipoise:x:{USER}:{USER}::/:\n")
        (root / "etc/group").write_text(f"root:x:0:\nequipoise:x:{USER}:\n")
        add_python(root, ())
        _install(root, "--require-hashes", "--requirement", str(pinned))
        add_libraries(root, sorted((root / _PACKAGES).rglob("*.so*")))
        translate(root)
        write_tar(root, work / "made")

    return kept("product-base", ".tar", [pinned.read_text()], make)


def _product_layer() -> Path:
    """Our own wheel, built by the project's own means and installed."""

    def make(work: Path) -> None:
        root, wheels = work / "root", work / "wheels"
        # The build backend itself, in the environment that `make setup` has pinned.
        _run([sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(wheels)])
        (wheel,) = wheels.glob("*.whl")
        _install(root, "--no-deps", "--offline", str(wheel))
        _add_scripts(root)
        translate(root)
        write_tar(root, work / "made")

    made = kept("product", ".tar", [_fingerprint()], make)
    _forget_old(made)
    return made


def _fingerprint() -> str:
    """Tell one state of the sources from another."""
    digest = hashlib.sha256()
    for file in _files():
        digest.update(
            f"{file.relative_to(REPOSITORY)}\0".encode() + hashlib.sha256(file.read_bytes()).digest()
        )
    return digest.hexdigest()


def _files() -> Iterator[Path]:
    for name in _SOURCES:
        path = REPOSITORY / name
        inner = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (one for one in inner if one.is_file() and "__pycache__" not in one.parts)


def _forget_old(made: Path) -> None:
    """Remove layers of earlier trees; one that somebody has just made may still be read."""
    for path in made.parent.glob(f"{made.name.rpartition('-')[0]}-*{made.suffix}"):
        if path != made and path.stat().st_mtime < time.time() - _DAY_SECONDS:
            path.unlink(missing_ok=True)


def _install(root: Path, *what: str) -> None:
    """Install into a root file system, as into the Python that is there."""
    options = ["--quiet", "--no-compile-bytecode", "--link-mode=copy", "--only-binary=:all:"]
    _uv("pip", "install", *options, "--python", sys.executable, "--target", str(root / _PACKAGES), *what)
    # Their commands name this machine's Python; those that are wanted are written below.
    shutil.rmtree(root / _PACKAGES / "bin", ignore_errors=True)
    (root / _PACKAGES / ".lock").unlink(missing_ok=True)


def _add_scripts(root: Path) -> None:
    """Add the commands that our own wheel promises."""
    (told,) = (root / _PACKAGES).glob("equipoise-*.dist-info/entry_points.txt")
    points = configparser.ConfigParser()
    points.read_string(told.read_text())
    for name, where in points["console_scripts"].items():
        module, _, function = where.partition(":")
        script = root / PYTHON / "bin" / name
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(_SCRIPT.format(python=PYTHON, module=module, function=function))
        script.chmod(0o755)


def _uv(*words: str) -> None:
    _run([str(Path(sys.executable).with_name("uv")), *words])


def _run(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(
            command, cwd=REPOSITORY, capture_output=True, text=True, timeout=_BUILD_SECONDS, check=False
        )
    except OSError as missing:
        raise Unavailable(f"the image is made with what `make setup` installs: {missing}") from missing
    if done.returncode:
        raise Unavailable(f"`{' '.join(command[:4])} …` failed: {done.stderr.strip()[-500:]}")

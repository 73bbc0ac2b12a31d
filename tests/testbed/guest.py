"""What virtual machines and containers are made of: busybox, a Python, and the code to be tested."""

import compileall
import hashlib
import importlib.metadata
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from tests.testbed.build import binary
from tests.testbed.cache import Unavailable, folder, lock, put, say, scratch
from tests.testbed.images import busybox_commands

CODE = "opt/code"
"""Where folders of code are in the machine; Python looks there."""
PACKAGES = "opt/packages"
"""Where installed distributions are; Python looks there, too."""
PYTHON = "opt/python"
LIBRARIES = "opt/libraries"
ENVIRONMENT = {
    "PATH": f"/{PYTHON}/bin:/usr/bin:/bin",
    "LD_LIBRARY_PATH": f"/{LIBRARIES}",
    "PYTHONPATH": f"/{CODE}:/{PACKAGES}",
    "PYTHONUNBUFFERED": "1",
}
"""What makes `python3` find everything."""
_LAYOUT = "1"
"""Change this with what is written below: a kept disk of another layout is then not taken."""
_UNUSED = shutil.ignore_patterns(
    *("__pycache__", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "config-*", "venv"),
    *("test", "tests", "tkinter", "turtledemo", "_test*.so", "_tkinter*.so", "_xx*.so", "*.a"),
)
_FOLDERS = ("dev", "etc", "home", "mnt", "opt/code", "proc", "root", "run", "sys", "tmp", "usr/bin", "var")
_ROOM = 16 * 2**20
_BLOCK = 4096
_PREPARE = """for place in run tmp root home var opt/code; do
  grep -q " /$place " /proc/mounts || mount -t tmpfs tmpfs /$place
done
tar -x -f /dev/nvme1n1 -C /
ip link set lo up
hostname machine
sh /opt/code/run
poweroff -f
"""
_FIRST = """#!/bin/sh
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec sh /prepare >/dev/console 2>&1 </dev/null
"""
_SYSTEMD = ("lib/systemd/systemd", "bin/systemctl", "usr/bin/systemd-run", "usr/bin/systemd-cgls")
_FIRST_SYSTEMD = """#!/bin/sh
export LD_LIBRARY_PATH=/opt/libraries
exec /lib/systemd/systemd
"""
_UNIT = """[Unit]
DefaultDependencies=no
[Service]
Type=oneshot
ExecStart=/bin/sh /prepare
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
"""


def requirements(name: str) -> list[str]:
    """Give a distribution's own requirements, theirs, and so on, without extras."""
    found: list[str] = []
    waiting = list(importlib.metadata.requires(name) or [])
    while waiting:
        needed = waiting.pop()
        key = re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9_.-]", needed)[0]).lower()
        if "extra ==" in needed or key in found:
            continue
        try:
            waiting += importlib.metadata.requires(key) or []
        except importlib.metadata.PackageNotFoundError:  # for another Python, or another system
            continue
        found.append(key)
    return sorted(found)


def system_disk(packages: Sequence[str], *, is_systemd: bool = False) -> Path:
    """Give a disk with busybox, this Python and these distributions, made once and kept."""
    kind = "systemd" if is_systemd else "disk"

    def make(work: Path) -> None:
        root = work / "root"
        _add_busybox(root)
        add_python(root, packages)
        if is_systemd:
            _add_systemd(root)
        translate(root)
        _write_disk(root, work / "made")

    parts = [binary("systemd")] if is_systemd else []
    return kept(f"machine-{kind}", ".ext4", _things(parts, packages), make)


def python_layer() -> Path:
    """Give a layer for a container image with this Python, made once and kept."""

    def make(work: Path) -> None:
        root = work / "root"
        add_python(root, ())
        translate(root)
        write_tar(root, work / "made")

    return kept("layer", ".tar", _things([], ()), make)


def _things(parts: Sequence[Path], packages: Sequence[str]) -> list[str]:
    versions = [f"{name}-{importlib.metadata.version(name)}" for name in packages]
    return [*map(str, [binary("busybox-static"), *parts]), *versions]


def kept(kind: str, suffix: str, things: Sequence[str], make: Callable[[Path], None]) -> Path:
    """Give what `make` makes for this Python, from the cache if it was made of the same things before.

    It is to leave a file `made` in the folder that it is given.
    """
    text = "\n".join([_LAYOUT, sys.version, sys.base_prefix, *things])
    key = hashlib.sha256(text.encode()).hexdigest()[:12]
    version = ".".join(map(str, sys.version_info[:3]))
    target = folder() / "share" / f"{kind}-python-{version}-{key}{suffix}"
    with lock(f"{kind}-python"):
        if not target.exists():
            say(f"collecting a Python {version} for {kind}s, once")
            with scratch() as work:
                make(work)
                put(work / "made", target)
    return target


def code_disk(target: Path, code: Sequence[Path], files: Mapping[str, bytes]) -> Path:
    """Write a disk that is one tar archive: folders of code, translated, and single files."""
    with scratch() as work:
        for source in code:
            shutil.copytree(source, work / CODE / source.name, ignore=shutil.ignore_patterns("__pycache__"))
        translate(work)
        for name, content in files.items():
            path = work / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        write_tar(work, target)
    return target


def write_tar(root: Path, target: Path) -> None:
    """Write what is below a folder into an archive, as root's."""
    with tarfile.open(target, "w") as archive:
        for path in sorted(root.iterdir()):
            archive.add(path, path.name, filter=_as_root)
    with target.open("ab") as file:  # a disk has whole blocks
        file.write(b"\0" * (-file.tell() % _BLOCK))


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member


def _add_busybox(root: Path) -> None:
    for name in ("bin", *_FOLDERS):
        (root / name).mkdir(parents=True)
    shutil.copy(binary("busybox-static"), root / "bin/busybox")
    for name in busybox_commands():
        (root / "bin" / name).symlink_to("busybox")
    (root / "etc/passwd").write_text(
        "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"
    )
    (root / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (root / "prepare").write_text(_PREPARE)
    (root / "init").write_text(_FIRST)
    (root / "init").chmod(0o755)


def add_python(root: Path, packages: Sequence[str]) -> None:
    """Add the Python that runs us, moved to a place of its own, with the libraries that all of it loads."""
    interpreter = Path(sys.executable).resolve()
    home = root / PYTHON
    (home / "bin").mkdir(parents=True)
    shutil.copy(interpreter, home / "bin/python3")
    standard = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(standard, home / "lib" / standard.name, ignore=_UNUSED)
    loaded = [interpreter, *(home / "lib" / standard.name / "lib-dynload").glob("*.so")]
    for package in packages:
        for path, name in _distributed(package):
            target = root / PACKAGES / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
            loaded += [path] if ".so" in path.name else []
    add_libraries(root, loaded)
    _strip([*home.rglob("*.so"), *(root / LIBRARIES).iterdir()])


def add_libraries(root: Path, programs: Iterable[Path], environment: Mapping[str, str] | None = None) -> None:
    """Add what programs load, all in one folder, and the loader where programs expect it."""
    place = root / LIBRARIES
    place.mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(
        ["ldd", *map(str, programs)], capture_output=True, text=True, timeout=60, check=False, env=environment
    )
    for name in re.findall(r"=> (/\S+) \(0x", listed.stdout):
        own = (sysconfig.get_path("platlib"), str(root))  # what is there is found beside its users
        if not name.startswith(own):
            shutil.copy(name, place / Path(name).name)
    for name in set(re.findall(r"^\s+(/\S+) \(0x", listed.stdout, flags=re.MULTILINE)):
        (root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(name, root / name[1:])


def _strip(files: Sequence[Path]) -> None:
    """Take off what only debuggers need, where there is a tool for it: that is half of it all."""
    tool = shutil.which("strip")
    if tool is not None:
        command = [tool, "--strip-unneeded", *map(str, files)]
        subprocess.run(command, capture_output=True, timeout=60, check=False)


def _add_systemd(root: Path) -> None:
    """Add Debian's systemd, to be the first process, with one unit: what runs the script."""
    unpacked = binary("systemd").parent
    programs = [unpacked / name for name in _SYSTEMD]
    for program in programs:
        target = root / program.relative_to(unpacked)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(program, target)
    own = [path for path in unpacked.rglob("x86_64-linux-gnu") if path.is_dir()]
    places = [place for path in own for place in (path, path / "systemd")]
    add_libraries(root, programs, {"LD_LIBRARY_PATH": ":".join(map(str, places)), "PATH": os.environ["PATH"]})
    (root / "init-systemd").write_text(_FIRST_SYSTEMD)
    (root / "init-systemd").chmod(0o755)
    (root / "etc/machine-id").write_text("0" * 31 + "1\n")
    unit = root / "etc/systemd/system/script.service"
    unit.parent.mkdir(parents=True)
    unit.write_text(_UNIT)


def _distributed(package: str) -> Iterator[tuple[Path, str]]:
    """Give the installed files of a distribution, with their paths below where all are installed."""
    for file in importlib.metadata.files(package) or []:
        path = Path(str(file.locate()))
        is_wanted = not {"__pycache__", "tests", ".."} & set(file.parts) and path.suffix != ".a"
        if is_wanted and path.is_file():
            yield path, str(file)


def translate(root: Path) -> None:
    """Translate all Python code, to be taken without a look at it: the machine is slow at that."""
    compileall.compile_dir(
        str(root),
        maxlevels=30,
        quiet=2,
        stripdir=str(root),
        prependdir="/",
        workers=2,
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def _write_disk(root: Path, target: Path) -> None:
    size = sum(path.lstat().st_size + 4096 for path in root.rglob("*")) + _ROOM
    tool = shutil.which("mke2fs") or shutil.which("mke2fs", path="/usr/sbin:/sbin")
    if tool is None:
        raise Unavailable("a virtual machine needs `mke2fs` for its disk (Debian: e2fsprogs)")
    options = ["-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-E", "root_owner=0:0", "-d", str(root)]
    done = subprocess.run(
        [tool, *options, str(target), f"{size // 1024}k"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise Unavailable(f"mke2fs made no disk for a virtual machine: {done.stderr.strip()}")

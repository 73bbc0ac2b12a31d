"""Makes the cell that a real node lives in, and takes it away again, whatever becomes of the tests.

Run as a file: `python -I -S cell.py PARENT_PID FOLDER LOCK`. A cell is a bridge with an address, a cgroup in
every hierarchy, and namespaces for processes, mounts and cgroups, so that a node inside it sees an ordinary
machine of its own. When its parent dies, or on SIGTERM, it ends every process in the cell (the kernel does
that with the first one), and removes the links and the cgroups; mounts go with their namespace.
"""

import ctypes
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

PRIVATE = ("/run", "/var/lib", "/var/log")
"""What is new and empty in a cell, and goes with it."""
_PR_SET_PDEATHSIG = 1
_PREFIX = "eqn-"
_TETHER = Path(__file__).with_name("tether.py")
_END_SECONDS = 15.0
_CGROUPS = Path("/sys/fs/cgroup")
# On a busy machine a pod must still get what its limit lets it have, or its usage says nothing. So one
# without a limit is not to burn all the time (`PACED`), or the tests beside it get nothing.
_WEIGHTS = {"cpu.shares": "20480", "cpu.weight": "2000"}
_ENDINGS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}

# The first process of the cell. Whoever is orphaned in there becomes its child, and since it ignores how
# they end, the kernel clears them away.
_FIRST = """set -e
for place in {private}; do mount -t tmpfs tmpfs $place; done
umount -R /sys/fs/cgroup
{cgroups}
echo ready
trap '' CHLD
exec sleep infinity >/dev/null 2>&1
"""
_JOIN = 'for place in $PLACES; do echo 0 > "$place/cgroup.procs"; done; exec "$@"'


def main() -> None:
    parent, folder, lock = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    if ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
    if os.getppid() != parent:  # it died before we were tied to it
        sys.exit(1)
    name = f"{_PREFIX}{os.getpid()}"
    first: subprocess.Popen[str] | None = None
    try:
        _sweep()
        network = _add_bridge(name, lock)
        _make_cgroups(name)
        first = _start(name)
        _tell(folder / "cell.json", {"name": name, "network": network, "pid": _child_of(first.pid)})
        while signal.sigwait(_ENDINGS) == signal.SIGCHLD and first.poll() is None:
            continue  # some other child of ours ended
    finally:
        if first is not None:
            _end(first)
        _clear(name)


def hierarchies() -> dict[str, str]:
    """Give where each cgroup hierarchy is mounted, with the options to mount it once more."""
    found = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if not place.startswith(str(_CGROUPS)):
            continue
        if kind == "cgroup":
            names = [
                word
                for word in options.split(",")
                if word not in {"rw", "relatime", "nosuid", "nodev", "noexec"}
            ]
            is_named = any(word.startswith("name=") for word in names)
            found[place] = "-t cgroup -o " + ",".join((["none"] if is_named else []) + names)
        elif kind == "cgroup2" and place == str(_CGROUPS):
            found[place] = "-t cgroup2"
    return found


def _sweep() -> None:
    """Remove what a cell left whose keeper was killed itself."""
    links = re.findall(rf"\b{_PREFIX}\d+", _ip("-o", "link", "show", "type", "bridge"))
    cgroups = [path.name for place in hierarchies() for path in Path(place).glob(f"{_PREFIX}*")]
    for name in {*links, *cgroups}:
        if not _is_kept(name):
            _clear(name)


def _is_kept(name: str) -> bool:
    try:
        return b"cell.py" in Path(f"/proc/{name.removeprefix(_PREFIX)}/cmdline").read_bytes()
    except OSError:
        return False


def _add_bridge(name: str, lock: Path) -> str:
    """Add a bridge with the first address of a network that nobody here uses; give the network's start."""
    # One at a time: the next one must see our address.
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        taken = set(re.findall(r"inet (10\.89\.\d+)\.", _ip("-o", "-4", "addr", "show")))
        network = next(f"10.89.{n}" for n in range(100, 256) if f"10.89.{n}" not in taken)
        _ip("link", "add", name, "type", "bridge", must_succeed=True)
        _ip("addr", "add", f"{network}.1/24", "dev", name, must_succeed=True)
        _ip("link", "set", name, "up", must_succeed=True)
    return network


def _make_cgroups(name: str) -> None:
    """Make the cell's cgroup everywhere, and in it one for the node's own processes."""
    for place in hierarchies():
        root = Path(place) / name
        root.mkdir()
        for file in ("cpuset.cpus", "cpuset.mems"):
            if (
                root.parent / file
            ).exists():  # only the old hierarchy's root has them, and a group begins empty
                (root / file).write_text((root.parent / file).read_text())
        if (root / "cgroup.clone_children").exists():
            (root / "cgroup.clone_children").write_text("1")
        for file, weight in _WEIGHTS.items():
            if (root / file).exists():
                (root / file).write_text(weight)
        (root / "node").mkdir()


def _start(name: str) -> "subprocess.Popen[str]":
    """Start the first process of the cell, and wait until everything is mounted in it."""
    unshare = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--cgroup",
        "--uts",
        "--ipc",
        "--mount-proc",
    ]
    tether = [sys.executable, "-I", "-S", str(_TETHER), str(os.getpid())]
    shell = str(shutil.which("sh"))
    first = subprocess.Popen(
        [
            *tether,
            shell,
            "-c",
            _JOIN,
            "sh",
            *unshare,
            shell,
            "-c",
            _FIRST.format(private=" ".join(PRIVATE), cgroups=_mounts()),
        ],
        env=os.environ | {"PLACES": " ".join(f"{place}/{name}" for place in hierarchies())},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert first.stdout is not None
    if first.stdout.readline() != "ready\n":
        raise SystemExit("the cell could not be made")
    return first


def _mounts() -> str:
    """Say how the cell sees its own cgroups, at the usual places, as if they were all there is."""
    found = hierarchies()
    if str(_CGROUPS) in found:  # the new, single hierarchy: no process may be where groups are divided
        return "\n".join(
            [
                f"mount {found[str(_CGROUPS)]} cgroup2 {_CGROUPS}",
                f"echo 0 > {_CGROUPS}/node/cgroup.procs",
                f"for name in $(cat {_CGROUPS}/cgroup.controllers); do",
                f'  echo "+$name" > {_CGROUPS}/cgroup.subtree_control; done',
            ]
        )
    lines = [f"mkdir -p {place} && mount {options} cgroup {place}" for place, options in found.items()]
    return "\n".join([f"mount -t tmpfs tmpfs {_CGROUPS}", *lines])


def _child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def _tell(file: Path, content: dict[str, object]) -> None:
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(content))
    fresh.rename(file)


def _end(first: "subprocess.Popen[str]") -> None:
    """End the cell's first process, and with it all others: the kernel waits for them before it is gone."""
    with suppress(OSError, IndexError):
        os.kill(_child_of(first.pid), signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        first.wait(_END_SECONDS)
    first.kill()


def _clear(name: str) -> None:
    """Remove the links and the cgroups of a cell without processes."""
    attached = re.findall(r"^\d+: ([^:@]+)", _ip("-o", "link", "show", "master", name), flags=re.MULTILINE)
    for link in [*attached, name]:
        _ip("link", "delete", link)
    end = time.monotonic() + _END_SECONDS
    for place in hierarchies():
        while not _is_removed(Path(place) / name) and time.monotonic() < end:
            time.sleep(0.02)


def _is_removed(group: Path) -> bool:
    """Remove a cgroup with all below it; it is busy for a moment after its last process."""
    try:
        for path, _, _ in os.walk(group, topdown=False):
            Path(path).rmdir()
    except OSError:
        return False
    return True


def _ip(*words: str, must_succeed: bool = False) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=60, check=False)
    if must_succeed and done.returncode:
        raise SystemExit(f"ip {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    main()

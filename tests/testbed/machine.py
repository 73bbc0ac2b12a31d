"""A small virtual machine with cgroup version 2: it boots in seconds, runs one script, and is gone."""

import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.build import binary
from tests.testbed.guest import CODE, ENVIRONMENT, code_disk, system_disk
from tests.testbed.processes import NotInTime, Process

_ENDED = re.compile(r"\n=== exit (\d+)\n")
# The script's output has a serial line of its own, apart from the kernel's.
_RUN = f"""export HOME=/root {" ".join(f"{key}={value}" for key, value in ENVIRONMENT.items())}
stty -F /dev/ttyS1 raw
cd /root
python3 /{CODE}/script.py %s </dev/null >/dev/ttyS1 2>&1
status=$?
printf '\n=== exit %%s\n' $status >/dev/ttyS1
"""


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What came of a script."""

    status: int
    output: str
    """What it printed, errors among it."""
    seconds: float
    """From the start of the machine to its end."""


class Machine:
    """Boots Debian's kernel with a Python, some installed distributions and some folders of code.

    Every run is a new machine. A folder of code is found by its name: with `code=[Path("src/equipoise")]` and
    `packages=requirements("equipoise")` a script can import the product. With `is_systemd` the first process
    is systemd, which lays out the cgroups in slices; `systemd-run --scope --slice=… ` makes more.
    """

    def __init__(
        self,
        folder: Path,
        *,
        packages: Sequence[str] = (),
        code: Sequence[Path] = (),
        is_systemd: bool = False,
        memory_mib: int = 512,
        cores: int = 2,
    ) -> None:
        self._folder = folder
        self._packages = tuple(packages)
        self._code = tuple(code)
        self._is_systemd = is_systemd
        self._memory_mib = memory_mib
        self._cores = cores
        self._process: Process | None = None

    @property
    def processes(self) -> list[Process]:
        return [self._process] if self._process else []

    def prepare(self) -> None:
        """Get what a machine is made of, so that no run has to."""
        for name in ("qemu-system-x86_64", "linux"):
            binary(name)
        system_disk(self._packages, is_systemd=self._is_systemd)

    def run(
        self,
        script: str,
        *,
        arguments: Sequence[str] = (),
        files: Mapping[str, bytes] | None = None,
        seconds: float,
    ) -> Ran:
        """Boot, run a Python script, and give what it printed.

        `files` are by absolute path, and may be anywhere below /opt/code, /root, /run, /tmp and /var. The
        bound is for all of it; a machine that is not done by then is ended, and what it said is told.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        words = " ".join(map(shlex.quote, arguments))
        own = {f"/{CODE}/script.py": script.encode(), f"/{CODE}/run": (_RUN % words).encode()}
        disk = code_disk(self._folder / "code.tar", self._code, {**(files or {}), **own})
        output = self._folder / "output.txt"
        output.write_bytes(b"")
        command = self._command(disk, output)
        began = time.monotonic()
        self._boot(command, began + seconds)
        disk.unlink()
        text = output.read_text(errors="replace")
        ended = _ENDED.search(text)
        if ended is None:
            raise NotInTime(f"a script in a virtual machine: not within {seconds:g} s; {self._said(text)}")
        spent = time.monotonic() - began
        # A child of the script may have said something after its end.
        said = text[: ended.start()] + text[ended.end() :]
        return Ran(status=int(ended[1]), output=said, seconds=spent)

    def _boot(self, command: list[str | Path], end: float) -> None:
        """Run the machine until it ends by itself, or its time is up."""
        log = self._folder / "logs" / "machine.log"
        self._process = Process("machine", command, log)
        self._process.start()
        try:
            while self._process.alive and time.monotonic() < end:
                time.sleep(0.05)
        finally:
            self._process.kill()

    def _said(self, output: str) -> str:
        assert self._process is not None
        return f"it said:\n{output[-2000:]}\nand the machine:\n{self._process.tail()}"

    def _command(self, disk: Path, output: Path) -> list[str | Path]:
        emulator = binary("qemu-system-x86_64")
        share = emulator.parent / "usr/share"
        data = [
            word for name in ("qemu", "seabios") if (share / name).is_dir() for word in ("-L", share / name)
        ]
        first = "/init-systemd" if self._is_systemd else "/init"
        quiet = "console=ttyS0 quiet panic=-1 systemd.show_status=no systemd.unit=script.service"
        system = system_disk(self._packages, is_systemd=self._is_systemd)
        return [
            *(emulator, *data, "-accel", "tcg", "-machine", "q35", "-m", str(self._memory_mib)),
            *("-smp", str(self._cores), "-nodefaults", "-no-reboot", "-net", "none", "-display", "none"),
            *_drive(0, system),
            *_drive(1, disk),
            *("-kernel", binary("linux")),
            *("-append", f"{quiet} root=/dev/nvme0n1 rootfstype=ext4 ro init={first}"),
            *("-serial", "stdio", "-serial", f"file:{output}"),
        ]


def _drive(number: int, file: Path) -> list[str]:
    """Describe a disk that is only read; the kernel has its driver built in."""
    name = f"disk{number}"
    # A comma in a path would end it.
    path = str(file).replace(",", ",,")
    return [
        *("-drive", f"file={path},if=none,id={name},format=raw,read-only=on"),
        *("-device", f"nvme,serial={name},drive={name}"),
    ]

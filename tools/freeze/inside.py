"""Runs `equipoise` inside the tree that is recorded, by its entry point, with fixed clock and chance.

It is given to the tree's own Python as a file, imports nothing of this repository but `equipoise`, and finds
the command by the name under which it is installed: where the modules are does not matter.

    python inside.py batch JOB.json      # every case in a process of its own, which is forked
    python inside.py one WORD...         # one command; its clock runs on
    python inside.py still WORD...       # one command, a minute later; its clock stands still
    python inside.py facts               # what no command prints, as JSON
"""

import atexit
import contextlib
import gc
import importlib
import importlib.metadata
import io
import json
import os
import pkgutil
import random
import runpy
import secrets
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

Command = Callable[[], None]
Document = dict[str, Any]

NOW = 1_783_418_400.0
"""2026-07-07T10:00:00Z: the moment at which every case runs."""
SECONDS_MAX = 120
RUNNING_MAX = 2
WORTH_IMPORTING = 4
"""From so many cases on, everything is imported before they are forked."""
CODE_CLASSES = ("Code", "ReasonCode")


def fix_clock(*, is_running: bool, now: float = NOW) -> None:
    """Have the wall clock stand still, or begin at a fixed moment; intervals are measured as ever."""
    began = time.monotonic()
    time.time = lambda: now + (time.monotonic() - began if is_running else 0.0)
    time.time_ns = lambda: int(time.time() * 1e9)


def fix_chance() -> None:
    """Have names and delays be the same in every run."""
    chance = random.Random(7)
    random.random = chance.random
    random.uniform = chance.uniform
    secrets.randbits = lambda k: chance.getrandbits(k)  # noqa: PLW0108 - named as the one it replaces
    secrets.token_hex = lambda nbytes=None: chance.randbytes(nbytes or 32).hex()


def command() -> Command:
    """Return what `equipoise` is installed to call."""
    (found,) = importlib.metadata.entry_points(group="console_scripts", name="equipoise")
    loaded: Command = found.load()
    return loaded


def import_all() -> list[str]:
    """Import every module, and return those that can't be: some need an extra, or are a program."""
    import equipoise

    failed: list[str] = []
    for found in pkgutil.walk_packages(equipoise.__path__, "equipoise.", onerror=failed.append):
        if found.name.endswith(".__main__"):
            continue
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                importlib.import_module(found.name)
        except Exception:  # noqa: BLE001 - each command says by itself what it lacks
            failed.append(found.name)
    return failed


def batch(job: Document) -> None:
    """Run every case, as many at a time as there are processors; a case's steps run one after another."""
    run = command()
    if len(job["cases"]) >= WORTH_IMPORTING:
        import_all()
    gc.freeze()  # or each child would touch, and so copy, all of it
    running: dict[int, str] = {}
    waiting = list(job["cases"])
    while waiting or running:
        while waiting and len(running) < RUNNING_MAX:
            case = waiting.pop(0)
            child = os.fork()
            if child == 0:
                os._exit(_case(run, case, Path(job["work"])))
            running[child] = case["name"]
        child, status = os.wait()
        name = running.pop(child)
        if status:
            sys.exit(f"{name}: the case could not be run ({status})")


def _case(run: Command, case: Document, work: Path) -> int:
    try:
        folder = work / case["name"]
        folder.mkdir(parents=True)
        for name, text in case["files"].items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("latin-1"))
        said = [_step(run, step, folder, number) for number, step in enumerate(case["steps"])]
        (work / f"{case['name']}.json").write_text(json.dumps(said))
    except BaseException:  # noqa: BLE001 - the process ends here, and the parent reports it
        traceback.print_exc()
        return 1
    return 0


def _step(run: Command, step: Document, folder: Path, number: int) -> Document:
    streams = [folder / f".{number}.{name}" for name in ("in", "out", "err")]
    streams[0].write_bytes(step["stdin"].encode("latin-1"))
    child = os.fork()
    if child == 0:
        _become(run, step, folder, streams)
    _, status = os.waitpid(child, 0)
    out, err = (stream.read_bytes().decode("utf-8", "backslashreplace") for stream in streams[1:])
    for stream in streams:
        stream.unlink()
    return {"status": os.waitstatus_to_exitcode(status), "out": out, "err": err}


def _become(run: Command, step: Document, folder: Path, streams: list[Path]) -> None:
    status = 1
    try:
        signal.alarm(SECONDS_MAX)
        for number, (stream, mode) in enumerate(zip(streams, (os.O_RDONLY, 577, 577), strict=True)):
            handle = os.open(stream, mode, 0o600)
            os.dup2(handle, number)
            os.close(handle)
        os.environ.clear()
        os.environ.update(step["env"])
        time.tzset()
        os.chdir(folder)
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False, errors="backslashreplace")  # noqa: SIM115
        sys.argv = ["equipoise", *step["argv"]]
        fix_clock(is_running=False)
        fix_chance()
        run()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:  # noqa: BLE001 - as Python would end
        traceback.print_exc()
    for written in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            written.flush()
    os._exit(status)


def facts() -> Document:
    """Return the reason codes, whatever module they are in, and what does not import."""
    failed = import_all()
    codes: set[str] = set()
    for name, module in sorted(sys.modules.items()):
        if name.startswith("equipoise"):
            found: list[Any] = [getattr(module, one, None) for one in CODE_CLASSES]
            codes.update(code.value for kind in found if kind is not None for code in kind)
    if not codes:
        sys.exit(f"no class of reason codes was found; expected one of {', '.join(CODE_CLASSES)}")
    made = runpy.run_path("docs/reference/make.py")["outputs"]()
    references = {path.name: text for path, text in made.items()}
    return {"reasons": sorted(codes), "references": references, "unimportable": len(failed)}


def weigh(path: str) -> None:
    """Write how much this process holds: at its end, since that is when all of it was imported."""
    status = Path("/proc/self/status").read_text()
    held = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    found = {
        "RSS MiB": held,
        "modules": len(sys.modules),
        "our modules": sum(name.startswith("equipoise") for name in sys.modules),
        "has numpy": int("numpy" in sys.modules),
    }
    Path(path).write_text(json.dumps(found))


def main() -> None:
    """Do what the first word says."""
    match sys.argv[1:]:
        case ["batch", job]:
            batch(json.loads(Path(job).read_text()))
        case ["one", *words]:
            fix_clock(is_running=True)
            fix_chance()
            sys.argv = ["equipoise", *words]
            if path := os.environ.pop("FREEZE_WEIGHT", ""):
                atexit.register(weigh, path)
            command()()
        case ["still", *words]:
            fix_clock(is_running=False, now=NOW + 60)
            fix_chance()
            sys.argv = ["equipoise", *words]
            command()()
        case ["facts"]:
            print(json.dumps(facts()))
        case other:
            sys.exit(f"expected batch, one, still or facts, got {other}")


if __name__ == "__main__":
    main()
